// SPDX-License-Identifier: Apache-2.0
#include "costmodel/time_table.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace orrery::costmodel {

namespace {

constexpr std::size_t kMaxTables = 8192;  // 5 MB; more shapes start afresh

// Points of sizes that logs have, 1 KiB to 1 GiB, outweigh what is extrapolated beyond them.
double weight_of(std::size_t point) {
  constexpr std::size_t kBegin = (10 - TimeTable::kFirst) * TimeTable::kPerOctave;
  constexpr std::size_t kEnd = (30 - TimeTable::kFirst) * TimeTable::kPerOctave;
  constexpr double kBeyond = 1e-3;
  return point >= kBegin && point <= kEnd ? 1 : kBeyond;
}

// The nearest values that never fall, by weighted least squares: neighbours that fall share their
// mean (pool adjacent violators). Larger values give larger results.
void never_falling(std::span<double> values) {
  struct Pool {
    double mean = 0;
    double weight = 0;
    std::size_t count = 0;
  };
  std::array<Pool, TimeTable::kPoints> pools{};
  std::size_t used = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    Pool next{values[i], weight_of(i), 1};
    while (used > 0 && pools[used - 1].mean > next.mean) {
      const Pool& before = pools[--used];
      const double weight = before.weight + next.weight;
      next = {(before.mean * before.weight + next.mean * next.weight) / weight, weight,
              before.count + next.count};
    }
    pools[used++] = next;
  }
  std::size_t at = 0;
  for (std::size_t i = 0; i < used; ++i) {
    std::fill_n(values.begin() + static_cast<std::ptrdiff_t>(at), pools[i].count, pools[i].mean);
    at += pools[i].count;
  }
}

// The same of time per byte, which never grows.
void never_growing_per_byte(std::span<double> log2_seconds) {
  const auto octaves = [](std::size_t point) {
    return static_cast<double>(point) / TimeTable::kPerOctave;
  };
  for (std::size_t i = 0; i < log2_seconds.size(); ++i) {
    log2_seconds[i] = octaves(i) - log2_seconds[i];
  }
  never_falling(log2_seconds);
  for (std::size_t i = 0; i < log2_seconds.size(); ++i) {
    log2_seconds[i] = octaves(i) - log2_seconds[i];
  }
}

}  // namespace

Bytes TimeTable::size_of(int point) {
  return Bytes(std::exp2(kFirst + static_cast<double>(point) / kPerOctave));
}

TimeTable::TimeTable(std::span<const double, kPoints> seconds) {
  std::ranges::transform(seconds, log2_seconds_.begin(),
                         [](double value) { return std::log2(value); });
  never_growing_per_byte(log2_seconds_);
  never_falling(log2_seconds_);                             // which leaves the first law as it is
  for (std::size_t i = 1; i < log2_seconds_.size(); ++i) {  // but for rounding
    const double last = log2_seconds_[i - 1];
    log2_seconds_[i] = std::clamp(log2_seconds_[i], last, last + 1.0 / kPerOctave);
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
