// SPDX-License-Identifier: Apache-2.0
#include "sim/orders/listed_order.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <limits>
#include <set>
#include <string_view>
#include <vector>

#include "base/error.hpp"
#include "sim/orders/listed_updates.hpp"
#include "sim/orders/order_blocks.hpp"

namespace orrery::sim {
namespace {

// Virtual stages: those listed, of which some devices may hold one less than others.
int listed_stages(const ScheduleLists& lists, const ScheduleParams& params) {
  const int listed = num_stages(lists);
  return sizes_of(lists).chunks == params.chunks && listed >= params.stages
             ? listed
             : params.stages * params.chunks;
}

// Whether a pass of a micro-batch needs another one of it, or is that pass: forwards go along the
// stages and gradients back, a stage recomputes before its gradient, and W follows it.
bool needs(const ListedEnd& pass, const ListedEnd& other) {
  if (pass == other || pass.direction != other.direction) {
    return pass == other;
  }
  const bool after_gradient = pass.lane == Lane::Gradient || pass.lane == Lane::WeightGrad;
  switch (other.lane) {
    case Lane::Forward:
      return after_gradient || other.stage <= pass.stage;
    case Lane::Gradient:
    case Lane::Recompute:
      return after_gradient && other.stage >= pass.stage;
    default:
      return false;
  }
}

// Turns lists into an order: sizes, placement, then each pass exactly once.
class ListedOrder {
 public:
  ListedOrder(const ScheduleLists& lists, const ScheduleParams& params, const std::string& where)
      : lists_(lists),
        where_(where),
        stages_(static_cast<std::size_t>(listed_stages(lists, params))),
        slices_(static_cast<std::size_t>(lists.slices)),
        micro_batches_(static_cast<std::size_t>(params.micro_batches) *
                       static_cast<std::size_t>(lists.iterations)),
        pieces_(params.chunks * lists.slices) {}

  PipelineOrder read() {
    find_directions();
    if (static_cast<std::int64_t>(stages_ * directions_.size()) > kMaxVirtualStages) {
      fail("", fmt::format("{} stages in {} directions are more than {}", stages_,
                           directions_.size(), kMaxVirtualStages));
    }
    listed_.assign(stages_ * micro_batches_ * slices_, 0);
    placed_.assign(stages_ * directions_.size(), kNowhere);
    for (std::size_t d = 0; d < lists_.devices.size(); ++d) {
      for (std::size_t k = 0; k < lists_.devices[d].size(); ++k) {
        add(d, k);
      }
    }
    for (std::size_t i = 0; i < listed_.size(); ++i) {
      check_complete(i);
    }
    check_recomputed();
    PipelineOrder order = build();
    if (const std::string wrong = wrong_update(order); !wrong.empty()) {
      fail("", wrong);
    }
    return order;
  }

 private:
  static constexpr std::uint16_t kNowhere = std::numeric_limits<std::uint16_t>::max();
  enum Bit : unsigned { kForward = 1, kInputGrad = 2, kWeightGrad = 4, kRecompute = 8 };
  struct Direction {
    std::uint32_t first = std::numeric_limits<std::uint32_t>::max();  // micro-batch
    std::uint32_t count = 0;
  };

  static unsigned bits_of(PassKind kind) {
    switch (kind) {
      case PassKind::Forward:
        return kForward;
      case PassKind::InputGrad:
        return kInputGrad;
      case PassKind::WeightGrad:
        return kWeightGrad;
      case PassKind::Recompute:
        return kRecompute;
      default:
        return kInputGrad | kWeightGrad;
    }
  }

  [[noreturn]] void fail(const std::string& pointer, const std::string& message,
                         const std::string& hint = "") const {
    bad_input(fmt::format("{}: /passes{}", where_, pointer), message, hint);
  }

