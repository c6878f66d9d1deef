// SPDX-License-Identifier: Apache-2.0
// The members that say how a search ended, the same for every kind of plan.
#pragma once

#include <utility>

#include "base/json.hpp"

namespace orrery::cli {

// Space, certificate, and how it ended; `outcome` is that of any search.
template <typename Outcome>
void add_search_json(const Outcome& outcome, Json space, Json::Object& result) {
  result.emplace_back("space", std::move(space));
  result.emplace_back("certificate", Json::Object{{"lower_bound_s", outcome.lower_bound.value()},
                                                  {"gap", outcome.gap_fraction}});
  result.emplace_back("interrupted", outcome.interrupted);
  result.emplace_back("timed_out", outcome.timed_out);
  result.emplace_back("search_time_s", outcome.search_time.value());
}

}  // namespace orrery::cli
