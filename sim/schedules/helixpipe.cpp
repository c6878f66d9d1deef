// SPDX-License-Identifier: Apache-2.0
// Parameters of a layer's end and the next one's beginning form a part; part l lies on device l mod
// p and the attention between parts l and l + 1 of the micro-batch with offset d on device (l + 1 +
// d) mod p. Backwards reverse the whole forward order. Idle (p - 1) parts of one layer each way
// with one fold; with more the transfer of one micro-batch overlaps the passes of the others.
#include <algorithm>
#include <vector>

#include "sim/orders/helix_items.hpp"
#include "sim/orders/order_blocks.hpp"
#include "sim/schedule.hpp"

namespace orrery::sim {
namespace {

// Shares of a layer before, in and after attention.
constexpr int kBefore = 1;
constexpr int kAttention = 4;
constexpr int kAfter = 2;

constexpr int kMostFolds = 64;

Refusal check(const ScheduleParams& params) {
  const int p = std::max(params.stages, 1);
  return first_broken(
      {check_basics(params), check_warm_up(params, kMostFolds, "folds, 0: two if they fit"),
       check_helix_parts(params),
       params.warm_up > 1
           ? check_multiple(params, std::int64_t{params.warm_up} * p, "stages x folds")
           : check_multiple_of_stages(params)});
}

int folds_of(const ScheduleParams& params) {
  const bool two_fit = params.micro_batches % (2 * params.stages) == 0;
  return params.warm_up > 0 ? params.warm_up : two_fit ? 2 : 1;
}

// The chain of the micro-batches with one offset: a part and an attention in turn.
void add_offset(PipelineOrder& order, int p, int layers, Chain chain, int offset) {
  std::vector<std::uint16_t> device_of;
  for (int l = 0; l <= layers; ++l) {
    device_of.push_back(static_cast<std::uint16_t>(l % p));
    order.parts.push_back((l < layers ? kBefore : 0) + (l > 0 ? kAfter : 0));
    if (l < layers) {
      device_of.push_back(static_cast<std::uint16_t>((l + 1 + offset) % p));
      order.parts.push_back(kAttention);
    }
  }
  add_chain(order, device_of, chain);
}

PipelineOrder order(const ScheduleParams& params) {
  const int p = params.stages;
  const int layers = p * params.chunks;
  const int folds = folds_of(params);
  const int units = params.micro_batches / p;
  PipelineOrder result = bare_order(p, 2 * params.chunks);
  result.parts_per_share = params.chunks * (kBefore + kAttention + kAfter);
  for (int d = 0; d < p; ++d) {
    add_offset(result, p, layers, {.units = units, .first_unit = d * units}, d);
  }
  for (int r = 0; r < p; ++r) {
    const auto add = [&](int l, int d, int group, int half) {
      const int stage = result.chains[static_cast<std::size_t>(d)].first + 2 * l + half;
      for (int fold = 0; fold < folds; ++fold) {
        add_pass(result, PassKind::Forward, stage, group * folds + fold);
      }
    };
    visit_forward(
        p, layers, units / folds, r, [&](int l, int d, int g) { add(l, d, g, 0); },
        [&](int l, int d, int g) { add(l, d, g, 1); });
    append_reversed(result.passes[static_cast<std::size_t>(r)]);
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
        "(two folds if they fit) or 1 to 64 folds; plans may ship weights (ships_weights)",
    .source = "HelixPipe, PPoPP 2026 (arXiv 2507.00394), section 4",
    .traits = {.uses_chunks = true, .spreads_attention = true},
    .check = check,
    .order = order,
    .most_activations = most,
    .own_with_one_chunk = true,
    .in_plans = true,
};

}  // namespace orrery::sim
