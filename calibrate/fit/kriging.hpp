// SPDX-License-Identifier: Apache-2.0
// Residuals of collective times at layouts, collectives and versions nobody measured, from those
// that were: Gaussian-process regression (kriging) with a covariance made of parts that say who
// resembles whom. Each part falls with the distance in log2(bytes) (Matern 1/2 and 3/2) and in
// log2(ranks) and log2(nodes); gathers resemble scatters more than all-reduces, all-to-alls and
// broadcasts nothing else.
//
//   residual = family(kind, ranks, bytes) + gpu(...) + version(...) + log(bytes) + noise
//
// Points that a fit leaves far off get a larger noise and the fit is repeated until that settles: a
// single size that its neighbours contradict is not followed, and of two machines that contradict
// each other the one nearer to the formula has its say. Memory O(n^2), time O(n^3) for n points;
// deterministic.
#pragma once

#include <memory>
#include <vector>

#include "costmodel/collective_residuals.hpp"

namespace orrery::calibrate {

struct ResidualPoint {
  costmodel::FabricClass fabric = costmodel::FabricClass::Node;
  sim::CommKind kind = sim::CommKind::AllReduce;
  int gpu = 0;            // any numbering of the GPUs
  int version = 0;        // of NCCL; 0: unknown or none
  int log = 0;            // negative: none of the measured
  double log2_ranks = 0;  // inside a node
  double log2_nodes = 0;
  double log2_bytes = 0;
  double value = 0;  // ln(measured / formula)
};

// Collectives that no other kind tells of: exchanges, which NCCL's tuner does not know, and
// broadcasts, which hand one buffer on from rank to rank.
bool stands_alone(sim::CommKind kind);

// Standard deviations of the parts and the reach of their correlation. Chosen by the error on whole
// logs left out, over all families together (docs/fidelity.md says what that flatters, and what
// other values do). These are for one node, where GPUs of a family are the same machine.
struct KrigingPrior {
  double family = 0.2;
  double gpu = 0.02;
  double version = 0.07;
  double log = 0.02;
  double noise = 0.02;
  double reach_bytes = 6;  // octaves
  double reach_ranks = 2;  // of the family part
  double reach_nodes = 4;
  double gather_scatter = 0.95;  // correlation of kinds
  double gather_reduce = 0.6;
  double fabrics = 0.7;  // of two verbs networks
  double plugins = 0.3;  // of networks of which one has its own transport, and factors of its own
};

// Between nodes every log is of another cloud: its points are followed less closely, and a log of
// another verbs network says nearly as much as one of the same.
inline KrigingPrior prior_between_nodes() {
  KrigingPrior prior;
  prior.family = 0.12;
  prior.gpu = 0.05;
  prior.noise = 0.05;
  prior.reach_bytes = 4;
  prior.gather_reduce = 0.2;
  prior.fabrics = 0.9;
  return prior;
}

struct ResidualPriors {
  KrigingPrior inside;
  KrigingPrior between = prior_between_nodes();
};

class Kriging {
 public:
  Kriging(std::vector<ResidualPoint> points, const KrigingPrior& prior);
  ~Kriging();
  Kriging(Kriging&&) noexcept;
  Kriging& operator=(Kriging&&) noexcept;

  // The expected residual of a log yet to be taken; `value` of the point is not looked at.
  double at(const ResidualPoint& point) const;

 private:
  struct Solution;
  std::unique_ptr<Solution> solution_;
};

}  // namespace orrery::calibrate
