// SPDX-License-Identifier: Apache-2.0
// A schedule written as data (docs/schedules.md, "Your own schedule"), after the description
// language of FlexPipe: placement of chunks, traversal of (chunk, micro-batch), priorities of the
// kinds of passes, warm-up depth, split backward and a cap; or the lists themselves. A description
// is run once by the policy machinery (sim/orders/policy.hpp) and recorded. Deterministic; O(passes
// x (stages + chunks)).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/json.hpp"
#include "sim/orders/document_lists.hpp"
#include "sim/schedule.hpp"

namespace orrery::sim {

// Forwards a device runs before its first backward: `forwards`, those of whole micro-batches, more
// for every device after it and whole groups of micro-batches for every chunk but the first; or all
// of them. A slice is a forward of its own.
struct WarmUpDepth {
  bool all = false;
  int forwards = 1;
  int per_later_device = 0;
  int groups_per_later_chunk = 0;
  int micro_batches = 0;
};

// Weight gradients of a strict order run so many backwards late, more for every device before it.
struct WeightGradDelay {
  int backwards = 0;
  int per_earlier_device = 0;
};

enum class Placement : std::uint8_t { Loop, V, Zigzag };

// What a device does otherwise than the others.
struct DeviceOverride {
  int device = 0;
  std::optional<WarmUpDepth> warm_up = std::nullopt;
  std::vector<PassKind> priority = {};  // empty: as the others
  double cap = 0.0;                     // 0: as the others
};

struct ScheduleDescription {
  Placement placement = Placement::Loop;
  // Kinds by priority; Backward stands for the gradient, split or not.
  std::vector<PassKind> priority = {PassKind::Backward, PassKind::Forward, PassKind::WeightGrad};
  bool depth_first = false;
  int group = 0;  // micro-batches that go through all chunks before the next ones; 0: stages
  // With it the order is strict: traversal order, warm-up, then one backward and one forward in
  // turn. Without it the device takes what can start first, ties by priority and traversal.
  std::optional<WarmUpDepth> warm_up = std::nullopt;
  bool split_backward = false;
  bool last_in_first_out = false;  // gradients take the reverse of the forwards' order
  // With warm_up; else whenever a device has time.
  std::optional<WeightGradDelay> weight_grads = std::nullopt;
  bool recompute = false;  // every forward runs again before its backward
  double cap = 0.0;        // activations a device may hold, in micro-batches; 0: no limit
  std::vector<DeviceOverride> overrides = {};  // at most one a device
};

struct ScheduleDocument {
  std::string where;  // file, as messages cite it
  Json json;          // as read
  std::string name;
  std::string description;
  std::optional<ScheduleDescription> rule;
  std::optional<ScheduleLists> lists;  // without a rule
};

// Error for unknown keys, values outside their sets, and both or neither of rule and lists.
ScheduleDocument read_schedule_document(const Json& document, const std::string& where);

// Whether the document allows the parameters. Whether lists are complete and run is found by
// order_of.
Refusal check_document(const ScheduleDocument& document, const ScheduleParams& params);

// What it is. Lists may be cut into slices as they are, a rule whose lists follow from counts into
// any number.
ScheduleTraits traits_of(const ScheduleDocument& document);

// What lists are for; nothing of a rule, which takes any sizes.
std::optional<ListedSizes> listed_sizes(const ScheduleDocument& document);

// Error of order_of where lists are wrong at the sizes that they are for, so at any; nothing is
// asked of a rule.
void check_lists(const ScheduleDocument& document);

// The fewest model chunks per device that its placement allows.
int fewest_chunks(const ScheduleDocument& document);

// A complete order that runs; Error when the document does not allow the parameters, misses or
// doubles a pass, places a virtual stage twice or deadlocks.
PipelineOrder order_of(const ScheduleDocument& document, const ScheduleParams& params);
// Nothing where the parameters are not allowed or it deadlocks, without the advice of that error,
// which takes about a second. Error where lists miss or double a pass.
std::optional<PipelineOrder> try_order(const ScheduleDocument& document,
                                       const ScheduleParams& params);

}  // namespace orrery::sim
