// SPDX-License-Identifier: Apache-2.0
#include "sim/orders/listed_updates.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <vector>

#include "sim/pipeline/pass_inputs.hpp"

namespace orrery::sim {
namespace {

class UpdateCheck {
 public:
  explicit UpdateCheck(const PipelineOrder& order)
      : order_(order),
        inputs_(order),
        stages_(order.device_of.size()),
        at_input_(static_cast<std::size_t>(order.micro_batches), 0) {}

  std::string check() {
    for_each_pass([this](const Pass& pass) {
      updates_ = std::max(updates_, pass.kind == PassKind::Optimizer ? pass.micro_batch + 1 : 0);
    });
    if (updates_ == 0) {
      const bool needed = order_.iterations > 1 || order_.versions != Versions::Flush;
      return needed ? "iterations and versions of parameters need updates: list passes U" : "";
    }
    if (const int iterations = order_.iterations; static_cast<int>(updates_) % iterations != 0) {
      return fmt::format("{} updates are not the same number in each of {} iterations", updates_,
                         iterations);
    }
    for (std::size_t s = 0; s < stages_.size(); ++s) {
      const std::uint32_t whole = inputs_.units(s) / static_cast<std::uint32_t>(order_.slices);
      if (whole % updates_ != 0) {
        return fmt::format(
            "{} updates of a stage do not divide its {} micro-batches: list {} of each stage",
            updates_, whole, largest_divisor(whole));
      }
    }
    if (order_.versions == Versions::InputStage && order_.device_of.front() != 0) {
      return "versions \"input-stage\" are those of stage 0: list it on device 0";
    }
    // First stages say which parameters their units use.
    for (const bool first : {true, false}) {
      for_each_pass([&](const Pass& pass) {
        if (inputs_.is_first(pass.virtual_stage) == first && wrong_.empty()) {
          run(pass);
        }
      });
    }
    for (std::size_t s = 0; s < stages_.size() && wrong_.empty(); ++s) {
      if (stages_[s].done < updates_) {
        wrong_ = fmt::format("missing pass: U of virtual stage {}, update {}", s, stages_[s].done);
      }
    }
    return wrong_;
  }

 private:
  struct Stage {
    std::uint32_t done = 0;  // updates
    std::uint32_t gradients = 0;
  };

  // The most updates below those listed that divide so many micro-batches and the iterations' share
  // of them.
  std::uint32_t largest_divisor(std::uint32_t whole) const {
    const auto iterations = static_cast<std::uint32_t>(order_.iterations);
    for (std::uint32_t updates = std::min(updates_, whole); updates > 1; --updates) {
      if (whole % updates == 0 && updates % iterations == 0) {
        return updates;
      }
    }
    return 1;
  }

  template <typename Visit>
  void for_each_pass(Visit visit) const {
    for (const std::vector<Pass>& list : order_.passes) {
      std::for_each(list.begin(), list.end(), visit);
    }
  }

  void run(const Pass& pass) {
    const std::size_t s = pass.virtual_stage;
    Stage& stage = stages_[s];
    const std::uint32_t each = inputs_.units(s) / updates_;
    if (pass.kind == PassKind::Optimizer) {
      if (pass.micro_batch != stage.done) {
        wrong_ = fmt::format("update {} of virtual stage {} is not in turn: update {} comes next",
                             pass.micro_batch, s, stage.done);
      } else if (stage.gradients < (pass.micro_batch + 1) * each) {
        wrong_ = fmt::format(
            "update {} of virtual stage {} is listed before gradients it uses: list it after {} of "
            "its backwards",
            pass.micro_batch, s, (pass.micro_batch + 1) * each);
      }
      ++stage.done;
    } else if (pass.kind == PassKind::Forward) {
      const std::uint32_t needed = needed_by(pass, pass.micro_batch / each);
      if (stage.done < needed) {
        wrong_ = fmt::format(
            "update {} of virtual stage {} is listed after a forward that uses its parameters: "
            "list it earlier, or state other \"versions\"",
            needed - 1, s);
      }
    } else if (pass.kind == PassKind::WeightGrad || pass.kind == PassKind::Backward) {
      ++stage.gradients;
    }
  }

  // Updates that a forward waits for, whose unit belongs to the update `own`.
  std::uint32_t needed_by(const Pass& pass, std::uint32_t own) {
    std::uint32_t& at_input = at_input_[pass.micro_batch];
    if (order_.versions == Versions::InputStage && inputs_.is_first(pass.virtual_stage)) {
      at_input = stages_[pass.virtual_stage].done;
    }
    switch (order_.versions) {
      case Versions::Flush:
        return own;
      case Versions::Delayed:
        return std::max(own, 1U) - 1;
      case Versions::InputStage:
        return at_input;
      default:
        return 0;
    }
  }

  const PipelineOrder& order_;
  PassInputs inputs_;
  std::vector<Stage> stages_;
  std::vector<std::uint32_t> at_input_;  // updates that a unit's first forward found
  std::uint32_t updates_ = 0;            // of a stage
  std::string wrong_;
};

}  // namespace

std::string wrong_update(const PipelineOrder& order) { return UpdateCheck(order).check(); }

}  // namespace orrery::sim
