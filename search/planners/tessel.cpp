// SPDX-License-Identifier: Apache-2.0
// Tessel's repeating body: blocks of one micro-batch (each on a set of devices, with time and
// memory) are given start times that repeat every period, as in modulo scheduling, so that the
// period is the least that dependencies, exclusive devices and memory allow. Periods are tried from
// the largest device load upwards, each by an exhaustive search under a budget of steps.
// A block's start / period is the micro-batch it belongs to inside the body.
#include <algorithm>
#include <cstdint>
#include <numeric>
#include <vector>

#include "search/planner.hpp"

namespace orrery::search {
namespace {

constexpr std::int64_t kSteps = 2'000'000;  // of one period
constexpr int kMaxBlocks = 64;

struct Block {
  std::vector<int> devices;
  int time = 1;            // in units
  int memory = 0;          // change on each of its devices: > 0 at the start, < 0 at the end
  std::vector<int> after;  // blocks that must have ended
};

// memory(t) of the steady state counts, for every block, the micro-batches that have passed it.
int floor_div(int a, int b) { return a >= 0 ? a / b : -((-a + b - 1) / b); }

class Body {
 public:
  Body(const std::vector<Block>& blocks, int devices, int period, int in_flight, int cap)
      : blocks_(blocks),
        period_(period),
        in_flight_(in_flight),
        cap_(cap),
        busy_(static_cast<std::size_t>(devices),
              std::vector<bool>(static_cast<std::size_t>(period), false)),
        start_(blocks.size(), 0) {}

  bool solve() { return place(0); }
  bool exhausted() const { return steps_ >= kSteps; }
  const std::vector<int>& starts() const { return start_; }

 private:
  bool place(std::size_t index) {
    if (++steps_ > kSteps) {
      return false;
    }
    if (index == blocks_.size()) {
      return memory_fits();
    }
    const Block& block = blocks_[index];
    int ready = 0;
    for (const int before : block.after) {
      ready = std::max(ready, start_[static_cast<std::size_t>(before)] +
                                  blocks_[static_cast<std::size_t>(before)].time);
    }
    // A later start repeats after one period, and the first block may as well start at 0.
    const int last = index == 0 ? 0 : ready + period_ - 1;
    for (int start = ready; start <= last; ++start) {
      if (start + block.time > in_flight_ * period_) {
        break;
      }
      if (!free_at(block, start)) {
        continue;
      }
      mark(block, start, true);
      start_[index] = start;
      if (place(index + 1)) {
        return true;
      }
      mark(block, start, false);
      if (steps_ >= kSteps) {
        return false;
      }
    }
    return false;
  }

  bool free_at(const Block& block, int start) const {
    for (const int device : block.devices) {
      const std::vector<bool>& slots = busy_[static_cast<std::size_t>(device)];
      for (int t = 0; t < block.time; ++t) {
        if (slots[static_cast<std::size_t>((start + t) % period_)]) {
          return false;
        }
      }
    }
    return true;
  }
  void mark(const Block& block, int start, bool busy) {
    for (const int device : block.devices) {
      for (int t = 0; t < block.time; ++t) {
        busy_[static_cast<std::size_t>(device)][static_cast<std::size_t>((start + t) % period_)] =
            busy;
      }
    }
  }

  bool memory_fits() const {
    for (std::size_t device = 0; device < busy_.size(); ++device) {
      for (int t = 0; t < period_; ++t) {
        int held = 0;
        for (std::size_t b = 0; b < blocks_.size(); ++b) {
          const Block& block = blocks_[b];
          const auto& on = block.devices;
          if (std::find(on.begin(), on.end(), static_cast<int>(device)) != on.end()) {
            const int instant = start_[b] + (block.memory < 0 ? block.time : 0);
            held += block.memory * floor_div(t - instant, period_);
          }
        }
        if (held > cap_) {
          return false;
        }
      }
    }
    return true;
  }

  const std::vector<Block>& blocks_;
  int period_;
  int in_flight_;
  int cap_;
  std::vector<std::vector<bool>> busy_;
  std::vector<int> start_;
  std::int64_t steps_ = 0;
};

std::vector<Block> read_blocks(ObjectReader& problem, int devices) {
  const JsonReader list = problem.required("blocks");
  std::vector<Block> blocks;
  std::vector<int> balance(static_cast<std::size_t>(devices), 0);
  for (const JsonReader& entry : list.array(kMaxBlocks)) {
    ObjectReader reader = entry.object();
    Block block;
    for (const JsonReader& device : reader.required("devices").array(devices)) {
      block.devices.push_back(static_cast<int>(device.integer(0, devices - 1)));
    }
    block.time = static_cast<int>(reader.required("time").integer(1, 1000));
    block.memory = static_cast<int>(reader.integer_or("memory", 0, -1000, 1000));
    if (const auto after = reader.optional("after")) {
      for (const JsonReader& before : after->array(kMaxBlocks)) {
        block.after.push_back(
            static_cast<int>(before.integer(0, static_cast<std::int64_t>(blocks.size()) - 1)));
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
  if (std::any_of(balance.begin(), balance.end(), [](int b) { return b != 0; })) {
    list.fail("the blocks of a micro-batch must free on each device what they allocate");
  }
  return blocks;
}

Json plan(ObjectReader& problem) {
  const int devices = static_cast<int>(problem.required("devices").integer(1, 64));
  const std::vector<Block> blocks = read_blocks(problem, devices);
  const int in_flight = static_cast<int>(problem.integer_or("in_flight", devices, 1, 64));
  const int cap = static_cast<int>(problem.integer_or("memory", 1'000'000, 1, 1'000'000));
  std::vector<int> load(static_cast<std::size_t>(devices), 0);
  int total = 0;
  for (const Block& block : blocks) {
    total += block.time;
    for (const int device : block.devices) {
      load[static_cast<std::size_t>(device)] += block.time;
    }
  }
  const int bound = *std::max_element(load.begin(), load.end());
  bool proven = true;
  for (int period = std::max(bound, 1); period <= total; ++period) {
    Body body(blocks, devices, period, in_flight, cap);
    if (body.solve()) {
      Json starts = Json::array();
      for (const int start : body.starts()) {
        starts.push(start);
      }
      Json answer = Json::object();
      answer.set("period", period);
      answer.set("load_bound", bound);
      answer.set("starts", std::move(starts));
      answer.set("proven", proven);  // no shorter period exists
      return answer;
    }
    proven = proven && !body.exhausted();
  }
  return infeasible("not even one micro-batch after the other fits the memory");
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
