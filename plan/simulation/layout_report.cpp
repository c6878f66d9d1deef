// SPDX-License-Identifier: Apache-2.0
#include "plan/simulation/layout_report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>

#include "plan/block/reduced_axes.hpp"
#include "plan/block/relayout.hpp"
#include "plan/block/states.hpp"
#include "plan/block_rules.hpp"
#include "plan/schedule_traits.hpp"
#include "plan/serving/cost.hpp"
#include "plan/simulation/layout_text.hpp"
#include "plan/simulation/rank_shares.hpp"
#include "plan/simulation/reported_collectives.hpp"
#include "plan/stage/plan_schedule.hpp"
#include "plan/stage/servers.hpp"
#include "plan/stage/shared_output.hpp"
#include "plan/stage/stage.hpp"
#include "plan/stage/step_end.hpp"
#include "plan/stage/token_table.hpp"

namespace orrery::plan {

namespace {

using models::Block;
using models::Operator;
using models::Tensor;
using sim::CommKind;
using sim::PassKind;

class Reporter {
 public:
  // `holders`: devices that add up the gradients of the token table.
  Reporter(const Plan& plan, int holders) : plan_(plan), costs_(plan), holders_(holders) {
    if (plan.serving) {
      serving_.emplace(plan);
    }
  }

  // `with_table`: another block of the device counts the token table that tied weights are a use
  // of.
  BlockReport report(int position, const StagePiece& piece, bool with_table) {
    const int block = piece.block;
    BlockReport report;
    const BlockContext context = context_of(piece);
    report.name = context.block.name;
    report.first = position;
    report.layout = layout_text(plan_.layout_of(position));
    report.layout += piece.across_stages ? fmt::format(", over all {} stages", plan_.pp) : "";
    add_tensors(context, with_table, report);
    report.shares = rank_shares(context);
    if (serving_) {
      report.tokens = serving_->most_tokens(block);
      report.mesh = mesh_text(mesh_of(piece.layout, serving_->replicas()));
      add_collectives_of(serving_->collectives(block, report.tokens), context.block,
                         plan_.execution, report.collectives);
      add_cache(block, piece.layout, report);
      return report;
    }
    report.tokens = context.extents.sequence;
    report.mesh = mesh_text(context.mesh);
    for (const Slice& slice : slices_of(plan_)) {
      if (piece.across_stages) {
        add_shard_collectives(context.block, slice, report);
        continue;
      }
      const BlockSteps steps = steps_of(piece, slice);
      for (const std::vector<Step>* pass : {&steps.forward, &steps.recompute, &steps.backward}) {
        add_collectives_of(*pass, context.block, plan_.execution, report.collectives);
      }
    }
    add_states(piece, context.mesh, with_table, report);
    return report;
  }

  void add_conversion(const BlockPlan& from, const BlockPlan& to, int block, BlockReport& report) {
    const Block& here = plan_.network.blocks[static_cast<std::size_t>(block)];
    const int stream = here.input >= 0 ? here.input : here.output;
    for (const int tensor : {stream, takes_carried(here) ? here.memory : -1}) {
      if (tensor >= 0) {
        add_conversion(from, to, here, tensor, report);
      }
    }
  }

 private:
  void add_conversion(const BlockPlan& from, const BlockPlan& to, const Block& here, int stream,
                      BlockReport& report) {
    const auto pass = [&](const BlockPlan& source, const BlockPlan& target, PassKind kind) {
      for (const StreamConversion& step : stream_conversions(plan_, source, target)) {
        for (const Slice& slice : slices_of(plan_)) {
          ReportedCollective one;
          one.pass = kind;
          one.kind = step.kind;
          one.axes = "between blocks";
          one.ranks = step.ranks();
          one.tensor = here.tensors[static_cast<std::size_t>(stream)].name;
          one.bytes = step.bytes(stream_bytes(source, here, stream, slice),
                                 stream_bytes(target, here, stream, slice));
          one.sent = ring_bytes(step.kind, one.bytes, one.ranks);
          add_collective(std::move(one), report.conversion);
        }
      }
    };
    pass(from, to, PassKind::Forward);
    pass(to, from, PassKind::InputGrad);
  }

