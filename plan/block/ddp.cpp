// SPDX-License-Identifier: Apache-2.0
#include "plan/block/ddp.hpp"

#include <algorithm>
#include <cmath>

#include "base/error.hpp"
#include "base/json_reader.hpp"
#include "base/limits.hpp"
#include "plan/block/cost.hpp"
#include "sim/engine/engine.hpp"

namespace orrery::plan {

namespace {

// Closes a bucket once it holds its cap; caps apply in the order given, the last one to the rest.
std::vector<int> fill(const std::vector<ReadyGradient>& gradients,
                      const std::vector<ByteCount>& caps) {
  std::vector<int> buckets;
  ByteCount size;
  int count = 0;
  for (const ReadyGradient& gradient : gradients) {
    size += gradient.bytes;
    ++count;
    if (size >= caps[std::min(buckets.size(), caps.size() - 1)]) {
      buckets.push_back(count);
      size = ByteCount();
      count = 0;
    }
  }
  if (count > 0) {
    buckets.push_back(count);
  }
  return buckets;
}

class DdpProgram {
 public:
  explicit DdpProgram(const costmodel::DeviceModel& device, bool shared)
      : compute_(program_.add_stream(0, sim::StreamKind::Compute, "compute")),
        reduce_(program_.add_stream(0, sim::StreamKind::Collective, "reductions")),
        processors_(program_.add_resource(1.0, "streaming multiprocessors")),
        kernel_{processors_, shared ? 1.0 : 0.0},
        collective_{processors_, shared ? collective_demand(device) : 0.0} {}

  sim::NodeId compute(Seconds time) {
    return program_.add_shared_work(compute_, SimTime{}, time, {&kernel_, 1}, {});
  }
  sim::NodeId reduce(Seconds time, sim::NodeId after) {
    const sim::NodeId node =
        program_.add_shared_work(reduce_, SimTime{}, time, {&collective_, 1}, {});
    program_.depend(node, after);
    return node;
  }
  void depend(sim::NodeId consumer, sim::NodeId producer) { program_.depend(consumer, producer); }
  sim::Timeline run() {
    program_.finalize();
    return sim::run(program_);
  }

