// SPDX-License-Identifier: Apache-2.0
#include "sim/orders/document_lists.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <vector>

#include "base/limits.hpp"
#include "base/text.hpp"
#include "sim/orders/rule_reader.hpp"

namespace orrery::sim {
namespace {

constexpr std::array<std::string_view, 6> kPassNames = {"F", "B", "W", "BW", "R", "U"};
constexpr std::array kPassKinds = {PassKind::Forward,  PassKind::InputGrad, PassKind::WeightGrad,
                                   PassKind::Backward, PassKind::Recompute, PassKind::Optimizer};
constexpr std::array<std::string_view, 5> kVersionNames = {"flush", "stashed", "delayed",
                                                           "predicted", "input-stage"};
constexpr std::array kVersions = {Versions::Flush, Versions::Stashed, Versions::Delayed,
                                  Versions::Predicted, Versions::InputStage};

// A number from 0 on of which every smaller one has a pass, too.
std::uint32_t read_number(const JsonReader& value, std::int64_t limit, std::int64_t passes) {
  const std::int64_t number = value.integer(0, limit - 1);
  if (number >= passes) {
    value.fail(fmt::format("{} is too large for a document of {} passes", number, passes),
               fmt::format("numbers begin at 0: at most {}", passes - 1));
  }
  return static_cast<std::uint32_t>(number);
}

ListedPass read_pass(const JsonReader& entry, int slices, std::int64_t total) {
  ObjectReader object = entry.object();
  ListedPass pass;
  pass.kind = kPassKinds[index_in(object.required("pass"), kPassNames)];
  if (const auto direction = object.optional("direction")) {
    pass.direction = static_cast<std::uint16_t>(read_number(*direction, kMaxVirtualStages, total));
  }
  pass.stage =
      static_cast<std::uint16_t>(read_number(object.required("stage"), kMaxVirtualStages, total));
  const bool updates = pass.kind == PassKind::Optimizer;
  pass.number =
      read_number(object.required(updates ? "update" : "micro_batch"), limits::kMaxBatch, total);
  if (slices > 1 && !updates) {
    pass.slice = static_cast<std::uint32_t>(object.required("slice").integer(0, slices - 1));
  } else if (const auto slice = object.optional("slice")) {
    slice->fail(updates ? "an update is of all slices" : "micro-batches are not cut into slices",
                updates ? "leave it out" : "state their number beside the lists: \"slices\": 2");
  }
  pass.joined = object.boolean_or("joined", false);
  object.finish();
  return pass;
}

ListedEnd read_end(const JsonReader& value) {
  ObjectReader object = value.object();
  const JsonReader pass = object.required("pass");
  const PassKind kind = kPassKinds[index_in(pass, kPassNames)];
  if (kind == PassKind::Optimizer) {
    pass.fail("updates have other numbers than micro-batches",
              "list the update where it is to be: passes of a device run in order");
  }
  ListedEnd end{.lane = lane_of(kind)};
  end.stage =
      static_cast<std::uint16_t>(object.required("stage").integer(0, kMaxVirtualStages - 1));
  end.direction =
      static_cast<std::uint16_t>(object.integer_or("direction", 0, 0, kMaxVirtualStages - 1));
  object.finish();
  return end;
}

std::vector<ListedEdge> read_edges(ObjectReader& document) {
  std::vector<ListedEdge> edges;
  const auto value = document.optional("edges");
  for (const JsonReader& entry :
       value ? value->array(limits::kMaxLayers) : std::vector<JsonReader>()) {
    ObjectReader object = entry.object();
    ListedEdge edge{read_end(object.required("from")), read_end(object.required("to"))};
    edge.shift = static_cast<int>(object.integer_or("shift", 0, 0, limits::kMaxBatch));
    object.finish();
    edges.push_back(edge);
  }
  return edges;
}

int num_micro_batches(const ScheduleLists& lists) {
  std::uint32_t count = 0;
  for (const auto& list : lists.devices) {
    for (const ListedPass& pass : list) {
      count = std::max(count, pass.kind == PassKind::Optimizer ? 0 : pass.number + 1);
    }
  }
  return static_cast<int>(count);
}

}  // namespace

std::string_view pass_name(PassKind kind) {
  const auto at = std::find(kPassKinds.begin(), kPassKinds.end(), kind) - kPassKinds.begin();
  return kPassNames[static_cast<std::size_t>(at)];
}

ScheduleLists read_schedule_lists(ObjectReader& object) {
  ScheduleLists lists;
  lists.slices = static_cast<int>(object.integer_or("slices", 1, 1, limits::kMaxBatch));
  lists.iterations = static_cast<int>(object.integer_or("iterations", 1, 1, limits::kMaxBatch));
  if (const auto versions = object.optional("versions")) {
    lists.versions = kVersions[index_in(*versions, kVersionNames)];
  }
  const JsonReader value = object.required("passes");
  const std::vector<JsonReader> devices = value.array(limits::kMaxLayers);
  std::int64_t total = 0;
  for (const JsonReader& device : devices) {
    total += static_cast<std::int64_t>(device.array().size());
  }
  for (const JsonReader& device : devices) {
    std::vector<ListedPass>& list = lists.devices.emplace_back();
    for (const JsonReader& entry : device.array()) {
      list.push_back(read_pass(entry, lists.slices, total));
    }
  }
  if (lists.devices.empty()) {
    value.fail("the list of at least one device is required");
  }
  if (total == 0) {
    value.fail("no list has a pass",
               R"(write some, for example {"pass": "F", "stage": 0, "micro_batch": 0})");
  }
  lists.edges = read_edges(object);
  const bool once = lists.iterations == 1 && lists.versions == Versions::Flush;
  if (!once && directions_of(lists) > 1) {
    value.fail("several directions run one iteration, with updates at its end",
               "leave \"iterations\" and \"versions\" out");
  }
  return lists;
}

int num_stages(const ScheduleLists& lists) {
  int stages = 0;
  for (const auto& list : lists.devices) {
    for (const ListedPass& pass : list) {
      stages = std::max(stages, pass.stage + 1);
    }
  }
  return stages;
}

ListedSizes sizes_of(const ScheduleLists& lists) {
  const auto devices = static_cast<int>(lists.devices.size());
  return {.stages = devices,
          .chunks = std::max(1, (num_stages(lists) + devices - 1) / devices),
          .micro_batches = (num_micro_batches(lists) + lists.iterations - 1) / lists.iterations,
          .slices = lists.slices,
          .iterations = lists.iterations};
}

int directions_of(const ScheduleLists& lists) {
  int directions = 1;
  for (const auto& list : lists.devices) {
    for (const ListedPass& pass : list) {
      directions = std::max(directions, pass.direction + 1);
    }
  }
  return directions;
}

bool lists_kind(const ScheduleLists& lists, PassKind kind) {
  return std::any_of(lists.devices.begin(), lists.devices.end(), [kind](const auto& list) {
    return std::any_of(list.begin(), list.end(),
                       [kind](const ListedPass& pass) { return pass.kind == kind; });
  });
}

bool joins_kinds(const ScheduleLists& lists) {
  return std::any_of(lists.devices.begin(), lists.devices.end(), [](const auto& list) {
    return std::adjacent_find(list.begin(), list.end(),
                              [](const ListedPass& pass, const ListedPass& next) {
                                return pass.joined && pass.kind != next.kind;
                              }) != list.end();
  });
}

namespace {

// A number beyond those that were asked for, where some before it are in no list: not a larger
// schedule but a wrong number.
Refusal check_numbers(const ScheduleLists& lists, std::int64_t asked) {
  std::vector<bool> listed(static_cast<std::size_t>(num_micro_batches(lists)), false);
  std::size_t device_of_last = 0;
  for (std::size_t device = 0; device < lists.devices.size(); ++device) {
    for (const ListedPass& pass : lists.devices[device]) {
      if (pass.kind != PassKind::Optimizer) {
        listed[pass.number] = true;
        device_of_last = pass.number + 1 == listed.size() ? device : device_of_last;
      }
    }
  }
  const auto gap = std::find(listed.begin(), listed.end(), false);
  if (static_cast<std::int64_t>(listed.size()) <= asked || gap == listed.end()) {
    return {};
  }
  return {fmt::format("device {} lists micro-batch {}, and no list has {}: number them 0 to {}",
                      device_of_last, listed.size() - 1, gap - listed.begin(), asked - 1)};
}

}  // namespace

Refusal check_listed_sizes(const ScheduleLists& lists, const ScheduleParams& params) {
  const ListedSizes listed = sizes_of(lists);
  const auto differs = [&](int written, int given, const std::string& of, Size size) {
    return written == given
               ? Refusal()
               : refused(fmt::format("lists of {} do not fit {}", of, given), size, written);
  };
  return first_broken(
      {params.stages == listed.stages
           ? Refusal()
           : refused(fmt::format("lists of {} do not fit {}", counted(listed.stages, "device"),
                                 counted(params.stages, "stage")),
                     Size::Stages, listed.stages),
       params.chunks <= listed.chunks  // with too few, a pass that is in none is named
           ? Refusal()
           : refused(
                 fmt::format("lists of {} on {} have {} per device, not {}",
                             counted(num_stages(lists), "stage"), counted(listed.stages, "device"),
                             counted(listed.chunks, "model chunk"), params.chunks),
                 Size::Chunks, listed.chunks),
       check_numbers(lists, std::int64_t{params.micro_batches} * listed.iterations),
       differs(listed.micro_batches > 0 ? listed.micro_batches : params.micro_batches,
               params.micro_batches, counted(listed.micro_batches, "micro-batch", "micro-batches"),
               Size::MicroBatches),
       differs(listed.slices, params.slices, counted(listed.slices, "slice"), Size::Slices),
       params.iterations == 0
           ? Refusal()
           : differs(listed.iterations, params.iterations, counted(listed.iterations, "iteration"),
                     Size::Iterations)});
}

}  // namespace orrery::sim
