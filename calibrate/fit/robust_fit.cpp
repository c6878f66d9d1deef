// SPDX-License-Identifier: Apache-2.0
#include "calibrate/fit/robust_fit.hpp"

#include <Eigen/Dense>
#include <algorithm>
#include <cmath>

namespace orrery::calibrate {

namespace {

constexpr int kMaxSteps = 60;
constexpr double kDerivativeStep = 1e-4;

using Residuals = std::function<std::vector<double>(const std::vector<double>&)>;

double huber_loss(const std::vector<double>& residuals, double width) {
  double sum = 0;
  for (const double r : residuals) {
    const double size = std::abs(r);
    sum += size <= width ? r * r / 2 : width * (size - width / 2);
  }
  return sum;
}

// The search for the parameters, in their logarithms.
class Fit {
 public:
  Fit(const std::vector<FitParameter>& parameters, const Residuals& residuals, double huber)
      : parameters_(parameters),
        residuals_(residuals),
        huber_(huber),
        at_(static_cast<Eigen::Index>(parameters.size())) {
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      at_(static_cast<Eigen::Index>(i)) = std::log(parameters[i].start);
    }
    errors_ = residuals_(values_of(at_));
    loss_ = huber_loss(errors_, huber_);
  }

  std::vector<double> best() {
    for (int step = 0; step < kMaxSteps && damping_ < kHopeless; ++step) {
      improve();
    }
    return values_of(at_);
  }

 private:
  std::vector<double> values_of(const Eigen::VectorXd& logs) const {
    std::vector<double> values;
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      values.push_back(std::clamp(std::exp(logs(static_cast<Eigen::Index>(i))), parameters_[i].min,
                                  parameters_[i].max));
    }
    return values;
  }

  Eigen::VectorXd within_bounds(Eigen::VectorXd logs) const {
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      double& x = logs(static_cast<Eigen::Index>(i));
      x = std::clamp(x, std::log(parameters_[i].min), std::log(parameters_[i].max));
    }
    return logs;
  }

  // Of the residuals (rows) by the logarithms of the parameters (columns), by differences.
  Eigen::MatrixXd jacobian() const {
    const auto rows = static_cast<Eigen::Index>(errors_.size());
    Eigen::MatrixXd slopes(rows, at_.size());
    for (Eigen::Index j = 0; j < at_.size(); ++j) {
      Eigen::VectorXd moved = at_;
      // Away from an upper bound, so that the difference is never zero there.
      const bool down =
          at_(j) + kDerivativeStep > std::log(parameters_[static_cast<std::size_t>(j)].max);
      moved(j) += down ? -kDerivativeStep : kDerivativeStep;
      const std::vector<double> shifted = residuals_(values_of(moved));
      for (Eigen::Index i = 0; i < rows; ++i) {
        const auto row = static_cast<std::size_t>(i);
        slopes(i, j) = (shifted[row] - errors_[row]) / (moved(j) - at_(j));
      }
    }
    return slopes;
  }

  // One Gauss-Newton system, with the rows of large residuals scaled down as Huber's loss has it;
  // more damping until a step lowers the loss.
  void improve() {
    const Eigen::MatrixXd slopes = jacobian();
    Eigen::VectorXd weighted(slopes.rows());
    Eigen::MatrixXd scaled = slopes;
    for (Eigen::Index i = 0; i < slopes.rows(); ++i) {
      const double error = errors_[static_cast<std::size_t>(i)];
      const double weight = std::min(1.0, huber_ / std::max(1e-12, std::abs(error)));
      weighted(i) = weight * error;
      scaled.row(i) *= weight;
    }
    const Eigen::MatrixXd normal = slopes.transpose() * scaled;
    const Eigen::VectorXd gradient = slopes.transpose() * weighted;
    bool better = false;
    while (!better && damping_ < kHopeless) {
      Eigen::MatrixXd damped = normal;
      damped.diagonal() += damping_ * (normal.diagonal().array() + 1e-12).matrix();
      better = move_to(within_bounds(at_ - damped.ldlt().solve(gradient)));
    }
  }

  // Whether the loss is lower there; then the fit goes on from there.
  bool move_to(const Eigen::VectorXd& next) {
    std::vector<double> errors = residuals_(values_of(next));
    const double loss = huber_loss(errors, huber_);
    if (!(loss < loss_)) {
      damping_ *= 4;
      return false;
    }
    const bool settled = loss_ - loss < 1e-9 * loss_;
    at_ = next;
    errors_ = std::move(errors);
    loss_ = loss;
    damping_ = settled ? 10 * kHopeless : std::max(1e-9, damping_ / 4);
    return true;
  }

  static constexpr double kHopeless = 1e8;  // damping beyond which no step helps

  const std::vector<FitParameter>& parameters_;
  const Residuals& residuals_;
  double huber_;
  Eigen::VectorXd at_;
  std::vector<double> errors_;
  double loss_ = 0;
  double damping_ = 1e-3;
};

}  // namespace

std::vector<double> robust_fit(const std::vector<FitParameter>& parameters,
                               const Residuals& residuals, double huber) {
  return Fit(parameters, residuals, huber).best();
}

}  // namespace orrery::calibrate
