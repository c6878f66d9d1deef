// SPDX-License-Identifier: Apache-2.0
// Kernels that run together on one device, as a fluid: each has a speed in [0, 1] of its
// stand-alone speed, set again whenever a kernel starts or ends. Speeds are max-min fair under
//   for every resource  sum over kernels (fixed + per_speed x speed) <= 1
//   class curves        speed <= P(R) of a kernel's curve, sum of R <= 1 over kernels with one
// Resources are what the caller numbers: tensor cores, vector units, multiprocessors, memory
// bandwidth, copy engines, links, each with capacity 1. `per_speed` is the utilisation alone,
// work / (capacity x time alone); `fixed` is held whatever the speed (a collective's
// multiprocessors). Two kernels that each use kappa / 2 of one resource slow down by kappa
// together; a copy engine's transfer uses neither multiprocessors nor compute. O(kernels x
// resources) a change.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "base/units.hpp"
#include "sim/engine/share_curves.hpp"

namespace orrery::sim {

struct ResourceUse {
  std::size_t resource = 0;
  double per_speed = 0;
  double fixed = 0;
};

struct SharedKernel {
  Seconds alone;
  std::vector<ResourceUse> uses;
  const ShareCurve* curve = nullptr;
  std::vector<int> after;  // earlier kernels that it waits for
};

// Of kernels that run at once, in order.
std::vector<double> sharing_speeds(std::span<const SharedKernel* const> kernels);

// When each kernel ends; it starts when all it waits for have ended. Error when kernels hold more
// than a resource has.
std::vector<Seconds> run_shared(const std::vector<SharedKernel>& kernels);

}  // namespace orrery::sim
