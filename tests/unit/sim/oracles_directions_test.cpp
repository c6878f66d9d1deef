// SPDX-License-Identifier: Apache-2.0
// Closed forms of schedules with several chunks, two directions, waves, slices and layer parts; in
// integer ticks. Costs are per device share; results are divided by the scale.
#include <gtest/gtest.h>

#include <algorithm>

#include "sim/pipeline/share_costs.hpp"

namespace orrery::sim {
namespace {

struct Outcome {
  PipelineOrder order;
  PipelineResult result;
  std::int64_t scale;
  double largest_idle() const {
    SimTime idle;
    for (const DeviceUse& use : result.devices) {
      idle = std::max(idle, idle_of(use));
    }
    return static_cast<double>(idle.ps) / static_cast<double>(scale);
  }
  double makespan() const {
    return static_cast<double>(result.makespan.ps) / static_cast<double>(scale);
  }
  double idle_of_all() const {  // makespan minus busy time of the first device
    return static_cast<double>((result.makespan - result.devices.front().busy).ps) /
           static_cast<double>(scale);
  }
  double peak(std::size_t device) const {
    return static_cast<double>(result.devices[device].peak_chunks) / pieces_of(order);
  }
  double largest_peak() const {
    double largest = 0;
    for (std::size_t d = 0; d < result.devices.size(); ++d) {
      largest = std::max(largest, peak(d));
    }
    return largest;
  }
};

// Forward, input gradient, weight gradient and transfer of a device share.
Outcome run_of(const char* name, ScheduleParams params, std::int64_t f, std::int64_t b,
               std::int64_t w, std::int64_t send = 0) {
  const PassTimes share{{f}, {b}, {w}, {send}};
  params.times = {share};
  const Schedule& schedule = find_schedule(name, "test");
  EXPECT_EQ(to_text(schedule.check(params)), "") << name;
  Outcome run{schedule.order(params), {}, 1};
  EXPECT_EQ(check_order(run.order, run.order.micro_batches), "") << name;
  const ShareCosts costs = share_costs(run.order, share);
  run.scale = costs.scale;
  run.result = evaluate_pipeline(run.order, costs.costs);
  return run;
}

// As interleaved 1F1B where nothing is hidden, with a forward more ahead.
TEST(ScheduleOracles, Combined1f1b) {
  for (const int p : {1, 2, 4, 7}) {
    for (const int v : {1, 2, 3}) {
      const ScheduleParams params{p, 3 * p, v, 0};
      const Outcome run = run_of("combined-1f1b", params, 3, 3, 3);
      EXPECT_EQ(run.makespan(), run_of("interleaved", params, 3, 3, 3).makespan()) << p << " " << v;
      EXPECT_DOUBLE_EQ(run.idle_of_all(), (p - 1) * 9.0 / v) << p << " " << v;
      EXPECT_DOUBLE_EQ(run.largest_peak(), p * (1 + 1.0 / v)) << p << " " << v;
    }
  }
}

// No device waits longer than with groups of p, and where p divides the micro-batches it is that.
TEST(ScheduleOracles, InterleavedUneven) {
  for (const int p : {1, 2, 4, 7}) {
    for (const int v : {1, 2, 3}) {
      const ScheduleParams even{p, 3 * p, v, 0};
      EXPECT_EQ(run_of("interleaved-uneven", even, 3, 3, 3).order.passes,
                run_of("interleaved", even, 3, 3, 3).order.passes);
      for (int m = p; m < 4 * p; ++m) {
        const Outcome run = run_of("interleaved-uneven", {p, m, v, 0}, 3, 3, 3);
        EXPECT_DOUBLE_EQ(run.idle_of_all(), (p - 1) * 9.0 / v) << p << " " << m << " " << v;
      }
    }
  }
  // 17 on 4 devices: groups of 5, 5 and 7 would end with 2; 6, 6 and 5 do not.
  EXPECT_DOUBLE_EQ(run_of("interleaved-uneven", {4, 17, 2, 0}, 3, 3, 3).largest_peak(), 6.5);
}

// O10.
TEST(ScheduleOracles, Chimera) {
  for (const int d : {4, 6, 8, 12}) {
    EXPECT_EQ(run_of("chimera", {d, d, 1, 0}, 2, 1, 1).idle_of_all(), 2 * (d - 2)) << d;
    const Outcome twice = run_of("chimera", {d, d, 1, 0}, 1, 1, 1);
    EXPECT_EQ(twice.makespan(), 5 * d - 4) << d;
    EXPECT_EQ(twice.idle_of_all(), 2 * (d - 2)) << d;
    EXPECT_EQ(run_of("chimera", {d, 3 * d, 1, 0}, 2, 1, 1).idle_of_all(), 2 * (d - 2)) << d;
    EXPECT_EQ(run_of("chimera", {d, 3 * d, 1, 0}, 1, 1, 1).idle_of_all(), 4 * (d - 2)) << d;
    EXPECT_EQ(twice.peak(0), d / 2 + 1) << d;
    EXPECT_EQ(twice.peak(static_cast<std::size_t>(d / 2)), d) << d;
  }
}

// Two micro-batches a forward: with B = 2 F forwards and backwards of a slot take as long, and no
// further unit adds to the idle time; twice the activations.
TEST(ScheduleOracles, ChimeraWithForwardDoubling) {
  for (const int d : {2, 4, 6, 8, 12}) {
    for (const int units : {1, 2, 5}) {
      const Outcome run = run_of("chimera-doubling", {d, 2 * d * units, 1, 0}, 1, 1, 1);
      EXPECT_EQ(run.idle_of_all(), 2 * (d - 2)) << d << " " << units;
      EXPECT_EQ(run.peak(0), d + 2) << d;
      EXPECT_EQ(run.peak(static_cast<std::size_t>(d / 2)), 2 * d) << d;
      EXPECT_EQ(run_of("chimera", {d, 2 * d * units, 1, 0}, 1, 1, 1).idle_of_all(),
                2 * (d - 2) + (2 * units - 1) * (d - 2))
          << d << " " << units;
    }
  }
}

// Backward halving: the same with micro-batches of half the size, twice as many of them. As long as
// chimera on one unit of whole ones, with the same activations.
TEST(ScheduleOracles, ChimeraWithBackwardHalving) {
  for (const int d : {4, 8}) {
    const Outcome halves = run_of("chimera-doubling", {d, 2 * d, 1, 0}, 1, 1, 1);
    const Outcome whole = run_of("chimera", {d, d, 1, 0}, 2, 2, 2);
    EXPECT_LE(halves.makespan(), whole.makespan()) << d;
    EXPECT_EQ(halves.largest_peak() / 2, whole.largest_peak()) << d;
  }
}

// O11, in chunk passes: a device share is two of them.
TEST(ScheduleOracles, BitPipe) {
  for (const int d : {4, 6, 8, 12}) {
    const auto fraction = [](const Outcome& run) { return run.idle_of_all() / run.makespan(); };
    EXPECT_DOUBLE_EQ(fraction(run_of("bitpipe", {d, d, 2, 0}, 2, 1, 1)),
                     (d - 2.0) / (4.0 * d + d - 2))
        << d;
    EXPECT_DOUBLE_EQ(fraction(run_of("bitpipe", {d, d, 2, 0}, 2, 2, 2)),
                     (d - 2.0) / (3.0 * d + d - 2))
        << d;
    for (const int k : {2, 3, 5}) {
      EXPECT_EQ(run_of("bitpipe", {d, k * d, 2, 0}, 2, 1, 1).idle_of_all(), d - 2) << d;
      EXPECT_EQ(run_of("bitpipe", {d, k * d, 2, 0}, 2, 2, 2).idle_of_all(),
                2 * (d - 2) + (k - 1) * (d - 2))
          << d;
      EXPECT_LE(run_of("bitpipe", {d, k * d, 2, 0}, 2, 2, 2).largest_peak(), d);
    }
  }
}

// O12.
TEST(ScheduleOracles, Hanayo) {
  for (const int p : {2, 4, 8}) {
    for (const int waves : {1, 2, 4}) {
      for (const int m : {p, 2 * p, 3 * p}) {
        const Outcome run = run_of("hanayo", {p, m, 2 * waves, 0}, 2 * waves, waves, waves);
        EXPECT_EQ(run.idle_of_all(), 2 * (p - 1)) << p << " " << waves << " " << m;
      }
    }
  }
  // When B = 2 F every round of p micro-batches adds as many forwards, whatever the number of
  // waves.
  for (const int p : {2, 4, 8}) {
    for (const int waves : {1, 4}) {
      for (const int rounds : {2, 4, 8}) {
        const Outcome run =
            run_of("hanayo", {p, rounds * p, 2 * waves, 0}, 2 * waves, 2 * waves, 2 * waves);
        EXPECT_EQ(run.idle_of_all(), 2 * (p - 1) * (rounds + 1)) << p << ' ' << waves;
        EXPECT_LE(run.largest_peak(), p);
      }
    }
  }
  const double expected[] = {.368, .238, .135};
  for (int k = 0; k < 3; ++k) {
    const Outcome run = run_of("hanayo", {8, 8, 2 << k, 0}, 1, 1, 1);
    EXPECT_NEAR(run.idle_of_all() / run.makespan(), expected[k], 0.0005) << k;
  }
}

// O9.
TEST(ScheduleOracles, DualPipe) {
  for (const int p : {4, 6, 8}) {
    for (const int m : {2 * p, 3 * p, 5 * p}) {
      const Outcome run = run_of("dualpipe", {p, m, 1, 0}, 1, 1, 1);
      EXPECT_EQ(run.idle_of_all(), p - 2) << p;
      EXPECT_EQ(run.largest_peak(), p + 1) << p;
    }
  }
  EXPECT_EQ(run_of("dualpipe", {4, 8, 1, 0}, 2, 3, 2).idle_of_all(), 5);
  EXPECT_EQ(run_of("dualpipe", {8, 16, 1, 0}, 2, 3, 2).idle_of_all(), 16);
  EXPECT_EQ(run_of("dualpipe", {4, 8, 1, 0}, 3, 4, 2).idle_of_all(), 8);
  EXPECT_EQ(run_of("dualpipe", {8, 16, 1, 0}, 3, 4, 2).idle_of_all(), 24);
  for (const int r : {2, 4, 8}) {
    for (const int m : {2 * r, 5 * r}) {
      EXPECT_EQ(run_of("dualpipe-v", {r, m, 2, 0}, 2, 2, 2).idle_of_all(), 2 * (r - 1)) << r;
    }
  }
}

// O5.
TEST(ScheduleOracles, BreadthFirst) {
  const Outcome run = run_of("breadth-first", {4, 8, 3, 0}, 3, 3, 3);
  EXPECT_EQ(run.idle_of_all(), 3 * (1 + 2));
  EXPECT_EQ(run.largest_peak(), 8);
}

ScheduleParams sliced(int p, int m, int v, int n) {
  ScheduleParams params{p, m, v, 0};
  params.slices = n;
  return params;
}

// O15. One slice takes 1 / n of a share.
TEST(ScheduleOracles, SlicedSequences) {
  for (const int p : {2, 4, 8}) {
    for (const int n : {2, 4, 8}) {
      const int m = 6;
      EXPECT_EQ(run_of("terapipe", sliced(p, m, 1, n), n, n, n).makespan(), (n * m + p - 1) * 3)
          << p << " " << n;
      const Outcome run = run_of("seq1f1b", sliced(p, m, 1, n), n, n, n);
      EXPECT_EQ(run.idle_of_all(), (p - 1) * 3) << p << " " << n;
      for (int i = 0; i < p; ++i) {
        EXPECT_EQ(run.peak(static_cast<std::size_t>(i)) * n, std::min(n + p - 1 - i, n * m));
      }
    }
  }
}

// O13.
TEST(ScheduleOracles, SlimPipe) {
  for (const int p : {2, 4, 8}) {
    for (const int v : {1, 2, 5}) {
      for (const int n : {p, 2 * p}) {
        const int m = 4;
        const Outcome run = run_of("slimpipe", sliced(p, m, v, n), n * v, n * v, n * v);
        EXPECT_EQ(run.idle_of_all(), (p - 1) * 3) << p << " " << v << " " << n;
        EXPECT_DOUBLE_EQ(run.idle_of_all() / run.makespan(), (p - 1.0) / (n * v * m + p - 1))
            << p << " " << v << " " << n;
        const double peak = v > 1 ? 1 + 2.0 * (p - 1) / (n * v) : (n + p - 1.0) / n;
        EXPECT_DOUBLE_EQ(run.peak(0), peak) << p << " " << v << " " << n;
      }
    }
  }
  // Golden rows of the artifact: bubbles in percent.
  const auto percent = [](int p, int m, int v, int n) {
    const Outcome run = run_of("slimpipe", sliced(p, m, v, n), n * v, n * v, n * v);
    return 100 * run.idle_of_all() / run.makespan();
  };
  EXPECT_NEAR(percent(8, 8, 5, 16), 1.08, 0.02);
  EXPECT_NEAR(percent(8, 8, 5, 32), 0.54, 0.02);
  EXPECT_NEAR(percent(4, 8, 10, 16), 0.23, 0.02);
  EXPECT_NEAR(percent(16, 4, 5, 64), 1.16, 0.02);
  EXPECT_NEAR(percent(32, 4, 3, 64), 3.88, 0.02);
  EXPECT_NEAR(percent(28, 4, 2, 112), 2.93, 0.02);
}

// O14: shares of a layer before, in and after attention are 1, 4 and 2.
TEST(ScheduleOracles, HelixPipe) {
  constexpr int kWhole = 7;
  for (const int p : {2, 4, 8}) {
    for (const int v : {1, 2, 4}) {
      for (const int reps : {1, 2, 3}) {
        for (const int beta : {1, 2}) {
          const std::int64_t f = 2 * kWhole * v;
          const auto idle = [&](int folds) {
            return run_of("helixpipe", {p, p * folds * reps, v, folds}, f, beta * f / 2,
                          beta * f / 2)
                       .idle_of_all() /
                   2;
          };
          EXPECT_EQ(idle(1), (1 + beta) * (p - 1) * 3) << p << " " << v << " " << reps;
          for (const int folds : {2, 3, 5}) {
            if (p > 4 || (p == 4 && folds <= 3)) {
              EXPECT_EQ(idle(folds), (1 + beta) * 3 * ((p - 1) + (folds - 1) * (p - 3)))
                  << p << " " << v << " " << reps << " " << folds;
            }
          }
        }
      }
    }
  }
  const auto with_latency = [](std::int64_t c, int folds) {
    const std::int64_t share = kWhole * 4;  // p = 4, L = 16
    return run_of("helixpipe", {4, 8, 4, folds}, share, share, share, c).idle_of_all();
  };
  EXPECT_EQ(with_latency(1, 1), 151);
  EXPECT_EQ(with_latency(2, 1), 276);
  EXPECT_EQ(with_latency(4, 1), 530);
  EXPECT_EQ(with_latency(1, 2), 42);
  EXPECT_EQ(with_latency(2, 2), 48);
  EXPECT_EQ(with_latency(4, 2), 75);
}

// O23.
TEST(ScheduleOracles, CrossPipe) {
  const auto idle = [](int p, double cap, std::int64_t send) {
    ScheduleParams params{p, 2 * p, 1, 0};
    params.cap = cap;
    return run_of("crosspipe", params, 1, 1, 1, send).largest_idle();
  };
  EXPECT_EQ(idle(4, 8, 0), 0);
  EXPECT_EQ(idle(8, 16, 0), 0);
  EXPECT_EQ(idle(4, 4, 0), 5);
  EXPECT_EQ(idle(8, 8, 0), 9);
  EXPECT_EQ(idle(4, 6, 0), 1);
  EXPECT_EQ(idle(8, 12, 0), 3);
  EXPECT_EQ(idle(4, 4, 1), 15);
  EXPECT_EQ(idle(8, 8, 1), 35);
  EXPECT_EQ(idle(4, 8, 1), 5);
  EXPECT_EQ(idle(8, 16, 1), 13);
}

}  // namespace
}  // namespace orrery::sim
