// SPDX-License-Identifier: Apache-2.0
// Fractions in tables of errors.
#pragma once

#include <optional>
#include <string>

namespace orrery::studies {

std::string percent(const std::optional<double>& fraction);  // "4.8 %"; "-" where there is none

}  // namespace orrery::studies
