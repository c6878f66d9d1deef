// SPDX-License-Identifier: Apache-2.0
// A Plan: every decision about one training run, complete and self-contained (docs/plan.md).
// It embeds its network, cluster and profile, so that simulating it needs no other file and gives
// the searched time bit for bit. Degrees multiply: gpus = tp x cp x dp x pp; the expert-parallel
// degree divides the data ranks, times tp / expert_tp and cp with expert_cp = 1, or part of these.
// Rank order, fastest first: tp, cp, ep (the inner part of dp), dp, pp; ep_inside moves ep.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/dtype.hpp"
#include "base/json.hpp"
#include "costmodel/profile.hpp"
#include "models/network.hpp"
#include "plan/execution.hpp"
#include "plan/offload.hpp"
#include "plan/operator_set.hpp"
#include "plan/tensor_shares.hpp"
#include "topologies/cluster.hpp"

namespace orrery::sim {
struct ScheduleDocument;
}

namespace orrery::plan {

// Selective drops the attention core; Products keeps the outputs of attention and of every second
// matrix product and recomputes the rest (torchtitan's per-operator checkpointing); Operators are
// those that BlockPlan::recomputed names.
enum class Recompute : std::uint8_t { None, Selective, Full, Products, Operators };
// Mix: Ulysses over the first ulysses_degree ranks of the context axis, ring over the others.
enum class ContextParallel : std::uint8_t { Ring, AllGather, Ulysses, Mix };
// How the tp ranks are arranged and which variables each of their axes takes (block_rules.cpp):
// columns (Megatron); rows x columns (SUMMA, Optimus); with depth replicas of the weights
// (Tesseract); a cube (Bian et al.).
enum class TensorMesh : std::uint8_t { OneD, TwoD, TwoAndHalfD, ThreeD };
// An axis of such a mesh.
enum class TensorAxis : std::uint8_t { Columns, Rows, Depth };
// Where the replicas that experts are spread over are counted: tp, cp, ep, dp (Data), tp, ep, cp,
// dp (Context) or ep, tp, cp, dp (Tensor), the fastest first.
enum class ExpertsInside : std::uint8_t { Data, Context, Tensor };
// How a mesh of rows and columns broadcasts a piece: in chunks along a ring, as NCCL does, or over
// a binomial tree, which Optimus counts: ceil(log2 n) rounds of the whole piece.
enum class Broadcasts : std::uint8_t { Pipelined, Binomial };

// Variables that an axis of this block takes instead of those that its degree stands for, in order
// of preference; packed, because plans are copied and compared by the million. Zero: as usual.
class VarList {
 public:
  static constexpr int kMax = 7;
  constexpr VarList() = default;
  explicit VarList(const std::vector<models::Var>& vars);
  bool empty() const { return code_ == 0; }
  std::vector<models::Var> vars() const;
  std::uint32_t code() const { return code_; }
  bool operator==(const VarList&) const = default;

 private:
  std::uint32_t code_ = 0;
};

// Layout of a run of consecutive blocks (positions of Network::chain).
struct BlockPlan {
  int tp = 1;
  int cp = 1;
  int ep = 1;
  // Tensor-parallel ranks that cut each expert, 0: all; the others have other experts.
  int expert_tp = 0;
  bool sequence_parallel = false;
  ContextParallel context = ContextParallel::Ring;
  std::int8_t expert_cp = 0;  // 1: experts are spread over the context-parallel ranks, too; else 0
  ExpertsInside ep_inside = ExpertsInside::Data;
  int zero_stage = 0;
  int shard_degree = 0;  // ZeRO group size; 0: all data-parallel ranks; smaller: HSDP
  Recompute recompute = Recompute::None;
  OperatorSet recomputed{};  // of Recompute::Operators
  Offload offload{};         // tensors that leave the device
  TensorMesh tensor_parallel = TensorMesh::OneD;
  TensorMesh mesh() const { return tp > 1 ? tensor_parallel : TensorMesh::OneD; }
  int tp_rows = 0;   // of the tp mesh; 0: a square of rows and columns (3d: a cube)
  int tp_depth = 0;  // 0: 1, in a cube as rows
  // The axis of the tp mesh whose ranks are neighbours; the others follow as columns, rows, depth.
  TensorAxis tp_inner = TensorAxis::Columns;
  bool keep_gathered = false;  // inputs and weights gathered in the forward wait for the backward
  Broadcasts broadcasts = Broadcasts::Pipelined;  // of SUMMA
  int ulysses_degree = 1;  // of a mix: ranks of cp that trade tokens for heads
  bool zigzag = true;      // causal ring: rank i has chunks i and 2cp - 1 - i of the sequence
  std::array<VarList, 8> variables{};  // by axis (plan/layout.hpp)
  TensorShares tensor_shares{};        // of heads, widths and vocabulary by tp rank; empty: equal
  // With shares, the rank whose bytes are meant; -1: the one that holds most. No part of a
  // document.
  std::int8_t tensor_rank = -1;
  bool operator==(const BlockPlan&) const = default;
};

struct BlockRun {
  int count = 0;  // consecutive chain positions
  BlockPlan layout;
  bool operator==(const BlockRun&) const = default;
};

struct Serving;  // plan/serving/serving.hpp

// Sequences that one group of ranks takes together, of any lengths (plan/packs.hpp).
struct Pack {
  int group = 1;                        // ranks
  std::vector<std::int64_t> sequences;  // tokens of each
  bool padded = false;                  // each to the longest of them
  std::vector<std::int64_t> slices{};   // of the one sequence: tokens of each; empty: not cut
  bool operator==(const Pack&) const = default;
};

struct Plan {
  // Compiled once: many files make and copy them.
  Plan();
  Plan(const Plan&);
  Plan(Plan&&) noexcept;
  Plan& operator=(const Plan&);
  Plan& operator=(Plan&&) noexcept;
  ~Plan();

