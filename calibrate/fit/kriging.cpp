// SPDX-License-Identifier: Apache-2.0
#include "calibrate/fit/kriging.hpp"

#include <Eigen/Cholesky>
#include <Eigen/Core>
#include <algorithm>
#include <cmath>
#include <utility>

#include "base/error.hpp"

namespace orrery::calibrate {
namespace {

using sim::CommKind;

constexpr int kPasses = 12;     // enough to settle: 24 give the same errors
constexpr double kOutlier = 2;  // deviations; as errors of logs left out chose (docs/fidelity.md)
constexpr double kJitter = 1e-9;

double square(double value) { return value * value; }

bool moves_parts(CommKind kind) {
  return kind == CommKind::AllGather || kind == CommKind::ReduceScatter;
}

double kind_correlation(CommKind a, CommKind b, const KrigingPrior& prior) {
  if (a == b) {
    return 1;
  }
  if (stands_alone(a) || stands_alone(b)) {
    return 0;
  }
  return moves_parts(a) && moves_parts(b) ? prior.gather_scatter : prior.gather_reduce;
}

bool is_verbs(costmodel::FabricClass fabric) {
  return fabric == costmodel::FabricClass::InfiniBand || fabric == costmodel::FabricClass::Roce;
}

// Reduction in the network is another algorithm: its residuals say nothing of rings and trees.
double fabric_correlation(costmodel::FabricClass a, costmodel::FabricClass b,
                          const KrigingPrior& prior) {
  if (a == b) {
    return 1;
  }
  const bool sharp = a == costmodel::FabricClass::Sharp || b == costmodel::FabricClass::Sharp;
  return sharp ? 0 : is_verbs(a) && is_verbs(b) ? prior.fabrics : prior.plugins;
}

// Rough at one octave (protocols switch), smooth over many.
double size_correlation(double octaves, double reach) {
  const double rough = std::exp(-octaves / reach);
  const double x = 1.7320508 * octaves / reach;
  return 0.5 * rough + 0.5 * (1 + x) * std::exp(-x);
}

struct Covariance {
  KrigingPrior prior;

  // Without log and noise.
  double shared(const ResidualPoint& a, const ResidualPoint& b) const {
    const double kinds = kind_correlation(a.kind, b.kind, prior);
    if (kinds == 0) {
      return 0;
    }
    const double octaves = std::abs(a.log2_bytes - b.log2_bytes);
    const double layout = std::exp(-std::abs(a.log2_ranks - b.log2_ranks) / prior.reach_ranks -
                                   std::abs(a.log2_nodes - b.log2_nodes) / prior.reach_nodes);
    const double fabrics = fabric_correlation(a.fabric, b.fabric, prior);
    const bool gpus = a.gpu == b.gpu && a.fabric == b.fabric;
    const bool versions = a.version > 0 && a.version == b.version;
    const double parts = square(prior.family) + (gpus ? square(prior.gpu) : 0.0) +
                         (versions ? square(prior.version) : 0.0);
    return kinds * layout * fabrics * parts * size_correlation(octaves, prior.reach_bytes);
  }
  double of_log(const ResidualPoint& a, const ResidualPoint& b) const {
    return a.log == b.log
               ? square(prior.log) *
                     size_correlation(std::abs(a.log2_bytes - b.log2_bytes), prior.reach_bytes)
               : 0.0;
  }
};

}  // namespace

bool stands_alone(CommKind kind) {
  return kind == CommKind::AllToAll || kind == CommKind::Broadcast;
}

struct Kriging::Solution {
  Covariance covariance;
  std::vector<ResidualPoint> points;
  Eigen::LLT<Eigen::MatrixXd> factors;
  Eigen::VectorXd weights;
};

Kriging::~Kriging() = default;
Kriging::Kriging(Kriging&&) noexcept = default;
Kriging& Kriging::operator=(Kriging&&) noexcept = default;

Kriging::Kriging(std::vector<ResidualPoint> points, const KrigingPrior& prior)
    : solution_(std::make_unique<Solution>()) {
  Solution& solution = *solution_;
  solution.covariance.prior = prior;
  solution.points = std::move(points);
  const auto count = static_cast<Eigen::Index>(solution.points.size());
  Eigen::MatrixXd matrix(count, count);
  Eigen::VectorXd values(count);
  for (Eigen::Index row = 0; row < count; ++row) {
    const ResidualPoint& a = solution.points[static_cast<std::size_t>(row)];
    values[row] = a.value;
    for (Eigen::Index column = 0; column <= row; ++column) {
      const ResidualPoint& b = solution.points[static_cast<std::size_t>(column)];
      matrix(row, column) = solution.covariance.shared(a, b) + solution.covariance.of_log(a, b);
    }
  }
  Eigen::VectorXd noise = Eigen::VectorXd::Constant(count, square(prior.noise) + kJitter);
  for (int pass = 0; pass < kPasses && count > 0; ++pass) {
    Eigen::MatrixXd noisy = matrix;
    noisy.diagonal() += noise;
    solution.factors.compute(noisy);
    ORRERY_CHECK(solution.factors.info() == Eigen::Success, "covariance of residuals");
    solution.weights = solution.factors.solve(values);
    // What the fit leaves of a point, in deviations of its noise.
    for (Eigen::Index row = 0; row < count; ++row) {
      const double left = std::abs(noise[row] * solution.weights[row]);
      noise[row] =
          (square(prior.noise) + kJitter) * square(std::max(1.0, left / (kOutlier * prior.noise)));
    }
  }
}

double Kriging::at(const ResidualPoint& point) const {
  const Solution& solution = *solution_;
  double sum = 0;
  for (std::size_t i = 0; i < solution.points.size(); ++i) {
    sum += solution.covariance.shared(point, solution.points[i]) *
           solution.weights[static_cast<Eigen::Index>(i)];
  }
  return sum;
}

}  // namespace orrery::calibrate
