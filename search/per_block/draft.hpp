// SPDX-License-Identifier: Apache-2.0
// Plans of a mesh and a pipeline. `round` makes one of the fractions of the bound's program: cut as
// usual or where they say, with one strategy of those they use most or, within every device, the
// dynamic program over its blocks (search/problems/pareto_chain.hpp: counts of strategies, memory
// as an exact Pareto dimension, conversions between unlike neighbours); the best of them when
// simulated. `improve` simulates it and its neighbours - a block moved to another stage, a strategy
// exchanged on the busiest or fullest device, with Moves::Any first a block moved between any two
// stages - and keeps what is faster, until none is or the budget is spent; `anneal` also goes on
// from what is a little slower: what is minimised is what is reported. Deterministic.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "plan/simulation/simulate.hpp"
#include "search/per_block/program.hpp"

namespace orrery::search {

struct DraftResult {
  Draft draft;
  bool fits = false;
  Seconds time;      // when it fits
  ByteCount excess;  // when it does not
  std::int64_t simulated = 0;
};

// Of a plan with one layout.
Draft draft_of(const plan::Plan& plan, const MeshCosts& costs);

class Drafter {
 public:
  Drafter(const PerBlockSpace& space, plan::Simulator& simulator, plan::BlockCosts& costs);

  std::optional<Draft> round(const StageMesh& mesh, const Pipeline& pipeline,
                             const MeshCosts& costs, const Shares& shares);
  enum class Moves : std::uint8_t { Likely, Any };
  DraftResult improve(const StageMesh& mesh, const Pipeline& pipeline, const MeshCosts& costs,
                      Draft draft, int budget, Moves moves = Moves::Likely);
  // Random neighbours of a draft that fits, also slower ones, less and less so: of many blocks that
  // take each other's time two have to change before one is faster. `candidates` are strategies
  // that blocks are given; luck, which `seed` draws, decides how far it leads; `stop` is asked now
  // and then.
  DraftResult anneal(const StageMesh& mesh, const Pipeline& pipeline, const MeshCosts& costs,
                     Draft draft, std::vector<std::uint16_t> candidates, std::uint64_t seed,
                     const std::function<bool()>& stop);
  // Strategies of which the fractions use half a block and more, most used first.
  static std::vector<std::uint16_t> used(const MeshCosts& costs, const Shares& shares);
  // Plans from now on leave so much of every device free.
  void leave_free(ByteCount margin);
  // And so much of each (empty: nothing).
  void leave_free_on_each(std::vector<ByteCount> margins) { free_ = std::move(margins); }

 private:
  struct Score {
    bool fits = false;
    Seconds time;
    ByteCount excess;
    bool operator<(const Score& other) const;
    // Of drafts that may be better; none: of any time.
    std::optional<Seconds> limit() const { return fits ? std::optional(time) : std::nullopt; }
  };
  using Lists = std::vector<std::vector<std::uint16_t>>;  // strategies by virtual stage
  using Switches = std::vector<double>;  // seconds of a change, by pair of candidates
  // The best strategies of a device's blocks, by all that they depend on.
  using FittedDevices =
      std::map<std::pair<const Switches*, std::vector<double>>, std::vector<std::uint16_t>>;
  class Climb;  // of improve

  Switches switch_costs(const StageMesh& mesh, const MeshCosts& costs,
                        const std::vector<std::uint16_t>& candidates);
  void fit_device(const plan::LiveCounts& live, const MeshCosts& costs,
                  const std::vector<std::uint16_t>& candidates, const Switches& switches,
                  Lists& lists, FittedDevices& known);
  Draft fitted(const StageMesh& mesh, const Pipeline& pipeline, const MeshCosts& costs,
               const std::vector<std::uint16_t>& candidates, const std::vector<int>& cut,
               const Switches& switches, FittedDevices& known);
  // All blocks of one strategy; on devices that are too full the stages of chunk `chunk`, then of
  // those behind it, take another. Devices go through a chunk side by side, so that what one of
  // them loses there the others may lose, too. Nothing where that does not fit either.
  std::optional<Draft> relieved(const StageMesh& mesh, const Pipeline& pipeline,
                                const MeshCosts& costs, const std::vector<int>& cut,
                                std::uint16_t usual, std::uint16_t smaller, int chunk);
  plan::MemoryVerdict memory_verdict();
  // Where a draft takes longer than `limit` by a bound of its own alone, that is its time.
  Score score(const StageMesh& mesh, const Pipeline& pipeline, const MeshCosts& costs,
              const Draft& draft, std::optional<Seconds> limit = std::nullopt);

  const PerBlockSpace& space_;
  plan::Simulator& simulator_;
  plan::BlockCosts& costs_;
  plan::Plan plan_;
  std::vector<ByteCount> free_;  // by device
  plan::Simulation last_;        // of the last draft scored
  std::int64_t simulated_ = 0;
};

}  // namespace orrery::search
