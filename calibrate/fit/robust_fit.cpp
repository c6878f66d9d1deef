// SPDX-License-Identifier: Apache-2.0
#include "calibrate/fit/robust_fit.hpp"

#include <Eigen/Dense>
#include <algorithm>
#include <cmath>

namespace orrery::calibrate {

namespace {

constexpr int kMaxSteps = 60;
constexpr double kDerivativeStep = 1e-4;

double huber_loss(const std::vector<double>& residuals, double width) {
  double sum = 0;
  for (const double r : residuals) {
    const double size = std::abs(r);
    sum += size <= width ? r * r / 2 : width * (size - width / 2);
  }
  return sum;
}

}  // namespace

std::vector<double> robust_fit(
    const std::vector<FitParameter>& parameters,
    const std::function<std::vector<double>(const std::vector<double>&)>& residuals, double huber) {
  const auto count = static_cast<Eigen::Index>(parameters.size());
  const auto values_of = [&](const Eigen::VectorXd& logs) {
    std::vector<double> values;
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      values.push_back(std::clamp(std::exp(logs(static_cast<Eigen::Index>(i))), parameters[i].min,
                                  parameters[i].max));
    }
    return values;
  };
  const auto within = [&](Eigen::VectorXd logs) {
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      double& x = logs(static_cast<Eigen::Index>(i));
      x = std::clamp(x, std::log(parameters[i].min), std::log(parameters[i].max));
    }
    return logs;
  };
  Eigen::VectorXd at(count);
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    at(static_cast<Eigen::Index>(i)) = std::log(parameters[i].start);
  }
  std::vector<double> errors = residuals(values_of(at));
  double loss = huber_loss(errors, huber);
  double damping = 1e-3;
  for (int step = 0; step < kMaxSteps && damping < 1e8; ++step) {
    const auto rows = static_cast<Eigen::Index>(errors.size());
    Eigen::MatrixXd jacobian(rows, count);
    for (Eigen::Index j = 0; j < count; ++j) {
      Eigen::VectorXd moved = at;
      // Away from an upper bound, so that the difference is never zero there.
      const bool down =
          at(j) + kDerivativeStep > std::log(parameters[static_cast<std::size_t>(j)].max);
      moved(j) += down ? -kDerivativeStep : kDerivativeStep;
      const std::vector<double> shifted = residuals(values_of(moved));
      for (Eigen::Index i = 0; i < rows; ++i) {
        const auto row = static_cast<std::size_t>(i);
        jacobian(i, j) = (shifted[row] - errors[row]) / (moved(j) - at(j));
      }
    }
    Eigen::VectorXd weighted(rows);
    Eigen::MatrixXd scaled = jacobian;
    for (Eigen::Index i = 0; i < rows; ++i) {
      const double error = errors[static_cast<std::size_t>(i)];
      const double weight = std::min(1.0, huber / std::max(1e-12, std::abs(error)));
      weighted(i) = weight * error;
      scaled.row(i) *= weight;
    }
    const Eigen::MatrixXd normal = jacobian.transpose() * scaled;
    const Eigen::VectorXd gradient = jacobian.transpose() * weighted;
    bool better = false;
    while (!better && damping < 1e8) {
      Eigen::MatrixXd damped = normal;
      damped.diagonal() += damping * (normal.diagonal().array() + 1e-12).matrix();
      const Eigen::VectorXd next = within(at - damped.ldlt().solve(gradient));
      std::vector<double> next_errors = residuals(values_of(next));
      const double next_loss = huber_loss(next_errors, huber);
      better = next_loss < loss;
      if (better) {
        const bool settled = loss - next_loss < 1e-9 * loss;
        at = next;
        errors = std::move(next_errors);
        loss = next_loss;
        damping = settled ? 1e9 : std::max(1e-9, damping / 4);
      } else {
        damping *= 4;
      }
    }
  }
  return values_of(at);
}

}  // namespace orrery::calibrate
