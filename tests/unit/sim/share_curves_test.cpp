// SPDX-License-Identifier: Apache-2.0
// Class curves and the best way to share a device: cases worked by hand and known special cases.
#include "sim/share_curves.hpp"

#include <gtest/gtest.h>

#include "base/error.hpp"
#include "sim/engine.hpp"
#include "sim/program.hpp"

namespace orrery::sim {
namespace {

TEST(ShareCurve, InterpolatesBothWays) {
  const ShareCurve& memory = memory_curve();
  EXPECT_DOUBLE_EQ(memory.speed(0), 0);
  EXPECT_DOUBLE_EQ(memory.speed(0.4), 0.8);
  EXPECT_DOUBLE_EQ(memory.speed(0.3), 0.55);
  EXPECT_DOUBLE_EQ(memory.speed(1), 1);
  for (const double share : {0.05, 0.15, 0.37, 0.62, 0.97}) {
    EXPECT_NEAR(memory.share(memory.speed(share)), share, 1e-12);
    EXPECT_DOUBLE_EQ(gemm_curve().speed(share), share);
  }
  EXPECT_DOUBLE_EQ(network_curve().speed(0.95), 1);
  EXPECT_DOUBLE_EQ(network_curve().share(1), 0.9);
}

TEST(ShareCurve, RefusesWhatIsNoCurve) {
  using Points = std::vector<ShareCurve::Point>;
  EXPECT_THROW(ShareCurve(Points{{0, 0}, {0.5, 1}}, "curve"), Error);
  EXPECT_THROW(ShareCurve(Points{{0, 0.1}, {1, 1}}, "curve"), Error);
  EXPECT_THROW(ShareCurve(Points{{0, 0}, {0.6, 0.5}, {0.4, 0.7}, {1, 1}}, "curve"), Error);
  EXPECT_THROW(ShareCurve(Points{{0, 0}, {0.4, 0.5}, {0.6, 0.4}, {1, 1}}, "curve"), Error);
}

// Two GEMMs halve each other; a GEMM beside decode attention is better off than that.
TEST(ShareCurve, MaxMinSpeeds) {
  const std::array<const ShareCurve*, 2> gemms = {&gemm_curve(), &gemm_curve()};
  EXPECT_NEAR(max_min_speed(gemms), 0.5, 1e-12);
  const std::array<const ShareCurve*, 2> mixed = {&gemm_curve(), &memory_curve()};
  const double speed = max_min_speed(mixed);
  EXPECT_NEAR(gemm_curve().share(speed) + memory_curve().share(speed), 1, 1e-9);
  EXPECT_GT(speed, 0.6);
  const std::array<const ShareCurve*, 1> alone = {&network_curve()};
  EXPECT_EQ(max_min_speed(alone), 1);
}

double best(double gemm, double memory, double network) {
  return nano_batch_sharing().time({Seconds(gemm), Seconds(memory), Seconds(network)}).value();
}

// Alone, each kind takes its own time. Beside GEMMs decode attention costs half a GEMM share for
// each unit (R = 0.4 for P = 0.8, or 0.1 for 0.2), the network a third (0.1 for 0.3).
TEST(OptimalSharing, IsExactAtTheEnds) {
  EXPECT_NEAR(best(7, 0, 0), 7, 1e-9);
  EXPECT_NEAR(best(0, 7, 0), 7, 1e-9);
  EXPECT_NEAR(best(0, 0, 7), 7, 1e-9);
  EXPECT_NEAR(best(100, 10, 0), 100 + 10 / 2.0, 1e-9);
  EXPECT_NEAR(best(100, 0, 10), 100 + 10 / 3.0, 1e-9);
  EXPECT_NEAR(best(136.97, 35.6, 47.92), 136.97 + 35.6 / 2 + 47.92 / 3, 1e-6);
}

TEST(OptimalSharing, StandsBetweenTheLongestAndTheSum) {
  for (const double gemm : {0.0, 1.0, 5.0}) {
    for (const double memory : {0.0, 2.0, 9.0}) {
      for (const double network : {0.0, 0.5, 4.0}) {
        const double time = best(gemm, memory, network);
        EXPECT_GE(time, std::max({gemm, memory, network}) - 1e-9);
        EXPECT_LE(time, gemm + memory + network + 1e-9);
        EXPECT_LE(time, best(gemm + 1, memory, network) + 1e-9);
      }
    }
  }
}

// GEMM-like curves for all three: sharing gains nothing.
TEST(OptimalSharing, ProportionalCurvesAddUp) {
  const OptimalSharing sharing({&gemm_curve(), &gemm_curve(), &gemm_curve()});
  EXPECT_NEAR(sharing.time({Seconds(3), Seconds(4), Seconds(5)}).value(), 12, 1e-9);
}

// The fluid engine with fixed demands gives the special cases of the resource model.
Seconds together(double demand_a, double work_a, double demand_b, double work_b) {
  Program program;
  const ResourceId shared = program.add_resource(1.0, "device");
  const StreamId a = program.add_stream(0, StreamKind::Compute, "a");
  const StreamId b = program.add_stream(0, StreamKind::Collective, "b");
  const Demand of_a{shared, demand_a};
  const Demand of_b{shared, demand_b};
  program.add_shared_work(a, SimTime{}, Seconds(work_a), {&of_a, 1}, {});
  program.add_shared_work(b, SimTime{}, Seconds(work_b), {&of_b, 1}, {});
  program.finalize();
  return to_seconds(run(program).makespan);
}

// max(X, Y) + (kappa - 1) min(X, Y): both kernels run at 1 / kappa while they are together.
TEST(DeviceSharing, KappaOverlapIsTwoKernelsThatDemandKappa) {
  const double kappa = 1.3;
  EXPECT_NEAR(together(kappa / 2, 10, kappa / 2, 6).value(), 10 + (kappa - 1) * 6, 1e-9);
  EXPECT_NEAR(together(1, 10, 1, 10).value(), 20, 1e-9);
}

// A collective on q of Q multiprocessors leaves the GEMM 1 - q / Q of its speed; a copy engine
// leaves everything.
TEST(DeviceSharing, UserBuffersAndCopyEngines) {
  Program program;
  const ResourceId processors = program.add_resource(108, "multiprocessors");
  const StreamId compute = program.add_stream(0, StreamKind::Compute, "gemm");
  const StreamId collective = program.add_stream(0, StreamKind::Collective, "user buffers");
  const StreamId copy = program.add_stream(0, StreamKind::CopyIn, "copy");
  const Demand of_gemm{processors, 108};
  program.add_work(collective, to_sim_time(Seconds(4)), {});
  program.add_work(copy, to_sim_time(Seconds(9)), {});
  program.add_shared_work(compute, SimTime{}, Seconds(10), {&of_gemm, 1}, {});
  program.finalize();
  EXPECT_NEAR(to_seconds(run(program).makespan).value(), 10, 1e-9);
  // With its 16 multiprocessors held by a kernel of fixed rate the GEMM gets the other 92.
  Program held;
  const ResourceId rest = held.add_resource(108 - 16, "multiprocessors that are left");
  const StreamId gemm = held.add_stream(0, StreamKind::Compute, "gemm");
  const Demand all{rest, 108};
  held.add_shared_work(gemm, SimTime{}, Seconds(10), {&all, 1}, {});
  held.finalize();
  EXPECT_NEAR(to_seconds(run(held).makespan).value(), 10 / (1 - 16.0 / 108), 1e-9);
}

}  // namespace
}  // namespace orrery::sim