  // With all data ranks and the ZeRO stage, which the lowering of a block leaves out; of several
  // slices the longest, of a serving plan the largest iteration.
  BlockContext context_of(const StagePiece& piece) const {
    if (serving_) {
      return serving_->context(piece.block, serving_->most_tokens(piece.block));
    }
    const std::vector<Slice> slices = slices_of(plan_);
    const auto longest =
        std::max_element(slices.begin(), slices.end(),
                         [](const Slice& a, const Slice& b) { return a.tokens < b.tokens; });
    const std::int64_t micro_batch = micro_batch_of(piece, plan_);
    const int data_ranks = data_ranks_of(piece, plan_);
    BlockContext context = costs_.block_context(piece.block, piece.layout, micro_batch, *longest);
    context.layout.zero_stage = piece.layout.zero_stage;
    context.mesh = mesh_of(piece.layout, data_ranks);
    context.extents.batch = micro_batch * data_ranks;
    return context;
  }

  BlockSteps steps_of(const StagePiece& piece, const Slice& slice) const {
    const std::int64_t micro_batch = micro_batch_of(piece, plan_);
    return slice.is_whole()
               ? costs_.steps_of(piece.block, piece.layout, micro_batch)
               : lower_block(costs_.block_context(piece.block, piece.layout, micro_batch, slice));
  }

  void add_shard_collectives(const Block& block, const Slice& slice, BlockReport& report) const {
    for (const ShardCollective& shard : shard_collectives(plan_, block.kind, slice)) {
      ReportedCollective one;
      one.pass = shard.pass;
      one.kind = shard.kind;
      one.axes = shard.of_tensor_ranks ? "tp" : "stages";
      one.ranks = shard.of_tensor_ranks ? plan_.blocks.front().layout.tp : plan_.pp;
      one.tensor = shard.of;
      one.bytes = shard.bytes;
      one.sent = ring_bytes(one.kind, one.bytes, one.ranks);
      add_collective(std::move(one), report.collectives);
    }
  }

  Bytes stream_bytes(const BlockPlan& layout, const Block& block, int stream,
                     const Slice& slice) const {
    const Tensor& tensor = block.tensors[static_cast<std::size_t>(stream)];
    const Layout where = stream_layout(rules_of(layout, plan_.execution.vocab_parallel));
    const Mesh mesh = mesh_of(layout, plan_.data_ranks(layout));
    const std::int64_t tokens = block.tokens > 0   ? block.tokens
                                : slice.is_whole() ? plan_.sequence
                                                   : slice.tokens;
    const Extents extents{plan_.micro_batch * plan_.dp * block.items, tokens};
    return Bytes(static_cast<double>(local_elements(tensor, where, mesh, extents)) *
                 element_bytes(tensor.element, plan_.precision));
  }

  // ", between passes in 32 shards on dp": of a weight that ZeRO-3 gathers for its passes.
  static std::string shards_text(const BlockContext& context, const Operator& op, int weight,
                                 const BlockRules& rules) {
    const StateGroup states =
        states_of(context.block, op, weight, rules, context.mesh, context.precision);
    const std::vector<Axis> axes = reduced_axes(states, context.mesh, kShardAxes);
    const std::int64_t shards = num_shards(states, context.mesh);
    const bool gathers_weights = context.layout.zero_stage == 3 && !context.forward_only;
    return !gathers_weights || axes.empty()
               ? ""
               : fmt::format(", between passes in {} shards on {}", shards, axes_text(axes));
  }

  // `shards`: of a weight, where it lives between passes.
  static void hold(const BlockContext& context, const Tensor& tensor, const Layout& layout,
                   const std::string& shards, bool with_table, BlockReport& report) {
    HeldTensor held;
    held.name = tensor.name;
    const bool weight = tensor.kind == models::TensorKind::Weight;
    held.kind = weight ? HeldKind::Weight : HeldKind::Activation;
    held.layout = layout_text(layout, context.mesh);
    held.layout += shards;
    held.layout += tensor.tied && with_table ? ", the token table of the embedding" : "";
    held.layout += weight && tensor.frozen ? ", frozen" : "";
    held.shape = shape_text(tensor, layout, context.mesh, context.extents);
    held.bytes = ByteCount(local_elements(tensor, layout, context.mesh, context.extents)) *
                 element_bytes(tensor.element, context.precision);
    report.tensors.push_back(std::move(held));
  }

