// SPDX-License-Identifier: Apache-2.0
// The flat program of a pipeline. Buffered transfers are Flows without streams. A blocking transfer
// is four nodes: each end announces itself and then occupies its compute stream until the bytes are
// over; both announcements must have happened before either end proceeds, so the two ends run at
// the same time and a crossing of two transfers is a dependency cycle that the engine reports.
#include <fmt/core.h>

#include <array>
#include <limits>
#include <span>
#include <utility>

#include "base/error.hpp"
#include "sim/pipeline/pass_inputs.hpp"
#include "sim/pipeline/pipeline.hpp"

namespace orrery::sim {
namespace {

class Expander {
 public:
  Expander(const PipelineOrder& order, const PipelineCosts& costs)
      : order_(order),
        costs_(costs),
        stages_(static_cast<std::size_t>(order.num_virtual_stages)),
        micro_batches_(static_cast<std::size_t>(order.micro_batches)),
        inputs_(order),
        recomputed_(recomputed_stages(order)),
        activation_(stages_ * micro_batches_, kNone),
        started_(stages_, false) {
    for (std::vector<NodeId>& nodes : nodes_) {
      nodes.assign(stages_ * micro_batches_, kNone);
    }
    for (std::size_t s = 0; s < stages_; ++s) {
      remaining_.push_back(static_cast<int>(inputs_.units(s)));
    }
  }

  Program expand() {
    for (std::uint32_t d = 0; d < order_.passes.size(); ++d) {
      streams_.push_back(
          program_.add_stream(d, StreamKind::Compute, fmt::format("stage {} compute", d)));
      pools_.push_back(program_.add_pool(d, ByteCount(std::numeric_limits<std::int64_t>::max()),
                                         fmt::format("stage {} memory", d)));
    }
    if (costs_.blocking_rendezvous) {
      name_transfers();
    }
    for (std::uint32_t d = 0; d < order_.passes.size(); ++d) {
      const std::vector<Pass>& list = order_.passes[d];
      for (std::size_t k = 0; k < list.size();) {
        std::size_t end = k + 1;
        while (list[end - 1].joined && end < list.size()) {
          ++end;
        }
        add_block(d, std::span(list).subspan(k, end - k));
        k = end;
      }
    }
    add_inputs();
    add_holds();
    program_.finalize();
    return std::move(program_);
  }

 private:
  // The two ends of a blocking transfer, by virtual stage and micro-batch of the producer.
  struct Ends {
    NodeId send_ready = kNone;
    NodeId send = kNone;
    NodeId receive_ready = kNone;
    NodeId receive = kNone;
  };
  enum class Direction : std::size_t { Activation, Gradient };

  std::size_t index(std::size_t stage, std::size_t j) const { return stage * micro_batches_ + j; }
  SimTime extra(const std::vector<SimTime>& extras, std::size_t s) const {
    return extras.empty() ? SimTime{} : extras[s];
  }

  void name_transfers() {
    for (const char* name :
         {"send activation", "send gradient", "receive activation", "receive gradient"}) {
      names_[names_used_++] = program_.add_name(name);
    }
    for (auto& ends : ends_) {
      ends.resize(stages_ * micro_batches_);
    }
  }

  SimTime of_unit(const std::vector<SimTime>& usual, const std::vector<SimTime>& of_units,
                  const Pass& pass) const {
    return of_units.empty() ? usual[pass.virtual_stage]
                            : of_units[index(pass.virtual_stage, pass.micro_batch)];
  }