  models::Network network;
  topologies::Cluster cluster;
  costmodel::Profile profile;
  std::int64_t batch = 0;     // sequences per iteration
  std::int64_t sequence = 0;  // tokens
  DType precision = DType::Bf16;

  int dp = 1;
  int pp = 1;
  int chunks = 1;  // model chunks per device
  std::string schedule = "1f1b";
  // The schedule written as data (docs/schedules.md); null: `schedule` is a registered one.
  std::shared_ptr<const sim::ScheduleDocument> schedule_document;
  double activation_cap = 0;  // micro-batches a device may hold; 0: the schedule's own
  // Slices of a sequence that travel through the pipeline one after the other (plan/slices.hpp):
  // how many, and the tokens of each where they are not equal.
  int slices = 1;
  std::vector<std::int64_t> slice_tokens;
  // Runs in which an encoder goes through a micro-batch of `dip` (plan/modules.hpp).
  int encoder_parts = 1;
  // Parameter servers (plan/stage/servers.hpp): how many, 0: one on each node; and how many waves a
  // worker of `hetpipe` may be ahead of the others.
  int servers = 0;
  int clock_distance = 0;
  // Micro-batches of sequences of any lengths: the packs of each, side by side on groups of data
  // ranks (`flexsp`) or on one data-parallel replica each (plan/packs.hpp).
  std::vector<std::vector<Pack>> packs;
  // Of a plan of one pack: the tokens of its sequences, which stand behind one another in each
  // sample. No part of a document.
  std::vector<std::int64_t> joined_sequences;
  std::int64_t micro_batch = 1;   // sequences per data-parallel rank
  std::vector<int> stage_blocks;  // chain positions per virtual stage; sums to the chain length
  std::vector<BlockRun> blocks;   // counts sum to the chain length
  Execution execution;
  ByteCount memory_reserve;  // kept free on every device
  // GPUs like these of all pools, where the cluster is one of them, also where a plan uses no more
  // than some; 0: those of the cluster. No part of a document.
  int gpus_alike = 0;
  // Set: the plan serves requests. dp counts replicas, pp pipelines of iterations; batch, schedule
  // and micro_batch do not matter and `sequence` is the longest request.
  std::shared_ptr<const Serving> serving;

  std::int64_t num_micro_batches() const {
    return packs.empty() ? batch / (micro_batch * dp) : static_cast<std::int64_t>(packs.size());
  }
  const BlockPlan& layout_of(int chain_position) const;
  int num_gpus() const;  // tp x cp x dp x pp of the first block
  // A block that uses fewer ranks for tp and cp than the first one has more data-parallel ranks,
  // each with its part of the micro-batch.
  int data_ranks(const BlockPlan& layout) const;
  std::int64_t micro_batch_of(const BlockPlan& layout) const;
  // The same in what the block's Batch counts: sequences, or items of an encoder in one run of it.
  std::int64_t micro_batch_of(const BlockPlan& layout, int block) const;
};

// Throws Error naming the field when degrees do not multiply, a count does not divide, the
// schedule's constraints are broken, ... Every reader and the search call it.
void check_plan(const Plan& plan, const std::string& where);

// The document ("schema": "orrery-plan", "version": 1).
Json to_json(const Plan& plan);
Plan read_plan(const Json& document, const std::string& where);

std::string_view to_text(Recompute recompute);
std::string_view to_text(ContextParallel context);
std::string_view to_text(TensorMesh mesh);        // "1d", "2d", "2.5d", "3d"
std::string_view to_text(TensorAxis axis);        // "columns", "rows", "depth"
std::string_view to_text(ExpertsInside inside);   // "dp", "cp", "tp"
std::string_view to_text(Broadcasts broadcasts);  // "pipelined", "binomial"
std::string_view to_text(models::Var var);        // "batch", "seq", ..., as in a plan
ContextParallel parse_context(std::string_view text, std::string_view where);
TensorMesh parse_tensor_mesh(std::string_view text, std::string_view where);
TensorAxis parse_tensor_axis(std::string_view text, std::string_view where);
ExpertsInside parse_experts_inside(std::string_view text, std::string_view where);
models::Var parse_var(std::string_view text, std::string_view where);
Broadcasts parse_broadcasts(std::string_view text, std::string_view where);
Recompute parse_recompute(std::string_view text, std::string_view where);  // without Operators
// "full", or groups of operators joined by plus signs: "norms+mlp-activation".
void set_recompute(std::string_view text, std::string_view where, BlockPlan& layout);
std::string recompute_text(const BlockPlan& layout);

}  // namespace orrery::plan
