// SPDX-License-Identifier: Apache-2.0
#include "plan/plan.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <string>

#include "base/error.hpp"
#include "base/text.hpp"

namespace orrery::plan {

const BlockPlan& Plan::layout_of(int chain_position) const {
  int end = 0;
  for (const BlockRun& run : blocks) {
    end += run.count;
    if (chain_position < end) {
      return run.layout;
    }
  }
  ORRERY_CHECK(false, fmt::format("no layout for chain position {}", chain_position));
}

int Plan::data_ranks(const BlockPlan& layout) const {
  const BlockPlan& first = blocks.front().layout;
  return first.tp * first.cp * dp / (layout.tp * layout.cp);
}

std::int64_t Plan::micro_batch_of(const BlockPlan& layout) const {
  return micro_batch * dp / data_ranks(layout);
}

int Plan::num_gpus() const {
  ORRERY_CHECK(!blocks.empty(), "a plan without blocks");
  const BlockPlan& first = blocks.front().layout;
  // Saturates, so that an absurd plan compares unequal to every cluster instead of overflowing.
  constexpr std::int64_t kLargest = std::numeric_limits<int>::max();
  std::int64_t product = 1;
  for (const int degree : {first.tp, first.cp, dp, pp}) {
    product = std::min(product * degree, kLargest);
  }
  return static_cast<int>(product);
}

Plan load_plan(const std::string& path) { return read_plan(read_json_file(path), path); }

std::string_view to_text(Recompute recompute) {
  switch (recompute) {
    case Recompute::None:
      return "none";
    case Recompute::Selective:
      return "selective";
    case Recompute::Full:
      return "full";
    case Recompute::Products:
      return "products";
  }
  return "";
}

std::string_view to_text(ContextParallel context) {
  switch (context) {
    case ContextParallel::Ring:
      return "ring";
    case ContextParallel::AllGather:
      return "all-gather";
    case ContextParallel::Ulysses:
      return "ulysses";
  }
  return "";
}

Recompute parse_recompute(std::string_view text, std::string_view where) {
  std::vector<std::string> names;
  for (const Recompute value :
       {Recompute::None, Recompute::Selective, Recompute::Full, Recompute::Products}) {
    if (text == to_text(value)) {
      return value;
    }
    names.emplace_back(to_text(value));
  }
  bad_input(where, fmt::format("unknown recomputation \"{}\"", printable(text)),
            nearest_hint(text, names));
}

}  // namespace orrery::plan
