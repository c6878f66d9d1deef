// SPDX-License-Identifier: Apache-2.0
// The fluid model of a device: its special cases, each with a closed form, and its invariants.
#include "sim/engine/device_sharing.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/error.hpp"
#include "base/random.hpp"

namespace orrery::sim {
namespace {

constexpr std::size_t kProcessors = 0;
constexpr std::size_t kMemory = 1;

double makespan(const std::vector<SharedKernel>& kernels) {
  double last = 0;
  for (const Seconds end : run_shared(kernels)) {
    last = std::max(last, end.value());
  }
  return last;
}

// max(X, Y) + (kappa - 1) min(X, Y).
TEST(DeviceSharing, KappaOverlap) {
  const auto pair = [](double x, double y, double kappa) {
    const std::vector<ResourceUse> uses = {{kProcessors, kappa / 2, 0}};
    return makespan({{Seconds(x), uses, nullptr, {}}, {Seconds(y), uses, nullptr, {}}});
  };
  EXPECT_NEAR(pair(10, 6, 1.3), 11.8, 1e-9);
  EXPECT_NEAR(pair(10, 10, 2), 20, 1e-9);
  EXPECT_NEAR(pair(10, 6, 1), 10, 1e-9);
}

// A collective that holds q of Q multiprocessors leaves a GEMM 1 - q / Q of its speed.
TEST(DeviceSharing, UserBufferOverlap) {
  const double share = 16.0 / 108;
  const std::vector<Seconds> ends =
      run_shared({{Seconds(10), {{kProcessors, 1, 0}}, nullptr, {}},
                  {Seconds(5), {{kProcessors, 0, share}}, nullptr, {}}});
  EXPECT_NEAR(ends[1].value(), 5, 1e-9);
  EXPECT_NEAR(ends[0].value(), 10 + 5 * share, 1e-9);
}

// Transfers of copy engines use no multiprocessors: nothing slows down.
TEST(DeviceSharing, CopyEngines) {
  const std::vector<Seconds> ends =
      run_shared({{Seconds(10), {{kProcessors, 1, 0}, {kMemory, 0.6, 0}}, nullptr, {}},
                  {Seconds(8), {{kMemory, 0.1, 0}, {2, 1, 0}}, nullptr, {}}});
  EXPECT_NEAR(ends[0].value(), 10, 1e-9);
  EXPECT_NEAR(ends[1].value(), 8, 1e-9);
}

// Two GEMM-like and one light kernel: the light one rises past the level of the others.
TEST(DeviceSharing, FairnessIsMaxMin) {
  const SharedKernel heavy{Seconds(1), {{kProcessors, 1, 0}}, nullptr, {}};
  const SharedKernel light{Seconds(1), {{kMemory, 0.5, 0}}, nullptr, {}};
  const std::vector<const SharedKernel*> together = {&heavy, &heavy, &light};
  const std::vector<double> speeds = sharing_speeds(together);
  EXPECT_NEAR(speeds[0], 0.5, 1e-12);
  EXPECT_NEAR(speeds[1], 0.5, 1e-12);
  EXPECT_NEAR(speeds[2], 1, 1e-12);
}

// Class curves: the speed at which the shares of a GEMM and of decode attention sum to one.
TEST(DeviceSharing, ClassCurves) {
  const SharedKernel gemm{Seconds(1), {}, &gemm_curve(), {}};
  const SharedKernel decode{Seconds(1), {}, &memory_curve(), {}};
  const std::vector<const SharedKernel*> together = {&gemm, &decode};
  const std::vector<double> speeds = sharing_speeds(together);
  EXPECT_NEAR(speeds[0], speeds[1], 1e-9);
  EXPECT_NEAR(gemm_curve().share(speeds[0]) + memory_curve().share(speeds[1]), 1, 1e-9);
  EXPECT_NEAR(makespan({gemm, decode}), 1 / speeds[0], 1e-9);
}

TEST(DeviceSharing, KernelsWaitForThoseBeforeThem) {
  const std::vector<ResourceUse> all = {{kProcessors, 1, 0}};
  const std::vector<Seconds> ends = run_shared({{Seconds(2), all, nullptr, {}},
                                                {Seconds(3), all, nullptr, {0}},
                                                {Seconds(4), {{kMemory, 1, 0}}, nullptr, {0}}});
  EXPECT_NEAR(ends[1].value(), 5, 1e-9);
  EXPECT_NEAR(ends[2].value(), 6, 1e-9);
}

TEST(DeviceSharing, HoldingTooMuchIsAnError) {
  const std::vector<SharedKernel> kernels = {{Seconds(2), {{kProcessors, 1, 0.6}}, nullptr, {}},
                                             {Seconds(2), {{kProcessors, 1, 0.6}}, nullptr, {}}};
  EXPECT_THROW(run_shared(kernels), Error);
}

// Random kernels: between the longest and the sum; nobody slows down when another leaves.
TEST(DeviceSharing, Invariants) {
  Random random(7);
  for (int round = 0; round < 200; ++round) {
    std::vector<SharedKernel> kernels;
    double longest = 0;
    double sum = 0;
    for (int k = 0; k < 4; ++k) {
      SharedKernel kernel;
      kernel.alone = Seconds(0.1 + random.uniform());
      const double used = random.uniform();
      kernel.uses = {{kProcessors, used, 0}, {kMemory, 1 - used, 0}};
      longest = std::max(longest, kernel.alone.value());
      sum += kernel.alone.value();
      kernels.push_back(kernel);
    }
    const double time = makespan(kernels);
    EXPECT_GE(time, longest * (1 - 1e-9));
    EXPECT_LE(time, sum * (1 + 1e-9));
    std::vector<const SharedKernel*> all;
    for (const SharedKernel& kernel : kernels) {
      all.push_back(&kernel);
    }
    const std::vector<double> with = sharing_speeds(all);
    double load = 0;
    for (std::size_t k = 0; k < all.size(); ++k) {
      load += with[k] * kernels[k].uses[0].per_speed;
    }
    EXPECT_LE(load, 1 + 1e-9);
    all.pop_back();
    const std::vector<double> without = sharing_speeds(all);
    EXPECT_GE(*std::min_element(without.begin(), without.end()),
              *std::min_element(with.begin(), with.end() - 1) - 1e-9);
  }
}

}  // namespace
}  // namespace orrery::sim
