// SPDX-License-Identifier: Apache-2.0
// Time of one collective of one group as a function of its bytes: a grid of two points per power
// of two from 64 B to 1 TiB, a power law between them. By construction more bytes never take less
// time and time per byte never grows, so that splitting a collective never pays, whatever the
// measured residuals say. Below the grid time is constant, above it proportional to bytes.
//
// TimeTables remembers the tables of the groups asked for: a search asks for the time of few shapes
// very often. Filling one takes some 10 us, asking about 50 ns.
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <unordered_map>

#include "base/units.hpp"
#include "costmodel/group_shape.hpp"
#include "sim/engine/tags.hpp"

namespace orrery::costmodel {

class TimeTable {
 public:
  static constexpr int kFirst = 6;  // log2 of the bytes of the first point
  static constexpr int kPerOctave = 2;
  static constexpr int kPoints = (40 - kFirst) * kPerOctave + 1;
  static Bytes size_of(int point);

  // Times at the points; those that break a law are replaced by the nearest that do not, by least
  // squares of their logarithms: first of time per byte, then of time, which need not be the
  // nearest that keep both.
  explicit TimeTable(std::span<const double, kPoints> seconds);
  Seconds at(Bytes size) const;

 private:
  std::array<double, kPoints> log2_seconds_{};
};

class TimeTables {
 public:
  const TimeTable* find(sim::CommKind kind, const GroupShape& group) const;
  const TimeTable& add(sim::CommKind kind, const GroupShape& group, const TimeTable& table);

 private:
  struct Key {
    sim::CommKind kind;
    GroupShape group;
    bool operator==(const Key&) const = default;
  };
  struct KeyHash {
    std::size_t operator()(const Key& key) const;
  };
  std::unordered_map<Key, TimeTable, KeyHash> tables_;
};

}  // namespace orrery::costmodel
