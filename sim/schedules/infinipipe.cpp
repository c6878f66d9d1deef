// SPDX-License-Identifier: Apache-2.0
// 1F1B over chunks of about equal work: slices of a long sequence, or several short ones packed.
// Slices of a sequence go forward in order and back in reverse. A stage runs ahead only as far as
// the current sequence and the longest of the later ones need: one long sequence is seq1f1b, short
// ones only are 1f1b. The longest should come first.
#include <algorithm>
#include <numeric>
#include <vector>

#include "base/limits.hpp"
#include "sim/orders/order_blocks.hpp"
#include "sim/schedule.hpp"

namespace orrery::sim {
namespace {

Refusal check_lengths(const ScheduleParams& params) {
  const std::vector<int>& slices = params.slices_of;
  const std::int64_t units = std::accumulate(slices.begin(), slices.end(), std::int64_t{0});
  return first_broken({check_slices_of(params),
                       check_product({{Size::Stages, params.stages}, {Size::Slices, units}},
                                     limits::kMaxPasses / 2)});
}

Refusal check(const ScheduleParams& params) {
  return first_broken({check_sizes(params), check_no_cap(params), check_one_replica(params),
                       check_own_iterations(params), check_own_warm_up(params),
                       check_one_chunk(params), check_lengths(params)});
}

PipelineOrder order(const ScheduleParams& params) {
  PipelineOrder result = one_chain(params, loop_placement(params), 2);
  const std::vector<int> slices = slices_of_all(params);
  if (!params.slices_of.empty()) {
    result.slices = 1;
    result.micro_batches = std::accumulate(slices.begin(), slices.end(), 0);
  }
  std::vector<int> longest_after(slices.size() + 1, 0);  // of the sequences behind each
  for (std::size_t q = slices.size(); q-- > 1;) {
    longest_after[q - 1] = std::max(longest_after[q], slices[q]);
  }
  for (int i = 0; i < params.stages; ++i) {
    int forwards = 0;
    int first = 0;
    for (std::size_t q = 0; q < slices.size(); ++q) {
      const int end = first + slices[q];
      for (int k = first; k < end; ++k) {
        // Forwards that the last stage needs, so that from here on one a backward is enough.
        const int needed = std::max(end, k + longest_after[q]) + params.stages - 1 - i;
        for (; forwards < std::min(needed, result.micro_batches); ++forwards) {
          add_pass(result, PassKind::Forward, i, forwards);
        }
        add_pass(result, PassKind::Backward, i, first + end - 1 - k);
      }
      first = end;
    }
  }
  return result;
}

double most(const ScheduleParams& params) {
  const std::vector<int>& slices = params.slices_of;
  const int longest =
      slices.empty() ? params.slices : *std::max_element(slices.begin(), slices.end());
  return static_cast<double>(longest + params.stages - 1) / params.slices;
}

}  // namespace

extern const Schedule schedule_infinipipe = {
    .name = "infinipipe",
    .description = "1F1B over chunks: slices of long sequences and packs of short ones",
    .constraints = "1 chunk of the model per device",
    .source = "Wang et al., InfiniPipe, 2025 (arXiv 2509.21275), elastic pipeline",
    .traits = {.uses_slices = true},
    .check = check,
    .order = order,
    .most_activations = most,
    .in_plans = true,
};

}  // namespace orrery::sim
