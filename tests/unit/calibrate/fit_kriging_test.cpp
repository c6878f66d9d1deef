// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <vector>

#include "calibrate/fit/kriging.hpp"

namespace orrery::calibrate {
namespace {

using sim::CommKind;

// One log over 1 KiB to 1 MiB with the same residual at every size.
std::vector<ResidualPoint> flat_log(int log, CommKind kind, double value) {
  std::vector<ResidualPoint> points;
  for (int octave = 10; octave <= 20; ++octave) {
    ResidualPoint point;
    point.kind = kind;
    point.version = 229;
    point.log = log;
    point.log2_ranks = 3;
    point.log2_bytes = octave;
    point.value = value;
    points.push_back(point);
  }
  return points;
}

ResidualPoint asked(CommKind kind, double log2_bytes = 15) {
  ResidualPoint point = flat_log(-1, kind, 0)[5];
  point.log2_bytes = log2_bytes;
  return point;
}

TEST(KrigingTest, ReturnsWhatWasMeasured) {
  const Kriging fit(flat_log(0, CommKind::AllGather, 0.3), {});
  EXPECT_NEAR(fit.at(asked(CommKind::AllGather)), 0.3, 0.02);
}

TEST(KrigingTest, RelativesResembleStrangersDoNot) {
  const Kriging fit(flat_log(0, CommKind::AllGather, 0.3), {});
  const double scatter = fit.at(asked(CommKind::ReduceScatter));
  const double reduce = fit.at(asked(CommKind::AllReduce));
  EXPECT_LT(reduce, scatter);
  EXPECT_GT(scatter, 0.2);
  EXPECT_EQ(fit.at(asked(CommKind::AllToAll)), 0);
  ResidualPoint other = asked(CommKind::AllGather);
  other.gpu = 7;
  EXPECT_LT(fit.at(other), fit.at(asked(CommKind::AllGather)));
  // Far from every measured size nothing is known.
  EXPECT_LT(fit.at(asked(CommKind::AllGather, 60)), 0.01);
}

// Verbs networks tell of each other; EFA has a transport and factors of its own.
TEST(KrigingTest, NetworksResembleEachOtherByTheirTransport) {
  const auto told_by = [](costmodel::FabricClass fabric) {
    std::vector<ResidualPoint> log = flat_log(0, CommKind::AllGather, 0.3);
    for (ResidualPoint& point : log) {
      point.fabric = fabric;
    }
    ResidualPoint point = asked(CommKind::AllGather);
    point.fabric = costmodel::FabricClass::Roce;
    return Kriging(log, prior_between_nodes()).at(point);
  };
  EXPECT_GT(told_by(costmodel::FabricClass::InfiniBand), 0.1);
  EXPECT_LT(told_by(costmodel::FabricClass::Efa), 0.08);
  EXPECT_EQ(told_by(costmodel::FabricClass::Sharp), 0);
}

// Of two machines of a kind that contradict each other, the one that behaves as the formula says
// is the usual one.
TEST(KrigingTest, OutlyingLogsLoseTheirSay) {
  std::vector<ResidualPoint> points = flat_log(0, CommKind::AllReduce, 0);
  for (const ResidualPoint& slow : flat_log(1, CommKind::AllReduce, 0.6)) {
    points.push_back(slow);
  }
  EXPECT_LT(Kriging(points, prior_between_nodes()).at(asked(CommKind::AllReduce)), 0.1);
}

// A time far off those of its neighbours is a disturbance of that run.
TEST(KrigingTest, ALoneTimeIsNotFollowed) {
  std::vector<ResidualPoint> points = flat_log(0, CommKind::AllReduce, 0);
  points[5].value = 0.6;
  EXPECT_LT(Kriging(points, prior_between_nodes()).at(asked(CommKind::AllReduce)), 0.1);
}

TEST(KrigingTest, NothingMeasuredNothingKnown) {
  EXPECT_EQ(Kriging({}, {}).at(asked(CommKind::AllReduce)), 0);
}

}  // namespace
}  // namespace orrery::calibrate
