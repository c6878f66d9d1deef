// SPDX-License-Identifier: Apache-2.0
// What a pass waits for on other lanes, by rule: forwards for the virtual stage before in their
// chain, gradients for the one after it, and the order's edges. What it needs of its own virtual
// stage (a gradient its forward, and so on) is earlier in the same list. A lane holds the passes of
// one kind of one virtual stage; lane number = kind x virtual stages + virtual stage.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "sim/schedule.hpp"

namespace orrery::sim {

// One awaited pass. `edge` is the index of the order's edge, or kNeighbour for the chain.
struct PassInput {
  Lane lane = Lane::Forward;
  std::uint16_t virtual_stage = 0;
  std::uint32_t unit = 0;
  std::int32_t edge = 0;
};
inline constexpr std::int32_t kNeighbour = -1;

class PassInputs {
 public:
  explicit PassInputs(const PipelineOrder& order);

  std::uint32_t units(std::size_t stage) const { return stages_[stage].units; }
  bool is_first(std::size_t stage) const { return stages_[stage].is_first; }  // of its chain
  bool is_last(std::size_t stage) const { return stages_[stage].is_last; }
  bool forward_only(std::size_t stage) const { return stages_[stage].forward_only; }
  Role role(std::size_t stage) const { return stages_[stage].role; }
  // Of the unit of a pass, among those of all chains.
  int number_of(const Pass& pass) const {
    const Stage& stage = stages_[pass.virtual_stage];
    return stage.first_unit + static_cast<int>(pass.micro_batch) * stage.stride;
  }

  // What edges bring to the passes of a lane, in their order.
  struct EdgeInput {
    Lane lane;
    std::uint16_t stage;
    std::int32_t edge;
    std::int64_t shift;
  };
  std::span<const EdgeInput> edges_to(std::size_t lane) const {
    return edge_begin_.empty()
               ? std::span<const EdgeInput>()
               : std::span(edge_inputs_)
                     .subspan(edge_begin_[lane], edge_begin_[lane + 1] - edge_begin_[lane]);
  }

  // Calls visit(const PassInput&) for each.
  template <typename Visit>
  void for_each(const Pass& pass, Visit visit) const {
    (void)first_refused(pass, 0, [&visit](const PassInput& input) {
      visit(input);
      return true;
    });
  }

  // Visits what edges bring until `visit` is false; whether it never was.
  template <typename Visit>
  bool for_each_edge(const Pass& pass, Visit visit) const {
    if (edge_begin_.empty()) {
      return true;
    }
    const std::size_t row =
        static_cast<std::size_t>(lane_of(pass.kind)) * stages_.size() + pass.virtual_stage;
    return first_refused(pass, 1, visit) > edge_begin_[row + 1] - edge_begin_[row];
  }

  // Visits what the chain brings, if anything; what `visit` says.
  template <typename Visit>
  bool visit_neighbour(const Pass& pass, Visit visit) const {
    const std::uint16_t s = pass.virtual_stage;
    const Lane lane = lane_of(pass.kind);
    const bool forward = lane == Lane::Forward && !stages_[s].is_first;
    const bool gradient = lane == Lane::Gradient && !stages_[s].is_last;
    const auto neighbour = static_cast<std::uint16_t>(forward ? s - 1 : s + 1);
    return !(forward || gradient) ||
           visit(PassInput{lane, neighbour, pass.micro_batch, kNeighbour});
  }

  // Visits the inputs from source `first` on (0 is the neighbour, edges follow) until `visit` is
  // false. Returns the source where it was, or the number of sources.
  template <typename Visit>
  std::uint32_t first_refused(const Pass& pass, std::uint32_t first, Visit visit) const {
    const std::uint16_t s = pass.virtual_stage;
    const Lane lane = lane_of(pass.kind);
    if (first == 0) {
      if (!visit_neighbour(pass, visit)) {
        return 0;
      }
      first = 1;
    }
    if (edge_begin_.empty()) {
      return 1;
    }
    const std::size_t row = static_cast<std::size_t>(lane) * stages_.size() + s;
    const std::uint32_t begin = edge_begin_[row];
    const std::uint32_t end = edge_begin_[row + 1];
    for (std::uint32_t k = begin + first - 1; k < end; ++k) {
      const EdgeInput& input = edge_inputs_[k];
      const auto [from, to] = units_of(input, stages_[s].units, pass.micro_batch);
      // The last one first: with it the others are mostly there, so that a pass that waits asks
      // once.
      for (std::int64_t unit = to - 1; unit >= from; --unit) {
        if (!visit(
                PassInput{input.lane, input.stage, static_cast<std::uint32_t>(unit), input.edge})) {
          return k - begin + 1;
        }
      }
    }
    return end - begin + 1;
  }

 private:
  struct Stage {
    std::uint32_t units = 0;
    bool is_first = true;
    bool is_last = true;
    bool forward_only = false;
    Role role = Role::Layers;
    int first_unit = 0;
    int stride = 1;
  };
  struct Range {
    std::int64_t from;
    std::int64_t to;
  };
  Range units_of(const EdgeInput& input, std::int64_t units, std::int64_t unit) const {
    const std::int64_t others = stages_[input.stage].units;
    if (others == units) {
      return {std::max<std::int64_t>(unit - input.shift, 0),
              std::clamp<std::int64_t>(unit + 1 - input.shift, 0, others)};
    }
    const std::int64_t from = unit * others / units - input.shift;
    const std::int64_t to = ((unit + 1) * others + units - 1) / units - input.shift;
    return {std::max<std::int64_t>(from, 0), std::clamp<std::int64_t>(to, 0, others)};
  }

  std::vector<Stage> stages_;
  std::vector<std::uint32_t> edge_begin_;  // by lane number of the waiting pass
  std::vector<EdgeInput> edge_inputs_;
};

}  // namespace orrery::sim
