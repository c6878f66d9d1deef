// SPDX-License-Identifier: Apache-2.0
// The searches of a frontier that were made, in their order, kept in a checkpoint after each: the
// next run takes what they came to and goes on behind the last. A search that was ended early is
// not among them.
#pragma once

#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "search/tree/checkpoint.hpp"

namespace orrery::search {

// What one of them came to.
struct ParetoStep {
  bool divides = true;         // some plan divides this part of the cluster
  bool ended_early = false;    // by the user or a limit
  std::optional<Found> found;  // nothing where no plan fits, or is fast enough
  Seconds lower_bound;         // infinite where it is proven that none fits
  double gap_fraction = 0;
  std::int64_t plans = 0;  // -1 where 63 bits do not hold them
  std::int64_t simulated = 0;
  std::string below;  // why nothing fits, or divides

  bool proves_none() const { return std::isinf(lower_bound.value()); }
};

class ParetoLog {
 public:
  // `kind` in words. Error when what is to be resumed is of another frontier.
  ParetoLog(std::string_view kind, const plan::Plan& base, const Options& options);
  // The next search of an earlier run; nothing behind the last.
  std::optional<ParetoStep> next();
  // Nothing behind a search that ended early is kept: the next run goes on from there.
  void add(const ParetoStep& step);

 private:
  struct Record {
    ParetoStep step;   // without the plan
    std::string plan;  // as a document; empty: none
  };
  void read(const std::string& path);
  void write() const;

  std::string checkpoint_;
  int interval_draws_;
  bool may_repeat_;  // its searches simulate some plans more than once
  std::vector<InputHash> inputs_;
  std::vector<Record> records_;
  std::size_t next_ = 0;
  bool is_closed_ = false;
};

}  // namespace orrery::search
