// SPDX-License-Identifier: Apache-2.0
// Formulas of a GPU whose kernels are those of a relative, from forward calls timed on it in
// bursts, under the relative's residual sets, which are ratios. Errors are cross-validated as those
// of fit_kernels.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "calibrate/fit/kernel_fitter.hpp"
#include "calibrate/fit/kernels.hpp"

namespace orrery::calibrate {

// A section of a profile that has formulas.
struct RelativeSection {
  std::string_view name;
  std::string_view fitted;  // in words, "of products ... forward ones"
  std::string_view kept;    // what stays the relative's, in words
  bool (*is_fitted)(const KernelPointOf& point);
  costmodel::Profile (KernelFitter::*fit)(const KernelPoints& points,
                                          std::vector<std::string>* remarks) const;
  bool (*is_moved)(const KernelPointOf& point, const costmodel::Profile& base,
                   const costmodel::Profile& own);
  void (*take)(const costmodel::Profile& own, costmodel::Profile& profile);
  bool (*is_own)(const costmodel::Profile& base, const costmodel::Profile& profile);
  // What other calls say of the section, after its formula; null: nothing does.
  void (*fit_rest)(std::span<const Sample> samples, std::uint64_t seed, KernelFit& fit) = nullptr;
};

// Fills the section of fit.profile, which holds the relative's, and states its source where it is
// no longer that.
void fit_relative(const RelativeSection& section, const topologies::Gpu& gpu,
                  std::span<const Sample> samples, const std::string& source, std::uint64_t seed,
                  KernelFit& fit);

}  // namespace orrery::calibrate
