// SPDX-License-Identifier: Apache-2.0
// Parameters of units that ZeRO-3 gathers for a pass, ahead of it and until they are freed.
#include <algorithm>
#include <utility>

#include "base/error.hpp"
#include "plan/block/states.hpp"
#include "plan/replay/device_replay.hpp"
#include "plan/stage/stage.hpp"

namespace orrery::plan {

namespace {

constexpr int kGather = 1;

}  // namespace

bool DeviceReplay::in_root(const Position& position) const {
  return facts_.ends_form_root && position.end;
}

std::int64_t DeviceReplay::gathered_bytes(const Position& position) const {
  return position.stays_packed
             ? position.packed
             : (position.whole - position.table) * parameter_bytes(plan_.precision);
}

std::int64_t DeviceReplay::table_bytes(const Position& position) const {
  return position.gathered && position.has_table ? position.table * parameter_bytes(plan_.precision)
                                                 : 0;
}

// Fetched shards land beside the buffer of the gather, which is theirs where nobody shares them
// (runtime/zero/partitioned_param_coordinator.py of DeepSpeed). Quantised parameters are gathered
// as 8-bit integers and dequantised into the unit (partition_parameters.py, quantized weights).
void DeviceReplay::begin_gather(const Position& position) {
  const std::int64_t bytes = gathered_bytes(position);
  ComingUnit& coming = coming_.emplace_back();
  coming.of = &position;
  if (position.fetched > 0 && position.fetched < bytes) {
    coming.fetched = memory_.allocate(position.fetched);
  }
  coming.gathered = memory_.allocate(position.packed, kGather);
}

bool DeviceReplay::is_gathered_for_pass(const Position& position) const {
  return position.gathered && !in_root(position) && !held_units_.contains(&position);
}

void DeviceReplay::gather(const Position& position) {
  if (!is_gathered_for_pass(position)) {
    return;
  }
  if (coming_.empty()) {
    begin_gather(position);
  }
  const ComingUnit coming = coming_.front();
  ORRERY_CHECK(coming.of == &position, "another unit was gathered ahead");
  coming_.pop_front();
  memory_.release(coming.fetched);
  if (facts_.gathers_into_copy || position.packed < gathered_bytes(position)) {
    unit_ = memory_.allocate(gathered_bytes(position));
    memory_.release(coming.gathered);
  } else {
    unit_ = coming.gathered;
  }
}

void DeviceReplay::prefetch(const std::vector<Position>& positions, std::size_t index,
                            bool backward) {
  const std::size_t behind = backward ? index : positions.size() - 1 - index;
  const std::size_t ahead = std::min(behind, gathers_in_flight(plan_.execution) - 1);
  for (std::size_t distance = 1; distance <= ahead; ++distance) {
    const Position& next = positions[backward ? index - distance : index + distance];
    if (backward && next.frozen) {
      return;
    }
    const bool comes = std::any_of(coming_.begin(), coming_.end(),
                                   [&](const ComingUnit& one) { return one.of == &next; });
    if (!comes && is_gathered_for_pass(next)) {
      begin_gather(next);
    }
  }
}

void DeviceReplay::free_unit() {
  memory_.release(unit_);
  unit_ = -1;
}

void DeviceReplay::end_forward(const Position& position) {
  if (plan_.execution.reshard_after_forward || position.frozen || !position.gathered ||
      in_root(position)) {
    free_unit();
    return;
  }
  HeldUnit& held = held_units_[&position];
  if (unit_ >= 0) {
    held.unit = std::exchange(unit_, -1);
  }
  ++held.micro_batches;
}

void DeviceReplay::end_backward(const Position& position) {
  free_unit();
  memory_.release(columns_);
  columns_ = -1;
  const auto held = held_units_.find(&position);
  if (held != held_units_.end() && --held->second.micro_batches == 0) {
    memory_.release(held->second.unit);
    held_units_.erase(held);
  }
}

void DeviceReplay::share_tables() {
  Position user;
  for (const auto& [index, stage] : stages) {
    for (const Position& position : stage.positions) {
      user = position.table > 0 ? position : user;
    }
  }
  for (auto& [index, stage] : stages) {
    for (Position& position : stage.positions) {
      if (position.has_table) {
        position.table = user.table;
        position.packed_table = user.packed_table;
      }
      position.packed -= position.packed_table;
    }
  }
}

// A parameter belongs to one unit, so that blocks with a table in common are gathered together
// (pytorch/torchtitan, apply_fsdp: fully_shard([tok_embeddings, norm, output]) with weight tying).
void DeviceReplay::gather_root() {
  if (root_ >= 0) {
    return;
  }
  std::int64_t bytes = 0;
  for (const auto& [index, stage] : stages) {
    for (const Position& position : stage.positions) {
      bytes += table_bytes(position);
      bytes += in_root(position) && position.gathered ? gathered_bytes(position) : 0;
    }
  }
  root_ = memory_.allocate(bytes);
}

}  // namespace orrery::plan
