// SPDX-License-Identifier: Apache-2.0
// `orrery plan --like NAME`: what limited searches would have chosen, beside the best plan.
#pragma once

#include <string>
#include <vector>

#include "base/json.hpp"
#include "search/baseline.hpp"

namespace orrery::cli {

struct BaselineResult {
  const search::Baseline* baseline = nullptr;
  search::BaselineChoice choice;
};
// What the search before them left of a time limit, at least a second, is shared among them.
std::vector<BaselineResult> compare_baselines(const std::vector<const search::Baseline*>& baselines,
                                              const plan::Plan& base,
                                              const search::Options& options, Seconds searched);

// The loss of a choice is its time over `best`, minus 1.
std::string baselines_text(const std::vector<BaselineResult>& compared, Seconds best);
Json baselines_json(const std::vector<BaselineResult>& compared, Seconds best);

}  // namespace orrery::cli
