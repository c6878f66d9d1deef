// SPDX-License-Identifier: Apache-2.0
// The kernel sections of a profile (gemm, attention, kernels, memory and their spreads) from
// samples of one GPU.
//
// A formula's parameters are fitted where there are kMinPoints points of a number format in bursts,
// forward layout, in kMinGroups groups (robust loss on log time); else they stay as the base
// profile has them, and so they do where a dense table of the base stays below few points
// (anchors.hpp), or where no fold could test a class. Then the residual sets, each on top of the
// formula and the sets before it: forward GEMMs, the other layouts, experts, attention, all in
// bursts first and under sustained load last. The base's sets of formats of GEMMs and of attention
// that were not measured stay, where they are of as many SMs. What neither holds is not invented:
// no set, the formula alone.
//
// The error is cross-validated in kFolds folds: everything is fitted again without a fold and
// predicts it. Deterministic: the same samples and seed give the same profile.
#pragma once

#include <cstdint>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "calibrate/samples.hpp"
#include "costmodel/profile.hpp"

namespace orrery::calibrate {

// One point while it was left out of the fit.
struct LeftOut {
  std::string kernel;  // "gemm bf16 tn burst"
  double measured = 0;
  double predicted = 0;
};

struct KernelFit {
  costmodel::Profile profile;
  std::vector<LeftOut> left_out;
  std::vector<std::string> remarks;
  std::set<std::string> sampled;   // classes with points, also those that stay as in the base
  std::set<std::string> sections;  // "gemm", "attention", "kernels": those that the points speak of
};

// `base` gives what the samples say nothing of. `source` says where the samples come from.
KernelFit fit_kernels(const topologies::Gpu& gpu, const costmodel::Profile& base,
                      std::span<const Sample> samples, const std::string& source,
                      std::uint64_t seed);

// The kernel sections of `from`, a relative of the GPU: parameters are shares of the data sheet and
// residuals are ratios, so they carry over to other clocks and memory; spreads widen.
void transfer_kernels(const costmodel::Profile& from, costmodel::Profile& to);

}  // namespace orrery::calibrate
