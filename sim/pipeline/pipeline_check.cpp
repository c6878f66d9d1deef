// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>

#include <array>
#include <optional>
#include <string_view>
#include <utility>

#include "sim/pipeline/pass_inputs.hpp"
#include "sim/pipeline/pipeline.hpp"
#include "sim/pipeline/pipeline_meeting.hpp"

namespace orrery::sim {
namespace {

std::string_view lane_text(Lane lane) {
  constexpr std::array<std::string_view, kNumLanes> kTexts = {
      "forward", "gradient", "weight gradient", "recompute", "optimizer"};
  return kTexts[static_cast<std::size_t>(lane)];
}

// Virtual stages and units as messages name them: a chain's stage besides the number among all,
// micro-batch and slice of a unit.
class Names {
 public:
  Names(const PipelineOrder& order, const PassInputs& inputs) : order_(order), inputs_(inputs) {}

  std::string of(std::size_t stage, std::size_t unit) const {
    std::string text = fmt::format("virtual stage {}", stage);
    for (std::size_t c = 0; order_.chains.size() > 1 && c < order_.chains.size(); ++c) {
      const auto first = static_cast<std::size_t>(order_.chains[c].first);
      if (stage >= first && stage < first + static_cast<std::size_t>(order_.chains[c].stages)) {
        text += fmt::format(" (stage {} of chain {})", stage - first, c);
      }
    }
    const auto slices = static_cast<std::size_t>(order_.slices);
    const Pass pass(PassKind::Forward, static_cast<std::uint16_t>(stage),
                    static_cast<std::uint32_t>(unit));
    const auto number = static_cast<std::size_t>(inputs_.number_of(pass));
    text += fmt::format(", micro-batch {}", number / slices);
    return slices == 1 ? text : text + fmt::format(", slice {}", number % slices);
  }
  std::string of(const Pass& pass) const {
    if (pass.virtual_stage >= order_.num_virtual_stages || pass.kind == PassKind::Optimizer) {
      return fmt::format("{} of virtual stage {}, {} {}", to_text(pass.kind), pass.virtual_stage,
                         pass.kind == PassKind::Optimizer ? "update" : "micro-batch",
                         pass.micro_batch);
    }
    return fmt::format("{} of {}", to_text(pass.kind), of(pass.virtual_stage, pass.micro_batch));
  }

 private:
  const PipelineOrder& order_;
  const PassInputs& inputs_;
};

class Checker {
 public:
  explicit Checker(const PipelineOrder& order)
      : order_(order),
        inputs_(order),
        names_(order, inputs_),
        stages_(static_cast<std::size_t>(order.num_virtual_stages)),
        units_(static_cast<std::size_t>(order.micro_batches)),
        listed_(stages_ * units_),
        meetings_(inputs_, {}, kNumLanes * stages_),
        awaited_(order.passes.size()) {
    for (std::vector<bool>& done : done_) {
      done.assign(stages_ * units_, false);
    }
  }

  std::string check() {
    for (std::size_t d = 0; d < order_.passes.size(); ++d) {
      for (const Pass& pass : order_.passes[d]) {
        if (std::string wrong = check_pass(d, pass); !wrong.empty()) {
          return wrong;
        }
      }
    }
    for (std::size_t i = 0; i < listed_.size(); ++i) {
      if (std::string wrong = check_complete(i / units_, i % units_); !wrong.empty()) {
        return wrong;
      }
    }
    return run();
  }

 private:
  // Which passes of one (virtual stage, unit) have been listed.
  struct Listed {
    bool forward = false;
    bool input_grad = false;
    bool weight_grad = false;
    bool backward = false;
    bool recompute = false;
    bool gradient() const { return input_grad || backward; }
  };

  std::string check_complete(std::size_t stage, std::size_t unit) const {
    const Listed& listed = listed_[stage * units_ + unit];
    if (unit >= inputs_.units(stage)) {
      return "";
    }
    const bool backward = listed.backward || (listed.input_grad && listed.weight_grad);
    if (listed.forward && (backward || inputs_.forward_only(stage))) {
      return "";
    }
    return fmt::format("{} lacks its {}", names_.of(stage, unit),
                       listed.forward ? "backward" : "forward");
  }