  std::string stage_text(std::size_t stage, std::size_t direction) const {
    return directions_.size() == 1 ? fmt::format("stage {}", stage)
                                   : fmt::format("stage {} of direction {}", stage, direction);
  }
  std::string unit_text(std::size_t micro_batch, std::size_t slice) const {
    return slices_ == 1 ? fmt::format("micro-batch {}", micro_batch)
                        : fmt::format("micro-batch {}, slice {}", micro_batch, slice);
  }

  void check_range(const ListedPass& pass, const std::string& pointer) const {
    if (pass.stage >= stages_) {
      fail(pointer,
           fmt::format("stage {} does not exist: stages x chunks is {}", pass.stage, stages_),
           "set chunks to the virtual stages of a device");
    }
    if (pass.kind != PassKind::Optimizer && pass.number >= micro_batches_) {
      fail(pointer, fmt::format("micro-batch {} does not exist", pass.number),
           fmt::format("set micro-batches to {}", pass.number / lists_.iterations + 1));
    }
  }

  // A micro-batch travels in one direction, and those of a direction are numbered consecutively.
  void find_directions() {
    directions_.resize(static_cast<std::size_t>(directions_of(lists_)));
    direction_of_.assign(micro_batches_, kNowhere);
    for (std::size_t d = 0; d < lists_.devices.size(); ++d) {
      for (std::size_t k = 0; k < lists_.devices[d].size(); ++k) {
        const ListedPass& pass = lists_.devices[d][k];
        const std::string pointer = fmt::format("/{}/{}", d, k);
        check_range(pass, pointer);
        if (pass.kind == PassKind::Optimizer) {
          continue;
        }
        std::uint16_t& direction = direction_of_[pass.number];
        if (direction != kNowhere && direction != pass.direction) {
          fail(pointer,
               fmt::format("micro-batch {} is in direction {} and in direction {}", pass.number,
                           direction, pass.direction),
               "a micro-batch travels in one direction");
        }
        direction = pass.direction;
      }
    }
    for (std::uint32_t j = 0; j < direction_of_.size(); ++j) {
      if (direction_of_[j] != kNowhere) {
        add_to_direction(j);
      }
    }
    for (std::size_t c = 0; c < directions_.size(); ++c) {
      if (directions_[c].count == 0 && directions_.size() > 1) {
        fail("", fmt::format("direction {} has no micro-batch", c),
             "number the directions from 0 without gaps");
      }
    }
  }

  void add_to_direction(std::uint32_t micro_batch) {
    Direction& direction = directions_[direction_of_[micro_batch]];
    direction.first = std::min(direction.first, micro_batch);
    if (directions_.size() > 1 && direction.first + direction.count != micro_batch) {
      fail("",
           fmt::format("direction {} has the micro-batches {} and {}, but not {}",
                       direction_of_[micro_batch], direction.first, micro_batch,
                       direction.first + direction.count),
           "number those of a direction one after the other");
    }
    ++direction.count;
  }

  void add(std::size_t device, std::size_t at) {
    const ListedPass& pass = lists_.devices[device][at];
    const std::string pointer = fmt::format("/{}/{}", device, at);
    std::uint16_t& holder = placed_[pass.direction * stages_ + pass.stage];
    if (holder != kNowhere && holder != device) {
      fail(pointer,
           fmt::format("impossible placement: {} is on device {} and on device {}",
                       stage_text(pass.stage, pass.direction), holder, device),
           "all passes of a stage belong to one device");
    }
    holder = static_cast<std::uint16_t>(device);
    if (pass.joined && at + 1 == lists_.devices[device].size()) {
      fail(pointer, "the last pass of a device is joined to none", "leave \"joined\" out");
    }
    if (pass.kind == PassKind::Optimizer) {
      return;
    }
    std::uint8_t& listed =
        listed_[(pass.stage * micro_batches_ + pass.number) * slices_ + pass.slice];
    const unsigned bits = bits_of(pass.kind);
    if ((listed & bits) != 0) {
      fail(pointer,
           fmt::format("doubled pass: {} of {}, {} is listed before", pass_name(pass.kind),
                       stage_text(pass.stage, pass.direction), unit_text(pass.number, pass.slice)),
           "BW is B and W in one; list each once");
    }
    listed = static_cast<std::uint8_t>(listed | bits);
  }

