// SPDX-License-Identifier: Apache-2.0
// One fit of the kernel sections to points: parameters of the formulas, then the residual sets.
#pragma once

#include <string>
#include <vector>

#include "calibrate/fit/anchors.hpp"
#include "calibrate/fit/kernel_points.hpp"
#include "calibrate/fit/told_formulas.hpp"
#include "costmodel/profile.hpp"

namespace orrery::calibrate {

// Formats without products of their own that take over the formula of `dtype`: those of 16 bits run
// alike, tf32 reaches the same share of its peak, and nvfp4 that of fp8 where `known` says so.
std::vector<DType> followers(DType dtype, const costmodel::GemmOfDType& known);

// Refers to what it was made of, but for the points.
class KernelFitter {
 public:
  // `all`: everything that was measured, also what a fold will leave out.
  KernelFitter(const topologies::Gpu& gpu, const costmodel::Profile& base,
               const std::string& source, const KernelPoints& all)
      : gpu_(gpu), base_(base), source_(source), told_(all) {}

  const topologies::Gpu& gpu() const { return gpu_; }
  const costmodel::Profile& base() const { return base_; }
  // The formulas that are fitted.
  const ToldFormulas& told() const { return told_; }
  // `remarks`, if any, take what is odd about the parameters.
  costmodel::Profile fit(const KernelPoints& points, const Anchors& anchors,
                         std::vector<std::string>* remarks = nullptr) const;
  // The formulas of products alone, under the residual sets of the base: those of a relative, which
  // are ratios. As in the base where the points do not tell them.
  costmodel::Profile fit_products(const KernelPoints& points,
                                  std::vector<std::string>* remarks = nullptr) const;
  // The formula of attention's forward pass alone, under the residual sets of the base: those of a
  // relative, which are ratios. As in the base where the points do not tell it.
  costmodel::Profile fit_forward_attention(const KernelPoints& points,
                                           std::vector<std::string>* remarks = nullptr) const;

 private:
  const topologies::Gpu& gpu_;
  const costmodel::Profile& base_;
  const std::string& source_;
  ToldFormulas told_;
};

}  // namespace orrery::calibrate