 private:
  sim::Program program_;
  sim::StreamId compute_;
  sim::StreamId reduce_;
  sim::ResourceId processors_;
  sim::Demand kernel_;
  sim::Demand collective_;
};

// A kernel that copies a gradient takes no less than the host needs to launch it.
Seconds copy_time(const costmodel::DeviceModel& device, ByteCount bytes) {
  return std::max(device.profile().kernel_launch,
                  device.memory_bound(bytes.bytes() * 2.0, costmodel::MemoryKernel::Copy));
}

}  // namespace

// Mean of the largest of n standard normal values, by integration of its distribution.
double slowest_of(int gpus, double range) {
  constexpr double kWhiskers = 5.4;
  constexpr double kEnd = 9;
  constexpr int kSteps = 4000;
  double mean = 0;
  for (int step = 0; step < kSteps; ++step) {
    const double x = -kEnd + (step + 0.5) * 2 * kEnd / kSteps;
    const double below = std::pow(0.5 * std::erfc(-x / std::sqrt(2.0)), gpus);
    // E = integral of (1 - F) over x > 0 less the integral of F over x < 0.
    mean += (x > 0 ? 1 - below : -below) * 2 * kEnd / kSteps;
  }
  return 1 + range / kWhiskers * mean;
}

std::vector<ReadyGradient> ready_order(std::vector<ReadyGradient> registered) {
  std::reverse(registered.begin(), registered.end());
  return registered;
}

std::vector<int> assign_buckets(const std::vector<ReadyGradient>& ready,
                                const DdpOptions& options) {
  std::vector<ByteCount> caps = {options.bucket};
  if (options.small != SmallBucket::None) {
    caps.insert(caps.begin(), std::min(options.small_bucket, options.bucket));
  }
  if (options.small != SmallBucket::Last) {
    return fill(ready, caps);
  }
  std::vector<int> buckets = fill(ready_order(ready), caps);  // in registration order
  std::reverse(buckets.begin(), buckets.end());
  return buckets;
}

DdpTime ddp_iteration(const DdpNetwork& network, Seconds forward, Seconds backward,
                      Seconds optimizer, const costmodel::GroupShape& group,
                      const costmodel::DeviceModel& device,
                      const costmodel::CollectiveModel& collectives, const DdpOptions& options) {
  const std::vector<ReadyGradient>& ready = network.ready;
  double work = 0;
  for (const ReadyGradient& gradient : ready) {
    work += gradient.work;
  }
  ORRERY_CHECK(work > 0, "gradients without work");
  const double slower = slowest_of(group.ranks, options.gpu_variation);
  forward *= slower;
  backward *= slower;
  DdpTime time;
  DdpProgram program(device, options.processors_shared);
  if (network.buffers > 0) {
    const Seconds broadcast =
        collectives.time(sim::CommKind::Broadcast, network.buffer_bytes.bytes(), group);
    program.compute(broadcast +
                    device.profile().kernel_launch * static_cast<double>(network.buffers));
  }
  const sim::NodeId start = program.compute(forward);
  std::vector<Seconds> waiting;  // reductions that do not overlap
  std::size_t next = 0;
  Seconds back;  // copies out of the buckets
  sim::NodeId last = 0;
  sim::NodeId reduced = sim::kNone;
  for (const int count : assign_buckets(ready, options)) {
    ByteCount bytes;
    for (int index = 0; index < count; ++index, ++next) {
      const ReadyGradient& gradient = ready[next];
      last = program.compute(backward * (gradient.work / work));
      if (options.copies) {
        last = program.compute(copy_time(device, gradient.bytes));
        back += copy_time(device, gradient.bytes);
      }
      bytes += gradient.bytes;
    }
    const Seconds reduction = collectives.time(sim::CommKind::AllReduce, bytes.bytes(), group);
    time.reductions += reduction;
    ++time.buckets;
    if (options.overlap) {
      reduced = program.reduce(reduction, last);
    } else {
      waiting.push_back(reduction);
    }
  }
  for (const Seconds reduction : waiting) {
    reduced = program.reduce(reduction, last);
  }
  const sim::NodeId end = program.compute(back + optimizer);
  program.depend(end, reduced);
  const sim::Timeline timeline = program.run();
  time.iteration = to_seconds(timeline.makespan);
  time.backward = to_seconds(timeline.end[last] - timeline.end[start]);
  time.exposed = to_seconds(std::max(SimTime{}, timeline.end[reduced] - timeline.end[last]));
  return time;
}

DdpNetwork read_gradients(const Json& document, const std::string& where) {
  ObjectReader object = JsonReader(document, where).object();
  object.expect_schema("orrery-gradients", 1);
  object.required("name").string();
  object.required("source").string();
  const JsonReader list = object.required("gradients");
  std::vector<ReadyGradient> gradients;
  for (const JsonReader& entry : list.array(100'000)) {
    const std::vector<JsonReader> pair = entry.array(2);
    if (pair.size() != 2) {
      entry.fail("expected [elements, work]");
    }
    gradients.push_back(
        {ByteCount(pair[0].integer(1, std::int64_t{1} << 40)) * 4, pair[1].number(0, 1e18)});
  }
  DdpNetwork network;
  network.buffers = static_cast<int>(object.integer_or("buffers", 0, 0, 1'000'000));
  if (const auto bytes = object.optional("buffer_bytes")) {
    network.buffer_bytes = bytes->byte_count(true);
  }
  object.finish();
  const bool any = std::any_of(gradients.begin(), gradients.end(),
                               [](const ReadyGradient& gradient) { return gradient.work > 0; });
  if (!any) {
    list.fail("expected at least one gradient with work");
  }
  network.ready = ready_order(std::move(gradients));
  return network;
}

}  // namespace orrery::plan
