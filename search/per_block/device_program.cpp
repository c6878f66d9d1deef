// SPDX-License-Identifier: Apache-2.0
#include "search/per_block/device_program.hpp"

#include <algorithm>
#include <map>
#include <numeric>
#include <utility>

#include "search/per_block/linear_program.hpp"
#include "search/per_block/program.hpp"

namespace orrery::search {

namespace {

constexpr double kSafeSide = 1.0 - 1e-10;
constexpr std::size_t kMostDeviceColumns = 30'000;

// Micro-batches that a virtual stage holds at the peak of its device, whole and cut.
using HeldAtPeak = std::pair<int, int>;

// The peak with most micro-batches of all chunks together, and how many stages hold how many there.
std::map<HeldAtPeak, int> held_at_peak(const plan::LiveCounts& device, std::size_t stages) {
  const auto most = std::max_element(device.maxima.begin(), device.maxima.end(),
                                     [](const auto& one, const auto& other) {
                                       return std::accumulate(one.begin(), one.end(), 0) <
                                              std::accumulate(other.begin(), other.end(), 0);
                                     });
  std::map<HeldAtPeak, int> held;
  const std::size_t chunks = device.stages.size();
  for (std::size_t slot = 0; slot < chunks && most != device.maxima.end(); ++slot) {
    if (static_cast<std::size_t>(device.stages[slot]) < stages) {  // else shards of the ends
      ++held[{(*most)[slot], device.splits ? (*most)[chunks + slot] : 0}];
    }
  }
  return held;
}

class DeviceProgram {
 public:
  DeviceProgram(const plan::Plan& plan, const plan::ScheduleTraits& traits, const MeshCosts& costs,
                double until)
      : plan_(plan),
        traits_(traits),
        costs_(costs),
        share_(static_cast<double>(plan.num_micro_batches()) * kSafeSide / until),
        room_(std::max(1.0, device_memory(plan, costs))),
        every_(costs.choices.size()) {
    program_.stop_at(1.0);
    time_ = program_.add_variable(1.0, 1.0);
    for (const int count : costs.count) {
      groups_.push_back(program_.add_group(count));
    }
  }

  void add_device(const std::map<HeldAtPeak, int>& stages) {
    Terms work = {{time_, 1.0}};
    Terms streams = {{time_, 1.0}};
    Terms memory;
    for (const auto& [held, count] : stages) {
      Terms blocks;  // every stage has one
      for (std::size_t block = 0; block < costs_.choices.size(); ++block) {
        const std::vector<Parts> all = parts_of(block, held);
        for (const Parts& one : all) {
          const bool idle = &one != &all.front() && &one != &all.back();
          const int column = program_.add_variable(costs_.count[block], 0.0, idle, groups_[block]);
          ++num_columns_;
          blocks.push_back({column, 1.0});
          every_[block].push_back({column, 1.0});
          work.push_back({column, -one.work * share_});
          streams.push_back({column, -one.streams * share_});
          memory.push_back({column, -one.bytes / room_});
        }
      }
      program_.add_row(std::move(blocks), count);
    }
    program_.add_row(std::move(work), 0.0);
    program_.add_row(std::move(streams), 0.0);
    program_.add_row(std::move(memory), -1.0);
  }

  double bound(const std::function<bool()>& stop) {
    if (num_columns_ > kMostDeviceColumns) {
      return 0;
    }
    for (std::size_t block = 0; block < every_.size(); ++block) {
      if (costs_.count[block] > 0) {
        program_.add_row(std::move(every_[block]), costs_.count[block]);
      }
    }
    program_.stop_when(stop);
    return std::min(1.0, program_.solve().bound);
  }

 private:
  using Terms = std::vector<std::pair<int, double>>;
  struct Parts {
    double work = 0;
    double streams = 0;
    double bytes = 0;
    bool beats(const Parts& other) const {
      return work <= other.work && streams <= other.streams && bytes <= other.bytes;
    }
  };

  // Of the strategies that no other beats, least bytes first.
  std::vector<Parts> parts_of(std::size_t block, const HeldAtPeak& held) const {
    std::vector<Parts> kept;
    if (costs_.count[block] == 0) {
      return kept;
    }
    if (traits_.shares_output_layer &&
        plan_.network.blocks[block].kind != models::BlockKind::Layer) {
      return {Parts{}};  // all devices share them
    }
    for (const BlockChoice& one : costs_.choices[block]) {
      const double streams = one.gather + one.traffic;
      const double gathered = plan_.execution.reshard_after_forward ? 0.0 : one.gathered;
      const Parts parts{one.forward + one.backward + costs_.beside * streams, streams,
                        one.states + gathered + one.saved * held.first + one.kept * held.second};
      const auto beats = [&](const Parts& other) { return other.beats(parts); };
      if (!std::any_of(kept.begin(), kept.end(), beats)) {
        std::erase_if(kept, [&](const Parts& other) { return parts.beats(other); });
        kept.push_back(parts);
      }
    }
    std::sort(kept.begin(), kept.end(), [](const Parts& a, const Parts& b) {
      return std::pair(a.bytes, a.work) < std::pair(b.bytes, b.work);
    });
    return kept;
  }

  const plan::Plan& plan_;
  const plan::ScheduleTraits& traits_;
  const MeshCosts& costs_;
  double share_;
  double room_;
  LinearProgram program_;
  int time_ = 0;
  std::vector<int> groups_;   // by kind of block
  std::vector<Terms> every_;  // all columns of a kind of block
  std::size_t num_columns_ = 0;
};

}  // namespace

double device_bound(const plan::Plan& plan, const Pipeline& pipeline,
                    const plan::ScheduleTraits& traits, const MeshCosts& costs,
                    const std::vector<plan::LiveCounts>& live, double until,
                    const std::function<bool()>& stop) {
  if (live.empty() || traits.two_directions || pipeline.slices > 1) {
    return 0;
  }
  DeviceProgram program(plan, traits, costs, until);
  for (const plan::LiveCounts& device : live) {
    program.add_device(held_at_peak(device, plan.stage_blocks.size()));
  }
  return program.bound(stop) * until;
}

}  // namespace orrery::search
