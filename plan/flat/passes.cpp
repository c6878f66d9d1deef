// SPDX-License-Identifier: Apache-2.0
#include "plan/flat/passes.hpp"

#include <algorithm>
#include <utility>

#include "base/error.hpp"
#include "plan/stage/stage.hpp"

namespace orrery::plan {

namespace {

sim::Tag tag_of(const sim::Pass& pass) {
  sim::Tag tag;
  tag.pass = pass.kind;
  tag.chunk = pass.virtual_stage;
  tag.micro_batch = pass.micro_batch;
  return tag;
}

}  // namespace

FlatPasses::FlatPasses(const Plan& plan, const sim::PipelineOrder& order,
                       const std::vector<FlatStage>& stages, const std::vector<SimTime>& sends,
                       const MessageWaits& waits, RankProgram& ranks)
    : plan_(plan),
      order_(order),
      stages_(stages),
      sends_(sends),
      waits_(waits),
      ranks_(ranks),
      forward_(stages.size() * static_cast<std::size_t>(order.micro_batches)),
      backward_(forward_.size()),
      weight_grad_(forward_.size()),
      forwards_left_(stages.size(), order.micro_batches),
      backwards_left_(stages.size(), order.micro_batches) {
  sim::Program& program = ranks_.program();
  names_ = {program.add_name("gather parameters"),
            program.add_name("reduce gradients"),
            program.add_name("send"),
            program.add_name("sum tied embeddings"),
            program.add_name("gradient norm"),
            program.add_name("optimizer"),
            program.add_name("host"),
            program.add_name("largest magnitudes"),
            program.add_name("cast weights"),
            program.add_name("copy parameters and gradients")};
}

std::size_t FlatPasses::index(std::size_t stage, std::size_t micro_batch) const {
  return stage * static_cast<std::size_t>(order_.micro_batches) + micro_batch;
}

bool FlatPasses::crosses(std::size_t stage) const {
  return order_.device_of[stage] != order_.device_of[stage + 1];
}

void FlatPasses::add_all() {
  for (std::size_t device = 0; device < order_.passes.size(); ++device) {
    devices_.emplace_back().streams = ranks_.add_stage(device);
    for (const sim::Pass& pass : order_.passes[device]) {
      add_pass(devices_.back(), pass);
    }
    if (!plan_.execution.overlap_grad_reduce) {
      reduce_after_all(devices_.back(), device);
    }
  }
  link_passes();
  add_activations();
}

void FlatPasses::add_pass(Device& device, const sim::Pass& pass) {
  ORRERY_CHECK(pass.kind <= sim::PassKind::Backward, "a pass that plans do not have");
  const std::size_t at = index(pass.virtual_stage, pass.micro_batch);
  PassEnds& ends = pass.kind == sim::PassKind::Forward      ? forward_[at]
                   : pass.kind == sim::PassKind::WeightGrad ? weight_grad_[at]
                                                            : backward_[at];
  if (pass.kind == sim::PassKind::Forward) {
    add_forward(device, pass, ends);
  } else {
    add_backward(device, pass, ends);
  }
  ends.ends = device.front;
}

void FlatPasses::add_forward(Device& device, const sim::Pass& pass, PassEnds& ends) {
  const FlatStage& stage = stages_[pass.virtual_stage];
  const bool first = forwards_left_[pass.virtual_stage]-- == order_.micro_batches;
  const bool sharded = stage.zero_stage == 3;
  sim::Tag tag = tag_of(pass);
  for (const FlatStage::Item& item : stage.blocks) {
    Spread gather;
    if (sharded || (first && plan_.execution.overlap_param_gather)) {
      gather = add_gather(device, item, tag, sharded);
    }
    tag.layer = item.layer;
    add_list(device, item.block->forward, *item.block, tag, gather, device.front, ends);
    if (sharded) {
      device.gathered.push_back(device.front);
    }
  }
  if (first) {
    tag.name = names_.casts;
    add_alone(device, stage.weight_casts, tag);
  }
  add_amax(device, stage.amax, stage.amax.forward, tag);
  const SimTime spared = first ? waits_.not_first[pass.virtual_stage] : SimTime{};
  add_wait(device, waits_.forward[pass.virtual_stage] - spared, tag);
}

void FlatPasses::add_backward(Device& device, const sim::Pass& pass, PassEnds& ends) {
  const FlatStage& stage = stages_[pass.virtual_stage];
  const bool begins = pass.kind != sim::PassKind::WeightGrad;  // gradients of activations
  const bool completes = pass.kind != sim::PassKind::InputGrad;
  const bool last = completes && --backwards_left_[pass.virtual_stage] == 0;
  const bool sharded = stage.zero_stage == 3;
  const bool gathers = begins && sharded && plan_.execution.reshard_after_forward;
  const bool reduces = completes && (last || stage.reduces_every_pass);
  const bool beside = plan_.execution.overlap_grad_reduce || sharded;
  const sim::Tag tag = tag_of(pass);
  const std::size_t count = stage.blocks.size();
  Spread gather;
  if (gathers && count > 0) {
    gather = add_gather(device, stage.blocks.back(), tag, true, true);
  }
  for (std::size_t position = 0; position < count; ++position) {
    const FlatStage::Item& item = stage.blocks[count - 1 - position];
    sim::Tag of_block = tag;
    of_block.layer = item.layer;
    const Front start = device.front;
    if (begins) {
      add_list(device, item.block->recompute, *item.block, of_block, gather, start, ends);
    }
    const FlatList& list = pass.kind == sim::PassKind::InputGrad    ? item.block->input_grad
                           : pass.kind == sim::PassKind::WeightGrad ? item.block->weight_grad
                                                                    : item.block->backward;
    add_list(device, list, *item.block, of_block, gather, start, ends);
    if (gathers) {
      device.gathered.push_back(device.front);
      if (position + 1 < count) {
        gather = add_gather(device, stage.blocks[count - 2 - position], tag, true, true);
      }
    }
    if (reduces && beside) {
      add_reduce(device, item, tag);
    }
  }
  if (completes && stage.reduces_every_pass && !beside) {
    add_reductions(device, stage, tag);
    device.front[kCommunication] = device.data;  // the next pass waits
  }
  if (begins) {
    add_amax(device, stage.amax, stage.amax.backward, tag);
    const SimTime spared = last ? waits_.not_last[pass.virtual_stage] : SimTime{};
    add_wait(device, waits_.backward[pass.virtual_stage] - spared, tag);
  }
}

void FlatPasses::reduce_after_all(Device& device, std::size_t device_index) {
  for (std::size_t stage = 0; stage < stages_.size(); ++stage) {
    if (order_.device_of[stage] == device_index && !stages_[stage].reduces_every_pass) {
      sim::Tag tag;
      tag.micro_batch = sim::kAllMicroBatches;
      tag.chunk = static_cast<std::uint16_t>(stage);
      add_reductions(device, stages_[stage], tag);
    }
  }
}

void FlatPasses::add_reductions(Device& device, const FlatStage& stage, const sim::Tag& tag) {
  for (std::size_t position = stage.blocks.size(); position-- > 0;) {
    add_reduce(device, stage.blocks[position], tag);
  }
}

// The steps of a block, after everything of the blocks before it; the host issues them from `start`
// on.
void FlatPasses::add_list(Device& device, const FlatList& list, const FlatBlock& block,
                          sim::Tag tag, const Spread& gather, const Front& start, PassEnds& ends) {
  const Front before = device.front;
  const Front issued = start;
  std::vector<Spread> nodes;
  nodes.reserve(list.steps.size());
  Front now;
  const auto enter = [&](const Spread& node, int place) {
    depend_on_front(node, place == kHost ? issued : before, place);
    ranks_.depend(node, gather);
    Spread& entry = ends.entries[static_cast<std::size_t>(place)];
    if (!entry.exists()) {
      entry = node;
    }
  };
  for (const FlatStep& step : list.steps) {
    tag.pass = step.pass;
    tag.name = step.name;
    tag.comm = step.comm;
    const int place = step.collective ? kCommunication : kCompute;
    Spread& latest = now[static_cast<std::size_t>(place)];
    const Spread node =
        step.collective
            ? ranks_.add_collective(device.streams, Lane::Communication,
                                    ranks_.groups(block.mesh, step.axes), step.time, tag)
            : ranks_.add_kernel(device.streams, Lane::Compute, step.time, tag);
    if (step.after >= 0) {
      ranks_.depend(node, nodes[static_cast<std::size_t>(step.after)]);
    } else if (!latest.exists()) {
      enter(node, place);
    }
    if (!step.collective) {
      ends.first = ends.first.exists() ? ends.first : node;
      ends.last = node;
    }
    latest = node;
    nodes.push_back(node);
  }
  if (list.host.value() > 0) {
    tag.pass = sim::PassKind::Host;
    tag.comm = sim::CommKind::None;
    tag.name = names_.host;
    now[kHost] = ranks_.add_kernel(device.streams, Lane::Host, list.host, tag);
    enter(now[kHost], kHost);
  }
  if (!list.steps.empty()) {
    device.front = now;
  }
  tag.name = names_.copies;
  add_alone(device, to_sim_time(list.copies), tag);
}

Spread FlatPasses::add_gather(Device& device, const FlatStage::Item& item, sim::Tag tag,
                              bool limited, bool backward) {
  const Seconds time = backward ? item.block->gather_backward : item.block->gather;
  if (time.value() <= 0) {
    return {};
  }
  tag.pass = sim::PassKind::Communication;
  tag.comm = sim::CommKind::AllGather;
  tag.layer = item.layer;
  tag.name = names_.gather;
  const Spread node =
      ranks_.add_collective(device.streams, Lane::Data,
                            ranks_.groups(item.block->mesh, item.block->gather_axes), time, tag);
  const std::size_t ahead =
      plan_.execution.overlap_param_gather ? gathers_in_flight(plan_.execution) : 1;
  if (limited && device.gathered.size() >= ahead) {
    depend_on_front(node, device.gathered[device.gathered.size() - ahead], -1);
  }
  device.data = node;
  return node;
}

void FlatPasses::add_reduce(Device& device, const FlatStage::Item& item, sim::Tag tag) {
  if (item.block->reduce.value() <= 0) {
    return;
  }
  tag.pass = sim::PassKind::Communication;
  tag.comm =
      item.block->gather.value() > 0 ? sim::CommKind::ReduceScatter : sim::CommKind::AllReduce;
  tag.layer = item.layer;
  tag.name = names_.reduce;
  const Spread node = ranks_.add_collective(
      device.streams, Lane::Data, ranks_.groups(item.block->mesh, item.block->reduce_axes),
      item.block->reduce, tag);
  depend_on_front(node, device.front, -1);
  device.data = node;
}

// All ranks wait for it, and it for all that came before it.
void FlatPasses::add_amax(Device& device, const AmaxReductions& amax, Seconds time, sim::Tag tag) {
  if (amax.axes.empty()) {
    return;
  }
  std::uint8_t axes = 0;
  for (const Axis axis : amax.axes) {
    axes = static_cast<std::uint8_t>(axes | 1U << static_cast<unsigned>(axis));
  }
  tag.pass = sim::PassKind::Communication;
  tag.comm = sim::CommKind::AllReduce;
  tag.name = names_.amax;
  const Spread node = ranks_.add_collective(device.streams, Lane::Communication,
                                            ranks_.groups(amax.mesh, axes), time, tag);
  depend_on_front(node, device.front, kCommunication);
  device.front = {};
  device.front[kCommunication] = node;
}

// The compute stream is taken until the messages of a pass are over.
void FlatPasses::add_wait(Device& device, SimTime time, sim::Tag tag) {
  tag.pass = sim::PassKind::Transfer;
  tag.comm = sim::CommKind::SendReceive;
  tag.name = names_.send;
  add_alone(device, time, tag);
}

void FlatPasses::add_alone(Device& device, SimTime time, const sim::Tag& tag) {
  if (time.ps == 0) {
    return;
  }
  const Spread node = ranks_.add_kernel(device.streams, Lane::Compute, to_seconds(time), tag);
  depend_on_front(node, device.front, kCompute);
  device.front = {node, {}, {}};
}

void FlatPasses::depend_on_front(const Spread& node, const Front& front, int except) {
  for (int place = 0; place < static_cast<int>(kLanesOfBlocks); ++place) {
    if (place != except) {
      ranks_.depend(node, front[static_cast<std::size_t>(place)]);
    }
  }
}

void FlatPasses::link_passes() {
  for (std::size_t stage = 0; stage + 1 < stages_.size(); ++stage) {
    const bool flies = crosses(stage) && plan_.execution.overlap_p2p;
    const SimTime time = flies ? sends_[stage] : SimTime{};
    for (std::size_t micro_batch = 0; micro_batch < static_cast<std::size_t>(order_.micro_batches);
         ++micro_batch) {
      sim::Tag tag;
      tag.pass = sim::PassKind::Transfer;
      tag.comm = sim::CommKind::SendReceive;
      tag.chunk = static_cast<std::uint16_t>(stage);
      tag.micro_batch = static_cast<std::uint32_t>(micro_batch);
      tag.name = names_.send;
      const std::size_t here = index(stage, micro_batch);
      const std::size_t next = index(stage + 1, micro_batch);
      link(forward_[here], forward_[next], time, tag);
      tag.chunk = static_cast<std::uint16_t>(stage + 1);
      link(backward_[next], backward_[here], time, tag);
    }
  }
}

void FlatPasses::link(const PassEnds& from, const PassEnds& to, SimTime time, const sim::Tag& tag) {
  Front ends = from.ends;
  if (time.ps > 0) {
    const Spread flow = ranks_.add_flow(time, tag);
    depend_on_front(flow, ends, -1);
    ends = {flow, {}, {}};
  }
  for (const Spread& entry : to.entries) {
    depend_on_front(entry, ends, -1);
  }
}

void FlatPasses::add_activations() {
  for (std::size_t stage = 0; stage < stages_.size(); ++stage) {
    const ByteCount saved = stages_[stage].activations;
    for (std::size_t micro_batch = 0; micro_batch < static_cast<std::size_t>(order_.micro_batches);
         ++micro_batch) {
      const PassEnds& forward = forward_[index(stage, micro_batch)];
      const PassEnds& backward = backward_[index(stage, micro_batch)];
      const PassEnds& apart = weight_grad_[index(stage, micro_batch)];
      if (!forward.first.exists() || !backward.last.exists()) {
        continue;
      }
      const ByteCount kept = apart.last.exists() ? stages_[stage].kept : ByteCount();
      const ByteCount of_both = std::min(saved, kept);
      add_buffer(stage, saved - of_both, forward, backward);
      add_buffer(stage, of_both, forward, apart);
      add_buffer(stage, kept - of_both, backward, apart);  // gradients
    }
  }
}

void FlatPasses::add_buffer(std::size_t stage, ByteCount bytes, const PassEnds& from,
                            const PassEnds& to) {
  const Device& device = devices_[order_.device_of[stage]];
  for (std::size_t rank = 0; bytes.value() > 0 && rank < ranks_.num_ranks(); ++rank) {
    const sim::BufferId buffer = ranks_.program().add_buffer(
        device.streams.pools[rank], bytes, sim::MemoryCategory::Activations, from.first.of(rank));
    ranks_.program().consume(buffer, to.last.of(rank));
  }
}

}  // namespace orrery::plan
