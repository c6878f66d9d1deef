// SPDX-License-Identifier: Apache-2.0
// Laws of conversions between layouts (what they lead to, adjoints, sums of shards) on
// random layouts and meshes.
#include "plan/layout.hpp"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "plan/block/steps.hpp"

namespace orrery::plan {
namespace {

using sim::CommKind;

constexpr Extents kExtents{1024, 1024};  // all axes of a mesh together divide them

models::Tensor activation() {
  return {.name = "x",
          .dims = {{Var::Batch, models::kFromWorkload},
                   {Var::Seq, models::kFromWorkload},
                   {Var::Hidden, 1024},
                   {Var::Head, 1024}}};
}

Mesh any_mesh() {
  Mesh mesh;
  for (int& size : mesh.size) {
    size = *rc::gen::element(1, 2);
  }
  return mesh;
}

Layout any_layout(bool partial) {
  const std::vector<Var> vars = {Var::Batch, Var::Seq, Var::Hidden, Var::Head};
  Layout layout;
  for (const Axis axis : kAxes) {
    const int choice = *rc::gen::inRange(partial ? -2 : -1, static_cast<int>(vars.size()));
    layout.set(axis, choice == -2   ? Placement::partial()
                     : choice == -1 ? Placement::replicated()
                                    : Placement::sharded(vars[static_cast<std::size_t>(choice)]));
  }
  return layout;
}

// Elements sent by a bandwidth-optimal ring (section 0).
double sent(CommKind kind, double ranks, double elements) {
  return (kind == CommKind::AllReduce ? 2.0 : 1.0) * (ranks - 1) / ranks * elements;
}

double sent(const models::Tensor& tensor, const std::vector<Conversion>& list, const Mesh& mesh) {
  double total = 0;
  for (const Conversion& conversion : list) {
    const auto elements =
        static_cast<double>(collective_elements(tensor, conversion, mesh, kExtents));
    total += sent(conversion.kind, mesh.of(conversion.axis), elements);
  }
  return total;
}

TEST(LayoutProperty, ConversionsLeadFromOneLayoutToTheOther) {
  EXPECT_TRUE(rc::check([] {
    const Layout from = any_layout(true);
    const Layout to = any_layout(false);
    const std::vector<Conversion> list = conversions(from, to);
    Layout current = list.empty() ? to : list.back().after;
    RC_ASSERT(current == to);
    for (std::size_t index = 0; index < list.size(); ++index) {
      const Conversion& step = list[index];
      for (const Axis axis : kAxes) {  // each changes its own axis alone
        RC_ASSERT((step.before[axis] == step.after[axis]) == (axis != step.axis));
      }
      // In parentheses: outside of them RC_ASSERT evaluates both sides of an "or".
      RC_ASSERT((index == 0 || step.before == list[index - 1].after));
      RC_ASSERT(!step.before[step.axis].is_replicated());
    }
    RC_ASSERT(conversions(to, to).empty());
  }));
}

// Reductions before gathers: a collective is never larger than in the other order.
TEST(LayoutProperty, ReductionsComeBeforeGathers) {
  EXPECT_TRUE(rc::check([] {
    bool gathered = false;
    for (const Conversion& step : conversions(any_layout(true), any_layout(false))) {
      const bool reduces = step.kind == CommKind::ReduceScatter || step.kind == CommKind::AllReduce;
      RC_ASSERT(!(gathered && reduces));
      gathered = gathered || step.kind == CommKind::AllGather;
    }
  }));
}

// Rule 4: where the forward gathers, the backward of a consumer that splits the axis reduces and
// scatters; an all-to-all is undone by one; a reduce-scatter by a gather. Same volume.
TEST(LayoutProperty, AdjointSendsTheSameVolume) {
  EXPECT_TRUE(rc::check([] {
    const Mesh mesh = any_mesh();
    const models::Tensor tensor = activation();
    const Layout produced = any_layout(true);
    Layout required = any_layout(false);
    Layout gradient = required;
    for (const Axis axis : kAxes) {
      if (produced[axis].is_partial() && required[axis].is_replicated()) {
        required.set(axis, Placement::sharded(Var::Seq));  // all-reduce has no adjoint collective
        gradient.set(axis, required[axis]);
      } else if (produced[axis].is_replicated()) {
        required.set(axis, produced[axis]);  // a slice is free, its adjoint is not
        gradient.set(axis, produced[axis]);
      } else if (required[axis].is_replicated()) {
        gradient.set(axis, Placement::partial());
      }
    }
    const std::vector<Conversion> forward = conversions(produced, required);
    const std::vector<Conversion> backward = conversions(gradient, gradient_of(produced));
    RC_ASSERT(forward.size() == backward.size());
    const auto adjoint = [](CommKind kind) {
      return kind == CommKind::AllGather       ? CommKind::ReduceScatter
             : kind == CommKind::ReduceScatter ? CommKind::AllGather
                                               : kind;
    };
    for (const Conversion& step : forward) {
      RC_ASSERT(std::count_if(backward.begin(), backward.end(), [&](const Conversion& other) {
                  return other.axis == step.axis && other.kind == adjoint(step.kind);
                }) == 1);
    }
    RC_ASSERT(sent(tensor, forward, mesh) == sent(tensor, backward, mesh));
  }));
}

TEST(LayoutProperty, GradientOfAPartialSumIsNeededWhole) {
  EXPECT_TRUE(rc::check([] {
    const Layout forward = any_layout(true);
    const Layout gradient = gradient_of(forward);
    for (const Axis axis : kAxes) {
      const Placement expected =
          forward[axis].is_partial() ? Placement::replicated() : forward[axis];
      RC_ASSERT(gradient[axis] == expected);
    }
  }));
}

// Shards add up to the tensor once for every replica; uneven ones round up.
TEST(LayoutProperty, ShardsAddUp) {
  EXPECT_TRUE(rc::check([] {
    const Mesh mesh = any_mesh();
    const Layout layout = any_layout(true);
    models::Tensor tensor = activation();
    tensor.dims[2].extent = *rc::gen::inRange<std::int64_t>(1, 200);
    const Extents extents{*rc::gen::inRange<std::int64_t>(1, 100), 4096};
    std::int64_t whole = 1;
    std::int64_t local = 1;
    for (const models::Dim& dim : tensor.dims) {
      std::int64_t parts = 1;
      for (const Axis axis : kAxes) {
        parts *= layout[axis].is_sharded() && layout[axis].var() == dim.var ? mesh.of(axis) : 1;
      }
      const std::int64_t extent = local_extent(dim, Layout(), mesh, extents);
      const std::int64_t part = local_extent(dim, layout, mesh, extents);
      RC_ASSERT(part * parts >= extent);
      RC_ASSERT((part - 1) * parts < extent);
      whole *= extent;
      local *= part;
    }
    RC_ASSERT(local_elements(tensor, layout, mesh, extents) == local);
    RC_ASSERT(local_elements(tensor, Layout(), mesh, extents) == whole);
  }));
}

// Sub-collectives of one kind merge into one over the product of their axes.
TEST(LayoutProperty, MergedCollectivesSendWhatTheirPartsDo) {
  EXPECT_TRUE(rc::check([] {
    const Mesh mesh = any_mesh();
    const models::Tensor tensor = activation();
    const Layout from = any_layout(true);
    const Layout to = any_layout(false);
    double merged = 0;
    double gathers_and_reductions = 0;
    for (const MergedConversion& step : merged_conversions(tensor, from, to, mesh, kExtents)) {
      double ranks = 1;
      for (const Axis axis : step.axes) {
        ranks *= mesh.of(axis);
      }
      if (step.kind == CommKind::AllGather || step.kind == CommKind::ReduceScatter) {
        merged += sent(step.kind, ranks, static_cast<double>(step.elements));
      }
    }
    for (const Conversion& step : conversions(from, to)) {
      if (step.kind == CommKind::AllGather || step.kind == CommKind::ReduceScatter) {
        gathers_and_reductions += sent(tensor, {step}, mesh);
      }
    }
    RC_ASSERT(std::abs(merged - gathers_and_reductions) <= 1e-9 * gathers_and_reductions);
  }));
}

}  // namespace
}  // namespace orrery::plan
