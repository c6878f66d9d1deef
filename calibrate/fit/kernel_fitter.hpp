// SPDX-License-Identifier: Apache-2.0
// One fit of the kernel sections to points: parameters of the formulas, then the residual sets.
#pragma once

#include <string>
#include <vector>

#include "calibrate/fit/anchors.hpp"
#include "calibrate/fit/kernel_points.hpp"
#include "costmodel/profile.hpp"

namespace orrery::calibrate {

// Refers to what it was made of.
class KernelFitter {
 public:
  KernelFitter(const topologies::Gpu& gpu, const costmodel::Profile& base,
               const std::string& source)
      : gpu_(gpu), base_(base), source_(source) {}

  const costmodel::Profile& base() const { return base_; }
  // `remarks`, if any, take what is odd about the parameters.
  costmodel::Profile fit(const KernelPoints& points, const Anchors& anchors,
                         std::vector<std::string>* remarks = nullptr) const;
  // The formula of attention's forward pass alone, under the residual sets of the base: those of a
  // relative, which are ratios. As in the base where the points do not tell it.
  costmodel::Profile fit_forward_attention(const KernelPoints& points,
                                           std::vector<std::string>* remarks = nullptr) const;

 private:
  const topologies::Gpu& gpu_;
  const costmodel::Profile& base_;
  const std::string& source_;
};

}  // namespace orrery::calibrate
