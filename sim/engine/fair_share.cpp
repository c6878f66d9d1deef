// SPDX-License-Identifier: Apache-2.0
#include "sim/engine/fair_share.hpp"

#include <algorithm>
#include <cmath>

#include "base/error.hpp"

namespace orrery::sim {
namespace {

constexpr double kLevelTolerance = 1e-12;
constexpr double kSafeSlack = 1e-9;  // of the capacity: far above the rounding of a sum

bool same_level(double a, double b) {
  return a == b || std::abs(a - b) <= kLevelTolerance * std::min(a, b);
}

}  // namespace

ResourceId FairShare::add_resource(double capacity) {
  ORRERY_CHECK(capacity >= 0.0, "capacity of a shared resource");
  resources_.push_back({.capacity = capacity});
  users_.emplace_back();
  heap_.reserve_ids(resources_.size());
  return static_cast<ResourceId>(resources_.size() - 1);
}

void FairShare::set_capacity(ResourceId resource, double capacity) {
  ORRERY_CHECK(capacity >= 0.0, "capacity of a shared resource");
  resources_[resource].capacity = capacity;
  touch(resource);
}

std::uint32_t FairShare::take_slot(std::uint32_t num_uses) {
  if (free_slots_.size() <= num_uses) {
    free_slots_.resize(num_uses + 1);
  }
  std::vector<Variable>& free = free_slots_[num_uses];
  if (!free.empty()) {
    const Variable slot = free.back();
    free.pop_back();
    return slot;
  }
  filling_.emplace_back();
  shapes_.push_back({0.0, 0.0, 0.0, static_cast<std::uint32_t>(uses_.size()), num_uses});
  uses_.resize(uses_.size() + num_uses);
  return static_cast<Variable>(shapes_.size() - 1);
}

FairShare::Variable FairShare::add(std::span<const Demand> demands, double rate_bound,
                                   double weight, std::uint32_t multiplicity) {
  ORRERY_CHECK(rate_bound >= 0.0 && weight > 0.0 && std::isfinite(weight) && multiplicity > 0,
               "a shared variable");
  std::uint32_t num_uses = 0;
  for (const Demand& demand : demands) {
    ORRERY_CHECK(
        demand.resource < resources_.size() && demand.amount >= 0.0 && std::isfinite(demand.amount),
        "a demand of a shared variable");
    num_uses += demand.amount > 0.0 ? 1 : 0;
  }
  const Variable variable = take_slot(num_uses);
  Shape& shape = shapes_[variable];
  shape.rate = 0.0;
  shape.bound = rate_bound;
  shape.weight = weight;
  const double bound_level = rate_bound / weight;
  filling_[variable] = {{bound_level, bound_level}, -1.0, 0, kNone, true};
  std::uint32_t use = shape.first_use;
  for (const Demand& demand : demands) {
    if (demand.amount > 0.0) {
      const double load = demand.amount * weight * multiplicity;
      std::vector<User>& users = users_[demand.resource];
      uses_[use] = {demand.resource, static_cast<std::uint32_t>(users.size()), load};
      users.push_back({variable, use, load});
      touch(demand.resource);
      ++use;
    }
  }
  fresh_.push_back(variable);
  ++live_;
  return variable;
}

void FairShare::remove(Variable variable) {
  ORRERY_CHECK(variable < filling_.size() && filling_[variable].live, "removal of a variable");
  const Shape& shape = shapes_[variable];
  for (std::uint32_t i = 0; i < shape.num_uses; ++i) {
    const Use& use = uses_[shape.first_use + i];
    std::vector<User>& users = users_[use.resource];
    const User last = users.back();
    users.pop_back();
    if (use.position < users.size()) {
      users[use.position] = last;
      uses_[last.use].position = use.position;
    }
    touch(use.resource);
  }
  filling_[variable].live = false;
  free_slots_[shape.num_uses].push_back(variable);
  --live_;
}

double FairShare::load(ResourceId resource) const {
  double total = 0.0;
  for (const User& user : users_[resource]) {
    total += user.load * std::max(filling_[user.variable].level, 0.0);
  }
  return total;
}

// Marks a resource for the coming solve, which replays it from level 0.
void FairShare::touch(ResourceId resource) {
  if (resources_[resource].epoch != epoch_) {
    resources_[resource].epoch = epoch_;
    touched_.push_back(resource);
  }
}

// Sets the level at which the resource is full when its users stop at their caps.
void FairShare::fill(ResourceId resource) {
  ResourceState& state = resources_[resource];
  double left = state.capacity;
  const std::vector<User>& users = users_[resource];
  if (caps_.size() < users.size()) {
    caps_.resize(users.size());
  }
  double rising = 0.0;
  std::size_t count = 0;
  for (const User& user : users) {
    const Filling& filling = filling_[user.variable];
    // What this resource itself is expected to hold rises on as far as its bound.
    const bool held_here = (filling.bottleneck == resource) & (filling.settled_epoch != epoch_);
    caps_[count++] = {filling.cap[held_here ? 1 : 0], user.load};
    rising += user.load;
  }
  double level = 0.0;
  while (count > 0) {  // the level only grows: those below it have stopped for good
    level = std::max(level, left / rising);
    std::size_t kept = 0;
    rising = 0.0;
    for (std::size_t i = 0; i < count; ++i) {
      const Cap user = caps_[i];
      const bool stopped = user.level <= level;  // selects, not branches: they are unpredictable
      left -= user.load * (stopped ? user.level : 0.0);
      rising += stopped ? 0.0 : user.load;
      caps_[kept] = user;
      kept += stopped ? 0 : 1;
    }
    if (kept == count) {
      state.full_level = level;
      state.slack = -1.0;
      return;
    }
    count = kept;
  }
  state.full_level = kUnbounded;
  state.slack = left;
}

// A user of the resource left its expected course: the resource must be replayed from here on.
void FairShare::disturb(ResourceId resource) {
  ResourceState& state = resources_[resource];
  state.epoch = epoch_;
  if (!state.queued_for_refresh) {
    state.queued_for_refresh = true;
    refresh_.push_back(resource);
  }
}

// A user of the resource rises further than it was expected to.
void FairShare::raise(ResourceId resource, double by) {
  ResourceState& state = resources_[resource];
  if (state.slack - by > kSafeSlack * state.capacity) {
    state.slack -= by;
  } else {
    disturb(resource);
  }
}

// A user of the resource stopped earlier than it was expected to.
void FairShare::lower(ResourceId resource) {
  ResourceState& state = resources_[resource];
  if (state.epoch == epoch_) {
    state.stale = true;
  } else if (std::isfinite(state.level)) {
    disturb(resource);
  }
}

void FairShare::refresh(ResourceId resource) {
  ResourceState& state = resources_[resource];
  fill(resource);
  state.stale = false;
  state.queued_for_refresh = false;
  // Once full, only rounding can bring it here again: what it held stays held.
  const double next =
      state.full_epoch == epoch_ ? state.full_level : std::min(state.full_level, state.level);
  if (std::isfinite(next)) {
    heap_.set(resource, next);
  } else if (heap_.contains(resource)) {
    heap_.erase(resource);
  }
}

std::span<const FairShare::Variable> FairShare::solve() {
  changed_.clear();
  open_.clear();
  for (const Variable variable : fresh_) {
    if (filling_[variable].live) {
      open_.push_back(variable);
    }
  }
  fresh_.clear();
  for (const ResourceId resource : touched_) {
    refresh(resource);
  }
  touched_.clear();
  while (!heap_.empty()) {
    process(heap_.top().id);
    for (const ResourceId resource : refresh_) {
      refresh(resource);
    }
    refresh_.clear();
  }
  for (const Variable variable : open_) {
    if (filling_[variable].settled_epoch != epoch_) {
      settle(variable, filling_[variable].bound_level(), kNone);
    }
  }
  ++epoch_;
  return changed_;
}

void FairShare::process(ResourceId resource) {
  ResourceState& state = resources_[resource];
  if (state.stale) {
    const double before = heap_.top().key;
    refresh(resource);
    if (!heap_.contains(resource) || heap_.key(resource) > before) {
      return;
    }
  }
  if (state.full_epoch == epoch_ || state.full_level <= state.level * (1.0 + kLevelTolerance)) {
    saturate(resource);
  } else {
    release(resource);
  }
}

// The resource is full: everyone still rising on it stops here.
void FairShare::saturate(ResourceId resource) {
  heap_.erase(resource);
  ResourceState& state = resources_[resource];
  state.level = state.full_level;
  state.full_epoch = epoch_;
  for (const User& user : users_[resource]) {
    const Filling& filling = filling_[user.variable];
    if (filling.settled_epoch == epoch_) {
      continue;
    }
    if (filling.bottleneck == resource && filling.bound_level() <= state.level) {
      settle(user.variable, filling.bound_level(), kNone);
    } else if (filling.bottleneck == resource || filling.cap[0] > state.level) {
      settle(user.variable, state.level, resource);
    }
  }
}

// The level at which the resource was expected to be full has passed: those it would have held
// there rise on, as far as it can tell now.
void FairShare::release(ResourceId resource) {
  ResourceState& state = resources_[resource];
  state.level = state.full_level;
  for (const User& user : users_[resource]) {
    Filling& filling = filling_[user.variable];
    if (filling.settled_epoch == epoch_ || filling.bottleneck != resource) {
      continue;
    }
    if (std::isinf(state.level)) {
      filling.bottleneck = kNone;
      open_.push_back(user.variable);
    }
    const double cap = std::min(state.level, filling.bound_level());
    if (cap == filling.cap[0]) {
      continue;
    }
    const double by = cap - filling.cap[0];
    filling.cap[0] = cap;
    const Shape& shape = shapes_[user.variable];
    for (std::uint32_t i = 0; i < shape.num_uses; ++i) {
      const Use& use = uses_[shape.first_use + i];
      if (use.resource != resource) {
        raise(use.resource, by * use.load);
      }
    }
  }
  disturb(resource);
}

void FairShare::settle(Variable variable, double level, ResourceId bottleneck) {
  Filling& filling = filling_[variable];
  const bool changed = !same_level(level, filling.level);
  const double final_level = changed ? level : filling.level;
  const bool was_expected = same_level(final_level, filling.cap[0]);
  const ResourceId expected_at = filling.bottleneck;
  filling.cap[0] = final_level;
  filling.settled_epoch = epoch_;
  filling.bottleneck = bottleneck;
  Shape& shape = shapes_[variable];
  if (changed) {
    filling.level = level;
    shape.rate = bottleneck == kNone ? shape.bound : shape.weight * level;
    changed_.push_back(variable);
  }
  if (was_expected) {  // news only to the resource that expected to hold it itself
    if (expected_at != kNone) {
      resources_[expected_at].stale = true;
    }
    return;
  }
  for (std::uint32_t i = 0; i < shape.num_uses; ++i) {
    const ResourceId other = uses_[shape.first_use + i].resource;
    if (other == bottleneck) {
      continue;
    }
    lower(other);
  }
}

}  // namespace orrery::sim
