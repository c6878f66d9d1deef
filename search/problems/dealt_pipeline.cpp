// SPDX-License-Identifier: Apache-2.0
#include "search/problems/dealt_pipeline.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include "base/error.hpp"
#include "sim/engine/engine.hpp"
#include "sim/orders/replicated_stages.hpp"
#include "sim/pipeline/pass_inputs.hpp"
#include "sim/pipeline/versions.hpp"

namespace orrery::search {
namespace {

// The program of an order whose transfers are flows over the links of its devices.
class DealtProgram {
 public:
  DealtProgram(const ChainPipeline& pipeline, const ChainDelays& delays,
               const sim::PipelineOrder& order)
      : pipeline_(pipeline), delays_(delays), order_(order), inputs_(order) {
    for (std::vector<sim::NodeId>& nodes : nodes_) {
      nodes.resize(order.device_of.size() * units(), sim::kNone);
    }
    add_passes();
    for (const auto& list : order.passes) {
      for (const sim::Pass& pass : list) {
        inputs_.for_each(pass, [&](const sim::PassInput& input) { add_input(pass, input); });
      }
    }
    program_.finalize();
  }

  // Between micro-batches at the first stage, in the middle of the run; where flows that share
  // links make it irregular there, no less than the busiest device and link take for one.
  double period() const {
    const sim::Timeline timeline = sim::run(program_);
    ORRERY_CHECK(!timeline.deadlock, "a registered schedule deadlocks");
    std::vector<std::pair<int, SimTime>> ends;  // by number of the micro-batch
    for (const auto& list : order_.passes) {
      for (const sim::Pass& pass : list) {
        if (sim::stage_of_copy(order_, pass.virtual_stage) == 0 &&
            pass.kind == sim::PassKind::Backward) {
          ends.emplace_back(inputs_.number_of(pass), timeline.end[node_of(pass)]);
        }
      }
    }
    std::sort(ends.begin(), ends.end());
    const std::size_t turns = order_.chains.empty() ? 1 : order_.chains.size();
    const std::size_t from = ends.size() / 3;
    const std::size_t to = from + std::max<std::size_t>(1, ends.size() / 3 / turns) * turns;
    const double between =
        to_seconds(ends[to].second - ends[from].second).value() / static_cast<double>(to - from);
    const SimTime busiest = std::max(*std::max_element(busy_.begin(), busy_.end()),
                                     *std::max_element(links_busy_.begin(), links_busy_.end()));
    return std::max(between, to_seconds(busiest).value() / static_cast<double>(ends.size()));
  }

 private:
  std::size_t units() const { return static_cast<std::size_t>(order_.micro_batches); }
  std::size_t own(std::size_t virtual_stage) const {
    return static_cast<std::size_t>(sim::stage_of_copy(order_, virtual_stage));
  }
  sim::NodeId node_of(const sim::Pass& pass) const {
    return nodes_[static_cast<std::size_t>(sim::lane_of(pass.kind))]
                 [pass.virtual_stage * units() + pass.micro_batch];
  }

  SimTime duration(const sim::Pass& pass) const {
    const ChainStage& stage = pipeline_.stages[own(pass.virtual_stage)];
    switch (pass.kind) {
      case sim::PassKind::Forward:
        return to_sim_time(Seconds(pipeline_.forward(stage)));
      case sim::PassKind::Backward:
        return to_sim_time(Seconds(pipeline_.backward(stage)));
      default:
        return {};  // updates are part of the profiled backward
    }
  }

  // That a device waits for before an update, since its list goes on behind it.
  SimTime reduction(const sim::Pass& pass) const {
    const bool waits = pass.kind == sim::PassKind::Optimizer;
    return waits ? to_sim_time(Seconds(delays_.reduce[own(pass.virtual_stage)])) : SimTime{};
  }