  SimTime duration(const Pass& pass) {
    const std::size_t s = pass.virtual_stage;
    const bool final = pass.kind == PassKind::Backward || pass.kind == PassKind::WeightGrad;
    SimTime time;
    switch (pass.kind) {
      case PassKind::Forward:
        time = of_unit(costs_.forward, costs_.unit_forward, pass) +
               (started_[s] ? SimTime{} : extra(costs_.first_forward_extra, s));
        started_[s] = true;
        return time;
      case PassKind::InputGrad:
        return of_unit(costs_.input_grad, costs_.unit_input_grad, pass);
      case PassKind::Recompute:
        return extra(costs_.recompute, s);
      case PassKind::Optimizer:
        return extra(costs_.optimizer, s);
      case PassKind::WeightGrad:
        time = of_unit(costs_.weight_grad, costs_.unit_weight_grad, pass);
        break;
      default:
        ORRERY_CHECK(pass.kind == PassKind::Backward, "a pass of no virtual stage");
        time = of_unit(costs_.backward, costs_.unit_backward, pass);
    }
    if (final && --remaining_[s] == 0) {
      time += extra(costs_.last_backward_extra, s);
    }
    return time;
  }

  // Passes that run together are one node.
  void add_block(std::uint32_t device, std::span<const Pass> block) {
    SimTime time;
    for (const Pass& pass : block) {
      time += duration(pass);
      if (&pass != &block.front()) {
        time -= hidden_by_joining(costs_, *(&pass - 1), pass);
      }
      add_ends(device, pass, false);
    }
    const NodeId node = program_.add_work(streams_[device], time, tag_of(block.front()));
    for (const Pass& pass : block) {
      add_pass(device, pass, node);
      add_ends(device, pass, true);
    }
  }

  void add_pass(std::uint32_t device, const Pass& pass, NodeId node) {
    const std::size_t s = pass.virtual_stage;
    const std::size_t here = index(s, pass.micro_batch);
    const auto of = [&](Lane lane) -> NodeId& {
      return nodes_[static_cast<std::size_t>(lane)][here];
    };
    const Lane lane = lane_of(pass.kind);
    of(lane) = node;
    if (lane == Lane::Forward) {
      add_buffers(device, s, here, node);
    } else if (lane != Lane::Optimizer) {
      const NodeId before = of(lane == Lane::WeightGrad ? Lane::Gradient : Lane::Forward);
      if (before != node && before != kNone) {  // none yet: on another list, with an edge
        program_.depend(node, before);
      }
    }
    if (lane == Lane::Recompute) {
      add_kept(device, s, here, node);
    }
    if (lane == Lane::Gradient || lane == Lane::WeightGrad) {
      add_workspace(device, costs_.backward_workspace, s, node);
      consume(here, pass.kind, node);
    }
  }

  // The two ends of a pass's blocking transfers, before and after it.
  void add_ends(std::uint32_t device, const Pass& pass, bool after) {
    const Lane lane = lane_of(pass.kind);
    if (!costs_.blocking_rendezvous || (lane != Lane::Forward && lane != Lane::Gradient)) {
      return;
    }
    const std::size_t s = pass.virtual_stage;
    const auto direction = lane == Lane::Forward ? Direction::Activation : Direction::Gradient;
    if (after && has_output(s, direction) && crosses(s, output_stage(s, direction))) {
      add_end(device, index(s, pass.micro_batch), direction, pass, true);
    } else if (!after && has_input(s, direction) && crosses(input_stage(s, direction), s)) {
      add_end(device, index(input_stage(s, direction), pass.micro_batch), direction, pass, false);
    }
  }

  // A split backward may free a part after the input gradient: the rest is a buffer of its own.
  void consume(std::size_t here, PassKind kind, NodeId node) {
    const bool splits = splits_release();
    if (kind != (splits ? PassKind::WeightGrad : PassKind::InputGrad)) {
      consume(activation_[here], node);
      consume(at(boundary_, here), node);
    }
    if (kind != PassKind::InputGrad) {
      consume(at(kept_, here), node);
    }
  }
  void consume(BufferId buffer, NodeId node) {
    if (buffer != kNone) {
      program_.consume(buffer, node);
    }
  }

