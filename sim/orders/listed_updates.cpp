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
      if (pass.kind == PassKind::Optimizer) {
        updates_ = std::max(updates_, pass.micro_batch + 1);
        stages_[pass.virtual_stage].listed.push_back(pass.micro_batch);
      }
    });
    if (updates_ == 0) {
      const bool needed = order_.iterations > 1 || order_.versions != Versions::Flush;
      return needed ? "iterations and versions of parameters need updates: list passes U" : "";
    }
    for (std::size_t s = 0; s < stages_.size(); ++s) {
      if (std::string wrong = wrong_number(s); !wrong.empty()) {
        return wrong;
      }
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
    return wrong_;
  }

 private:
  struct Stage {
    std::uint32_t done = 0;  // updates
    std::uint32_t gradients = 0;
    std::vector<std::uint32_t> listed{};  // numbers of its updates
  };

  std::string stage_text(std::size_t stage) const {
    for (std::size_t c = 0; c < order_.chains.size(); ++c) {  // directions
      const auto first = static_cast<std::size_t>(order_.chains[c].first);
      if (stage - first < static_cast<std::size_t>(order_.chains[c].stages)) {
        return fmt::format("stage {} of direction {}", stage - first, c);
      }
    }
    return fmt::format("stage {}", stage);
  }

  // Of the updates of a stage the first that is missing or listed twice.
  std::string wrong_number(std::size_t stage) const {
    std::vector<std::uint32_t> listed = stages_[stage].listed;
    std::sort(listed.begin(), listed.end());
    for (std::size_t k = 0; k < std::max<std::size_t>(listed.size(), updates_); ++k) {
      if (k == listed.size() || listed[k] > k) {
        return fmt::format("missing pass: U of {}, update {}", stage_text(stage), k);
      }
      if (listed[k] < k) {
        return fmt::format("doubled pass: U of {}, update {} is listed twice", stage_text(stage),
                           listed[k]);
      }
    }
    return "";
  }

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
        wrong_ = fmt::format("update {} of {} is not in turn: update {} comes next",
                             pass.micro_batch, stage_text(s), stage.done);
      } else if (stage.gradients < (pass.micro_batch + 1) * each) {
        wrong_ = fmt::format(
            "update {} of {} is listed before gradients it uses: list it after {} of its backwards",
            pass.micro_batch, stage_text(s), (pass.micro_batch + 1) * each);
      }
      ++stage.done;
    } else if (pass.kind == PassKind::Forward) {
      const std::uint32_t needed = needed_by(pass, pass.micro_batch / each);
      if (stage.done < needed) {
        wrong_ = fmt::format(
            "update {} of {} is listed after a forward that uses its parameters: list it "
            "earlier, or state other \"versions\"",
            needed - 1, stage_text(s));
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