  void add_passes() {
    for (std::uint32_t device = 0; device < order_.passes.size(); ++device) {
      const sim::StreamId stream = program_.add_stream(device, sim::StreamKind::Compute, "compute");
      // Transfers are counted in picoseconds that they take alone.
      out_.push_back(program_.add_resource(1e12, "link out"));
      in_.push_back(delays_.half_duplex ? out_.back() : program_.add_resource(1e12, "link in"));
      links_busy_.resize(in_.back() + std::size_t{1});
      SimTime busy;
      for (const sim::Pass& pass : order_.passes[device]) {
        sim::Tag tag;
        tag.pass = pass.kind;
        tag.chunk = pass.virtual_stage;
        tag.micro_batch = pass.micro_batch;
        nodes_[static_cast<std::size_t>(sim::lane_of(pass.kind))]
              [pass.virtual_stage * units() + pass.micro_batch] =
                  program_.add_work(stream, duration(pass), tag);
        busy += duration(pass) + reduction(pass);
      }
      busy_.push_back(busy);
    }
  }

  void add_input(const sim::Pass& pass, const sim::PassInput& input) {
    const std::uint16_t from = order_.device_of[input.virtual_stage];
    const std::uint16_t to = order_.device_of[pass.virtual_stage];
    const sim::NodeId producer =
        nodes_[static_cast<std::size_t>(input.lane)][input.virtual_stage * units() + input.unit];
    const bool sends = input.edge == sim::kNeighbour;
    const std::size_t sender = own(std::min(input.virtual_stage, pass.virtual_stage));
    const SimTime takes = to_sim_time(
        Seconds(sends ? delays_.send[sender] : delays_.reduce[own(pass.virtual_stage)]));
    sim::NodeId arrives = producer;
    if (takes > SimTime{}) {
      const std::array<sim::ResourceId, 2> route{out_[from], in_[to]};
      sim::Tag tag = program_.tag(producer);
      tag.pass = sim::PassKind::Transfer;
      arrives = sends ? program_.add_flow({}, {}, Bytes(static_cast<double>(takes.ps)), route, tag)
                      : program_.add_flow({}, takes, Bytes(0.0), {}, tag);
      program_.depend(arrives, producer);
      for (std::size_t end = 0; sends && end < route.size(); ++end) {
        links_busy_[route[end]] += takes;
      }
    }
    program_.depend(node_of(pass), arrives);
  }

  const ChainPipeline& pipeline_;
  const ChainDelays& delays_;
  const sim::PipelineOrder& order_;
  sim::PassInputs inputs_;
  sim::Program program_;
  std::vector<sim::ResourceId> out_;  // by device
  std::vector<sim::ResourceId> in_;
  std::vector<SimTime> busy_;                                   // devices
  std::vector<SimTime> links_busy_;                             // by resource
  std::array<std::vector<sim::NodeId>, sim::kNumLanes> nodes_;  // by virtual stage and unit
};

}  // namespace

ChainDelays delays_over(const ChainPipeline& pipeline, const ChainLinks& links) {
  ChainDelays delays;
  int used = 0;
  for (std::size_t s = 0; s < pipeline.stages.size(); ++s) {
    const ChainStage& stage = pipeline.stages[s];
    const double r = stage.replicas;
    const int end = used + stage.replicas;
    const int next = s + 1 < pipeline.stages.size() ? pipeline.stages[s + 1].replicas : 0;
    delays.send.push_back(next == 0 ? 0
                                    : pipeline.chain->cut(stage.last) /
                                          links.slowest(used, end, end, end + next));
    delays.reduce.push_back(stage.replicas == 1
                                ? 0
                                : 2 * (r - 1) / r *
                                      pipeline.chain->parameters(stage.first, stage.last) /
                                      links.slowest(used, end, used, end));
    used = end;
  }
  return delays;
}

std::optional<DealtTimes> run_dealt(const ChainPipeline& pipeline, const ChainDelays& delays,
                                    std::string* refused) {
  const sim::Schedule& schedule = sim::find_schedule("pipedream", "chain");
  sim::ScheduleParams params;
  params.stages = static_cast<int>(pipeline.stages.size());
  for (const ChainStage& stage : pipeline.stages) {
    params.replicas_of.push_back(stage.replicas);
  }
  params.micro_batches = static_cast<int>(sim::turns_of(params));
  if (const sim::Refusal broken = schedule.check(params); !broken.empty()) {
    if (refused != nullptr) {
      *refused = to_text(broken);
    }
    return std::nullopt;
  }
  const sim::PipelineOrder order = schedule.order(params);
  const sim::VersionUseOfStage use = sim::worst_of(sim::count_versions(order));
  return DealtTimes{DealtProgram(pipeline, delays, order).period(), sim::in_flight(params),
                    use.staleness, use.versions};
}

}  // namespace orrery::search