  void add_cache(int block, const BlockPlan& layout, BlockReport& report) {
    const auto cache = serving_->layer_cache(block);
    if (!cache) {
      return;
    }
    std::string parts = cache->by_heads ? "kv-head on tp" : "replicated";
    if (layout.cp > 1) {
      parts = (cache->by_heads ? parts + ", " : "") + "tokens on cp";
    }
    if (const double away = plan_.serving->options.host_cache; away > 0) {
      parts += fmt::format("; {:.4g} % on the host", 100 * away);
    }
    report.tensors.push_back({"kv_cache", HeldKind::Cache, parts,
                              fmt::format("{} tokens, keys and values", cache->tokens),
                              cache->bytes});
  }

  void add_tensors(const BlockContext& context, bool with_table, BlockReport& report) const {
    const Block& block = context.block;
    const BlockRules rules = rules_of(context.layout, context.execution.vocab_parallel);
    const std::vector<Layout> produced = produced_layouts(block, rules);
    const auto tensor_of = [&](int index) -> const Tensor& {
      return block.tensors[static_cast<std::size_t>(index)];
    };
    if (block.input >= 0) {
      hold(context, tensor_of(block.input), stream_layout(rules), "", with_table, report);
    }
    for (const Operator& op : block.operators) {
      if (context.forward_only && op.kind == models::OpKind::CrossEntropy) {
        continue;  // serving has no loss
      }
      const Assignment assignment = assign(block, op, rules.of(op));
      for (const int weight : op.weights) {
        hold(context, tensor_of(weight),
             stored_weight(op, tensor_of(weight), assignment, rules.of(op)),
             shards_text(context, op, weight, rules), with_table, report);
      }
      for (const int output : op.outputs) {
        hold(context, tensor_of(output), produced[static_cast<std::size_t>(output)], "", with_table,
             report);
      }
    }
  }

  // Gradients and parameters that are not for the data ranks alone: for servers, or for the device
  // that has the other copy of the stage.
  void add_traffic(PassKind pass, CommKind kind, std::string axes, int ranks, Bytes bytes,
                   BlockReport& report, std::string_view of = "") const {
    ReportedCollective one;
    one.pass = pass;
    one.kind = kind;
    one.axes = std::move(axes);
    one.ranks = ranks;
    one.tensor = pass == PassKind::Forward ? "parameters" : "gradients";
    one.tensor += of;
    one.bytes = bytes;
    one.sent = ring_bytes(kind, bytes, ranks);
    add_collective(std::move(one), report.states);
  }

  // Of a block that counts the table of its device.
  void add_table_sum(const StagePiece& piece, bool with_table, BlockReport& report) {
    const Block& block = plan_.network.blocks[static_cast<std::size_t>(piece.block)];
    if (holders_ > 1 && !with_table && holds_table(block)) {
      add_traffic(PassKind::InputGrad, CommKind::AllReduce, "stages with the token table", holders_,
                  tied_gradients(plan_, costs_), report, " of the token table");
    }
  }

