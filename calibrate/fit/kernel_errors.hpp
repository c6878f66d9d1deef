// SPDX-License-Identifier: Apache-2.0
// What a profile says of its own kernels: errors of points that were left out of the fit, by class
// ("gemm bf16 tn burst"), and the spreads that follow from them. The points stay the caller's.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "calibrate/fit/kernel_points.hpp"
#include "costmodel/profile.hpp"

namespace orrery::calibrate {

// As profiles state errors: four digits.
double rounded_quantile(std::vector<double> values, double share);

class KernelErrors {
 public:
  // `predicted` seconds by a fit without the point.
  void add(const KernelPointOf& point, double predicted);
  // A row of accuracy a class, spreads of GEMMs, of experts and of attention where something was
  // left out.
  void tell(costmodel::Profile& profile) const;

 private:
  struct Errors {
    std::vector<const KernelPointOf*> points;
    std::vector<double> all;
    std::vector<double> large;  // of GEMMs of at least 1024 rows, columns and depth
  };
  std::map<std::string, Errors> by_class_;
};

}  // namespace orrery::calibrate
