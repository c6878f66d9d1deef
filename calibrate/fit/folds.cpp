// SPDX-License-Identifier: Apache-2.0
#include "calibrate/fit/folds.hpp"

#include "calibrate/fit/kernel_errors.hpp"

namespace orrery::calibrate {

void predict_left_out(const KernelPoints& points,
                      const std::function<Predict(const KernelPoints& kept)>& fit_to,
                      const std::function<void(const KernelPointOf& point, double seconds)>& tell) {
  for (std::size_t fold = 0; fold < kFolds; ++fold) {
    const KernelPoints kept = select(points, [&](const auto& point) { return point.fold != fold; });
    const KernelPoints left = select(points, [&](const auto& point) { return point.fold == fold; });
    if (kept.empty() || left.empty()) {
      continue;
    }
    const Predict predict = fit_to(kept);
    for (const KernelPointOf* point : left) {
      tell(*point, predict(*point));
    }
  }
}

void test_in_folds(const KernelPoints& points,
                   const std::function<Predict(const KernelPoints& kept)>& fit_to, KernelFit& fit) {
  KernelErrors errors;
  predict_left_out(points, fit_to, [&](const KernelPointOf& point, double predicted) {
    errors.add(point, predicted);
    fit.left_out.push_back({class_name(point), point.seconds, predicted});
  });
  errors.tell(fit.profile);
}

}  // namespace orrery::calibrate
