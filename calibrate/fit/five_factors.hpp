// SPDX-License-Identifier: Apache-2.0
// The five corrections of NCCL's formula (costmodel/collective_model.hpp) by robust least squares
// on the logarithm of time: Cauchy loss, Levenberg-Marquardt with numeric derivatives, every log of
// the same weight. A weak pull towards the start keeps factors that no log speaks of.
// Deterministic.
#pragma once

#include <span>

#include "calibrate/fit/collective_logs.hpp"
#include "costmodel/collective_model.hpp"

namespace orrery::calibrate {

struct LogOfModel {
  const CollectiveLog* log = nullptr;
  const costmodel::CollectiveModel* model = nullptr;  // of the log's cluster
};

costmodel::CollectiveParameters fit_five_factors(std::span<const LogOfModel> logs,
                                                 const costmodel::CollectiveParameters& start);

}  // namespace orrery::calibrate
