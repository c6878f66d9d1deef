// SPDX-License-Identifier: Apache-2.0
#include "plan/recommender/table_placement.hpp"

#include <algorithm>
#include <cmath>

namespace orrery::plan {

namespace {

class Placer {
 public:
  Placer(std::vector<TableLoad> loads, std::size_t groups, int gpus_per_node, Bytes room)
      : gpus_(static_cast<std::size_t>(gpus_per_node)), room_(room) {
    placement_.counts.assign(groups, std::vector<std::int64_t>(loads.size(), 0));
    placement_.ranks = std::move(loads);
  }

  TablePlacement place(std::vector<TableUnit> units) {
    const auto work = [&](const TableUnit& unit) {
      return (unit.lookup + unit.update).value() *
             (unit.whole_node ? static_cast<double>(gpus_) : 1.0);
    };
    std::stable_sort(units.begin(), units.end(),
                     [&](const TableUnit& a, const TableUnit& b) { return work(a) > work(b); });
    for (const TableUnit& unit : units) {
      put(unit, best_bin(unit));
    }
    return std::move(placement_);
  }

 private:
  std::size_t span(const TableUnit& unit) const { return unit.whole_node ? gpus_ : 1; }

  // The first rank of the bin with the least work that has room; without room, of the emptiest.
  std::size_t best_bin(const TableUnit& unit) {
    constexpr auto kNone = static_cast<std::size_t>(-1);
    std::size_t best = kNone;
    std::size_t emptiest = 0;
    for (std::size_t first = 0; first < placement_.ranks.size(); first += span(unit)) {
      const bool room = bytes(first, unit) + unit.bytes + unit.buffers <= room_;
      if (room && (best == kNone || work(first, unit) < work(best, unit))) {
        best = first;
      }
      if (bytes(first, unit) < bytes(emptiest, unit)) {
        emptiest = first;
      }
    }
    placement_.fits = placement_.fits && best != kNone;
    return best == kNone ? emptiest : best;
  }

  Seconds work(std::size_t first, const TableUnit& unit) const {
    Seconds most;
    for (std::size_t rank = first; rank < first + span(unit); ++rank) {
      most = std::max(most, placement_.ranks[rank].lookup + placement_.ranks[rank].update);
    }
    return most;
  }

  Bytes bytes(std::size_t first, const TableUnit& unit) const {
    Bytes most;
    for (std::size_t rank = first; rank < first + span(unit); ++rank) {
      most = std::max(most, placement_.ranks[rank].bytes + placement_.ranks[rank].buffers);
    }
    return most;
  }

  void put(const TableUnit& unit, std::size_t first) {
    for (std::size_t rank = first; rank < first + span(unit); ++rank) {
      TableLoad& load = placement_.ranks[rank];
      load.lookup += unit.lookup;
      load.update += unit.update;
      load.bytes += unit.bytes;
      load.buffers += unit.buffers;
      ++placement_.counts[unit.group][rank];
    }
  }

  std::size_t gpus_;
  Bytes room_;
  TablePlacement placement_;
};

}  // namespace

TablePlacement place_tables(std::vector<TableUnit> units, std::vector<TableLoad> loads,
                            std::size_t groups, int gpus_per_node, Bytes room) {
  return Placer(std::move(loads), groups, gpus_per_node, room).place(std::move(units));
}

double expected_distinct_rows(std::int64_t rows, double slope, double draws) {
  constexpr double kWiden = 0.01;
  const auto count = static_cast<double>(rows);
  // Rows first + 1 to first + width, at their middle; narrow bins are single rows.
  const auto over_bins = [&](auto term) {
    double sum = 0;
    for (double first = 0; first < count;) {
      const double width = std::min(std::max(1.0, std::floor(first * kWiden)), count - first);
      sum += width * term(std::pow(first + 0.5 * (width + 1), -slope));
      first += width;
    }
    return sum;
  };
  const double total = over_bins([](double weight) { return weight; });
  return over_bins([&](double weight) { return -std::expm1(draws * std::log1p(-weight / total)); });
}

}  // namespace orrery::plan
