// SPDX-License-Identifier: Apache-2.0
// Simulates one plan: lowers each distinct block by the conversion rules (layout.hpp), simulates
// its forward, backward and recompute programs once, evaluates the pipeline and closes the step
// with gradient reduction, optimizer and parameter gathers. The same operators give memory.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "costmodel/collective_model.hpp"
#include "costmodel/device_model.hpp"
#include "plan/plan.hpp"
#include "plan/stage/memory.hpp"
#include "plan/stage/step_end.hpp"
#include "plan/stage/validated_pace.hpp"
#include "sim/engine/program.hpp"
#include "sim/pipeline/pipeline.hpp"

namespace orrery::plan {

class LayoutBounds;
class TransferTimes;
struct StagePlacement;

// Where the time of one device goes, seconds per iteration on the slowest stage.
struct TimeBreakdown {
  Seconds compute;    // forward, backward, recompute kernels
  Seconds recompute;  // part of compute
  Seconds bubble;
  Seconds optimizer;
  // By kind: "tp", "cp", "ep", "dp", "pp"; "offload": copies to and from the host.
  std::map<std::string, Seconds> exposed_communication;
};

struct Simulation {
  // Compiled once: many files make and copy them.
  Simulation();
  Simulation(const Simulation&);
  Simulation(Simulation&&) noexcept;
  Simulation& operator=(const Simulation&);
  Simulation& operator=(Simulation&&) noexcept;
  ~Simulation();

  Seconds iteration_time;
  Seconds interval_low;  // of 80 %; both ends are the iteration time where none was drawn
  Seconds interval_high;
  bool has_interval() const { return interval_low < interval_high; }
  double tokens_per_second_per_gpu = 0;
  double mfu_fraction = 0;  // model FLOPs, attention in full
  double hfu_fraction = 0;  // with recomputation
  double bubble_fraction = 0;
  TimeBreakdown breakdown;
  std::vector<StageMemory> memory;  // per pipeline stage
  ByteCount host_per_node;          // of the tensors that leave the devices, on the fullest node
  ByteCount disk_per_node;
  // The stage and category that overflow, when the plan does not fit.
  std::optional<std::string> does_not_fit;
  sim::PipelineResult pipeline;
  // The lists and what their passes cost and keep, where spans were recorded.
  sim::PipelineOrder order;
  sim::PipelineCosts passes;
  // What follows the passes of all devices. Nothing where devices update within their lists, or
  // within those of several iterations, which are here where spans were recorded.
  std::optional<StepEnd> end;
  std::optional<ValidatedRun> iterations;
  // Of asynchronous schedules: how many updates a gradient is late, how many versions of its
  // parameters a stage keeps, and the time of a micro-batch in steady state, of which the iteration
  // time is a multiple.
  bool synchronous = true;
  int staleness = 0;
  int weight_versions = 1;
  Seconds steady_period;
};

// Draws that reports take for the interval of a plan.
inline constexpr int kIntervalDraws = 128;

struct SimulateOptions {
  bool record_spans = false;              // for traces; evaluates every pass
  int interval_draws = 0;                 // even; 0: no interval
  std::function<bool()> stop_draws = {};  // asked before each of them: there is no interval then
  int jobs = 1;                           // threads of draws; 0: all cores
};

// Simulates plans of one (network, cluster, profile, precision, sequence, execution), keeping the
// costs of blocks between them. Used from one thread at a time.
class Simulator {
 public:
  // Keeps what does not depend on degrees; every plan given to run() must have this network,
  // cluster, profile, sequence, precision and execution.
  explicit Simulator(const Plan& plan);
  ~Simulator();
  Simulator(Simulator&&) noexcept;

  Simulation run(const Plan& plan, const SimulateOptions& options = {});
  // Memory alone, without simulating; much cheaper.
  std::vector<StageMemory> memory(const Plan& plan);
  MemoryVerdict fits(const Plan& plan);
  // The same answer, often without making lists; what misses may be understated.
  MemoryVerdict fits_or_misses(const Plan& plan);
  // The lists of the plan's schedule; valid until the next call.
  const sim::PipelineOrder& order(const Plan& plan);
  // Lower bounds on the iteration time, never above run().iteration_time, each below the next: the
  // work of all blocks; head, passes and tail of the busiest device; the lists of the schedule
  // without data-parallel traffic.
  Seconds work_bound(const Plan& plan);
  Seconds lower_bound(const Plan& plan);
  Seconds list_bound(const Plan& plan);
  // Bounds of all plans with the layout of this one; refers to the plan and this object.
  LayoutBounds layout_bounds(const Plan& plan, const std::vector<int>& zero_stages);
  StagePlacement placement(const Plan& plan);
  TransferTimes& transfer_times();

 private:
  struct Cache;
  // Evaluates the plan again for every draw, on costs of its own.
  void fill_interval(const Plan& plan, const SimulateOptions& options, Simulation& result);
  std::unique_ptr<Cache> cache_;
};

Simulation simulate(const Plan& plan, const SimulateOptions& options = {});

}  // namespace orrery::plan