  bool splits_release() const { return !costs_.weight_grad_activation.empty(); }
  static BufferId at(const std::vector<BufferId>& buffers, std::size_t here) {
    return buffers.empty() ? kNone : buffers[here];
  }

  BufferId add_activation(std::uint32_t device, ByteCount bytes, NodeId node) {
    return program_.add_buffer(pools_[device], bytes, MemoryCategory::Activations, node);
  }

  void add_buffers(std::uint32_t device, std::size_t s, std::size_t here, NodeId node) {
    if (!recomputed_[s]) {
      add_kept(device, s, here, node);
    } else if (!costs_.boundary.empty()) {
      boundary_.resize(stages_ * micro_batches_, kNone);
      boundary_[here] = add_activation(device, costs_.boundary[s], node);
    }
    if (inputs_.forward_only(s)) {
      consume(here, PassKind::Backward, node);
    }
    add_workspace(device, costs_.forward_workspace, s, node);
  }

  // What a forward keeps, or a recompute pass rebuilds.
  void add_kept(std::uint32_t device, std::size_t s, std::size_t here, NodeId node) {
    if (costs_.activation.empty() || !order_.holds.empty()) {
      return;
    }
    ByteCount bytes = costs_.activation[s];
    if (splits_release() && !inputs_.forward_only(s)) {
      bytes = bytes - costs_.weight_grad_activation[s];
      kept_.resize(stages_ * micro_batches_, kNone);
      kept_[here] = add_activation(device, costs_.weight_grad_activation[s], node);
    }
    activation_[here] = add_activation(device, bytes, node);
  }

  void add_workspace(std::uint32_t device, const std::vector<ByteCount>& bytes, std::size_t s,
                     NodeId node) {
    if (!bytes.empty()) {
      const BufferId buffer =
          program_.add_buffer(pools_[device], bytes[s], MemoryCategory::Workspace, node);
      program_.consume(buffer, node);
    }
  }

  // One end of a blocking transfer: the announcement and the occupation of the stream.
  void add_end(std::uint32_t device, std::size_t producer, Direction direction, const Pass& pass,
               bool send) {
    const auto way = static_cast<std::size_t>(direction);
    Tag tag = tag_of(pass);
    tag.pass = PassKind::Transfer;
    tag.comm = CommKind::SendReceive;
    tag.name = names_[(send ? 0 : 2) + way];
    const std::size_t stage = producer / micro_batches_;
    const std::size_t unit = producer % micro_batches_;
    const SimTime time = direction == Direction::Activation
                             ? costs_.send_forward_of(stage, unit)
                             : costs_.send_backward_of(stage - 1, unit);
    const NodeId ready = program_.add_work(streams_[device], SimTime{}, tag);
    const NodeId move = program_.add_work(streams_[device], time, tag);
    Ends& ends = ends_[way][producer];
    (send ? ends.send_ready : ends.receive_ready) = ready;
    (send ? ends.send : ends.receive) = move;
  }

  bool has_input(std::size_t s, Direction direction) const {
    return direction == Direction::Activation ? !inputs_.is_first(s) : !inputs_.is_last(s);
  }
  bool has_output(std::size_t s, Direction direction) const {
    return direction == Direction::Activation ? !inputs_.is_last(s) : !inputs_.is_first(s);
  }
  static std::size_t input_stage(std::size_t s, Direction direction) {
    return direction == Direction::Activation ? s - 1 : s + 1;
  }
  static std::size_t output_stage(std::size_t s, Direction direction) {
    return direction == Direction::Activation ? s + 1 : s - 1;
  }
  bool crosses(std::size_t a, std::size_t b) const {
    return order_.device_of[a] != order_.device_of[b];
  }

