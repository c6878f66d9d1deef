// SPDX-License-Identifier: Apache-2.0
// Families of networks by the names that rows use: norms, positions, activation and biases, which
// no column states.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "models/network.hpp"
#include "studies/rows/measurement.hpp"

namespace orrery::studies {

struct FamilyFacts {
  std::string_view name;  // model_family
  models::NetworkSpec spec;
};

const FamilyFacts* family_of(const Measurement& row);
const FamilyFacts* relative_of(const Measurement& row);

// The first of the columns that every network needs and that the row leaves blank.
std::optional<std::string> missing_architecture(const Measurement& row);

}  // namespace orrery::studies
