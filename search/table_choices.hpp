// SPDX-License-Identifier: Apache-2.0
// How every group of a recommendation network's tables may be sharded, with its work, bytes and
// exchanges, and the least that a byte of each exchange takes: what the search over all groups adds
// up.
#pragma once

#include <vector>

#include "plan/recommender/model.hpp"
#include "search/step_waits.hpp"

namespace orrery::search {

using SecondsPerByte = decltype(Seconds() / Bytes());

struct TableChoice {
  plan::TableGroup group;
  plan::TableShare share;
  std::vector<plan::TableExchange> exchanges;  // that a step waits for
  Seconds work;                                // mean, that it waits for
  Seconds least;  // mean work and exchanged bytes at the best rate: adds up over groups
  std::vector<std::size_t> flows;
  bool never_fits = false;  // however it is placed
  // What some rank holds: one unit, or with a part of every table everywhere all of them.
  Bytes piece() const;
};

// A collective that tables of one sharding make together.
struct TableFlow {
  plan::TableSharding sharding;
  plan::TableExchange exchange;
  Bytes most_bytes;
  SecondsPerByte pace;  // never less, between the smallest and the largest buffer
};

struct TableChoices {
  std::vector<std::vector<TableChoice>> of;  // by group of the document
  std::vector<TableFlow> flows;
  std::vector<std::size_t> order;  // groups, those with most work first
};
// `room` of a rank for tables.
TableChoices table_choices(plan::RecommenderModel& model, StepWaits& waits, Bytes room);

}  // namespace orrery::search
