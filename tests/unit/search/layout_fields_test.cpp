// SPDX-License-Identifier: Apache-2.0
// Fields of a layout beside the degrees: fixed, and searched where they are allowed.
#include "search/space/layout_fields.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <map>
#include <vector>

#include "base/error.hpp"
#include "plan/block/layout_check.hpp"
#include "search/space/execution_flags.hpp"
#include "search/space/known_layouts.hpp"
#include "search/space/space.hpp"
#include "tests/unit/models/specs.hpp"
#include "tests/unit/search/small_search.hpp"

namespace orrery::search {
namespace {

using ::testing::HasSubstr;

Outcome find(const plan::Plan& base, const std::string& fix, const std::string& allow = "") {
  Options options;
  options.constraints.fix(fix);
  if (!allow.empty()) {
    options.constraints.allow(allow);
  }
  plan::Plan network = base;
  options.constraints.apply(network.execution);
  return search(network, options);
}

const plan::BlockPlan& layout_of(const Outcome& outcome) {
  return outcome.best->plan.blocks.front().layout;
}

TEST(LayoutFields, FixesAMeshOfTensorRanks) {
  const Outcome outcome = find(base_plan(),
                               "tp=4,tensor_parallel=2d,tp_rows=2,broadcasts=binomial,"
                               "micro_batch=2,schedule=1f1b");
  ASSERT_TRUE(outcome.best.has_value());
  EXPECT_EQ(layout_of(outcome).tensor_parallel, plan::TensorMesh::TwoD);
  EXPECT_EQ(layout_of(outcome).tp_rows, 2);
  EXPECT_EQ(layout_of(outcome).broadcasts, plan::Broadcasts::Binomial);
  // The document reads back: every check of a plan holds.
  plan::read_plan(plan::to_json(outcome.best->plan), "again");
}

TEST(LayoutFields, FixesChosenOperators) {
  const Outcome outcome = find(base_plan(), "tp=1,pp=1,recompute=norms+mlp-activation");
  ASSERT_TRUE(outcome.best.has_value());
  EXPECT_EQ(plan::recompute_text(layout_of(outcome)), "norms+mlp-activation");
  const Outcome products = find(base_plan(), "tp=1,pp=1,recompute=products");
  ASSERT_TRUE(products.best.has_value());
  EXPECT_EQ(layout_of(products).recompute, plan::Recompute::Products);
}

TEST(LayoutFields, FixesOptionsOfZeroPlusPlus) {
  Constraints constraints;
  constraints.fix(
      "quantised_gather=true,hierarchical_gather=on,quantised_reduce=yes,zigzag=no,"
      "keep_gathered=true");
  plan::Execution execution;
  constraints.apply(execution);
  EXPECT_TRUE(execution.quantised_gather && execution.hierarchical_gather &&
              execution.quantised_reduce);
  plan::BlockPlan layout;
  constraints.apply(layout);
  EXPECT_FALSE(layout.zigzag);
  EXPECT_TRUE(layout.keep_gathered);
}

// Plans of a space with meshes are those of the space without, and others that a document may hold.
TEST(LayoutFields, AllowedMeshesWidenTheSpace) {
  const plan::Plan base = base_plan();
  Constraints plain;
  plain.fix("micro_batch=2");
  Constraints wide = plain;
  wide.allow("meshes,operators");
  const Space narrow(base, plain);
  const Space all(base, wide);
  std::int64_t few = 0;
  std::int64_t many = 0;
  int meshes = 0;
  for (const Group& group : narrow.groups()) {
    few += narrow.num_members(group);
  }
  for (const Group& group : all.groups()) {
    many += all.num_members(group);
    plan::Plan plan = base;
    int seen = 0;
    for (const Member& member : all.members(group)) {
      if (member.mesh != plan::TensorMesh::OneD) {
        ++meshes;
        if (++seen < 4) {
          all.configure(group, member, plan);
          EXPECT_NO_THROW(plan::check_plan(plan, "member"));
        }
      }
    }
  }
  EXPECT_GT(meshes, 0);
  EXPECT_GT(many, few);
}

// Networks whose heads or tokens do not divide by everything that the cluster does.
std::vector<models::NetworkSpec> odd_specs() {
  models::NetworkSpec few_keys = small_spec();
  few_keys.family = models::Family::Llama;
  few_keys.heads = 8;
  few_keys.kv_heads = 2;
  few_keys.head_dim = 128;
  models::NetworkSpec odd_keys = few_keys;
  odd_keys.heads = 12;
  odd_keys.kv_heads = 6;
  odd_keys.hidden = 12 * 128;
  models::NetworkSpec behind_images = models::behind_encoder(small_spec(2), 2, 1, false);
  behind_images.encoder.tokens = 577;
  models::NetworkSpec behind_narrow_images = behind_images;
  behind_narrow_images.encoder.heads = 2;
  return {small_spec(), few_keys, odd_keys, behind_images, behind_narrow_images};
}

// Meshes come beside the plans that there are without them, and in all of these every rank holds as
// much of every tensor: Ulysses exchanges only heads that divide, an encoder's tokens are padded.
TEST(LayoutFields, MeshesComeBesideLayoutsThatAllExist) {
  Constraints plain;
  plain.fix("micro_batch=2,schedule=1f1b,chunks=1,zero=0,recompute=none");
  Constraints wide = plain;
  wide.allow("meshes");
  int exchanging = 0;
  for (const models::NetworkSpec& spec : odd_specs()) {
    Shape shape;
    shape.spec = spec;
    shape.overrides = {"node.gpus=8"};
    const plan::Plan base = base_plan(shape);
    const Space narrow(base, plain);
    const Space all(base, wide);
    for (const Group& group : narrow.groups()) {
      plan::Plan plan = base;
      for (const Member& member : narrow.members(group)) {
        narrow.configure(group, member, plan);
        EXPECT_NO_THROW(plan::check_plan(plan, "member"));
        EXPECT_NO_THROW(plan::check_layouts(plan, "member"));
        exchanging += member.context == plan::ContextParallel::Ulysses ? 1 : 0;
      }
      const std::vector<Member> members = all.members(group);
      EXPECT_EQ(std::count_if(members.begin(), members.end(),
                              [](const Member& member) {
                                return member.mesh == plan::TensorMesh::OneD &&
                                       member.context != plan::ContextParallel::Mix;
                              }),
                narrow.num_members(group));
    }
  }
  EXPECT_GT(exchanging, 0);
}

// What is kept of layouts that were looked at is right where other degrees differ: a layout exists
// in one group or another if and only if its plan has no bad layout, whatever was asked before.
TEST(LayoutFields, ExistWhereTheirPlansDo) {
  Constraints wide;
  wide.fix("schedule=1f1b,chunks=1,zero=0,recompute=none");
  wide.allow("meshes");
  int exist = 0;
  int bad = 0;
  std::vector<models::NetworkSpec> specs = odd_specs();
  specs.push_back(small_mixture());
  for (const models::NetworkSpec& spec : specs) {
    Shape shape;
    shape.spec = spec;
    shape.overrides = {"node.gpus=8"};
    const plan::Plan base = base_plan(shape);
    const Space all(base, wide);
    std::map<std::array<int, 4>, std::vector<Member>> layouts;  // of any group of these degrees
    const auto key = [](const Group& group) {
      return std::array<int, 4>{group.tp, group.cp, group.ep, group.expert_tp};
    };
    for (const Group& group : all.groups()) {
      std::vector<Member>& known = layouts[key(group)];
      const std::vector<Member> members = all.members(group);
      known.insert(known.end(), members.begin(), members.end());
    }
    for (const Group& group : all.groups()) {
      if (all.num_schedules(group) == 0) {
        continue;
      }
      plan::Plan plan = base;
      for (const Member& member : layouts[key(group)]) {
        all.configure(group, member, plan);
        bool is_good = true;
        try {
          plan::check_layouts(plan, "member");
        } catch (const Error&) {
          is_good = false;
        }
        const std::vector<Member>& own = all.layouts(group);
        const bool is_own = std::any_of(own.begin(), own.end(), [&](const Member& other) {
          return other.mesh == member.mesh && other.tp_inner == member.tp_inner &&
                 other.ep_inside == member.ep_inside && other.context == member.context &&
                 other.ulysses_degree == member.ulysses_degree &&
                 other.sequence_parallel == member.sequence_parallel;
        });
        EXPECT_EQ(is_own, is_good);
        ++(is_good ? exist : bad);
      }
    }
  }
  EXPECT_GT(exist, 1000);
  EXPECT_GT(bad, 100);
}

// Replicas and whole micro-batches beside them change nothing: they are not looked at again.
TEST(LayoutFields, LayoutsAreLookedAtOnce) {
  const plan::Plan base = base_plan();
  KnownLayouts known(base);
  plan::BlockPlan layout;
  layout.tp = 4;
  layout.tensor_parallel = plan::TensorMesh::TwoD;
  EXPECT_TRUE(known.exists(layout, 2, 4));
  const std::size_t checked = known.num_checked();
  for (const int dp : {4, 8, 16}) {
    for (const std::int64_t micro_batch : {4, 8, 12}) {
      layout.recompute = plan::Recompute::Full;
      EXPECT_TRUE(known.exists(layout, dp, micro_batch));
    }
  }
  EXPECT_EQ(known.num_checked(), checked);
  EXPECT_FALSE(known.exists(layout, 2, 1));  // rows cut samples
  EXPECT_THAT(known.problem(layout, 2, 1), HasSubstr("batch"));
}

// The bound of a group must hold for its meshes: the best of the wide space is no slower, and no
// slower than the best mesh alone.
TEST(LayoutFields, TheWideSearchFindsTheBestOfAll) {
  const std::string fix = "micro_batch=2,schedule=1f1b,chunks=1,zero=0";
  const Outcome narrow = find(base_plan(), fix);
  const Outcome wide = find(base_plan(), fix, "meshes,operators");
  const Outcome mesh = find(base_plan(), fix + ",tp=4,tensor_parallel=2d");
  ASSERT_TRUE(narrow.best && wide.best && mesh.best);
  EXPECT_LE(wide.best->simulation.iteration_time, narrow.best->simulation.iteration_time);
  EXPECT_LE(wide.best->simulation.iteration_time, mesh.best->simulation.iteration_time);
  EXPECT_EQ(wide.gap_fraction, 0.0);
}

Shape four_nodes() {
  Shape shape;
  shape.cluster = "ac922:4";
  shape.overrides.clear();
  return shape;
}

// Over several nodes it is searched which axis of the mesh stays inside them.
TEST(LayoutFields, FindsTheInnerAxisOfAMeshOverNodes) {
  const plan::Plan base = base_plan(four_nodes());
  const std::string fix = "tp=16,tensor_parallel=2d,micro_batch=8,schedule=1f1b,recompute=none";
  const Outcome found = find(base, fix);
  const Outcome columns = find(base, fix + ",tp_inner=columns");
  const Outcome rows = find(base, fix + ",tp_inner=rows");
  ASSERT_TRUE(found.best && columns.best && rows.best);
  EXPECT_EQ(layout_of(rows).tp_inner, plan::TensorAxis::Rows);
  const Seconds of_columns = columns.best->simulation.iteration_time;
  const Seconds of_rows = rows.best->simulation.iteration_time;
  EXPECT_NE(of_columns, of_rows);
  EXPECT_EQ(found.best->simulation.iteration_time, std::min(of_columns, of_rows));
  plan::read_plan(plan::to_json(rows.best->plan), "again");
}

// Inside a node all links are alike: no order is tried twice.
TEST(LayoutFields, TriesNoOrderThatLinksDoNotTellApart) {
  const auto members = [](const Shape& shape, const std::string& fix) {
    const plan::Plan base = base_plan(shape);
    Constraints constraints;
    constraints.fix(fix);
    const Space space(base, constraints);
    std::int64_t count = 0;
    for (const Group& group : space.groups()) {
      count += space.num_members(group);
    }
    return count;
  };
  const std::string fix = "tp=4,tensor_parallel=2d,micro_batch=2,dp=1";
  EXPECT_GT(members({}, fix), 0);
  EXPECT_EQ(members({}, fix), members({}, fix + ",tp_inner=rows"));
  const std::string wide = "tp=16,tensor_parallel=2d,micro_batch=8";
  EXPECT_EQ(members(four_nodes(), wide), 2 * members(four_nodes(), wide + ",tp_inner=rows"));
}

// Experts of replicas on several nodes: which ranks are neighbours is searched where it is allowed.
TEST(LayoutFields, FindsThePlaceOfExpertRanks) {
  Shape shape{small_mixture()};
  shape.cluster = "hgx-h100:2";
  shape.overrides.clear();
  const plan::Plan base = base_plan(shape);
  const std::string fix = "tp=4,expert_tp=0,pp=1,ep=4,cp=1,micro_batch=1,recompute=none,zero=1";
  const Outcome usual = find(base, fix);
  const Outcome found = find(base, fix + ",tensor_parallel=1d", "meshes");
  const Outcome inside = find(base, fix + ",ep_inside=tp");
  ASSERT_TRUE(usual.best && found.best && inside.best);
  EXPECT_EQ(layout_of(usual).ep_inside, plan::ExpertsInside::Data);
  EXPECT_EQ(layout_of(inside).ep_inside, plan::ExpertsInside::Tensor);
  const Seconds of_usual = usual.best->simulation.iteration_time;
  const Seconds of_inside = inside.best->simulation.iteration_time;
  EXPECT_NE(of_usual, of_inside);
  EXPECT_EQ(found.best->simulation.iteration_time, std::min(of_usual, of_inside));
  EXPECT_EQ(found.plans, 2 * usual.plans);
  EXPECT_EQ(inside.plans, usual.plans);
  plan::read_plan(plan::to_json(inside.best->plan), "again");
}

std::string message(const std::string& fix) {
  try {
    Constraints constraints;
    constraints.fix(fix);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(LayoutFields, BadInput) {
  EXPECT_THAT(message("tensor_parallel=4d"), HasSubstr("mesh \"4d\""));
  EXPECT_THAT(message("broadcasts=binominal"), HasSubstr("binomial"));
  EXPECT_THAT(message("keep_gathered=maybe"), HasSubstr("neither true nor false"));
  EXPECT_THAT(message("tp_rows=0"), HasSubstr("tp_rows"));
  EXPECT_THAT(message("tp_inner=row"), HasSubstr("rows"));
  EXPECT_THAT(message("recompute=norms+mlp"), HasSubstr("unknown group of operators"));
  EXPECT_THAT(message("zigzg=true"), HasSubstr("zigzag"));
  EXPECT_THAT(message("quantized_gather=true"), HasSubstr("quantised_gather"));
}

}  // namespace
}  // namespace orrery::search
