// SPDX-License-Identifier: Apache-2.0
#include "costmodel/time_table.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace orrery::costmodel {

namespace {

constexpr std::size_t kMaxTables = 8192;  // 5 MB; more shapes start afresh

}  // namespace

Bytes TimeTable::size_of(int point) {
  return Bytes(std::exp2(kFirst + static_cast<double>(point) / kPerOctave));
}

TimeTable::TimeTable(std::span<const double, kPoints> seconds) {
  double last = std::log2(seconds[0]);
  for (std::size_t i = 0; i < seconds.size(); ++i) {
    const double most = i == 0 ? last : last + 1.0 / kPerOctave;
    last = std::clamp(std::log2(seconds[i]), last, most);
    log2_seconds_[i] = last;
  }
}

Seconds TimeTable::at(Bytes size) const {
  const double position = (std::log2(size.value()) - kFirst) * kPerOctave;
  if (position <= 0) {
    return Seconds(std::exp2(log2_seconds_.front()));
  }
  if (position >= kPoints - 1) {
    const double beyond = (position - (kPoints - 1)) / kPerOctave;
    return Seconds(std::exp2(log2_seconds_.back() + beyond));
  }
  const auto low = static_cast<std::size_t>(position);
  const double part = position - static_cast<double>(low);
  return Seconds(
      std::exp2(log2_seconds_[low] + part * (log2_seconds_[low + 1] - log2_seconds_[low])));
}

std::size_t TimeTables::KeyHash::operator()(const Key& key) const {
  std::uint64_t hash = static_cast<std::uint64_t>(key.kind);
  const GroupShape& group = key.group;
  for (const int value : {group.ranks, group.ranks_per_node, group.nodes, group.groups_per_node,
                          group.node_stride, group.gpu_stride}) {
    hash = (hash ^ static_cast<std::uint64_t>(value)) * 0x9E3779B97F4A7C15ULL;
    hash ^= hash >> 29;
  }
  return static_cast<std::size_t>(hash);
}

const TimeTable* TimeTables::find(sim::CommKind kind, const GroupShape& group) const {
  const auto found = tables_.find({kind, group});
  return found == tables_.end() ? nullptr : &found->second;
}

const TimeTable& TimeTables::add(sim::CommKind kind, const GroupShape& group,
                                 const TimeTable& table) {
  if (tables_.size() >= kMaxTables) {
    tables_.clear();
  }
  return tables_.insert_or_assign({kind, group}, table).first->second;
}

}  // namespace orrery::costmodel
