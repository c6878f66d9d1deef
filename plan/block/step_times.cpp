// SPDX-License-Identifier: Apache-2.0
// Times of lists of steps: on a compute and a communication stream, and at the pace of the host.
#include <algorithm>
#include <utility>

#include "base/error.hpp"
#include "plan/block/cost.hpp"
#include "sim/engine/engine.hpp"

namespace orrery::plan {

namespace {

sim::Timeline simulate_steps(const std::vector<Step>& steps, std::span<const Seconds> times,
                             const costmodel::DeviceModel& device) {
  sim::Program program;
  const sim::StreamId compute = program.add_stream(0, sim::StreamKind::Compute, "compute");
  const sim::StreamId collective = program.add_stream(0, sim::StreamKind::Collective, "comm");
  const sim::ResourceId processors = program.add_resource(1.0, "streaming multiprocessors");
  const sim::Demand of_kernel{processors, 1.0};
  const sim::Demand of_collective{processors, block_collective_demand(device)};
  for (std::size_t index = 0; index < steps.size(); ++index) {
    const Step& step = steps[index];
    const sim::Demand& demand = step.collective ? of_collective : of_kernel;
    const sim::NodeId node = program.add_shared_work(step.collective ? collective : compute,
                                                     SimTime{}, times[index], {&demand, 1}, {});
    for (const int before : step.after) {
      program.depend(node, static_cast<sim::NodeId>(before));
    }
  }
  program.finalize();
  sim::Timeline timeline = sim::run(program);
  ORRERY_CHECK(!timeline.deadlock, "a block's steps depend on later ones");
  return timeline;
}

// Splits the time in which no kernel runs over the axes whose collective runs then.
void add_exposed(const std::vector<Step>& steps, const sim::Timeline& timeline, PassCost& cost) {
  SimTime idle_since;
  std::size_t collective = 0;
  const auto attribute = [&](SimTime from, SimTime until) {
    // Collectives are in order on one stream; those that overlap [from, until) own it.
    for (std::size_t index = collective; index < steps.size() && from < until; ++index) {
      if (!steps[index].collective || timeline.end[index] <= from) {
        continue;
      }
      const SimTime start = std::max(from, timeline.start[index]);
      const SimTime end = std::min(until, timeline.end[index]);
      if (start < end) {
        cost.exposed[static_cast<std::size_t>(steps[index].axis)] += to_seconds(end - start);
      }
      if (timeline.start[index] >= until) {
        break;
      }
    }
  };
  for (std::size_t index = 0; index < steps.size(); ++index) {
    if (!steps[index].collective) {
      attribute(idle_since, timeline.start[index]);
      idle_since = timeline.end[index];
    }
  }
  attribute(idle_since, timeline.makespan);
}

// What a list takes longer in turn if each kernel must be issued first, one every `each`.
Seconds stall_of(const std::vector<Step>& steps, std::span<const Seconds> times, Seconds each) {
  Seconds issued;
  Seconds done;
  Seconds device;
  for (std::size_t index = 0; index < steps.size(); ++index) {
    const int kernels = steps[index].collective ? 0 : steps[index].launches;
    for (int kernel = 0; kernel < kernels; ++kernel) {
      issued += each;
      done = std::max(done, issued) + times[index] / static_cast<double>(kernels);
    }
    done += kernels == 0 ? times[index] : Seconds();
    device += times[index];
  }
  return std::max(Seconds(), done - device);
}

}  // namespace

PassCost operator+(const PassCost& a, const PassCost& b) {
  PassCost sum = a;
  sum.time += b.time;
  sum.device += b.device;
  // What a's kernels took is what the host is ahead by.
  sum.stall = std::max(a.stall, a.host + b.stall - a.device);
  sum.compute += b.compute;
  sum.host += b.host;
  sum.routed += b.routed;
  sum.flops += b.flops;
  sum.launches += b.launches;
  for (std::size_t axis = 0; axis < kNumAxes; ++axis) {
    sum.exposed[axis] += b.exposed[axis];
  }
  for (std::size_t index = 0; index < kNumCostClasses; ++index) {
    sum.by_class[index] += b.by_class[index];
  }
  return sum;
}

bool is_serial(const std::vector<Step>& steps) {
  for (std::size_t index = 1; index < steps.size(); ++index) {
    const Step& step = steps[index];
    const bool follows = std::find(step.after.begin(), step.after.end(),
                                   static_cast<int>(index) - 1) != step.after.end();
    if (step.collective != steps[index - 1].collective && !follows) {
      return false;
    }
  }
  return true;
}

double collective_demand(const costmodel::DeviceModel& device) {
  return 1.0 / std::max(0.5, device.overlap_speed_fraction()) - 1.0;
}

double block_collective_demand(const costmodel::DeviceModel& device) {
  const bool persistent = device.gpu().persistent_products;
  return persistent && device.profile().collective_sms > 0 ? 1.0 : collective_demand(device);
}

PassCost queue_steps(const std::vector<Step>& steps, const costmodel::DeviceModel& device,
                     Seconds host) {
  std::vector<Seconds> times;
  for (const Step& step : steps) {
    times.push_back(step.time);
  }
  return queue_steps(steps, times, device, host);
}

PassCost queue_steps(const std::vector<Step>& steps, std::span<const Seconds> times,
                     const costmodel::DeviceModel& device, Seconds host) {
  PassCost cost;
  Seconds serial;
  for (std::size_t index = 0; index < steps.size(); ++index) {
    const Step& step = steps[index];
    serial += times[index];
    cost.by_class[static_cast<std::size_t>(step.cost_class)] += times[index];
    cost.routed += is_routed(step) ? times[index] : Seconds();
    if (!step.collective) {
      cost.compute += times[index];
      cost.flops += step.flops;
      cost.launches += step.launches;
    }
  }
  if (is_serial(steps)) {
    cost.time = to_sim_time(serial);
    for (std::size_t index = 0; index < steps.size(); ++index) {
      if (steps[index].collective) {
        cost.exposed[static_cast<std::size_t>(steps[index].axis)] += times[index];
      }
    }
  } else {
    const sim::Timeline timeline = simulate_steps(steps, times, device);
    cost.time = timeline.makespan;
    add_exposed(steps, timeline, cost);
  }
  const Seconds launches = device.profile().kernel_launch * static_cast<double>(cost.launches);
  cost.host = steps.empty() ? Seconds() : std::max(host, launches);
  cost.device = to_seconds(cost.time);
  cost.stall = stall_of(steps, times, cost.host / static_cast<double>(std::max(1, cost.launches)));
  return cost;
}

PassCost run_steps(const std::vector<Step>& steps, const costmodel::DeviceModel& device,
                   Seconds host) {
  PassCost cost = queue_steps(steps, device, host);
  cost.time = std::max(cost.time, to_sim_time(cost.host));
  return cost;
}

}  // namespace orrery::plan
