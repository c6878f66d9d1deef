// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>

#include <utility>

#include "sim/pipeline.hpp"

namespace orrery::sim {
namespace {

// Which passes of one (virtual stage, micro-batch) have been listed.
struct Listed {
  bool forward = false;
  bool input_grad = false;
  bool weight_grad = false;
  bool backward = false;
};

std::string pass_text(const Pass& pass) {
  return fmt::format("{} of virtual stage {}, micro-batch {}", to_text(pass.kind),
                     pass.virtual_stage, pass.micro_batch);
}

class Checker {
 public:
  Checker(const PipelineOrder& order, int micro_batches)
      : order_(order),
        stages_(static_cast<std::size_t>(order.num_virtual_stages)),
        micro_batches_(static_cast<std::size_t>(micro_batches)),
        listed_(stages_ * micro_batches_),
        forward_done_(stages_ * micro_batches_, false),
        gradient_done_(stages_ * micro_batches_, false) {}

  std::string check() {
    for (std::size_t d = 0; d < order_.passes.size(); ++d) {
      for (const Pass& pass : order_.passes[d]) {
        if (std::string wrong = check_pass(d, pass); !wrong.empty()) {
          return wrong;
        }
      }
    }
    for (std::size_t i = 0; i < listed_.size(); ++i) {
      const Listed& listed = listed_[i];
      if (!listed.forward || !(listed.backward || (listed.input_grad && listed.weight_grad))) {
        return fmt::format("virtual stage {}, micro-batch {} lacks its {}", i / micro_batches_,
                           i % micro_batches_, listed.forward ? "backward" : "forward");
      }
    }
    return run();
  }

 private:
  std::string check_pass(std::size_t device, const Pass& pass) {
    if (pass.virtual_stage >= stages_ || pass.micro_batch >= micro_batches_) {
      return pass_text(pass) + " does not exist";
    }
    if (order_.device_of[pass.virtual_stage] != device) {
      return fmt::format("{} is listed on device {}, which does not hold it", pass_text(pass),
                         device);
    }
    Listed& listed = listed_[pass.virtual_stage * micro_batches_ + pass.micro_batch];
    bool twice = false;
    bool early = false;
    switch (pass.kind) {
      case PassKind::Forward:
        twice = std::exchange(listed.forward, true);
        break;
      case PassKind::InputGrad:
        early = !listed.forward;
        twice = std::exchange(listed.input_grad, true) || listed.backward;
        break;
      case PassKind::WeightGrad:
        early = !listed.input_grad;
        twice = std::exchange(listed.weight_grad, true) || listed.backward;
        break;
      case PassKind::Backward:
        early = !listed.forward;
        twice = std::exchange(listed.backward, true) || listed.input_grad;
        break;
      default:
        return fmt::format("{} is no pass of a pipeline order", to_text(pass.kind));
    }
    if (twice) {
      return pass_text(pass) + " is listed twice";
    }
    return early ? pass_text(pass) + " is listed before what it needs" : "";
  }

  bool is_ready(const Pass& pass) const {
    const std::size_t here = pass.virtual_stage * micro_batches_ + pass.micro_batch;
    switch (pass.kind) {
      case PassKind::Forward:
        return pass.virtual_stage == 0 || forward_done_[here - micro_batches_];
      case PassKind::WeightGrad:
        return true;
      default:
        return pass.virtual_stage + std::size_t{1} == stages_ ||
               gradient_done_[here + micro_batches_];
    }
  }

  // Executes the lists without times; each visit to a device runs all it can.
  std::string run() {
    std::vector<std::size_t> position(order_.passes.size(), 0);
    bool progress = true;
    while (progress) {
      progress = false;
      for (std::size_t d = 0; d < order_.passes.size(); ++d) {
        const std::vector<Pass>& list = order_.passes[d];
        while (position[d] < list.size() && is_ready(list[position[d]])) {
          const Pass& pass = list[position[d]++];
          const std::size_t here = pass.virtual_stage * micro_batches_ + pass.micro_batch;
          if (pass.kind == PassKind::Forward) {
            forward_done_[here] = true;
          } else if (pass.kind != PassKind::WeightGrad) {
            gradient_done_[here] = true;
          }
          progress = true;
        }
      }
    }
    for (std::size_t d = 0; d < order_.passes.size(); ++d) {
      if (position[d] < order_.passes[d].size()) {
        return fmt::format("deadlock: device {} waits for ever to start {}", d,
                           pass_text(order_.passes[d][position[d]]));
      }
    }
    return "";
  }

  const PipelineOrder& order_;
  std::size_t stages_;
  std::size_t micro_batches_;
  std::vector<Listed> listed_;
  std::vector<bool> forward_done_;
  std::vector<bool> gradient_done_;
};

}  // namespace

std::string check_order(const PipelineOrder& order, int micro_batches) {
  if (order.num_virtual_stages < 1 || micro_batches < 1 || order.micro_batches != micro_batches ||
      order.device_of.size() != static_cast<std::size_t>(order.num_virtual_stages)) {
    return fmt::format("the order has {} virtual stages on {} entries and {} micro-batches, not {}",
                       order.num_virtual_stages, order.device_of.size(), order.micro_batches,
                       micro_batches);
  }
  for (const std::uint16_t device : order.device_of) {
    if (device >= order.passes.size()) {
      return fmt::format("device {} has no list", device);
    }
  }
  return Checker(order, micro_batches).check();
}

}  // namespace orrery::sim
