// SPDX-License-Identifier: Apache-2.0
// The takeaways of Megatron-LM: tensor parallelism inside the node, up to all its GPUs; then
// pipeline stages across nodes; the smallest such model-parallel size that fits, data parallelism
// with the rest; the micro-batch by trial. 1F1B, interleaved or not; a distributed optimizer
// (ZeRO-1) is free.
#include <fmt/format.h>

#include <algorithm>

#include "base/math.hpp"
#include "search/baseline.hpp"
#include "search/space/space.hpp"

namespace orrery::search {
namespace {

// GPUs of a node that can share a layer.
std::int64_t widest_tensor_parallel(const plan::Plan& base, const Options& options) {
  std::int64_t widest = 1;
  for (const std::int64_t tp : divisors(base.cluster.node.gpus)) {
    Constraints constraints = options.constraints;
    constraints.fix(fmt::format("tp={}", tp));
    if (!Space(base, constraints).groups().empty()) {
      widest = tp;
    }
  }
  return widest;
}

BaselineChoice smallest_that_fits(const plan::Plan& base, Options options) {
  if (options.constraints.named_schedules().empty()) {
    options.constraints.choose_schedule("1f1b");
    options.constraints.choose_schedule("interleaved");
  }
  const std::int64_t widest = widest_tensor_parallel(base, options);
  BaselineChoice last;
  std::int64_t plans = 0;
  for (const std::int64_t size : divisors(base.cluster.num_gpus())) {
    const bool splits = size <= widest ? widest % size == 0 : size % widest == 0;
    if (!splits) {
      continue;
    }
    const std::int64_t tp = std::min(size, widest);
    BaselineChoice choice =
        fastest_within(base, options, fmt::format("tp={},pp={}", tp, size / tp));
    plans += choice.plans;
    choice.plans = plans;
    if (choice.found) {
      choice.note = fmt::format("{} is the smallest model-parallel size that fits", size);
      return choice;
    }
    last = std::move(choice);
  }
  return last;
}

BaselineChoice choose_megatron(const plan::Plan& base, const Options& options) {
  return smallest_that_fits(base, options);
}

}  // namespace

extern const Baseline baseline_megatron = {
    .name = "megatron",
    .description =
        "Megatron-LM's heuristic: tp inside the node, then pp, the smallest size that fits",
    .source = "Narayanan et al., SC 2021 (arXiv 2104.04473), section 3, takeaways 1 to 3",
    .fix = "cp=1",
    .forbid = "zero=2,zero=3",
    .choose = choose_megatron,
};

}  // namespace orrery::search
