// SPDX-License-Identifier: Apache-2.0
// The flat program of a pipeline. Buffered transfers are Flows without streams. A blocking transfer
// is four nodes: each end announces itself and then occupies its compute stream until the bytes are
// over; both announcements must have happened before either end proceeds, so the two ends run at
// the same time and a crossing of two transfers is a dependency cycle that the engine reports.
#include <fmt/core.h>

#include <array>
#include <limits>
#include <utility>

#include "base/error.hpp"
#include "sim/pipeline.hpp"

namespace orrery::sim {
namespace {

class Expander {
 public:
  Expander(const PipelineOrder& order, const PipelineCosts& costs)
      : order_(order),
        costs_(costs),
        stages_(static_cast<std::size_t>(order.num_virtual_stages)),
        micro_batches_(static_cast<std::size_t>(order.micro_batches)),
        forward_(stages_ * micro_batches_, kNone),
        gradient_(stages_ * micro_batches_, kNone),
        activation_(stages_ * micro_batches_, kNone),
        remaining_(stages_, order.micro_batches),
        started_(stages_, false) {}

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
      for (const Pass& pass : order_.passes[d]) {
        add_pass(d, pass);
      }
    }
    add_inputs();
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

  SimTime duration(const Pass& pass) {
    const std::size_t s = pass.virtual_stage;
    const bool final = pass.kind == PassKind::Backward || pass.kind == PassKind::WeightGrad;
    SimTime time;
    switch (pass.kind) {
      case PassKind::Forward:
        time = costs_.forward[s] + (started_[s] ? SimTime{} : extra(costs_.first_forward_extra, s));
        started_[s] = true;
        return time;
      case PassKind::InputGrad:
        return costs_.input_grad[s];
      case PassKind::WeightGrad:
        time = costs_.weight_grad[s];
        break;
      default:
        ORRERY_CHECK(pass.kind == PassKind::Backward, "a pass of no virtual stage");
        time = costs_.backward[s];
    }
    if (final && --remaining_[s] == 0) {
      time += extra(costs_.last_backward_extra, s);
    }
    return time;
  }

  void add_pass(std::uint32_t device, const Pass& pass) {
    const std::size_t s = pass.virtual_stage;
    const std::size_t here = index(s, pass.micro_batch);
    const bool forward = pass.kind == PassKind::Forward;
    const bool gradient = pass.kind == PassKind::InputGrad || pass.kind == PassKind::Backward;
    const auto direction = forward ? Direction::Activation : Direction::Gradient;
    const bool moves = costs_.blocking_rendezvous && (forward || gradient);
    if (moves && has_input(s, direction) && crosses(input_stage(s, direction), s)) {
      add_end(device, index(input_stage(s, direction), pass.micro_batch), direction, pass, false);
    }
    const NodeId node = program_.add_work(streams_[device], duration(pass), tag_of(pass));
    if (forward) {
      forward_[here] = node;
      add_buffers(device, s, here, node);
    } else {
      if (gradient) {
        gradient_[here] = node;
      }
      add_workspace(device, costs_.backward_workspace, s, node);
      if (pass.kind == PassKind::WeightGrad) {
        program_.depend(node, gradient_[here]);
      } else {
        program_.depend(node, forward_[here]);
      }
      if (pass.kind != PassKind::InputGrad && activation_[here] != kNone) {
        program_.consume(activation_[here], node);
      }
    }
    if (moves && has_output(s, direction) && crosses(s, output_stage(s, direction))) {
      add_end(device, here, direction, pass, true);
    }
  }

  void add_buffers(std::uint32_t device, std::size_t s, std::size_t here, NodeId node) {
    if (!costs_.activation.empty()) {
      activation_[here] = program_.add_buffer(pools_[device], costs_.activation[s],
                                              MemoryCategory::Activations, node);
    }
    add_workspace(device, costs_.forward_workspace, s, node);
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
    const SimTime time = direction == Direction::Activation ? costs_.send_forward[stage]
                                                            : costs_.send_backward[stage - 1];
    const NodeId ready = program_.add_work(streams_[device], SimTime{}, tag);
    const NodeId move = program_.add_work(streams_[device], time, tag);
    Ends& ends = ends_[way][producer];
    (send ? ends.send_ready : ends.receive_ready) = ready;
    (send ? ends.send : ends.receive) = move;
  }

  bool has_input(std::size_t s, Direction direction) const {
    return direction == Direction::Activation ? s > 0 : s + 1 < stages_;
  }
  bool has_output(std::size_t s, Direction direction) const {
    return direction == Direction::Activation ? s + 1 < stages_ : s > 0;
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

  void add_inputs() {
    for (const Direction direction : {Direction::Activation, Direction::Gradient}) {
      for (std::size_t s = 0; s < stages_; ++s) {
        if (!has_input(s, direction)) {
          continue;
        }
        for (std::size_t j = 0; j < micro_batches_; ++j) {
          add_input(s, j, direction);
        }
      }
    }
  }

  void add_input(std::size_t s, std::size_t j, Direction direction) {
    const std::vector<NodeId>& nodes = direction == Direction::Activation ? forward_ : gradient_;
    const std::size_t from = input_stage(s, direction);
    const NodeId producer = nodes[index(from, j)];
    const NodeId consumer = nodes[index(s, j)];
    ORRERY_CHECK(producer != kNone && consumer != kNone, "a pass is missing in the order");
    if (!crosses(from, s)) {
      program_.depend(consumer, producer);
      return;
    }
    if (costs_.blocking_rendezvous) {
      const Ends& ends = ends_[static_cast<std::size_t>(direction)][index(from, j)];
      program_.depend(ends.send, ends.receive_ready);
      program_.depend(ends.receive, ends.send_ready);
      return;
    }
    Tag tag = program_.tag(producer);
    tag.pass = PassKind::Transfer;
    tag.comm = CommKind::SendReceive;
    const SimTime latency =
        direction == Direction::Activation ? costs_.send_forward[from] : costs_.send_backward[s];
    const NodeId flow = program_.add_flow({}, latency, Bytes(0.0), {}, tag);
    program_.depend(flow, producer);
    program_.depend(consumer, flow);
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
  std::vector<NodeId> forward_;  // by virtual stage and micro-batch
  std::vector<NodeId> gradient_;
  std::vector<BufferId> activation_;
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
