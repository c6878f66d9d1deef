// SPDX-License-Identifier: Apache-2.0
#include "sim/engine/fair_share.hpp"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "base/random.hpp"
#include "tests/property/sim/fair_share_reference.hpp"

namespace orrery::sim {
namespace {

using testing::ReferenceVariable;

// A network under random arrivals and departures, kept beside the solver.
class Scenario {
 public:
  // `coarse` draws capacities and weights from few values, so that levels tie.
  Scenario(std::uint64_t seed, int resources, bool coarse, bool bounded)
      : random_(seed), coarse_(coarse), bounded_(bounded) {
    for (int r = 0; r < resources; ++r) {
      capacities_.push_back(coarse ? static_cast<double>(1 + random_.below(3))
                                   : 0.5 + 10.0 * random_.uniform());
      share_.add_resource(capacities_.back());
    }
  }

  void add() {
    ReferenceVariable variable{{}, FairShare::kUnbounded, 1.0, 1};
    const std::uint64_t uses = 1 + random_.below(4);
    for (std::uint64_t i = 0; i < uses; ++i) {
      const auto resource = static_cast<ResourceId>(random_.below(capacities_.size()));
      variable.demands.push_back({resource, coarse_ ? 1.0 : 0.1 + random_.uniform()});
    }
    if (bounded_ && random_.below(2) == 0) {
      variable.bound = coarse_ ? static_cast<double>(random_.below(3)) / 2.0 : random_.uniform();
    }
    if (bounded_) {
      variable.weight = static_cast<double>(1 + random_.below(3));
      variable.multiplicity = static_cast<std::uint32_t>(1 + random_.below(3));
    }
    live_[share_.add(variable.demands, variable.bound, variable.weight, variable.multiplicity)] =
        variable;
  }

  void remove() {
    if (!live_.empty()) {
      const auto victim =
          std::next(live_.begin(), static_cast<std::ptrdiff_t>(random_.below(live_.size())));
      share_.remove(victim->first);
      live_.erase(victim);
    }
  }

  void change_capacity() {
    const auto resource = static_cast<ResourceId>(random_.below(capacities_.size()));
    capacities_[resource] = static_cast<double>(random_.below(4));
    share_.set_capacity(resource, capacities_[resource]);
  }

  void step(std::uint64_t most_changes, bool capacities_change) {
    std::map<FairShare::Variable, double> before;
    for (const auto& [variable, shape] : live_) {
      before[variable] = share_.rate(variable);
    }
    for (std::uint64_t i = 0; i < 1 + random_.below(most_changes); ++i) {
      switch (random_.below(capacities_change ? 5 : 4)) {
        case 0:
        case 1:
          add();
          break;
        case 4:
          change_capacity();
          break;
        default:
          remove();
      }
    }
    const auto changed_span = share_.solve();
    const std::vector<FairShare::Variable> changed(changed_span.begin(), changed_span.end());
    for (const auto& [variable, shape] : live_) {
      const bool reported = std::count(changed.begin(), changed.end(), variable) == 1;
      RC_ASSERT(reported || share_.rate(variable) == before[variable]);
    }
    RC_ASSERT(share_.num_variables() == live_.size());
  }

  // Feasible, and everyone is at its bound or has a full resource on which nobody has a higher
  // level: this holds for exactly one allocation, the max-min fair one.
  void check_certificate() const {
    constexpr double kSlack = 1e-9;
    const std::vector<Pressure> pressure = pressures();
    for (std::size_t r = 0; r < capacities_.size(); ++r) {
      const double load = pressure[r].load;
      RC_ASSERT(load <= capacities_[r] * (1.0 + kSlack));
      RC_ASSERT(std::abs(share_.load(static_cast<ResourceId>(r)) - load) <= 1e-9 * (1.0 + load));
    }
    for (const auto& [variable, shape] : live_) {
      const double rate = share_.rate(variable);
      const ResourceId held_by = share_.bottleneck(variable);
      if (held_by == kNone) {
        RC_ASSERT(rate == shape.bound || std::abs(rate - shape.bound) <= 1e-11 * shape.bound);
        continue;
      }
      RC_ASSERT(rate <= shape.bound * (1.0 + kSlack));
      RC_ASSERT(pressure[held_by].load >= capacities_[held_by] * (1.0 - kSlack));
      RC_ASSERT(rate / shape.weight >= pressure[held_by].highest * (1.0 - kSlack));
    }
  }

  void check_reference() const {
    std::vector<ReferenceVariable> variables;
    for (const auto& [variable, shape] : live_) {
      variables.push_back(shape);
    }
    const std::vector<long double> expected = testing::reference_rates(capacities_, variables);
    std::size_t i = 0;
    for (const auto& [variable, shape] : live_) {
      const double want = static_cast<double>(expected[i++]);
      RC_ASSERT(std::abs(share_.rate(variable) - want) <= 1e-9 * want);
    }
  }

 private:
  struct Pressure {
    double load = 0.0;
    double highest = 0.0;  // level of a user
  };

  std::vector<Pressure> pressures() const {
    std::vector<Pressure> pressure(capacities_.size());
    for (const auto& [variable, shape] : live_) {
      for (const Demand& demand : shape.demands) {
        Pressure& of = pressure[demand.resource];
        const double rate = share_.rate(variable);
        of.load += demand.amount * rate * shape.multiplicity;
        of.highest = std::max(of.highest, rate / shape.weight);
      }
    }
    return pressure;
  }

  Random random_;
  bool coarse_;
  bool bounded_;
  FairShare share_;
  std::vector<double> capacities_;
  std::map<FairShare::Variable, ReferenceVariable> live_;
};

void run_scenario(bool coarse, bool bounded, bool capacities_change) {
  const auto seed = *rc::gen::arbitrary<std::uint64_t>();
  const int resources = *rc::gen::inRange(1, 30);
  const int initial = *rc::gen::inRange(0, 60);
  Scenario scenario(seed, resources, coarse, bounded);
  for (int i = 0; i < initial; ++i) {
    scenario.add();
  }
  for (int i = 0; i < 25; ++i) {
    scenario.step(4, capacities_change);
    scenario.check_certificate();
    scenario.check_reference();
  }
}

TEST(FairShareProperty, EqualsProgressiveFilling) {
  EXPECT_TRUE(rc::check([] { run_scenario(false, false, false); }));
}

TEST(FairShareProperty, EqualsProgressiveFillingWhenLevelsTie) {
  EXPECT_TRUE(rc::check([] { run_scenario(true, false, false); }));
}

TEST(FairShareProperty, EqualsProgressiveFillingWithBoundsAndWeights) {
  EXPECT_TRUE(rc::check([] { run_scenario(false, true, false); }));
}

TEST(FairShareProperty, EqualsProgressiveFillingWhenBoundsTieAndCapacitiesChange) {
  EXPECT_TRUE(rc::check([] { run_scenario(true, true, true); }));
}

}  // namespace
}  // namespace orrery::sim
