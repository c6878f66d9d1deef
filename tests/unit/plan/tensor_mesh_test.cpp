// SPDX-License-Identifier: Apache-2.0
// Tensor parallelism over meshes of two and three axes: volumes and lists of collectives of one
// transformer layer against sums worked out by hand for Optimus
// (arXiv 2104.05343), Tesseract (2105.14500) and 3-D (2105.14450).
#include <gtest/gtest.h>

#include <tuple>
#include <vector>

#include "base/error.hpp"
#include "plan/block/layout_check.hpp"
#include "plan/document/plan_text.hpp"
#include "tests/unit/plan/plan_fixture.hpp"
#include "tests/unit/plan/volume_fixture.hpp"

namespace orrery::plan {
namespace {

BlockPlan mesh(TensorMesh kind, int tp, int depth = 0, bool keep = false) {
  BlockPlan layout;
  layout.tp = tp;
  layout.tensor_parallel = kind;
  layout.tp_depth = depth;
  layout.keep_gathered = keep;
  return layout;
}

// Gathers and scatters; the all-reduces of a mesh are the statistics of the norms.
double moved_over_mesh(const std::vector<Step>& steps) {
  double elements = 0;
  for (const Step& step : steps) {
    elements += step.collective && step.comm != CommKind::AllReduce ? ring_elements(step) : 0.0;
  }
  return elements;
}

struct MeshCase {
  BlockPlan layout;
  int batch;
  int hidden;
  double forward;  // million elements, by hand
  double total;
};

void PrintTo(const MeshCase& c, std::ostream* out) { *out << to_text(c.layout.tensor_parallel); }

class MeshVolume : public testing::TestWithParam<MeshCase> {};

TEST_P(MeshVolume, EqualsTableA2) {
  const MeshCase& c = GetParam();
  // 512 tokens a sequence; as sequences of one, so that every batch of the table divides.
  Layer layer(gpt(c.hidden, 64), c.layout, 1, c.batch * 512LL, 1);
  layer.execution().fp32_gradients = false;
  const BlockSteps steps = layer.steps();
  double total = moved_over_mesh(steps.forward) + moved_over_mesh(steps.backward);
  // Replicas of the weights sum their gradients as data-parallel ranks do; vectors, which rows
  // share too, are not in the table.
  for (const StateGroup& group :
       state_groups(layer.block(), rules_of(c.layout, true), layer.mesh())) {
    const double depth = layer.mesh().of(Axis::TensorDepth);
    if (group.reduced_over(Axis::TensorDepth) && !group.reduced_over(Axis::TensorRow)) {
      total += 2.0 * (depth - 1) / depth * static_cast<double>(group.elements);
    }
  }
  EXPECT_NEAR(moved_over_mesh(steps.forward) / 1e6, c.forward, 5.1e-4);
  EXPECT_NEAR(total / 1e6, c.total, 5.1e-4);
}

INSTANTIATE_TEST_SUITE_P(
    Optimus, MeshVolume,
    testing::Values(MeshCase{mesh(TensorMesh::TwoD, 64), 8, 4096, 34.865, 104.595},
                    MeshCase{mesh(TensorMesh::TwoD, 64), 24, 3072, 41.288, 123.863},
                    MeshCase{mesh(TensorMesh::TwoD, 64), 192, 3072, 243.597, 730.792}));
INSTANTIATE_TEST_SUITE_P(
    Tesseract, MeshVolume,
    testing::Values(MeshCase{mesh(TensorMesh::TwoAndHalfD, 64, 4), 8, 4096, 43.254, 148.636},
                    MeshCase{mesh(TensorMesh::TwoAndHalfD, 64, 4), 24, 3072, 33.620, 111.477},
                    MeshCase{mesh(TensorMesh::TwoAndHalfD, 64, 4), 192, 3072, 120.324, 371.589},
                    MeshCase{mesh(TensorMesh::TwoAndHalfD, 8, 2), 8, 4096, 65.012, 245.367}));
INSTANTIATE_TEST_SUITE_P(
    ThreeDKeep, MeshVolume,
    testing::Values(MeshCase{mesh(TensorMesh::ThreeD, 64, 0, true), 8, 4096, 22.020, 44.040},
                    MeshCase{mesh(TensorMesh::ThreeD, 64, 0, true), 24, 3072, 33.620, 67.240},
                    MeshCase{mesh(TensorMesh::ThreeD, 64, 0, true), 192, 3072, 231.801, 463.602},
                    MeshCase{mesh(TensorMesh::ThreeD, 8, 0, true), 8, 4096, 58.720, 117.441}));
INSTANTIATE_TEST_SUITE_P(
    ThreeDRegather, MeshVolume,
    testing::Values(MeshCase{mesh(TensorMesh::ThreeD, 64), 8, 4096, 22.020, 58.982},
                    MeshCase{mesh(TensorMesh::ThreeD, 64), 24, 3072, 33.620, 84.935},
                    MeshCase{mesh(TensorMesh::ThreeD, 64), 192, 3072, 231.801, 568.001},
                    MeshCase{mesh(TensorMesh::ThreeD, 8), 8, 4096, 58.720, 157.286}));

int count(const std::vector<Step>& steps, CommKind kind, Axis axis) {
  int found = 0;
  for (const Step& step : steps) {
    found += step.collective && step.comm == kind && step.axis == axis ? 1 : 0;
  }
  return found;
}

TEST(TensorMeshCollectives, TwoDGathersBothOperandsInPieces) {
  const BlockSteps steps = Layer(gpt(1024, 16), mesh(TensorMesh::TwoD, 16), 1, 8, 512).steps();
  EXPECT_EQ(count(steps.forward, CommKind::AllGather, Axis::Tensor), 4);
  EXPECT_EQ(count(steps.forward, CommKind::AllGather, Axis::TensorRow), 4);
  EXPECT_EQ(count(steps.forward, CommKind::ReduceScatter), 0);
  EXPECT_EQ(count(steps.backward, CommKind::AllGather, Axis::Tensor), 4);
  EXPECT_EQ(count(steps.backward, CommKind::AllGather, Axis::TensorRow), 4);
  EXPECT_EQ(count(steps.backward, CommKind::ReduceScatter, Axis::Tensor), 4);
  EXPECT_EQ(count(steps.backward, CommKind::ReduceScatter, Axis::TensorRow), 4);
  for (const Step& step : steps.forward) {
    if (step.collective && step.comm == CommKind::AllGather) {
      EXPECT_EQ(step.pieces, 4);  // one a step of SUMMA
    }
  }
}

// SUMMA multiplies piece by piece: as many operations, in products that are smaller.
TEST(TensorMeshCollectives, TwoDMultipliesInPieces) {
  const auto products = [](const std::vector<Step>& steps) {
    std::vector<Step> found;
    for (const Step& step : steps) {
      if (!step.collective && step.cost_class == CostClass::Gemm) {
        found.push_back(step);
      }
    }
    return found;
  };
  const BlockSteps steps = Layer(gpt(1024, 16), mesh(TensorMesh::TwoD, 16), 1, 8, 512).steps();
  ASSERT_GE(products(steps.forward).size(), 4U);
  double forward = 0;
  for (const Step& step : products(steps.forward)) {
    EXPECT_GE(step.launches, 4) << step.name;
    forward += step.flops.value();
  }
  EXPECT_NEAR(forward, 2.0 * 12 * 1024 * 1024 * 8 * 512 / 16, 1e-9 * forward);
}

// Beside its products SUMMA copies the blocks that it sends and reads what it adds to: 2 (M K + K
// N)
// + M N elements for each of q pieces of an operator.
TEST(TensorMeshCollectives, TwoDCopiesWhatItSends) {
  models::NetworkSpec spec = gpt(1024, 16).spec;
  spec.mlp_bias = false;
  const Layer layer(models::build_network(spec, "test"), mesh(TensorMesh::TwoD, 16), 1, 64, 512);
  const topologies::Cluster cluster = topologies::load_cluster("dgx-a100:64");
  const costmodel::Profile profile = costmodel::load_profile("", cluster.gpu);
  const costmodel::DeviceModel device(cluster.gpu, profile);
  const std::int64_t m = 64 * 512 / 4;
  const std::int64_t n = 4096 / 4;
  const std::int64_t k = 1024 / 4;  // of a piece
  const double elements = 2.0 * static_cast<double>(m * k + k * n) + static_cast<double>(m * n);
  const Seconds copies = device.memory_bound(Bytes(2.0 * elements), costmodel::MemoryKernel::Copy);
  const Seconds product = device.gemm({m, n, k, 1, DType::Fp16, 2});
  int found = 0;
  for (const Step& step : layer.steps().forward) {
    if (step.name == "mlp_up" && !step.collective) {
      EXPECT_NEAR(step.time.value(), 4 * (product + copies).value(), 1e-9 * step.time.value());
      ++found;
    }
  }
  EXPECT_EQ(found, 1);
}

// The next pieces travel under a product with overlap_tp (Colossal-AI), else one after the other
// (Optimus, summa/mpu/layers.py).
TEST(TensorMeshCollectives, TwoDHidesPiecesWhereItOverlaps) {
  Layer layer(gpt(1024, 16), mesh(TensorMesh::TwoD, 16), 1, 64, 512);
  const auto sums = [&](bool overlap) {
    layer.execution().overlap_tp = overlap;
    const BlockSteps steps = layer.steps();
    Seconds collectives;
    Seconds kernels;
    for (const std::vector<Step>* list : {&steps.forward, &steps.backward}) {
      for (const Step& step : *list) {
        (step.collective ? collectives : kernels) += step.time;
      }
    }
    return std::pair(collectives, kernels);
  };
  EXPECT_GT(sums(false).first, sums(true).first);
  EXPECT_EQ(sums(false).second, sums(true).second);
}

TEST(TensorMeshCollectives, NormsSumTwoValuesATokenOverTheColumns) {
  const BlockSteps steps = Layer(gpt(1024, 16), mesh(TensorMesh::TwoD, 16), 1, 8, 512).steps();
  EXPECT_EQ(count(steps.forward, CommKind::AllReduce, Axis::Tensor), 2);
  EXPECT_EQ(count(steps.backward, CommKind::AllReduce, Axis::Tensor), 2);
  for (const Step& step : steps.forward) {
    if (step.collective && step.comm == CommKind::AllReduce) {
      EXPECT_DOUBLE_EQ(step.bytes.value(), 2.0 * 4.0 * 8 / 4 * 512);
      EXPECT_EQ(step.group.ranks, 4);
    }
  }
}

TEST(TensorMeshCollectives, CubeSwapsColumnsAndDepthWithoutAConversion) {
  const BlockSteps steps =
      Layer(gpt(1024, 16), mesh(TensorMesh::ThreeD, 8, 0, true), 1, 8, 512).steps();
  // qkv and up gather inputs over the columns and scatter outputs over the depth; the output
  // projection and down the other way round. Weights come over the rows.
  EXPECT_EQ(count(steps.forward, CommKind::AllGather, Axis::Tensor), 2);
  EXPECT_EQ(count(steps.forward, CommKind::AllGather, Axis::TensorDepth), 2);
  EXPECT_EQ(count(steps.forward, CommKind::AllGather, Axis::TensorRow), 4);
  EXPECT_EQ(count(steps.forward, CommKind::ReduceScatter, Axis::Tensor), 2);
  EXPECT_EQ(count(steps.forward, CommKind::ReduceScatter, Axis::TensorDepth), 2);
  EXPECT_EQ(count(steps.forward, CommKind::AllToAll), 0);
  EXPECT_EQ(count(steps.backward, CommKind::AllGather), 4);
  EXPECT_EQ(count(steps.backward, CommKind::ReduceScatter, Axis::TensorRow), 4);
  EXPECT_EQ(count(steps.backward, CommKind::ReduceScatter), 8);
}

TEST(TensorMeshCollectives, TesseractOfOneSliceIsOptimus) {
  const BlockSteps flat = Layer(gpt(1024, 16), mesh(TensorMesh::TwoD, 16), 1, 8, 512).steps();
  const BlockSteps slices =
      Layer(gpt(1024, 16), mesh(TensorMesh::TwoAndHalfD, 16, 1), 1, 8, 512).steps();
  ASSERT_EQ(flat.backward.size(), slices.backward.size());
  EXPECT_DOUBLE_EQ(sent(flat.forward), sent(slices.forward));
  EXPECT_DOUBLE_EQ(sent(flat.backward), sent(slices.backward));
}

TEST(TensorMeshStates, EveryMeshHoldsAnEqualShareOfTheMatrices) {
  const models::Network network = gpt(1024, 16);
  const models::Block& block = network.blocks[static_cast<std::size_t>(network.chain[1])];
  for (const auto& [layout, shards] : {std::pair{mesh(TensorMesh::TwoD, 16), 16},
                                       {mesh(TensorMesh::TwoAndHalfD, 16, 4), 4},
                                       {mesh(TensorMesh::ThreeD, 8), 8}}) {
    std::int64_t matrices = 0;
    for (const StateGroup& group :
         state_groups(block, rules_of(layout, true), mesh_of(layout, 1))) {
      matrices += group.reduced_over(Axis::TensorRow) ? 0 : group.elements;
    }
    EXPECT_EQ(matrices * shards, 12LL * 1024 * 1024) << to_text(layout.tensor_parallel);
  }
}

// The group of an axis on nodes of four GPUs.
costmodel::GroupShape group_on_nodes(const BlockPlan& layout, Axis axis) {
  return group_of(mesh_of(layout, 1), {axis}, 4);
}

TEST(TensorMeshOrder, TheInnerAxisStaysInsideANode) {
  const std::vector<std::pair<TensorAxis, Axis>> axes = {{TensorAxis::Columns, Axis::Tensor},
                                                         {TensorAxis::Rows, Axis::TensorRow},
                                                         {TensorAxis::Depth, Axis::TensorDepth}};
  for (const auto& [inner, own] : axes) {
    BlockPlan layout = mesh(TensorMesh::ThreeD, 64);
    layout.tp_inner = inner;
    for (const auto& [other, axis] : axes) {
      EXPECT_EQ(group_on_nodes(layout, axis).nodes, axis == own ? 1 : 4)
          << to_text(inner) << ", " << to_text(axis);
    }
  }
}

// The others keep their order: rows, columns, depth is that of Colossal-AI's cube, where the ranks
// of a weight group are neighbours (initializer_3d.py).
TEST(TensorMeshOrder, TheOtherAxesFollowInTheirOrder) {
  BlockPlan layout = mesh(TensorMesh::ThreeD, 64);
  layout.cp = 2;
  const auto strides = [&](TensorAxis inner) {
    layout.tp_inner = inner;
    const Mesh ranks = mesh_of(layout, 1);
    return std::tuple(ranks.stride(Axis::Tensor), ranks.stride(Axis::TensorRow),
                      ranks.stride(Axis::TensorDepth), ranks.stride(Axis::Context));
  };
  EXPECT_EQ(strides(TensorAxis::Columns), std::tuple(1, 4, 16, 64));
  EXPECT_EQ(strides(TensorAxis::Rows), std::tuple(4, 1, 16, 64));
  EXPECT_EQ(strides(TensorAxis::Depth), std::tuple(4, 16, 1, 64));
}

// A row of 8 ranks over two nodes of four, or a rank on each of eight.
TEST(TensorMeshOrder, OfTwoAxesOneHasTheLinksInside) {
  BlockPlan layout = mesh(TensorMesh::TwoD, 64);
  EXPECT_EQ(group_on_nodes(layout, Axis::Tensor).nodes, 2);
  EXPECT_EQ(group_on_nodes(layout, Axis::TensorRow).nodes, 8);
  layout.tp_inner = TensorAxis::Rows;
  EXPECT_EQ(group_on_nodes(layout, Axis::Tensor).nodes, 8);
  EXPECT_EQ(group_on_nodes(layout, Axis::TensorRow).nodes, 2);
}

TEST(TensorMeshOrder, ChangesNoVolume) {
  for (const TensorMesh kind : {TensorMesh::TwoD, TensorMesh::ThreeD}) {
    BlockPlan layout = mesh(kind, 64);
    const BlockSteps usual = Layer(gpt(4096, 64), layout, 1, 64, 512).steps();
    layout.tp_inner = TensorAxis::Rows;
    const BlockSteps other = Layer(gpt(4096, 64), layout, 1, 64, 512).steps();
    EXPECT_DOUBLE_EQ(sent(usual.forward), sent(other.forward));
    EXPECT_DOUBLE_EQ(sent(usual.backward), sent(other.backward));
    ASSERT_EQ(usual.forward.size(), other.forward.size());
  }
}

TEST(TensorMeshOrder, TablesOfPlansNameTheMesh) {
  Plan plan = small_plan();
  plan.blocks.front().layout = mesh(TensorMesh::ThreeD, 8);
  EXPECT_NE(layout_text(plan).find("mesh 3d"), std::string::npos);
  EXPECT_EQ(layout_text(plan).find("inner"), std::string::npos);
  plan.blocks.front().layout.tp_inner = TensorAxis::Rows;
  EXPECT_NE(layout_text(plan).find("mesh 3d, inner rows"), std::string::npos);
  plan.blocks.front().layout = BlockPlan();
  EXPECT_EQ(layout_text(plan).find("mesh"), std::string::npos);
}

// A square where the ranks are one, else as few equal squares as cover them.
TEST(TensorMeshCheck, DepthThatIsNotStatedCoversTheRanks) {
  const auto factors = [](int tp, int depth = 0, int rows = 0) {
    BlockPlan layout = mesh(TensorMesh::TwoAndHalfD, tp, depth);
    layout.tp_rows = rows;
    const TensorFactors of = tensor_factors(layout);
    return std::vector<int>{of.columns, of.rows, of.depth};
  };
  EXPECT_EQ(factors(8), (std::vector<int>{2, 2, 2}));
  EXPECT_EQ(factors(16), (std::vector<int>{4, 4, 1}));
  EXPECT_EQ(factors(16, 4), (std::vector<int>{2, 2, 4}));
  EXPECT_EQ(factors(32), (std::vector<int>{4, 4, 2}));
  EXPECT_EQ(factors(8, 0, 2), (std::vector<int>{4, 2, 1}));
  EXPECT_EQ(factors(2), (std::vector<int>{2, 1, 1}));
}

// Four ranks are no cube, though a mesh of 1 x 2 x 2 has as many: that one is stated.
TEST(TensorMeshCheck, ACubeHasEqualSides) {
  Plan plan = small_plan();
  plan.dp = 2;
  plan.micro_batch = 8;
  for (const int tp : {2, 4}) {
    BlockPlan& layout = plan.blocks.front().layout;
    layout = mesh(TensorMesh::ThreeD, tp);
    plan.dp = 8 / tp;
    EXPECT_NE(problem(plan).find("are no cube"), std::string::npos) << problem(plan);
    layout.tp_rows = 2;
    layout.tp_depth = tp / 2;
    EXPECT_EQ(problem(plan), "");
    EXPECT_EQ(tensor_factors(layout).columns, 1);
  }
}

TEST(TensorMeshCheck, NamesWhatDoesNotFit) {
  Plan plan = small_plan();
  const int ranks = plan.num_gpus() / plan.pp;
  ASSERT_GE(ranks, 8);
  plan.dp = ranks / 8;
  plan.batch = plan.micro_batch * plan.dp * 4;
  BlockPlan& layout = plan.blocks.front().layout;
  layout = mesh(TensorMesh::TwoD, 8);
  EXPECT_NE(problem(plan).find("does not cover tp = 8"), std::string::npos);
  layout = mesh(TensorMesh::ThreeD, 8);
  plan.micro_batch = 1;
  EXPECT_NE(problem(plan).find("dimension batch"), std::string::npos) << problem(plan);
  EXPECT_NE(problem(plan).find("more than its size"), std::string::npos);
  layout.tp_depth = 3;
  EXPECT_NE(problem(plan).find("does not cover"), std::string::npos);
  layout = mesh(TensorMesh::ThreeD, 8);
  layout.sequence_parallel = true;
  EXPECT_NE(problem(plan).find("sequence_parallel"), std::string::npos);
  layout = mesh(TensorMesh::TwoD, 4);
  plan.dp = ranks / 4;
  plan.micro_batch = 2;
  plan.batch = plan.micro_batch * plan.dp * 4;
  layout.tp_inner = TensorAxis::Depth;
  EXPECT_NE(problem(plan).find("tp_inner = depth, but the 2d mesh of 2 columns x 2 rows x 1"),
            std::string::npos)
      << problem(plan);
  layout.tensor_parallel = TensorMesh::OneD;
  EXPECT_NE(problem(plan).find("tp_inner belong to"), std::string::npos);
  // Of several runs of blocks the message names the one.
  const BlockRun wrong = plan.blocks.front();
  plan.blocks = {wrong, wrong};
  plan.blocks.front().layout.tp_inner = TensorAxis::Columns;
  plan.blocks.front().count = 1;
  plan.blocks.back().count = wrong.count - 1;
  EXPECT_NE(problem(plan).find("plan.json: /blocks/1: tp_rows, tp_depth and tp_inner"),
            std::string::npos)
      << problem(plan);
}

}  // namespace
}  // namespace orrery::plan
