// SPDX-License-Identifier: Apache-2.0
#include "models/lengths.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

#include "base/error.hpp"
#include "base/random.hpp"

namespace orrery::models {

namespace {

std::int64_t rounded(double length, std::int64_t shortest, std::int64_t longest) {
  const double low = static_cast<double>(shortest);
  const double high = static_cast<double>(longest);
  return static_cast<std::int64_t>(std::llround(std::clamp(length, low, high)));
}

// The room left in each row; finds the first row with at least so much in O(log n).
class FirstFitRows {
 public:
  FirstFitRows(std::size_t most, std::int64_t capacity) {
    while (leaves_ < most) {
      leaves_ *= 2;
    }
    room_.assign(2 * leaves_, capacity);
  }

  std::size_t put(std::int64_t length) {
    std::size_t node = 1;
    while (node < leaves_) {
      node = room_[2 * node] >= length ? 2 * node : 2 * node + 1;
    }
    const std::size_t row = node - leaves_;
    room_[node] -= length;
    for (node /= 2; node >= 1; node /= 2) {
      room_[node] = std::max(room_[2 * node], room_[2 * node + 1]);
    }
    return row;
  }

 private:
  std::size_t leaves_ = 1;
  std::vector<std::int64_t> room_;  // a tree of maxima
};

std::vector<std::vector<int>> first_fit(const std::vector<std::int64_t>& lengths,
                                        const std::vector<int>& order, std::int64_t capacity) {
  FirstFitRows rows(lengths.size(), capacity);
  std::vector<std::vector<int>> packed;
  for (const int index : order) {
    const std::size_t row = rows.put(lengths[static_cast<std::size_t>(index)]);
    packed.resize(std::max(packed.size(), row + 1));
    packed[row].push_back(index);
  }
  return packed;
}

std::vector<std::vector<int>> best_fit(const std::vector<std::int64_t>& lengths,
                                       const std::vector<int>& order, std::int64_t capacity) {
  std::set<std::pair<std::int64_t, std::size_t>> rooms;  // least room first
  std::vector<std::vector<int>> packed;
  for (const int index : order) {
    const std::int64_t length = lengths[static_cast<std::size_t>(index)];
    const auto found = rooms.lower_bound({length, 0});
    std::pair<std::int64_t, std::size_t> row{capacity, packed.size()};
    if (found == rooms.end()) {
      packed.emplace_back();
    } else {
      row = *found;
      rooms.erase(found);
    }
    packed[row.second].push_back(index);
    rooms.emplace(row.first - length, row.second);
  }
  return packed;
}

std::vector<std::vector<int>> in_order(const std::vector<std::int64_t>& lengths,
                                       std::int64_t capacity) {
  std::vector<std::vector<int>> packed;
  std::int64_t room = 0;
  for (std::size_t index = 0; index < lengths.size(); ++index) {
    if (lengths[index] > room) {
      packed.emplace_back();
      room = capacity;
    }
    packed.back().push_back(static_cast<int>(index));
    room -= lengths[index];
  }
  return packed;
}

}  // namespace

std::vector<std::int64_t> draw_lengths(const LengthModel& model, std::int64_t count,
                                       std::uint64_t seed) {
  Random random(seed);
  std::vector<std::int64_t> lengths;
  lengths.reserve(static_cast<std::size_t>(count));
  for (std::int64_t index = 0; index < count; ++index) {
    const bool tail = random.uniform() < model.tail;
    const double length =
        tail ? model.tail_from * std::pow(1 - random.uniform(), -1 / model.tail_index)
             : model.median * std::exp(model.spread * random.normal());
    lengths.push_back(rounded(length, model.shortest, model.longest));
  }
  return lengths;
}

std::vector<std::int64_t> draw_lengths(const std::vector<std::pair<double, double>>& table,
                                       std::int64_t count, std::uint64_t seed) {
  for (std::size_t row = 0; row < table.size(); ++row) {
    if (table[row].second < 1 || (row > 0 && table[row].first <= table[row - 1].first)) {
      bad_input("lengths", "quantiles must rise and lengths be at least 1");
    }
  }
  if (table.size() < 2 || table.front().first != 0 || table.back().first != 1) {
    bad_input("lengths", "the table of quantiles must reach from 0 to 1");
  }
  Random random(seed);
  std::vector<std::int64_t> lengths;
  for (std::int64_t index = 0; index < count; ++index) {
    const double quantile = random.uniform();
    std::size_t row = 1;
    while (row + 1 < table.size() && table[row].first < quantile) {
      ++row;
    }
    const auto& [low, shorter] = table[row - 1];
    const auto& [high, longer] = table[row];
    const double share = (quantile - low) / (high - low);
    lengths.push_back(rounded(std::exp((1 - share) * std::log(shorter) + share * std::log(longer)),
                              1, std::int64_t{1} << 40));
  }
  return lengths;
}

std::vector<std::vector<int>> pack(const std::vector<std::int64_t>& lengths, std::int64_t capacity,
                                   Packing packing) {
  for (std::size_t index = 0; index < lengths.size(); ++index) {
    if (lengths[index] < 0 || lengths[index] > capacity) {
      bad_input(
          "packing",
          fmt::format("sequence {} has {} tokens, a row {}", index, lengths[index], capacity),
          fmt::format("rows hold whole sequences: draw none above {} with --longest", capacity));
    }
  }
  if (packing == Packing::InOrder) {
    return in_order(lengths, capacity);
  }
  std::vector<int> order(lengths.size());
  std::iota(order.begin(), order.end(), 0);
  if (packing != Packing::FirstFit) {
    std::stable_sort(order.begin(), order.end(), [&lengths](int a, int b) {
      return lengths[static_cast<std::size_t>(a)] > lengths[static_cast<std::size_t>(b)];
    });
  }
  return packing == Packing::BestFitDecreasing ? best_fit(lengths, order, capacity)
                                               : first_fit(lengths, order, capacity);
}

}  // namespace orrery::models
