// SPDX-License-Identifier: Apache-2.0
// What a cross-validation within one table cannot see, because one machine and one library filled
// it: how far the mean of another site's table lies from the profile, in the logarithm (root mean
// square, docs/fidelity.md lists them). All kernels of a class share it. Memory-bound and
// collective fits already rest on several sites.
#pragma once

namespace orrery::costmodel {

inline constexpr double kSiteSpreadGemm = 0.076;
inline constexpr double kSiteSpreadAttention = 0.14;

}  // namespace orrery::costmodel
