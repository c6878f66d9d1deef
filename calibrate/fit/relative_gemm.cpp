// SPDX-License-Identifier: Apache-2.0
#include "calibrate/fit/relative_gemm.hpp"

#include "calibrate/fit/relative.hpp"

namespace orrery::calibrate {
namespace {

using costmodel::Profile;

bool is_forward_product(const KernelPointOf& point) {
  return point.key.kind == costmodel::KernelKind::Gemm &&
         point.key.layout == costmodel::GemmLayout::TN && point.key.load == costmodel::Load::Burst;
}

bool has_own_formula(const KernelPointOf& point, const Profile& base, const Profile& own) {
  const auto dtype = static_cast<std::size_t>(point.key.dtype);
  return !(own.gemm[dtype] == base.gemm[dtype]);
}

constexpr RelativeSection kProducts = {
    .name = "gemm",
    .fitted = "of products on a relative's kernels forward ones",
    .kept = "layouts, experts, sustained load and residuals",
    .is_fitted = is_forward_product,
    .fit = &KernelFitter::fit_products,
    .is_moved = has_own_formula,
    .take = [](const Profile& own, Profile& profile) { profile.gemm = own.gemm; },
    .is_own = [](const Profile& base,
                 const Profile& profile) { return profile.gemm != base.gemm; }};

}  // namespace

void fit_relative_gemm(const topologies::Gpu& gpu, std::span<const Sample> samples,
                       const std::string& source, std::uint64_t seed, KernelFit& fit) {
  fit_relative(kProducts, gpu, samples, source, seed, fit);
}

}  // namespace orrery::calibrate