  void check_complete(std::size_t i) const {
    const unsigned missing = (kForward | kInputGrad | kWeightGrad) & ~unsigned{listed_[i]};
    if (missing == 0) {
      return;
    }
    std::string_view name = "BW";
    if ((missing & kForward) != 0) {
      name = "F";
    } else if (missing != (kInputGrad | kWeightGrad)) {
      name = (missing & kInputGrad) != 0 ? "B" : "W";
    }
    fail_missing(name, i);
  }

  std::string nobody_holds() const {
    for (std::size_t device = 0; device < lists_.devices.size(); ++device) {
      if (lists_.devices[device].empty()) {
        return fmt::format("device {} lists no pass: give it this stage, or leave its list out",
                           device);
      }
    }
    return "no device holds this stage";
  }

  [[noreturn]] void fail_missing(std::string_view name, std::size_t i,
                                 const std::string& hint = "") const {
    const std::size_t stage = i / slices_ / micro_batches_;
    const std::size_t micro_batch = i / slices_ % micro_batches_;
    const std::size_t direction =
        direction_of_[micro_batch] == kNowhere ? 0 : direction_of_[micro_batch];
    const std::uint16_t device = placed_[direction * stages_ + stage];
    const std::string to_do = device == kNowhere
                                  ? nobody_holds()
                                  : fmt::format("add it to the list of device {}", device);
    fail("",
         fmt::format("missing pass: {} of {}, {}", name, stage_text(stage, direction),
                     unit_text(micro_batch, i % slices_)),
         hint.empty() ? to_do : hint);
  }

  // All micro-batches of a stage or none: its forwards keep the same. In a direction each.
  void check_recomputed() const {
    std::vector<std::size_t> first(directions_.size() * stages_, listed_.size());
    for (std::size_t i = 0; i < listed_.size(); ++i) {
      const std::size_t stage = i / slices_ / micro_batches_;
      std::size_t& other = first[direction_of_[i / slices_ % micro_batches_] * stages_ + stage];
      other = std::min(other, i);
      const bool recomputes = (listed_[i] & kRecompute) != 0;
      if (recomputes != ((listed_[other] & kRecompute) != 0)) {
        fail_missing("R", recomputes ? other : i,
                     "a stage recomputes all its micro-batches or none");
      }
    }
  }

  PipelineOrder build() const {
    PipelineOrder order = bare_order(static_cast<int>(lists_.devices.size()), pieces_);
    order.slices = lists_.slices;
    order.iterations = lists_.iterations;
    order.versions = lists_.versions;
    if (directions_.size() == 1) {
      order.device_of = placed_;
      order.num_virtual_stages = static_cast<int>(stages_);
      order.micro_batches = static_cast<int>(micro_batches_ * slices_);
    }
    for (std::size_t c = 0; directions_.size() > 1 && c < directions_.size(); ++c) {
      const auto begin = placed_.begin() + static_cast<std::ptrdiff_t>(c * stages_);
      add_chain(order, {begin, begin + static_cast<std::ptrdiff_t>(stages_)},
                {.units = static_cast<int>(directions_[c].count * slices_),
                 .first_unit = static_cast<int>(directions_[c].first * slices_)});
    }
    for (std::size_t d = 0; d < lists_.devices.size(); ++d) {
      for (const ListedPass& pass : lists_.devices[d]) {
        order.passes[d].push_back(pass_of(pass));
        order.extended = order.extended || pass.joined || pass.kind == PassKind::Recompute ||
                         pass.kind == PassKind::Optimizer;
      }
    }
    add_edges(order);
    return order;
  }

