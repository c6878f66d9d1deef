// SPDX-License-Identifier: Apache-2.0
// Tessel's repeating body: blocks of one micro-batch (each on a set of devices, with time and
// memory) are given start times that repeat every period, so that the period is the least that
// dependencies, exclusive devices and memory allow (sim/orders/periodic_body.hpp).
#include <algorithm>
#include <cstdint>
#include <vector>

#include "search/planner.hpp"
#include "sim/orders/periodic_body.hpp"

namespace orrery::search {
namespace {

constexpr int kMaxBlocks = 64;

std::vector<sim::BodyBlock> read_blocks(ObjectReader& problem, int devices) {
  const JsonReader list = problem.required("blocks");
  std::vector<sim::BodyBlock> blocks;
  std::vector<std::int64_t> balance(static_cast<std::size_t>(devices), 0);
  for (const JsonReader& entry : list.array(kMaxBlocks)) {
    ObjectReader reader = entry.object();
    sim::BodyBlock block;
    const JsonReader on = reader.required("devices");
    for (const JsonReader& device : on.array(devices)) {
      block.devices.push_back(static_cast<int>(device.integer(0, devices - 1)));
      if (std::count(block.devices.begin(), block.devices.end(), block.devices.back()) > 1) {
        device.fail("the block is on this device already", "list each device once");
      }
    }
    if (block.devices.empty()) {
      on.fail("expected at least one device");
    }
    block.time = static_cast<int>(reader.required("time").integer(1, 1000));
    block.memory = reader.integer_or("memory", 0, -1000, 1000);
    if (const auto after = reader.optional("after")) {
      for (const JsonReader& before : after->array(kMaxBlocks)) {
        const auto last = static_cast<std::int64_t>(blocks.size()) - 1;
        block.after.push_back({static_cast<int>(before.integer(0, last)), 0});
      }
    }
    reader.finish();
    for (const int device : block.devices) {
      balance[static_cast<std::size_t>(device)] += block.memory;
    }
    blocks.push_back(std::move(block));
  }
  if (blocks.empty()) {
    list.fail("expected at least one block");
  }
  if (std::any_of(balance.begin(), balance.end(), [](std::int64_t b) { return b != 0; })) {
    list.fail("the blocks of a micro-batch must free on each device what they allocate");
  }
  return blocks;
}

Json plan(ObjectReader& problem) {
  const int devices = static_cast<int>(problem.required("devices").integer(1, 64));
  const std::vector<sim::BodyBlock> blocks = read_blocks(problem, devices);
  const int in_flight = static_cast<int>(problem.integer_or("in_flight", devices, 1, 64));
  const std::int64_t cap = problem.integer_or("memory", 1'000'000, 1, 1'000'000);
  problem.finish();
  const auto body = sim::shortest_body(blocks, devices, {.in_flight = in_flight, .cap = cap});
  if (!body) {
    return infeasible("not even one micro-batch after the other fits the memory");
  }
  Json starts = Json::array();
  for (const int start : body->starts) {
    starts.push(start);
  }
  Json answer = Json::object();
  answer.set("period", body->period);
  answer.set("load_bound", body->load_bound);
  answer.set("starts", std::move(starts));
  answer.set("proven", body->proven);  // no shorter period exists
  return answer;
}

}  // namespace

extern const Planner planner_tessel = {
    .name = "tessel",
    .description = "the shortest repeating body of blocks that may span several devices",
    .source = "Lin et al., Tessel, HPCA 2024 (arXiv 2311.15269), section 4",
    .example = R"({"schema": "orrery-problem", "version": 1, "devices": 2, "in_flight": 2,
  "blocks": [{"devices": [0], "time": 1, "memory": 1}, {"devices": [1], "time": 1, "memory": 1, "after": [0]},
             {"devices": [1], "time": 2, "memory": -1, "after": [1]},
             {"devices": [0], "time": 2, "memory": -1, "after": [2]}]})",
    .plan = plan,
};

}  // namespace orrery::search