  void add_states(const StagePiece& piece, const Mesh& mesh, bool with_table, BlockReport& report) {
    const BlockPlan& layout = piece.layout;
    const BlockCost& cost = costs_.of(piece.block, layout, micro_batch_of(piece, plan_));
    const ScheduleTraits traits = schedule_traits(plan_);
    const StateBytes held =
        state_bytes(cost, layout, mesh, plan_.execution, plan_.precision, with_table);
    if (traits.uses_servers) {
      const int servers = num_servers(plan_);
      add_traffic(PassKind::InputGrad, CommKind::SendReceive, "to servers", servers,
                  held.gradients.bytes(), report);
      add_traffic(PassKind::Forward, CommKind::SendReceive, "from servers", servers,
                  held.parameters.bytes(), report);
      return;
    }
    if (traits.two_directions) {
      add_traffic(PassKind::InputGrad, CommKind::AllReduce, "copies", 2,
                  gradients_of_copy(plan_, static_cast<double>(held.updated())), report);
    }
    add_table_sum(piece, with_table, report);
    using Use = StateCollective::Use;
    const bool broadcasts = plan_.execution.broadcasts_parameters && layout.zero_stage < 3 &&
                            !plan_.execution.overlap_param_gather;
    for (const StateCollective& state :
         state_collectives(cost, layout, mesh, plan_.execution, plan_.precision, with_table,
                           plan_.cluster.node.gpus)) {
      if (state.use == Use::BackwardGather && !plan_.execution.reshard_after_forward) {
        continue;  // the forward's gather is still there
      }
      ReportedCollective one;
      one.pass = state.use == Use::Gather ? PassKind::Forward : PassKind::InputGrad;
      one.kind = state.use == Use::Gather && broadcasts ? CommKind::Broadcast : state.kind;
      one.axes = axes_text(state.axes);
      one.ranks = state.group(mesh, plan_.cluster.node.gpus).ranks;
      one.tensor = state.use == Use::Reduce ? "gradients" : "parameters";
      one.bytes = Bytes(state.bytes);
      one.sent = ring_bytes(one.kind, one.bytes, one.ranks);
      add_collective(std::move(one), report.states);
    }
  }

  const Plan& plan_;
  BlockCosts costs_;
  int holders_;
  std::optional<ServingModel> serving_;  // no gradients, no backward
};

// By block whether its device counts the token table that it uses elsewhere.
std::vector<bool> blocks_with_table(const std::vector<StageContent>& contents, std::size_t blocks) {
  std::vector<bool> with_table(blocks, false);
  for (const StageContent& content : contents) {
    for (const StagePiece& piece : content) {
      if (piece.table_elsewhere) {
        with_table[static_cast<std::size_t>(piece.block)] = true;
      }
    }
  }
  return with_table;
}

// How many devices add up the gradients of a token table.
int table_holders(const Plan& plan, const std::vector<StageContent>& contents) {
  const std::vector<Block>& blocks = plan.network.blocks;
  const bool sums =
      !plan.serving && plan.pp > 1 && std::any_of(blocks.begin(), blocks.end(), uses_table);
  return sums ? static_cast<int>(devices_with_table(plan, schedule_devices(plan), contents).size())
              : 0;
}

}  // namespace

std::string_view to_text(HeldKind kind) {
  constexpr std::array<std::string_view, 3> kNames = {"activation", "weight", "cache"};
  return kNames[static_cast<std::size_t>(kind)];
}

std::vector<BlockReport> report_layouts(const Plan& stated) {
  // What travels in pieces below a kernel is part of the kernel's step, and travels all the same.
  Plan plan = stated;
  plan.execution.overlap_context = false;
  plan.execution.stream_tp = false;
  const std::vector<StageContent> contents = stage_contents(plan);
  const std::vector<bool> with_table = blocks_with_table(contents, plan.network.blocks.size());
  Reporter reporter(plan, table_holders(plan, contents));
  std::vector<BlockReport> reports;
  int position = 0;
  const BlockPlan* previous = nullptr;
  int previous_block = -1;
  for (const BlockRun& run : plan.blocks) {
    for (int index = 0; index < run.count; ++index, ++position) {
      const int block = plan.network.chain[static_cast<std::size_t>(position)];
      if (previous != nullptr && block == previous_block && *previous == run.layout) {
        ++reports.back().count;
        continue;
      }
      const StagePiece piece = piece_at(plan, position);
      reports.push_back(
          reporter.report(position, piece, with_table[static_cast<std::size_t>(block)]));
      if (previous != nullptr && *previous != run.layout) {
        reporter.add_conversion(*previous, run.layout, block, reports.back());
      }
      previous = &run.layout;
      previous_block = block;
    }
  }
  return reports;
}

}  // namespace orrery::plan
