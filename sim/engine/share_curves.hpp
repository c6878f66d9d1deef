// SPDX-License-Identifier: Apache-2.0
// Kernels of different classes on one device at once. A class curve P(R) gives the fraction of its
// stand-alone speed that a kernel keeps when it is given the share R of the device; the shares of
// all kernels that run together sum to at most 1 (NanoFlow, arXiv 2408.12757, sections 3.3 and 4.2,
// which measures R as what is left for a GEMM; P = R for GEMMs by definition).
//
// OptimalSharing is the least time in which three kinds of work can be done when shares may change
// at any time: min sum t_k, sum t_k P_c(R_ck) >= work_c, over all share vectors R_k. P is piecewise
// linear, so the vectors with all but one share at a breakpoint suffice, and the dual, max work . y
// with y . P(R_k) <= 1, has a few vertices that are found once: exact, O(vertices) a call. Kernels
// that run at one moment share a device in sim/engine/device_sharing.hpp.
#pragma once

#include <array>
#include <span>
#include <string>
#include <vector>

#include "base/units.hpp"

namespace orrery::sim {

class ShareCurve {
 public:
  struct Point {
    double share;
    double speed;
  };
  // From (0, 0) to (1, 1), neither falling; Error (citing `where`) otherwise.
  ShareCurve(std::vector<Point> points, const std::string& where);

  double speed(double share) const;
  double share(double speed) const;  // the least that gives this speed
  std::span<const Point> points() const { return points_; }

 private:
  std::vector<Point> points_;
};

// Measured on an A100 (NanoFlow, table 2 and figure 5).
const ShareCurve& gemm_curve();
const ShareCurve& memory_curve();   // GEMV-like kernels: decode attention
const ShareCurve& network_curve();  // collectives

inline constexpr std::size_t kSharingClasses = 3;
using SharedWork = std::array<Seconds, kSharingClasses>;  // stand-alone times

using SharingCurves = std::array<const ShareCurve*, kSharingClasses>;
// Shares of the classes that run (0 for the others) and their speeds: the share vectors of which
// all others are mixtures or worse.
struct ShareVector {
  std::array<double, kSharingClasses> share{};
  std::array<double, kSharingClasses> speed{};
};
std::vector<ShareVector> share_vectors(const SharingCurves& curves,
                                       const std::array<bool, kSharingClasses>& runs);

class OptimalSharing {
 public:
  explicit OptimalSharing(const SharingCurves& curves);
  // At least the longest of the three, at most their sum.
  Seconds time(const SharedWork& work) const;

 private:
  std::vector<std::array<double, kSharingClasses>> vertices_;
};

// GEMM, decode attention and network, as measured.
SharingCurves measured_curves();
const OptimalSharing& nano_batch_sharing();

}  // namespace orrery::sim
