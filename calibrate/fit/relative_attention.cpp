// SPDX-License-Identifier: Apache-2.0
#include "calibrate/fit/relative_attention.hpp"

#include "calibrate/fit/fp8_attention.hpp"
#include "calibrate/fit/relative.hpp"

namespace orrery::calibrate {
namespace {

using costmodel::Profile;

bool is_forward_attention(const KernelPointOf& point) {
  return point.key.kind == costmodel::KernelKind::AttentionForward &&
         point.key.load == costmodel::Load::Burst && !point.both_passes;
}

bool has_own_attention(const Profile& base, const Profile& own) {
  return !(own.attention == base.attention);
}

constexpr RelativeSection kAttention = {
    .name = "attention",
    .fitted = "of attention on a relative's kernels forward calls",
    .kept = "backward over forward and residuals",
    .is_fitted = is_forward_attention,
    .fit = &KernelFitter::fit_forward_attention,
    .is_moved = [](const KernelPointOf&, const Profile& base,
                   const Profile& own) { return has_own_attention(base, own); },
    .take = [](const Profile& own, Profile& profile) { profile.attention = own.attention; },
    .is_own = has_own_attention,
    .fit_rest = fit_fp8_attention};

}  // namespace

void fit_relative_attention(const topologies::Gpu& gpu, std::span<const Sample> samples,
                            const std::string& source, std::uint64_t seed, KernelFit& fit) {
  fit_relative(kAttention, gpu, samples, source, seed, fit);
}

}  // namespace orrery::calibrate