  // Waits for passes that no list has would never end, nor those of a pass for what needs it.
  void add_edges(PipelineOrder& order) const {
    std::set<ListedEnd> ends;
    for (const auto& list : lists_.devices) {
      for (const ListedPass& pass : list) {
        if (!lists_.edges.empty()) {
          ends.insert({lane_of(pass.kind), pass.direction, pass.stage});
        }
      }
    }
    for (std::size_t k = 0; k < lists_.edges.size(); ++k) {
      const ListedEdge& edge = lists_.edges[k];
      for (const ListedEnd& end : {edge.from, edge.to}) {
        if (!ends.contains(end)) {
          fail_edge(k,
                    fmt::format("no list has such a pass of stage {} in direction {}", end.stage,
                                end.direction),
                    hint_of_missing(end));
        }
      }
      if (edge.shift == 0 && needs(edge.from, edge.to)) {
        fail_edge(k,
                  edge.from == edge.to ? fmt::format("{} is to wait for itself", end_text(edge.to))
                                       : fmt::format("{} is to wait for {}, which needs it first",
                                                     end_text(edge.to), end_text(edge.from)),
                  "give it a \"shift\", to wait for that of an earlier micro-batch");
      }
      order.edges.push_back({edge.from.lane, virtual_stage(edge.from), edge.to.lane,
                             virtual_stage(edge.to), edge.shift * lists_.slices});
    }
  }

  [[noreturn]] void fail_edge(std::size_t edge, const std::string& message,
                              const std::string& hint) const {
    bad_input(fmt::format("{}: /edges/{}", where_, edge), message, hint);
  }

  std::string end_text(const ListedEnd& end) const {
    constexpr std::array<std::string_view, kNumLanes> kTexts = {
        "the forward", "the gradient", "the weight gradient", "the recompute", "the update"};
    return fmt::format("{} of {}", kTexts[static_cast<std::size_t>(end.lane)],
                       stage_text(end.stage, end.direction));
  }

  std::string hint_of_missing(const ListedEnd& end) const {
    if (end.direction >= directions_.size()) {
      return fmt::format("the last direction is {}", directions_.size() - 1);
    }
    if (end.stage >= stages_) {
      return fmt::format("the last stage is {}", stages_ - 1);
    }
    return end.lane == Lane::Recompute ? "list \"R\" of this stage, or leave the edge out"
                                       : "W is a pass of its own only beside B";
  }

  std::uint16_t virtual_stage(const ListedEnd& end) const {
    return static_cast<std::uint16_t>(end.direction * stages_ + end.stage);
  }

  Pass pass_of(const ListedPass& pass) const {
    const std::uint32_t first = directions_.size() == 1 ? 0 : directions_[pass.direction].first;
    const auto slices = static_cast<std::uint32_t>(slices_);
    const std::uint32_t number = pass.kind == PassKind::Optimizer
                                     ? pass.number
                                     : (pass.number - first) * slices + pass.slice;
    return {pass.kind, static_cast<std::uint16_t>(pass.direction * stages_ + pass.stage), number,
            pass.joined};
  }

  const ScheduleLists& lists_;
  const std::string& where_;
  std::size_t stages_;  // of a direction
  std::size_t slices_;
  std::size_t micro_batches_;  // of all iterations
  int pieces_;
  std::vector<Direction> directions_;
  std::vector<std::uint16_t> direction_of_;  // by micro-batch
  std::vector<std::uint16_t> placed_;        // devices, by direction and stage
  std::vector<std::uint8_t> listed_;         // bits, by stage, micro-batch and slice
};

}  // namespace

bool mirrors(const PipelineOrder& order) {
  const std::size_t half = order.device_of.size() / 2;
  bool mirrored = order.chains.size() == 2;
  for (std::size_t s = 0; mirrored && s < half; ++s) {
    mirrored = order.device_of[s] + order.device_of[half + s] + 1U == order.passes.size();
  }
  return mirrored;
}

PipelineOrder order_of_lists(const ScheduleLists& lists, const ScheduleParams& params,
                             const std::string& where) {
  const Refusal broken = check_listed_sizes(lists, params);
  if (!broken.empty()) {
    bad_input(where + ": /passes", to_text(broken));
  }
  return ListedOrder(lists, params, where).read();
}

}  // namespace orrery::sim
