// SPDX-License-Identifier: Apache-2.0
// --fix, --forbid and --allow: which values of a plan's fields the search may use. Fields are the
// degrees and choices of a homogeneous plan (tp, cp, ep, pp, dp, chunks, micro_batch, zero,
// recompute, sequence_parallel, schedule, context, stages, expert_tp, shard_degree) and the flags of
// plan::Execution.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "plan/plan.hpp"

namespace orrery::search {

class Constraints {
 public:
  // "tp=8,pp=4": every value is checked for its field; unknown names suggest the nearest. Usual
  // other names (sp, vpp, mbs, hsdp, zero_stage) are understood.
  void fix(std::string_view text);
  void forbid(std::string_view text);
  // "asynchronous": choices that change the training result and are off by default.
  void allow(std::string_view text);

  bool admits(std::string_view field, std::string_view value) const;
  bool admits(std::string_view field, std::int64_t value) const;
  bool is_fixed(std::string_view field) const;
  // "tp=8", ... as fixed; and the same constraints without the i-th of them.
  std::vector<std::string> fixed_texts() const;
  Constraints without_fixed(std::size_t index) const;
  // The value a number was fixed to.
  std::optional<std::int64_t> fixed_number(std::string_view field) const;
  bool asynchronous() const { return asynchronous_; }
  // The execution flags that were fixed.
  void apply(plan::Execution& execution) const;

 private:
  struct Entry {
    std::string field;
    std::string value;
  };
  static std::vector<Entry> parse(std::string_view text, std::string_view option);
  std::vector<Entry> fixed_;
  std::vector<Entry> forbidden_;
  bool asynchronous_ = false;
};

}  // namespace orrery::search