  std::string check_pass(std::size_t device, const Pass& pass) {
    if (std::string wrong = check_place(device, pass); !wrong.empty()) {
      return wrong;
    }
    Listed& listed = listed_[pass.virtual_stage * units_ + pass.micro_batch];
    const bool again = pass.kind == PassKind::Recompute;
    if (again && listed.gradient()) {
      return names_.of(pass) + " is listed after the backward that needs it";
    }
    if ((pass.joined || again || pass.kind == PassKind::Optimizer) && !order_.extended) {
      return names_.of(pass) + " needs an extended order";
    }
    const std::string_view missing = missing_before(pass, listed);
    if (is_listed_twice(pass.kind, listed)) {
      return names_.of(pass) + " is listed twice";
    }
    // With edges instead where the passes of a unit are on several lists.
    const bool split = !order_.gradient_device_of.empty() || !order_.weight_grad_device_of.empty();
    return missing.empty() || split
               ? ""
               : fmt::format("{} is listed before what it needs: its {}", names_.of(pass), missing);
  }

  // Whether a pass is one of the order and the device may list it.
  std::string check_place(std::size_t device, const Pass& pass) const {
    const std::size_t stage = pass.virtual_stage;
    if (stage >= stages_ || pass.micro_batch >= inputs_.units(stage)) {
      return names_.of(pass) + " does not exist";
    }
    if (device_of(order_, lane_of(pass.kind), stage) != device) {
      return fmt::format("{} is listed on device {}, which does not hold it", names_.of(pass),
                         device);
    }
    if (pass.kind != PassKind::Forward && pass.kind != PassKind::Optimizer &&
        inputs_.forward_only(stage)) {
      return names_.of(pass) + " belongs to a chain without backward";
    }
    return pass.kind > PassKind::Optimizer
               ? fmt::format("{} is no pass of a pipeline order", to_text(pass.kind))
               : "";
  }

  // What a pass needs that is not listed yet, if anything.
  std::string_view missing_before(const Pass& pass, const Listed& listed) const {
    switch (pass.kind) {
      case PassKind::Forward:
        return slice_misses(pass, -1, [](const Listed& other) { return other.forward; })
                   ? "micro-batch's slice before"
                   : "";
      case PassKind::WeightGrad:
        return listed.input_grad ? "" : "input gradient";
      case PassKind::InputGrad:
      case PassKind::Backward:
        if (listed.forward && later_slice_misses(pass)) {
          return "micro-batch's next slice, of which the gradient comes first";
        }
        [[fallthrough]];
      case PassKind::Recompute:
        return listed.forward ? "" : "forward";
      default:
        return "";  // of an update
    }
  }

  // Notes a pass.
  static bool is_listed_twice(PassKind kind, Listed& listed) {
    switch (kind) {
      case PassKind::Forward:
        return std::exchange(listed.forward, true);
      case PassKind::InputGrad:
        return std::exchange(listed.input_grad, true) || listed.backward;
      case PassKind::WeightGrad:
        return std::exchange(listed.weight_grad, true) || listed.backward;
      case PassKind::Backward:
        return std::exchange(listed.backward, true) || listed.input_grad;
      case PassKind::Recompute:
        return std::exchange(listed.recompute, true);
      default:
        return false;  // updates are numbered apart
    }
  }

  // Keys and values: a slice needs the one before it forward, and the one after it backward.
  template <typename Has>
  bool slice_misses(const Pass& pass, int step, Has has) const {
    const int slice = static_cast<int>(pass.micro_batch) % order_.slices + step;
    if (slice < 0 || slice >= order_.slices || inputs_.role(pass.virtual_stage) != Role::Layers) {
      return false;
    }
    const auto unit = static_cast<std::size_t>(static_cast<int>(pass.micro_batch) + step);
    return !has(listed_[pass.virtual_stage * units_ + unit]);
  }
  bool later_slice_misses(const Pass& pass) const {
    return slice_misses(pass, 1, [](const Listed& other) { return other.gradient(); });
  }

  bool is_done(const PassInput& input) const {
    return done_[static_cast<std::size_t>(input.lane)][input.virtual_stage * units_ + input.unit];
  }

  bool is_ready(std::size_t device, const Pass& pass) {
    std::optional<PassInput>& awaited = awaited_[device];
    if (awaited && !is_done(*awaited)) {
      return false;
    }
    awaited.reset();
    const auto look_at = [&](const PassInput& input) {
      if (!is_done(input) && (!awaited || awaited->edge != input.edge)) {
        awaited = input;
      }
      return true;
    };
    const int meeting =
        meetings_.of(static_cast<std::size_t>(lane_of(pass.kind)) * stages_ + pass.virtual_stage);
    if (meeting == detail::Meetings::kNone) {
      inputs_.for_each(pass, look_at);
      return !awaited;
    }
    const auto input_of = [&](std::size_t lane) {
      return PassInput{static_cast<Lane>(lane / stages_),
                       static_cast<std::uint16_t>(lane % stages_), pass.micro_batch, 0};
    };
    (void)inputs_.visit_neighbour(pass, look_at);
    if (const auto lane = meetings_.missing(
            meeting, pass.micro_batch, [&](std::size_t of) { return is_done(input_of(of)); })) {
      awaited = input_of(*lane);
    }
    return !awaited;
  }

