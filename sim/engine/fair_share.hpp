// SPDX-License-Identifier: Apache-2.0
// Weighted max-min fair sharing of capacities, solved incrementally.
// A variable consumes amount * rate of every resource it demands. Its rate is weight * level, where
// levels rise together (progressive filling: Bertsekas and Gallager, Data Networks, section 6.5.2)
// until a resource is full or the rate bound is reached. Units are the caller's (bytes/s, 1).
// One solve() per distinct timestamp, after all its additions and removals: filling is replayed in
// order of level only where it differs from the previous solution, so the cost grows with the
// number of rates that change, not with the size of the connected component. Exact to a relative
// 1e-12 (a smaller difference is not a change). Deterministic: a function of the sequence of calls.
// Nothing is allocated once the arrays have reached their largest size; slots are reused.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "sim/engine/indexed_heap.hpp"
#include "sim/engine/program.hpp"

namespace orrery::sim {

class FairShare {
 public:
  using Variable = std::uint32_t;
  static constexpr double kUnbounded = std::numeric_limits<double>::infinity();

  ResourceId add_resource(double capacity);  // >= 0, may be infinite
  void set_capacity(ResourceId resource, double capacity);

  // `multiplicity` identical variables (same demands, bound and weight) share one slot: they load
  // the resources that many times and rate() is the rate of each. Zero amounts are ignored; without
  // demands the rate is the bound. weight > 0, rate_bound >= 0.
  Variable add(std::span<const Demand> demands, double rate_bound = kUnbounded, double weight = 1.0,
               std::uint32_t multiplicity = 1);
  void remove(Variable variable);

  // The variables whose rate differs from the one before (new ones included, removed ones not), in
  // a deterministic order. Valid until the next call of a non-const function.
  std::span<const Variable> solve();
  bool needs_solve() const { return !touched_.empty() || !fresh_.empty(); }

  // As of the last solve(); 0 for a variable added since.
  double rate(Variable variable) const { return shapes_[variable].rate; }
  double load(ResourceId resource) const;  // total consumption: O(users)
  double capacity(ResourceId resource) const { return resources_[resource].capacity; }
  // The resource that sets the rate of the variable; kNone when its bound does.
  ResourceId bottleneck(Variable variable) const { return filling_[variable].bottleneck; }
  std::size_t num_variables() const { return live_; }

 private:
  struct Filling {
    // Where it stops rising as far as is known, for the other resources and for the one expected
    // to hold it. The second is always rate_bound / weight.
    std::array<double, 2> cap;
    double level;                 // of the last solve, or of this one when settled; -1 before
    std::uint64_t settled_epoch;  // of the last solve that settled it
    ResourceId bottleneck;        // expected until settled
    bool live;
    double bound_level() const { return cap[1]; }
  };
  struct Shape {
    double rate;
    double bound;
    double weight;
    std::uint32_t first_use;
    std::uint32_t num_uses;
  };
  // A demand of a variable, and its place in the user list of the resource.
  struct Use {
    ResourceId resource;
    std::uint32_t position;
    double load;  // amount * weight * multiplicity: consumption per unit of level
  };
  struct User {
    Variable variable;
    std::uint32_t use;  // index into uses_
    double load;
  };
  struct Cap {
    double level;
    double load;
  };
  struct ResourceState {
    double capacity;
    double level = kUnbounded;       // at which it is expected to be full; infinite when never
    double full_level = kUnbounded;  // at which it will be, as far as is known
    double slack = -1.0;             // a lower bound on what is left; negative when it fills up
    std::uint64_t epoch = 0;         // of the last solve that replayed it
    std::uint64_t full_epoch = 0;    // of the last solve in which it filled up
    bool stale = false;              // full_level is only a lower bound
    bool queued_for_refresh = false;
  };

  void touch(ResourceId resource);
  void disturb(ResourceId resource);
  void raise(ResourceId resource, double by);
  void lower(ResourceId resource);
  void refresh(ResourceId resource);
  void fill(ResourceId resource);
  void process(ResourceId resource);
  void saturate(ResourceId resource);
  void release(ResourceId resource);
  void settle(Variable variable, double level, ResourceId bottleneck);
  std::uint32_t take_slot(std::uint32_t num_uses);

  std::vector<Filling> filling_;  // per variable, read in the inner loop
  std::vector<Shape> shapes_;
  std::vector<Use> uses_;
  std::vector<std::vector<Variable>> free_slots_;  // by number of uses
  std::vector<ResourceState> resources_;
  std::vector<std::vector<User>> users_;  // per resource
  std::vector<ResourceId> touched_;       // since the last solve
  std::vector<ResourceId> refresh_;
  std::vector<Variable> fresh_;
  std::vector<Variable> open_;
  std::vector<Variable> changed_;
  std::vector<Cap> caps_;     // scratch: users of one resource
  IndexedHeap<double> heap_;  // resources by the level of their next event
  std::uint64_t epoch_ = 1;
  std::size_t live_ = 0;
};

}  // namespace orrery::sim
