// SPDX-License-Identifier: Apache-2.0
// The lists of a schedule document (sim/orders/schedule_document.hpp): passes by device, in order,
// with slices, directions, joined passes, updates and edges. O(passes + edges).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/json_reader.hpp"
#include "sim/schedule.hpp"

namespace orrery::sim {

// A pass as it is written: the stage is numbered in its direction, the micro-batch among all.
struct ListedPass {
  PassKind kind = PassKind::Forward;
  bool joined = false;
  std::uint16_t direction = 0;
  std::uint16_t stage = 0;
  std::uint32_t number = 0;  // of the micro-batch, or of the update
  std::uint32_t slice = 0;
};

// One end of an edge: the passes of a lane at a stage, numbered in its direction.
struct ListedEnd {
  Lane lane = Lane::Forward;
  std::uint16_t direction = 0;
  std::uint16_t stage = 0;
  auto operator<=>(const ListedEnd&) const = default;
};

// Pass `to` of a micro-batch waits for pass `from` of the one `shift` micro-batches before it.
struct ListedEdge {
  ListedEnd from;
  ListedEnd to;
  int shift = 0;
};

struct ScheduleLists {
  std::vector<std::vector<ListedPass>> devices;
  std::vector<ListedEdge> edges;
  int slices = 1;
  int iterations = 1;
  Versions versions = Versions::Flush;
};

// What lists of fixed length are for. Stages and micro-batches are 0 where nothing is listed.
struct ListedSizes {
  int stages = 0;  // devices
  int chunks = 1;
  int micro_batches = 0;  // of an iteration; a fraction of all, rounded up
  int slices = 1;
  int iterations = 1;
};

// Reads "passes", "edges", "slices", "iterations" and "versions". Error for what is no pass.
ScheduleLists read_schedule_lists(ObjectReader& object);

int num_stages(const ScheduleLists& lists);  // virtual ones, numbered from 0 on
// Micro-batches and iterations that the passes are of.
ListedSizes sizes_of(const ScheduleLists& lists);
// Copies of the network: directions in which micro-batches travel.
int directions_of(const ScheduleLists& lists);
bool lists_kind(const ScheduleLists& lists, PassKind kind);
// Whether a forward and a backward run as one block.
bool joins_kinds(const ScheduleLists& lists);

// Whether the lists are for these parameters.
Refusal check_listed_sizes(const ScheduleLists& lists, const ScheduleParams& params);

// "F", "BW", ... as documents write it.
std::string_view pass_name(PassKind kind);

}  // namespace orrery::sim
