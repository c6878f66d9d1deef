// SPDX-License-Identifier: Apache-2.0
// The search that `orrery plan` is asked for: of either space, of packs of sequences, and of
// asynchronous schedules in a search apart.
#pragma once

#include <optional>
#include <string>

#include "base/json.hpp"
#include "cli/plan/options.hpp"
#include "search/per_block/search.hpp"

namespace orrery::cli {

// What was found, by whichever search.
struct Searched {
  std::optional<search::PerBlockOutcome> per_block;
  LongSearch spread;
  std::optional<search::Outcome> apart;  // asynchronous schedules, which train differently

  const search::Outcome& outcome() const { return per_block ? per_block->outcome : spread.outcome; }
  std::string text() const;
  Json json() const;
};

Searched search_asked(const PlanOptions& options, const plan::Plan& base, search::Options how,
                      search::Ranks* ranks);

// The searches that rank 0 makes, for which this process works.
int follow(const PlanOptions& options, search::Ranks& ranks);

}  // namespace orrery::cli