  // Executes the lists without times; each visit to a device runs all it can. Activations go on
  // from visit to visit on the way up the devices, gradients on the way down.
  std::string run() {
    const std::size_t devices = order_.passes.size();
    std::vector<std::size_t> position(devices, 0);
    bool progress = true;
    while (progress) {
      progress = false;
      for (std::size_t visit = 0; visit < 2 * devices; ++visit) {
        const std::size_t d = visit < devices ? visit : 2 * devices - 1 - visit;
        while (run_block(d, position[d])) {
          progress = true;
        }
      }
    }
    for (std::size_t d = 0; d < devices; ++d) {
      if (position[d] < order_.passes[d].size()) {
        return deadlock_text(position, d);
      }
    }
    return "";
  }

  // Follows what stuck devices wait for until a device comes again (the cycle) or a few are named.
  std::string deadlock_text(const std::vector<std::size_t>& position, std::size_t device) const {
    constexpr int kMaxNamed = 6;
    std::string text = "deadlock: ";
    std::vector<bool> named(order_.passes.size(), false);
    for (int k = 0; k < kMaxNamed && !named[device]; ++k) {
      named[device] = true;
      const std::vector<Pass>& list = order_.passes[device];
      const Pass* waiting = &list[position[device]];
      text += fmt::format("{}device {} waits for ever to start {}", k > 0 ? "; " : "", device,
                          names_.of(*waiting));
      while (waiting->joined && waiting != &list.back() && !missing_input(*waiting)) {
        ++waiting;  // all of a block start together
        text += fmt::format(", joined with {}", names_.of(*waiting));
      }
      const std::optional<PassInput> missing = missing_input(*waiting);
      if (!missing) {
        break;  // of a block that does not end
      }
      device = device_of(order_, missing->lane, missing->virtual_stage);
      text += fmt::format(", which needs the {} of {}, from device {}", lane_text(missing->lane),
                          names_.of(missing->virtual_stage, missing->unit), device);
    }
    return text;
  }

  std::optional<PassInput> missing_input(const Pass& pass) const {
    std::optional<PassInput> missing;
    inputs_.for_each(pass, [&](const PassInput& input) {
      if (!missing && !is_done(input)) {
        missing = input;
      }
    });
    return missing;
  }

  bool run_block(std::size_t device, std::size_t& position) {
    const std::vector<Pass>& list = order_.passes[device];
    std::size_t end = position;
    while (end < list.size() && list[end].joined) {
      ++end;
    }
    if (end == list.size()) {
      return false;
    }
    for (std::size_t k = position; k <= end; ++k) {
      if (!is_ready(device, list[k])) {
        return false;
      }
    }
    for (; position <= end; ++position) {
      const Pass& pass = list[position];
      done_[static_cast<std::size_t>(lane_of(pass.kind))]
           [pass.virtual_stage * units_ + pass.micro_batch] = true;
    }
    return true;
  }

  const PipelineOrder& order_;
  PassInputs inputs_;
  Names names_;
  std::size_t stages_;
  std::size_t units_;
  std::vector<Listed> listed_;
  std::array<std::vector<bool>, kNumLanes> done_;
  detail::Meetings meetings_;
  // What the next block of each device waits for: of several edges the last one's last unit, which
  // mostly comes last.
  std::vector<std::optional<PassInput>> awaited_;
};

std::string check_chains(const PipelineOrder& order) {
  int next = 0;
  for (const Chain& chain : order.chains) {
    if (chain.first != next || chain.stages < 1 || chain.units < 1 ||
        chain.units > order.micro_batches) {
      return fmt::format("a chain begins at virtual stage {} instead of {} or is empty",
                         chain.first, next);
    }
    next += chain.stages;
  }
  if (!order.chains.empty() && next != order.num_virtual_stages) {
    return fmt::format("the chains hold {} virtual stages, not {}", next, order.num_virtual_stages);
  }
  for (const Edge& edge : order.edges) {
    if (edge.from >= order.num_virtual_stages || edge.to >= order.num_virtual_stages) {
      return fmt::format("an edge from virtual stage {} to {} leaves the order", edge.from,
                         edge.to);
    }
  }
  if (order.slices < 1 || order.micro_batches % order.slices != 0) {
    return fmt::format("{} units are no whole micro-batches of {} slices", order.micro_batches,
                       order.slices);
  }
  return "";
}

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
  const std::string wrong = check_chains(order);
  return wrong.empty() ? Checker(order).check() : wrong;
}

}  // namespace orrery::sim