  void add_holds() {
    const auto node_of = [&](Lane lane, std::size_t stage, std::size_t unit) {
      return nodes_[static_cast<std::size_t>(lane)][index(stage, unit)];
    };
    for (const Hold& hold : order_.holds) {
      for (std::uint32_t unit = 0; !costs_.activation.empty() && unit < inputs_.units(hold.of);
           ++unit) {
        program_.consume(add_activation(hold.device, costs_.activation[hold.of],
                                        node_of(hold.from_lane, hold.from, unit)),
                         node_of(hold.to_lane, hold.to, unit));
      }
    }
  }

  void add_inputs() {
    for (const std::vector<Pass>& list : order_.passes) {
      for (const Pass& pass : list) {
        inputs_.for_each(pass, [&](const PassInput& input) { add_input(pass, input); });
      }
    }
  }

  void add_input(const Pass& pass, const PassInput& input) {
    const std::size_t from = index(input.virtual_stage, input.unit);
    const auto lane = static_cast<std::size_t>(lane_of(pass.kind));
    const NodeId producer = nodes_[static_cast<std::size_t>(input.lane)][from];
    const NodeId consumer = nodes_[lane][index(pass.virtual_stage, pass.micro_batch)];
    ORRERY_CHECK(producer != kNone && consumer != kNone, "a pass is missing in the order");
    const bool neighbour = input.edge == kNeighbour;
    const bool crossing = device_of(order_, input.lane, input.virtual_stage) !=
                          device_of(order_, lane_of(pass.kind), pass.virtual_stage);
    if (neighbour && crossing && costs_.blocking_rendezvous) {
      const Ends& ends = ends_[lane][from];
      program_.depend(ends.send, ends.receive_ready);
      program_.depend(ends.receive, ends.send_ready);
      return;
    }
    const SimTime latency = neighbour ? neighbour_latency(pass) : edge_latency(input.edge);
    if (latency == SimTime{} && !(neighbour && crossing)) {
      program_.depend(consumer, producer);
      return;
    }
    Tag tag = program_.tag(producer);
    tag.pass = PassKind::Transfer;
    tag.comm = CommKind::SendReceive;
    const NodeId flow = program_.add_flow({}, latency, Bytes(0.0), {}, tag);
    program_.depend(flow, producer);
    program_.depend(consumer, flow);
  }

  SimTime neighbour_latency(const Pass& pass) const {
    return pass.kind == PassKind::Forward
               ? costs_.send_forward_of(pass.virtual_stage - 1U, pass.micro_batch)
               : costs_.send_backward_of(pass.virtual_stage, pass.micro_batch);
  }
  SimTime edge_latency(std::int32_t edge) const {
    return costs_.edge_latency.empty() ? SimTime{}
                                       : costs_.edge_latency[static_cast<std::size_t>(edge)];
  }

  Tag tag_of(const Pass& pass) const {
    Tag tag;
    tag.pass = pass.kind;
    tag.chunk = pass.virtual_stage;
    tag.micro_batch = pass.micro_batch;
    return tag;
  }

  const PipelineOrder& order_;
  const PipelineCosts& costs_;
  std::size_t stages_;
  std::size_t micro_batches_;
  Program program_;
  std::vector<StreamId> streams_;
  std::vector<PoolId> pools_;
  PassInputs inputs_;
  std::vector<bool> recomputed_;                      // by virtual stage
  std::array<std::vector<NodeId>, kNumLanes> nodes_;  // by virtual stage and micro-batch
  std::vector<BufferId> activation_;
  std::vector<BufferId> kept_;      // the part that is freed last; empty when there is none
  std::vector<BufferId> boundary_;  // what a forward keeps that runs again; empty without any
  std::vector<int> remaining_;
  std::vector<bool> started_;
  std::array<std::uint32_t, 4> names_{};
  std::size_t names_used_ = 0;
  std::array<std::vector<Ends>, 2> ends_;  // by direction
};

}  // namespace

Program expand_pipeline(const PipelineOrder& order, const PipelineCosts& costs) {
  return Expander(order, costs).expand();
}

}  // namespace orrery::sim
