// SPDX-License-Identifier: Apache-2.0
#include "calibrate/fit/five_factors.hpp"

#include <Eigen/Cholesky>
#include <Eigen/Core>
#include <algorithm>
#include <cmath>
#include <vector>

namespace orrery::calibrate {
namespace {

using costmodel::CollectiveParameters;
constexpr int kFactors = 6;
using Factors = Eigen::Matrix<double, kFactors, 1>;

constexpr double kMicro = 1e-6;
constexpr double kMebi = 1024.0 * 1024.0;
constexpr double kLossScale = 0.1;  // of ln(time) beyond which a point counts less
// Of a start that is one unit away, in points of error 1. Between nodes a family has one to seven
// logs, each of another cloud: what they say of it is worth less.
constexpr double kPullInside = 0.2;
constexpr double kPullBetween = 3;
// Rates of links are known better than latencies: all-reduces alone, which few sizes send through
// rings, must not move the rate of rings far.
constexpr double kPullOfRate = 10;
// NVLS trees reach NCCL's number within some 10 % in every family: one cloud's log says less.
constexpr double kPullOfSwitchBetween = 30;
constexpr double kStep = 1e-4;
constexpr int kMaxIterations = 60;

// a0 (10 us), ln lambda LL, ln lambda Simple, ln beta, s0 (MiB), ln beta in switches
Factors factors_of(const CollectiveParameters& p) {
  Factors x;
  x << p.base.value() / kMicro / 10, std::log(p.low_latency_factor), std::log(p.simple_factor),
      std::log(p.bandwidth_factor), p.half_size.value() / kMebi, std::log(p.in_switch_factor);
  return x;
}

Factors bounded(const Factors& x) {
  const Factors low{0, std::log(0.3), std::log(0.3), std::log(0.2), 0, std::log(0.2)};
  const Factors high{6, std::log(4.0), std::log(4.0), std::log(1.2), 16, std::log(1.2)};
  return x.cwiseMax(low).cwiseMin(high);
}

CollectiveParameters parameters_of(const Factors& x) {
  CollectiveParameters p;
  p.base = Seconds(x[0] * 10 * kMicro);
  p.low_latency_factor = std::exp(x[1]);
  p.simple_factor = std::exp(x[2]);
  p.bandwidth_factor = std::exp(x[3]);
  p.half_size = Bytes(x[4] * kMebi);
  p.in_switch_factor = std::exp(x[5]);
  return p;
}

struct Point {
  const LogOfModel* of = nullptr;
  MeasuredTime measured;
  double weight = 1;
};

Factors pulls_of(std::span<const LogOfModel> logs) {
  const bool between = std::any_of(logs.begin(), logs.end(),
                                   [](const auto& of) { return of.log->system.group.nodes > 1; });
  const double pull = between ? kPullBetween : kPullInside;
  return Factors{pull, pull, pull, kPullOfRate, pull, between ? kPullOfSwitchBetween : pull};
}

class Problem {
 public:
  Problem(std::span<const LogOfModel> logs, const Factors& start)
      : start_(start), pulls_(pulls_of(logs)) {
    for (const LogOfModel& log : logs) {
      const std::size_t first = points_.size();
      for (const MeasuredTime& measured : log.log->times) {
        if (!launch_bound(*log.log, measured.time)) {
          points_.push_back({&log, measured, 1});
        }
      }
      const auto count = static_cast<double>(points_.size() - first);
      for (std::size_t i = first; i < points_.size(); ++i) {
        points_[i].weight = 1 / count;
      }
    }
  }
  bool empty() const { return points_.empty(); }

  Eigen::VectorXd errors(const Factors& x) const {
    const CollectiveParameters parameters = parameters_of(x);
    Eigen::VectorXd result(static_cast<Eigen::Index>(points_.size()));
    for (std::size_t i = 0; i < points_.size(); ++i) {
      const Point& point = points_[i];
      const CollectiveLog& log = *point.of->log;
      const Seconds time =
          point.of->model->formula(log.kind, point.measured.size, log.system.group, parameters)
              .time;
      result[static_cast<Eigen::Index>(i)] = std::log(time / point.measured.time);
    }
    return result;
  }
  double loss(const Factors& x, const Eigen::VectorXd& errors) const {
    double sum = pulls_.dot((x - start_).cwiseAbs2());
    for (std::size_t i = 0; i < points_.size(); ++i) {
      const double scaled = errors[static_cast<Eigen::Index>(i)] / kLossScale;
      sum += points_[i].weight * std::log1p(scaled * scaled);
    }
    return sum;
  }
  // Normal equations of the reweighted problem.
  void linearise(const Factors& x, const Eigen::VectorXd& errors,
                 Eigen::Matrix<double, kFactors, kFactors>& a, Factors& b) const {
    a.setZero();
    a.diagonal() = 2 * pulls_;
    b = 2 * pulls_.cwiseProduct(x - start_);
    Eigen::MatrixXd slopes(errors.size(), kFactors);
    for (int k = 0; k < kFactors; ++k) {
      Factors moved = x;
      moved[k] += kStep;
      slopes.col(k) = (this->errors(moved) - errors) / kStep;
    }
    for (Eigen::Index i = 0; i < errors.size(); ++i) {
      const double scaled = errors[i] / kLossScale;
      const double weight = 2 * points_[static_cast<std::size_t>(i)].weight /
                            (kLossScale * kLossScale) / (1 + scaled * scaled);
      a += weight * slopes.row(i).transpose() * slopes.row(i);
      b += weight * errors[i] * slopes.row(i).transpose();
    }
  }

 private:
  Factors start_;
  Factors pulls_;
  std::vector<Point> points_;
};

}  // namespace

CollectiveParameters fit_five_factors(std::span<const LogOfModel> logs,
                                      const CollectiveParameters& start) {
  Factors x = bounded(factors_of(start));
  const Problem problem(logs, x);
  if (problem.empty()) {
    return start;
  }
  Eigen::VectorXd errors = problem.errors(x);
  double loss = problem.loss(x, errors);
  double damping = 1e-2;
  for (int iteration = 0; iteration < kMaxIterations && damping < 1e6; ++iteration) {
    Eigen::Matrix<double, kFactors, kFactors> a;
    Factors b;
    problem.linearise(x, errors, a, b);
    a.diagonal() *= 1 + damping;
    const Factors next = bounded(x - a.ldlt().solve(b));
    const Eigen::VectorXd next_errors = problem.errors(next);
    const double next_loss = problem.loss(next, next_errors);
    if (next_loss < loss) {
      const double gain = (loss - next_loss) / loss;
      x = next;
      errors = next_errors;
      loss = next_loss;
      damping *= 0.3;
      if (gain < 1e-7) {
        break;
      }
    } else {
      damping *= 5;
    }
  }
  return parameters_of(x);
}

}  // namespace orrery::calibrate
