// SPDX-License-Identifier: Apache-2.0
// Conversions between neighbouring blocks of different layouts: after them every rank has what the
// next block needs. A rank's part of the stream is a box (batch x sequence x hidden); what it needs
// must lie in what the ranks of its conversion group held, and in its own part where nothing moves.
#include "plan/block/relayout.hpp"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <set>
#include <vector>

namespace orrery::plan {
namespace {

constexpr int kRanks = 32;
constexpr std::array<int, 3> kPieces = {32, 8, 4};  // of batch, seq, hidden; degrees divide them

using Box = std::array<std::pair<int, int>, 3>;  // [begin, end) of batch, seq, hidden

std::size_t dim_of(Var var) { return var == Var::Batch ? 0 : var == Var::Seq ? 1 : 2; }

Box box_of(int rank, const Mesh& mesh, const Layout& layout) {
  Box box;
  for (std::size_t dim = 0; dim < box.size(); ++dim) {
    box[dim] = {0, kPieces[dim]};
  }
  for (auto axis = kAxes.rbegin(); axis != kAxes.rend(); ++axis) {  // later axes cut first
    if (!layout[*axis].is_sharded()) {
      continue;
    }
    auto& [begin, end] = box[dim_of(layout[*axis].var())];
    const int length = (end - begin) / mesh.of(*axis);
    begin += length * (rank / mesh.stride(*axis) % mesh.of(*axis));
    end = begin + length;
  }
  return box;
}

using Cells = std::set<std::array<int, 3>>;

void add_cells(const Box& box, Cells& cells) {
  for (int b = box[0].first; b < box[0].second; ++b) {
    for (int s = box[1].first; s < box[1].second; ++s) {
      for (int h = box[2].first; h < box[2].second; ++h) {
        cells.insert({b, s, h});
      }
    }
  }
}

std::set<int> group_of_rank(int rank, const std::vector<StreamConversion>& conversions) {
  std::set<int> group = {rank};
  for (const StreamConversion& conversion : conversions) {
    for (const Extent& factor : conversion.factors) {
      std::set<int> wider;
      for (const int member : group) {
        const auto stride = static_cast<int>(factor.stride);
        const int first = member - member / stride % factor.size * stride;
        for (int place = 0; place < factor.size; ++place) {
          wider.insert(first + place * stride);
        }
      }
      group = wider;
    }
  }
  return group;
}

BlockPlan any_kind_of_layout() {
  BlockPlan layout;
  const int kind = *rc::gen::inRange(0, 5);
  const auto power = [](int most) { return 1 << *rc::gen::inRange(0, most + 1); };
  if (kind == 0) {
    layout.tp = 4;
    layout.tensor_parallel = TensorMesh::TwoD;
    layout.tp_inner = *rc::gen::element(TensorAxis::Columns, TensorAxis::Rows);
  } else if (kind == 1) {
    layout.tp = 8;
    layout.tensor_parallel = TensorMesh::ThreeD;
    layout.tp_inner = *rc::gen::element(TensorAxis::Columns, TensorAxis::Rows, TensorAxis::Depth);
  } else {
    layout.tp = power(2);
    layout.sequence_parallel = *rc::gen::arbitrary<bool>();
  }
  layout.cp = power(1);
  if (layout.cp == 2 && *rc::gen::arbitrary<bool>()) {
    layout.context = ContextParallel::Mix;
    layout.ulysses_degree = 2;
  }
  layout.ep = kRanks / (layout.tp * layout.cp) % 2 == 0 ? power(1) : 1;
  layout.ep_inside =
      *rc::gen::element(ExpertsInside::Data, ExpertsInside::Context, ExpertsInside::Tensor);
  return layout;
}

struct Side {
  Mesh mesh;
  Layout stream;
  explicit Side(const BlockPlan& layout)
      : mesh(mesh_of(layout, kRanks / (layout.tp * layout.cp))),
        stream(stream_layout(rules_of(layout, true))) {}
};

TEST(Relayout, GivesEveryRankWhatTheNextBlockNeeds) {
  EXPECT_TRUE(rc::check([] {
    const Side from(any_kind_of_layout());
    const Side to(any_kind_of_layout());
    const auto conversions = stream_conversions(from.mesh, from.stream, to.mesh, to.stream);
    for (int rank = 0; rank < kRanks; ++rank) {
      Cells needed;
      add_cells(box_of(rank, to.mesh, to.stream), needed);
      Cells held;
      for (const int member : group_of_rank(rank, conversions)) {
        add_cells(box_of(member, from.mesh, from.stream), held);
      }
      RC_ASSERT(std::includes(held.begin(), held.end(), needed.begin(), needed.end()));
    }
  }));
}

int cells_of(const Box& box) {
  int cells = 1;
  for (const auto& [begin, end] : box) {
    cells *= end - begin;
  }
  return cells;
}

// What is exchanged is what is there after the slices and before the gathers.
TEST(Relayout, ExchangesWhatSlicesLeaveAndGathersTake) {
  EXPECT_TRUE(rc::check([] {
    const Side from(any_kind_of_layout());
    const Side to(any_kind_of_layout());
    const Bytes before(cells_of(box_of(0, from.mesh, from.stream)));
    const Bytes after(cells_of(box_of(0, to.mesh, to.stream)));
    const auto there = stream_conversions(from.mesh, from.stream, to.mesh, to.stream);
    const auto back = stream_conversions(to.mesh, to.stream, from.mesh, from.stream);
    if (there.empty() || there.front().kind != sim::CommKind::AllToAll) {
      return;
    }
    const Bytes exchanged = there.front().bytes(before, after);
    RC_ASSERT(exchanged == back.front().bytes(after, before));
    RC_ASSERT(exchanged <= std::max(before, after));
    const int gathered = there.size() > 1 ? there.back().ranks() : 1;
    RC_ASSERT(there.front().uneven || exchanged * gathered == after);
  }));
}

// Where ranks only exchange, the one that keeps least of what it had sends all else: of boxes whose
// sizes all divide, as a rank receives as much as it sends.
TEST(Relayout, TheBusiestRankSendsAllThatItDoesNotNeed) {
  EXPECT_TRUE(rc::check([] {
    const Side from(any_kind_of_layout());
    const Side to(any_kind_of_layout());
    const auto there = stream_conversions(from.mesh, from.stream, to.mesh, to.stream);
    const int held = cells_of(box_of(0, from.mesh, from.stream));
    if (there.size() != 1 || there.front().kind != sim::CommKind::AllToAll ||
        there.front().uneven || there.front().slices > 1) {
      return;
    }
    int least = held;
    for (int rank = 0; rank < kRanks; ++rank) {
      Cells own;
      Cells needed;
      Cells both;
      add_cells(box_of(rank, from.mesh, from.stream), own);
      add_cells(box_of(rank, to.mesh, to.stream), needed);
      std::set_intersection(own.begin(), own.end(), needed.begin(), needed.end(),
                            std::inserter(both, both.end()));
      least = std::min(least, static_cast<int>(both.size()));
    }
    RC_ASSERT(there.front().sent(Bytes(held)).value() == held - least);
  }));
}

TEST(Relayout, EqualLayoutsMoveNothing) {
  EXPECT_TRUE(rc::check([] {
    const Side side(any_kind_of_layout());
    RC_ASSERT(stream_conversions(side.mesh, side.stream, side.mesh, side.stream).empty());
  }));
}

// Which ranks are neighbours does not change what the mesh holds, but who holds it.
TEST(Relayout, AnotherInnerAxisMovesWhatTheRanksHold) {
  BlockPlan columns;
  columns.tp = 4;
  columns.tensor_parallel = TensorMesh::TwoD;
  BlockPlan rows = columns;
  rows.tp_inner = TensorAxis::Rows;
  const Side from(columns);
  const Side to(rows);
  const auto there = stream_conversions(from.mesh, from.stream, to.mesh, to.stream);
  ASSERT_EQ(there.size(), 1U);
  EXPECT_EQ(there.front().kind, sim::CommKind::AllToAll);
  EXPECT_EQ(there.front().ranks(), 4);
}

TEST(Relayout, TensorRanksTradedForDataRanksSliceForwardAndGatherBackward) {
  BlockPlan wide;
  wide.tp = 8;
  BlockPlan narrow;
  narrow.tp = 4;
  const Side from(wide);
  const Side to(narrow);
  EXPECT_TRUE(stream_conversions(from.mesh, from.stream, to.mesh, to.stream).empty());
  const auto back = stream_conversions(to.mesh, to.stream, from.mesh, from.stream);
  ASSERT_EQ(back.size(), 1U);
  EXPECT_EQ(back.front().kind, sim::CommKind::AllGather);
  EXPECT_EQ(back.front().ranks(), 2);
  EXPECT_EQ(back.front().factors.front().stride, 4);
}

TEST(Relayout, SequenceShardsTradedForSamplesAreExchanged) {
  BlockPlan sequence;
  sequence.tp = 4;
  sequence.sequence_parallel = true;
  const Side from(sequence);
  const Side to(BlockPlan{});
  const auto there = stream_conversions(from.mesh, from.stream, to.mesh, to.stream);
  ASSERT_EQ(there.size(), 1U);
  EXPECT_EQ(there.front().kind, sim::CommKind::AllToAll);
  EXPECT_EQ(there.front().ranks(), 4);
}

}  // namespace
}  // namespace orrery::plan
