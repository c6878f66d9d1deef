// SPDX-License-Identifier: Apache-2.0
// What every strategy of a mesh costs each kind of block: the coefficients of the bounds and of the
// dynamic program. Seconds and bytes on one device, of one micro-batch. All are floors of what the
// simulator charges: gathers and reductions of a pass count as what their stream is busy with,
// those of a step as what their first or last block adds, conversions between unlike neighbours
// nothing. Strategies that another one beats in every coefficient are left out. O(strategies^2) per
// kind of block.
#pragma once

#include <cstdint>
#include <mutex>
#include <vector>

#include "plan/block/cost.hpp"
#include "plan/stage/split_backward.hpp"
#include "search/per_block/space.hpp"

namespace orrery::search {

struct BlockChoice {
  std::uint16_t strategy = 0;  // index into MeshCosts::strategies
  double forward = 0;
  double backward = 0;
  double input_grad = 0;  // parts of a backward that is cut in two
  double weight_grad = 0;
  double gather = 0;       // ZeRO-3: the stream of a forward
  double traffic = 0;      // ZeRO-2 and 3: the stream of a backward
  double pass_reduce = 0;  // of it, the reduction
  double regather = 0;     // and the gather
  // Once a step: reductions of ZeRO-0 and 1, gathers also of ZeRO-2 (at later stages nothing). Of
  // the chain's first block exactly, of all others the least of any strategy.
  double reduce = 0;
  double step_gather = 0;  // of the chain's first block
  // The same of every block by its strategy: what the stream is busy with.
  double reduce_all = 0;
  double gather_all = 0;
  double tied = 0;    // sum of tied gradients, if the first block has this strategy
  double states = 0;  // bytes
  double saved = 0;
  double kept = 0;       // of it from input to weight gradient
  double working = 0;    // recomputed tensors, while its backward runs
  double gathered = 0;   // whole parameters
  double unreduced = 0;  // whole gradients, and weights that a product casts
  double boundary = 0;   // bytes handed on
  double updated = 0;    // parameters that the optimizer updates on a device
  double update = 0;     // seconds of the optimizer, with its passes over the gradients
  double overhead() const { return working + gathered + unreduced; }
};

// `choices` of a kind: those that no other beats, fastest first, then the rest of `shared`.
struct MeshCosts {
  std::vector<plan::BlockPlan> strategies;        // all of the mesh
  std::vector<std::vector<BlockChoice>> choices;  // by block of the network
  std::vector<int> count;                         // blocks of the chain of each kind
  std::vector<std::uint16_t> shared;              // strategies that every kind has a choice for
  double communicators = 0;                       // bytes, at least
  double context = 0;
  double optimizer = 0;  // seconds, at least, on the device with most to update
  double launches = 0;   // of it, whatever there is to update
  double copies = 0;     // to add up the gradients of two copies of the model, at least
  double beside = 0;     // share of the multiprocessors that a collective takes from the blocks
  double in_flight = 0;  // gathered blocks at once; infinite where they are kept
};

// With costs of its own; one thread at a time.
class BlockPricer {
 public:
  explicit BlockPricer(const PerBlockSpace& space);
  MeshCosts price(const StageMesh& mesh);
  // The whole work of a micro-batch on one device of every stage, at least.
  double least_work(const StageMesh& mesh);
  plan::BlockCosts& costs() { return costs_; }

 private:
  BlockChoice choice_of(int block, const plan::BlockPlan& layout);
  double update_time(const plan::StateBytes& states) const;
  // Parameters that the fullest device updates, at least, by those of each kind of block.
  double least_updated(const std::vector<double>& parameters, const MeshCosts& costs) const;
  double optimizer_of(double parameters) const;

  const PerBlockSpace& space_;
  plan::Plan plan_;
  plan::BlockCosts costs_;
  plan::SplitBackwards splits_;
};

// The costs of every mesh, once somebody has asked for them. By any thread.
class PricedMeshes {
 public:
  explicit PricedMeshes(const PerBlockSpace& space)
      : space_(space), meshes_(space.meshes().size()) {}
  const MeshCosts& of(std::uint32_t mesh, BlockPricer& pricer) {
    Priced& priced = meshes_[mesh];
    std::call_once(priced.once, [&] { priced.costs = pricer.price(space_.meshes()[mesh]); });
    return priced.costs;
  }

 private:
  struct Priced {
    std::once_flag once;
    MeshCosts costs;
  };
  const PerBlockSpace& space_;
  std::vector<Priced> meshes_;
};

}  // namespace orrery::search
