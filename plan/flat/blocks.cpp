// SPDX-License-Identifier: Apache-2.0
#include "plan/flat/blocks.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "plan/block/reduced_axes.hpp"
#include "plan/block/states.hpp"
#include "plan/stage/split_backward.hpp"

namespace orrery::plan {

namespace {

std::vector<bool> awaited_kernels(const std::vector<Step>& steps) {
  std::vector<bool> awaited(steps.size(), false);
  for (const Step& step : steps) {
    for (const int before : step.after) {
      awaited[static_cast<std::size_t>(before)] =
          awaited[static_cast<std::size_t>(before)] || step.collective;
    }
  }
  return awaited;
}

// Turns one list of steps into nodes, optionally joining kernels.
class Reducer {
 public:
  Reducer(const std::vector<Step>& steps, bool merge, sim::Program& program)
      : steps_(steps), merge_(merge), program_(program), awaited_(awaited_kernels(steps)) {}

  std::vector<FlatStep> reduce() {
    for (std::size_t index = 0; index < steps_.size(); ++index) {
      const Step& step = steps_[index];
      const int after = latest_of_other_stream(step);
      if (joins_last(step, after)) {
        result_[static_cast<std::size_t>(last_kernel_)].time += step.time;
        ends_.back() = &step;
      } else {
        add(step, after);
      }
      node_of_.push_back(step.collective ? static_cast<int>(result_.size()) - 1 : last_kernel_);
      open_ = step.collective ? open_ : !awaited_[index];
    }
    name_joined();
    return std::move(result_);
  }

 private:
  int latest_of_other_stream(const Step& step) const {
    int latest = -1;
    for (const int before : step.after) {
      if (steps_[static_cast<std::size_t>(before)].collective != step.collective) {
        latest = std::max(latest, node_of_[static_cast<std::size_t>(before)]);
      }
    }
    return latest;
  }

  // Nobody waits for the kernels so far alone, and this one waits for nothing that they did not.
  bool joins_last(const Step& step, int after) const {
    return merge_ && !step.collective && last_kernel_ >= 0 && open_ &&
           after <= result_[static_cast<std::size_t>(last_kernel_)].after;
  }

  void add(const Step& step, int after) {
    FlatStep node;
    node.collective = step.collective;
    node.time = step.time;
    node.axes = step.axes;
    node.after = after;
    node.pass = step.pass;
    node.comm = step.comm;
    result_.push_back(node);
    starts_.push_back(&step);
    ends_.push_back(&step);
    if (!step.collective) {
      last_kernel_ = static_cast<int>(result_.size()) - 1;
    }
  }

  void name_joined() {
    for (std::size_t index = 0; index < result_.size(); ++index) {
      const std::string name =
          starts_[index] == ends_[index]
              ? std::string(starts_[index]->name)
              : fmt::format("{} ... {}", starts_[index]->name, ends_[index]->name);
      result_[index].name = program_.add_name(name);
    }
  }

  const std::vector<Step>& steps_;
  bool merge_;
  sim::Program& program_;
  std::vector<bool> awaited_;  // by a collective
  std::vector<FlatStep> result_;
  std::vector<int> node_of_;
  std::vector<const Step*> starts_;
  std::vector<const Step*> ends_;
  int last_kernel_ = -1;
  bool open_ = false;
};

Seconds kernel_time(const std::vector<Step>& steps) {
  Seconds kernels;
  for (const Step& step : steps) {
    kernels += step.collective ? Seconds() : step.time;
  }
  return kernels;
}

// Ranks that hold parts of the block's states; its traffic is one collective of all of them.
void set_traffic_axes(const BlockCost& cost, const Mesh& mesh, FlatBlock& block) {
  const auto bit_of = [](std::size_t axis) { return static_cast<std::uint8_t>(1U << axis); };
  for (const StateGroup& group : cost.states) {
    for (const StateGroup::Repeated& one : group.repeated) {
      block.reduce_axes =
          static_cast<std::uint8_t>(block.reduce_axes | bit_of(static_cast<std::size_t>(one.axis)));
    }
    for (std::size_t index = 0; index < kNumAxes; ++index) {
      const auto axis = static_cast<Axis>(index);
      if (!group.reduced_over(axis) || mesh.of(axis) == 1) {
        continue;
      }
      const std::uint8_t bit = bit_of(index);
      block.reduce_axes = static_cast<std::uint8_t>(block.reduce_axes | bit);
      if (shares_states(group, axis)) {
        block.gather_axes = static_cast<std::uint8_t>(block.gather_axes | bit);
      }
    }
  }
}

}  // namespace

FlatBlock flat_block(const FlatBlockRequest& request, const Plan& plan, BlockCosts& costs,
                     sim::Program& program) {
  const BlockCost& cost =
      costs.of(request.block, request.layout, plan.micro_batch_of(request.layout, request.block));
  const BlockSteps steps = costs.steps_of(request.block, request.layout,
                                          plan.micro_batch_of(request.layout, request.block));
  FlatBlock block;
  // Host time counts from the start of `before`, which the same pass runs first.
  const auto list_of = [&](const std::vector<Step>& list, Seconds host,
                           const std::vector<Step>& before) {
    const Seconds kernels = kernel_time(list) + kernel_time(before);
    return FlatList{Reducer(list, request.merge_kernels, program).reduce(),
                    host > kernels ? host : Seconds(), Seconds()};
  };
  const Seconds replay = cost.recompute.host;
  const Seconds host = cost.backward.host - replay;
  block.forward = list_of(steps.forward, cost.forward.host, {});
  block.recompute = list_of(steps.recompute, Seconds(), {});
  block.backward = list_of(steps.backward, replay + host, steps.recompute);
  block.mesh = mesh_of(request.layout, plan.dp);
  const StateTraffic traffic =
      state_traffic(cost, request.layout, block.mesh, costs, request.without_tied);
  block.forward.copies = traffic.copy_forward;
  block.backward.copies = traffic.copy_backward;
  if (request.split_backward) {
    const SplitSteps split = split_steps(steps.backward);
    block.input_grad =
        list_of(split.input_grad, replay + host * host_share(split.input_grad, steps.backward),
                steps.recompute);
    block.weight_grad =
        list_of(split.weight_grad, host * host_share(split.weight_grad, steps.backward), {});
    const Seconds whole = kernel_time(steps.backward);
    const double share = whole.value() > 0 ? kernel_time(split.weight_grad) / whole : 0.0;
    block.weight_grad.copies = traffic.copy_backward * share;
    block.input_grad.copies = traffic.copy_backward - block.weight_grad.copies;
  }
  block.serial =
      is_serial(steps.forward) && is_serial(steps.recompute) && is_serial(steps.backward);
  block.gather = traffic.gather;
  block.gather_backward = traffic.gather_backward;
  block.reduce = traffic.reduce;
  set_traffic_axes(cost, block.mesh, block);
  return block;
}

}  // namespace orrery::plan
