// SPDX-License-Identifier: Apache-2.0
// The layout rules need no even tensor shards: where heads, widths and vocabulary do not divide and
// the first ranks hold one more, the derived program still computes what one device computes, and
// its largest shards are those that are costed.
#include <gtest/gtest.h>

#include "base/math.hpp"
#include "tests/unit/plan/semantics/interpreter_backward.hpp"

namespace orrery::plan::semantics {
namespace {

constexpr double kUnevenTolerance = 1e-9;
constexpr Sizes kSizes = {8, 4};

// With `groups`, two query heads for each key-value head.
models::Network odd(bool llama, bool groups = false, int heads = 5, bool experts = false) {
  models::NetworkSpec spec;
  spec.name = "odd";
  spec.layers = 1;
  spec.hidden = 10;
  spec.heads = spec.kv_heads = heads;
  spec.heads *= groups ? 2 : 1;
  spec.head_dim = groups ? 1 : 2;
  spec.ffn_hidden = 11;
  spec.vocab = 11;
  spec.sequence = 4;
  if (llama) {
    spec.family = models::Family::Llama;
    spec.norm = models::NormKind::RmsNorm;
    spec.activation = models::Activation::SwiGlu;
    spec.position = models::PositionKind::Rotary;
    spec.tied_embeddings = spec.attention_bias = spec.attention_output_bias = spec.mlp_bias = false;
  }
  if (experts) {
    spec.moe = {.experts = 4, .top_k = 2, .ffn_hidden = 11, .shared_ffn_hidden = 13};
  }
  return models::build_network(spec, "test");
}

struct UnevenCase {
  std::string name;
  BlockPlan layout;
  int dp = 1;
  int heads = 5;
  bool experts = false;
};

void PrintTo(const UnevenCase& c, std::ostream* out) { *out << c.name; }

UnevenCase tensor(const std::string& name, int tp, bool sequence_parallel = false, int dp = 1,
                  TensorMesh mesh = TensorMesh::OneD) {
  UnevenCase one{name, {}, dp};
  one.layout.tp = tp;
  one.layout.sequence_parallel = sequence_parallel;
  one.layout.tensor_parallel = mesh;
  return one;
}

UnevenCase context(const std::string& name, ContextParallel kind, int cp, int tp = 1) {
  UnevenCase one{name, {}, 1};
  one.layout.cp = cp;
  one.layout.tp = tp;
  one.layout.context = kind;
  return one;
}

UnevenCase variables(const std::string& name, const std::vector<Var>& of_tensor, int tp,
                     const std::vector<Var>& of_context, int cp) {
  UnevenCase one = context(name, ContextParallel::AllGather, cp, tp);
  one.layout.variables[static_cast<std::size_t>(Axis::Tensor)] = VarList(of_tensor);
  one.layout.variables[static_cast<std::size_t>(Axis::Context)] = VarList(of_context);
  return one;
}

UnevenCase shares(const std::string& name, const std::vector<int>& list,
                  bool sequence_parallel = false, int dp = 1) {
  UnevenCase one = tensor(name, static_cast<int>(list.size()), sequence_parallel, dp);
  one.layout.tensor_shares = TensorShares(list);
  return one;
}

// Shares whose heads other ranks cut again, evenly: 4 and 2 of 6 over two each.
UnevenCase shares_of_heads(const std::string& name, ContextParallel kind, int cp, int ulysses = 1) {
  UnevenCase one = context(name, kind, cp, 2);
  one.layout.tensor_shares = TensorShares({2, 1});
  one.layout.ulysses_degree = ulysses;
  one.heads = 6;
  return one;
}

UnevenCase shares_of_experts(const std::string& name, int ep, int expert_tp, int cp = 1) {
  UnevenCase one = context(name, ContextParallel::AllGather, cp, 2);
  one.layout.sequence_parallel = true;
  one.layout.tensor_shares = TensorShares({3, 1});
  one.layout.ep = ep;
  one.layout.expert_tp = expert_tp;
  one.layout.expert_cp = cp > 1 ? 1 : 0;
  one.dp = 2;
  one.experts = true;
  return one;
}

std::vector<UnevenCase> uneven_cases() {
  return {
      tensor("tensor_1d", 3),
      tensor("tensor_1d_four", 4),
      tensor("tensor_1d_sequence", 2, true),
      tensor("tensor_and_data", 2, true, 2),
      tensor("tensor_2d", 4, false, 1, TensorMesh::TwoD),
      context("all_gather_tensor", ContextParallel::AllGather, 2, 3),
      context("ulysses", ContextParallel::Ulysses, 4),
      shares("shares_equal", {1, 1, 1, 1}),
      shares("shares_of_two", {3, 1}),
      shares("shares_sequence", {2, 5}, true),
      shares("shares_of_four", {4, 2, 2, 3}),
      shares("shares_and_data", {1, 3}, true, 2),
      shares_of_heads("shares_ulysses", ContextParallel::Ulysses, 2),
      shares_of_heads("shares_mix", ContextParallel::Mix, 4, 2),
      shares_of_experts("shares_cut_experts", 2, 0),
      shares_of_experts("shares_whole_experts", 2, 1),
      shares_of_experts("shares_experts_of_two_replicas", 4, 1),
      shares_of_experts("shares_experts_over_context", 4, 1, 2),
      variables("tofu", {Var::Ffn, Var::Head, Var::Batch}, 2, {Var::Hidden, Var::Seq}, 2),
  };
}

Interpreter uneven_serial_run(const Block& block) {
  Interpreter serial(block, BlockPlan(), 1, kSizes);
  serial.run();
  return serial;
}

class UnevenSemantics : public testing::TestWithParam<UnevenCase> {};

TEST_P(UnevenSemantics, EqualsTheSerialResult) {
  const UnevenCase& c = GetParam();
  const bool groups = !c.layout.tensor_shares.empty();  // shares keep them together
  for (const models::Network& network :
       {odd(false, false, c.heads, c.experts), odd(true, false, c.heads, c.experts),
        odd(true, groups, c.heads, c.experts)}) {
    for (const Block& block : network.blocks) {
      Interpreter sharded(block, c.layout, c.dp, kSizes);
      sharded.run();
      EXPECT_GT(sharded.mesh().num_ranks(), 1);
      EXPECT_LT(sharded.distance(uneven_serial_run(block)), kUnevenTolerance) << block.name;
    }
  }
}

// Time and memory are those of the rank that holds most; with shares, of any rank that is asked
// for. Routing spreads copies of tokens evenly over experts, where no index says which.
TEST_P(UnevenSemantics, TheLargestShardIsCosted) {
  const UnevenCase& c = GetParam();
  const models::Network network = odd(true, !c.layout.tensor_shares.empty(), c.heads, c.experts);
  const Mesh mesh = mesh_of(c.layout, c.dp);
  const BlockRules rules = rules_of(c.layout, true);
  const Collectives collectives(mesh, [](const auto&, Axis) { return 0; });
  const Extents extents{kSizes.batch, kSizes.sequence};
  for (const Block& block : network.blocks) {
    const std::vector<Layout> produced = produced_layouts(block, rules);
    for (std::size_t index = 0; index < block.tensors.size(); ++index) {
      const models::Tensor& tensor = block.tensors[index];
      std::vector<Var> vars;
      std::vector<Indices> all;
      for (const models::Dim& dim : tensor.dims) {
        vars.push_back(dim.var);
        all.emplace_back(static_cast<std::size_t>(local_extent(dim, Layout(), Mesh(), extents)));
        std::iota(all.back().begin(), all.back().end(), 0);
      }
      Eigen::Index largest = 0;
      Part whole = part_of(vars, all);
      whole.dims = tensor.dims;
      const Spread spread = collectives.distribute(whole, produced[index]);
      const std::int64_t copies = copy_shards(produced[index], mesh);
      for (std::size_t rank = 0; rank < spread.size(); ++rank) {
        largest = std::max(largest, spread[rank].size());
        Mesh own = mesh;
        own.tensor_rank = collectives.place(static_cast<int>(rank), Axis::Tensor);
        if (!mesh.shares.empty()) {
          EXPECT_EQ(ceil_div(spread[rank].size(), copies),
                    local_elements(tensor, produced[index], own, extents));
        }
      }
      EXPECT_EQ(ceil_div(largest, copies), local_elements(tensor, produced[index], mesh, extents))
          << block.name << " " << tensor.name;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Layouts, UnevenSemantics, testing::ValuesIn(uneven_cases()),
                         [](const auto& instance) { return instance.param.name; });

}  // namespace
}  // namespace orrery::plan::semantics
