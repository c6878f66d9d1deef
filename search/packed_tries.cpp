// SPDX-License-Identifier: Apache-2.0
#include "search/packed_tries.hpp"

#include <algorithm>
#include <atomic>
#include <utility>

#include "base/bytes.hpp"
#include "base/json.hpp"
#include "base/parallel.hpp"
#include "search/packed_groups.hpp"
#include "search/tree/memory_check.hpp"

namespace orrery::search {
namespace {

constexpr std::size_t kLayoutBytes = 1 + 8 + 8;

bool is_faster(const std::optional<Found>& a, const std::optional<Found>& b) {
  return a && (!b || a->simulation.iteration_time < b->simulation.iteration_time);
}

std::string text_of(const plan::Plan& plan) { return plan::to_json(plan).dump(-1); }

}  // namespace

PackedTries::PackedTries(const std::vector<plan::Plan>& layouts,
                         const std::vector<std::int64_t>& lengths, bool pipelines)
    : layouts_(layouts), lengths_(lengths), found_(layouts.size()), asked_(layouts.size(), 0) {
  if (pipelines) {
    samples_ = samples_of(lengths);
    for (const plan::Plan& layout : layouts) {
      packs_.emplace_back(layout, samples_);
    }
  }
}

void PackedTries::begin(int jobs, KeptState& kept, const std::function<bool(bool)>& ends) {
  std::atomic<bool> any = std::any_of(found_.begin(), found_.end(),
                                      [](const auto& found) { return found.has_value(); });
  const std::vector<std::vector<std::size_t>> groups = like_layouts();
  parallel_for(groups.size(), jobs, [&](std::size_t group) {
    plan::Simulator simulator(layouts_[groups[group].front()]);
    for (const std::size_t index : groups[group]) {
      if (asked_[index] != 0) {
        continue;
      }
      if (ends(any)) {
        return;
      }
      std::optional<Found> found =
          has_pipelines() ? packs_[index].next(simulator) : group_packs(layouts_[index], lengths_);
      const std::lock_guard lock(mutex_);
      any = any || found.has_value();
      found_[index] = std::move(found);
      asked_[index] = 1;
      kept.save_when_due([&](ByteWriter& out) { write(out); });
    }
  });
}

bool PackedTries::take_fastest(ByteCount reserve, int jobs) {
  while (true) {
    const auto fastest = std::min_element(found_.begin(), found_.end(), is_faster);
    if (fastest == found_.end() || !*fastest) {
      return false;
    }
    const auto index = static_cast<std::size_t>(fastest - found_.begin());
    std::optional<Found> one = std::exchange(found_[index], std::nullopt);
    if (replay_fits(one->plan, one->simulation.memory, reserve, jobs)) {
      taken_.push_back(std::move(*one));
      return true;
    }
    if (has_pipelines()) {
      plan::Simulator simulator(layouts_[index]);
      found_[index] = packs_[index].next(simulator);
    }
  }
}

std::int64_t PackedTries::unexplored() const { return std::count(asked_.begin(), asked_.end(), 0); }

std::int64_t PackedTries::infeasible() const {
  return std::count(found_.begin(), found_.end(), std::nullopt) - std::ssize(taken_) - unexplored();
}

// Those of pipelines whose blocks cost the same, which one simulator keeps.
std::vector<std::vector<std::size_t>> PackedTries::like_layouts() const {
  std::vector<std::vector<std::size_t>> groups;
  for (std::size_t index = 0; index < layouts_.size(); ++index) {
    const auto is_like = [&](const std::vector<std::size_t>& group) {
      plan::BlockPlan layout = layouts_[group.front()].blocks.front().layout;
      layout.zero_stage = layouts_[index].blocks.front().layout.zero_stage;
      return layout == layouts_[index].blocks.front().layout;
    };
    const auto group =
        has_pipelines() ? std::find_if(groups.begin(), groups.end(), is_like) : groups.end();
    if (group == groups.end()) {
      groups.push_back({index});
    } else {
      group->push_back(index);
    }
  }
  return groups;
}

void PackedTries::write(ByteWriter& out) const {
  out.u64(layouts_.size());
  for (std::size_t index = 0; index < layouts_.size(); ++index) {
    // What a thread that was not done with a layout has tried of it is tried again.
    const bool asked = asked_[index] != 0;
    out.u8(asked ? 1 : 0);
    out.u64(asked && has_pipelines() ? packs_[index].tried() : 0);
    out.text(found_[index] ? text_of(found_[index]->plan) : "");
  }
  out.u64(taken_.size());
  for (const Found& one : taken_) {
    out.text(text_of(one.plan));
  }
}

std::optional<Found> PackedTries::read_found(const std::string& text, ByteReader& in) const {
  if (text.empty()) {
    return std::nullopt;
  }
  Found found{plan::read_plan(parse_json(text, "checkpoint"), "checkpoint"), {}};
  const bool known = std::any_of(layouts_.begin(), layouts_.end(), [&](const plan::Plan& layout) {
    return layout.blocks == found.plan.blocks && layout.pp == found.plan.pp &&
           layout.dp == found.plan.dp;
  });
  if (!known || found.plan.packs.empty()) {
    in.fail("holds a plan that is not in this space");
  }
  found.simulation = plan::simulate(found.plan);
  return found;
}

void PackedTries::read(ByteReader& in) {
  if (in.count(kLayoutBytes) != layouts_.size()) {
    in.fail("holds other layouts");
  }
  for (std::size_t index = 0; index < layouts_.size(); ++index) {
    asked_[index] = in.u8() != 0 ? 1 : 0;
    const std::uint64_t tried = in.u64();
    if (has_pipelines() && !packs_[index].go_on_behind(tried)) {
      in.fail("holds counts that cannot be");
    }
    found_[index] = read_found(in.text(), in);
  }
  const std::size_t taken = in.count(8);
  for (std::size_t index = 0; index < taken; ++index) {
    std::optional<Found> one = read_found(in.text(), in);
    if (!one) {
      in.fail("holds no plan where one was taken");
    }
    taken_.push_back(std::move(*one));
  }
}

}  // namespace orrery::search
