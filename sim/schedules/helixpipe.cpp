// SPDX-License-Identifier: Apache-2.0
// Parameters of a layer's end and the next one's beginning form a part; part l lies on device l mod
// p and the attention between parts l and l + 1 of the micro-batch with offset d on device (l + 1 +
// d) mod p. Backwards reverse the whole forward order. Idle (p - 1) parts of one layer each way
// with one fold; two folds let the transfer of one overlap the other.
#include <fmt/format.h>

#include <vector>

#include "sim/helix_items.hpp"
#include "sim/order_blocks.hpp"
#include "sim/schedule.hpp"

namespace orrery::sim {
namespace {

// Shares of a layer before, in and after attention.
constexpr int kBefore = 1;
constexpr int kAttention = 4;
constexpr int kAfter = 2;

std::string check_folds(const ScheduleParams& params) {
  if (!check_sizes(params).empty()) {
    return "";  // named elsewhere
  }
  if (params.warm_up < 0 || params.warm_up > 2) {
    return fmt::format("warm-up must be 0, 1 or 2 (folds), not {}", params.warm_up);
  }
  constexpr std::int64_t kMaxStages = 65'535;
  const std::int64_t p = params.stages;
  if (p * (2 * p * params.chunks + 1) > kMaxStages) {
    return fmt::format("stages x (2 stages x chunks + 1) must be at most {}, not {}", kMaxStages,
                       p * (2 * p * params.chunks + 1));
  }
  if (params.warm_up == 2 && params.micro_batches % (2 * p) != 0) {
    return fmt::format("two folds need a multiple of {} micro-batches, not {}: the next is {}",
                       2 * p, params.micro_batches, (params.micro_batches / (2 * p) + 1) * 2 * p);
  }
  return "";
}

std::string check(const ScheduleParams& params) {
  return first_broken(
      {check_basics(params), check_multiple_of_stages(params), check_folds(params)});
}

int folds_of(const ScheduleParams& params) {
  const bool two = params.warm_up == 2 ||
                   (params.warm_up == 0 && params.micro_batches % (2 * params.stages) == 0);
  return two ? 2 : 1;
}

PipelineOrder order(const ScheduleParams& params) {
  const int p = params.stages;
  const int layers = p * params.chunks;
  const int folds = folds_of(params);
  const int groups = params.micro_batches / (p * folds);
  PipelineOrder result;
  result.passes.resize(static_cast<std::size_t>(p));
  result.pieces = 2 * params.chunks;
  result.parts_per_share = params.chunks * (kBefore + kAttention + kAfter);
  for (int d = 0; d < p; ++d) {
    std::vector<std::uint16_t> device_of;
    for (int l = 0; l <= layers; ++l) {
      device_of.push_back(static_cast<std::uint16_t>(l % p));
      result.parts.push_back((l < layers ? kBefore : 0) + (l > 0 ? kAfter : 0));
      if (l < layers) {
        device_of.push_back(static_cast<std::uint16_t>((l + 1 + d) % p));
        result.parts.push_back(kAttention);
      }
    }
    add_chain(result, device_of, {.units = groups * folds, .first_unit = d * groups * folds});
  }
  const auto stage = [&](int l, int d, int half) {
    return result.chains[static_cast<std::size_t>(d)].first + 2 * l + half;
  };
  for (int r = 0; r < p; ++r) {
    auto& list = result.passes[static_cast<std::size_t>(r)];
    const auto add = [&](int at, int group) {
      for (int fold = 0; fold < folds; ++fold) {
        add_pass(result, PassKind::Forward, at, group * folds + fold);
      }
    };
    visit_forward(
        p, layers, groups, r, [&](int l, int d, int g) { add(stage(l, d, 0), g); },
        [&](int l, int d, int g) { add(stage(l, d, 1), g); });
    for (std::size_t k = list.size(); k-- > 0;) {
      list.emplace_back(PassKind::Backward, list[k].virtual_stage, list[k].micro_batch);
    }
  }
  return result;
}

// The first device has a part more than the others.
double most(const ScheduleParams& params) {
  return params.micro_batches * (1 + 0.5 / params.chunks);
}

}  // namespace

extern const Schedule schedule_helixpipe = {
    .name = "helixpipe",
    .description = "attention of one layer spread over all devices, first in, last out",
    .constraints =
        "chunks are layers per device; micro-batches a multiple of stages (times folds); warm-up 0 "
        "(two folds if they fit), 1 or 2 folds",
    .source = "HelixPipe, PPoPP 2026 (arXiv 2507.00394), section 4",
    .splits_backward = false,
    .uses_chunks = true,
    .synchronous = true,
    .check = check,
    .order = order,
    .most_activations = most,
};

}  // namespace orrery::sim
