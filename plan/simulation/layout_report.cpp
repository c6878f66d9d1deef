// SPDX-License-Identifier: Apache-2.0
#include "plan/simulation/layout_report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>

#include "plan/block/reduced_axes.hpp"
#include "plan/block/relayout.hpp"
#include "plan/block/saved.hpp"
#include "plan/block/states.hpp"
#include "plan/block_rules.hpp"
#include "plan/named_values.hpp"
#include "plan/schedule_traits.hpp"
#include "plan/serving/cost.hpp"
#include "plan/simulation/held_tensors.hpp"
#include "plan/simulation/layout_text.hpp"
#include "plan/simulation/rank_shares.hpp"
#include "plan/simulation/reported_collectives.hpp"
#include "plan/stage/plan_schedule.hpp"
#include "plan/stage/servers.hpp"
#include "plan/stage/shared_output.hpp"
#include "plan/stage/stage.hpp"
#include "plan/stage/step_end.hpp"
#include "plan/stage/token_table.hpp"
#include "plan/stage/transfers.hpp"

namespace orrery::plan {

namespace {

using models::Block;
using models::Operator;
using models::Tensor;
using sim::CommKind;
using sim::PassKind;

// With what a rank of it sends in a ring.
ReportedCollective round_ring(PassKind pass, CommKind kind, std::string axes, int ranks,
                              std::string tensor, Bytes bytes) {
  ReportedCollective one;
  one.pass = pass;
  one.kind = kind;
  one.axes = std::move(axes);
  one.ranks = ranks;
  one.tensor = std::move(tensor);
  one.bytes = bytes;
  one.sent = ring_bytes(kind, bytes, ranks);
  return one;
}

class Reporter {
 public:
  // `holders`: devices that add up the gradients of the token table.
  // `stated`: what streams, which `plan` has not.
  Reporter(const Plan& plan, const Execution& stated, int holders)
      : plan_(plan), stated_(stated), costs_(plan), holders_(holders) {
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
    report.tensors = held_tensors(context, with_table);
    report.shares = rank_shares(context);
    if (serving_) {
      report.tokens = serving_->most_tokens(block);
      report.mesh = mesh_text(mesh_of(piece.layout, serving_->replicas()));
      add_collectives_of(serving_->collectives(block, report.tokens), context.block, stated_,
                         plan_.precision, report.collectives);
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
        add_collectives_of(*pass, context.block, stated_, plan_.precision, report.collectives);
      }
    }
    const BlockCost& cost = costs_.of(piece.block, piece.layout, micro_batch_of(piece, plan_));
    for (HeldTensor& state : held_states(context, cost, with_table)) {
      report.tensors.push_back(std::move(state));
    }
    add_states(piece, context.mesh, with_table, report);
    return report;
  }

  void add_conversion(const Neighbours& neighbours, BlockReport& report) const {
    for (const Slice& slice : slices_of(plan_)) {
      for (const Crossing& one : crossings(plan_, costs_, neighbours, slice)) {
        add_conversion(one, neighbours.from, one.before, neighbours.to, one.after,
                       PassKind::Forward, report);
        if (one.trained) {
          add_conversion(one, neighbours.to, one.after, neighbours.from, one.before,
                         PassKind::InputGrad, report);
        }
      }
    }
  }

  // From the last block of a stage to the next stage, and the gradient back.
  void add_transfer(int position, BlockReport& report) const {
    const auto block_at = [&](int at) { return plan_.network.chain[static_cast<std::size_t>(at)]; };
    const BlockPlan& layout = plan_.layout_of(position);
    const int parts = parts_sent(plan_, layout);
    const Neighbours same{block_at(position), layout, block_at(position + 1), layout};
    for (const Slice& slice : slices_of(plan_)) {
      for (const Crossing& one : sent_between(same, slice)) {
        add_message(one, parts, PassKind::Forward, report);
        if (one.trained) {
          add_message(one, parts, PassKind::InputGrad, report);
        }
      }
    }
  }

 private:
  static void add_message(const Crossing& crossing, int parts, PassKind pass, BlockReport& report) {
    const Bytes bytes = crossing.before.bytes();
    const std::string name(crossing.name);
    add_collective(round_ring(pass, CommKind::SendReceive, "pp", 2, name, bytes / parts),
                   report.transfers);
    if (parts > 1) {
      add_collective(round_ring(pass, CommKind::AllGather, "tp", parts, name, bytes),
                     report.transfers);
    }
  }

  std::vector<Crossing> sent_between(const Neighbours& same, const Slice& slice) const {
    if (!serving_) {
      return crossings(plan_, costs_, same, slice);
    }
    const BlockContext context = serving_->context(same.block, serving_->most_tokens(same.block));
    const int output = context.block.output;
    const Layout stream = stream_layout(rules_of(context.layout, plan_.execution.vocab_parallel));
    const ByteCount bytes = tensor_bytes(context, output, stream);
    return {{context.block.tensors[static_cast<std::size_t>(output)].name, bytes, bytes, false}};
  }

  void add_conversion(const Crossing& crossing, const BlockPlan& source, ByteCount held,
                      const BlockPlan& target, ByteCount needed, PassKind pass,
                      BlockReport& report) const {
    for (const StreamConversion& step : stream_conversions(plan_, source, target)) {
      ReportedCollective one;
      one.pass = pass;
      one.kind = step.kind;
      one.axes = "between blocks";
      one.ranks = step.ranks();
      one.tensor = crossing.name;
      one.bytes = step.bytes(held.bytes(), needed.bytes());
      one.sent = step.sent(one.bytes);
      add_collective(std::move(one), report.conversion);
    }
  }

  // With all data ranks, the ZeRO stage and the tiers, which the lowering of a block leaves out; of
  // several slices the longest, of a serving plan the largest iteration.
  BlockContext context_of(const StagePiece& piece) const {
    if (serving_) {
      BlockContext context = serving_->context(piece.block, serving_->most_tokens(piece.block));
      context.layout.offload = piece.layout.offload;
      return context;
    }
    const std::vector<Slice> slices = slices_of(plan_);
    const auto longest =
        std::max_element(slices.begin(), slices.end(),
                         [](const Slice& a, const Slice& b) { return a.tokens < b.tokens; });
    const std::int64_t micro_batch = micro_batch_of(piece, plan_);
    const int data_ranks = data_ranks_of(piece, plan_);
    BlockContext context = costs_.block_context(piece.block, piece.layout, micro_batch, *longest);
    context.layout.zero_stage = piece.layout.zero_stage;
    context.layout.offload = piece.layout.offload;
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
      const int ranks = shard.of_tensor_ranks ? plan_.blocks.front().layout.tp : plan_.pp;
      add_collective(round_ring(shard.pass, shard.kind, shard.of_tensor_ranks ? "tp" : "stages",
                                ranks, std::string(shard.of), shard.bytes),
                     report.collectives);
    }
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
    HeldTensor held;
    held.name = "kv_cache";
    held.kind = HeldKind::Cache;
    held.layout = std::move(parts);
    held.shape = fmt::format("{} tokens, keys and values{}", cache->tokens,
                             plan_.serving->options.fp8_cache ? " in 8 bits" : "");
    held.bytes = cache->bytes;
    held.away = plan_.serving->options.host_cache;
    held.tier = held.away > 0 ? Tier::Host : Tier::Device;
    report.tensors.push_back(std::move(held));
  }

  // Gradients and parameters that are not for the data ranks alone: for servers, or for the device
  // that has the other copy of the stage.
  void add_traffic(PassKind pass, CommKind kind, std::string axes, int ranks, Bytes bytes,
                   BlockReport& report, std::string_view of = "") const {
    std::string tensor = pass == PassKind::Forward ? "parameters" : "gradients";
    tensor += of;
    add_collective(round_ring(pass, kind, std::move(axes), ranks, std::move(tensor), bytes),
                   report.states);
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
      const bool forward = state.use == Use::Gather;
      add_collective(
          round_ring(forward ? PassKind::Forward : PassKind::InputGrad,
                     forward && broadcasts ? CommKind::Broadcast : state.kind,
                     axes_text(state.axes), state.group(mesh, plan_.cluster.node.gpus).ranks,
                     state.use == Use::Reduce ? "gradients" : "parameters", Bytes(state.bytes)),
          report.states);
    }
  }

  const Plan& plan_;
  const Execution& stated_;
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

// Of all boundaries between stages on different devices.
void add_transfers(const Plan& plan, const Reporter& reporter, std::vector<BlockReport>& reports) {
  if (plan.pp == 1) {
    return;
  }
  const std::vector<std::uint16_t> devices =
      plan.serving ? std::vector<std::uint16_t>() : schedule_devices(plan);
  int position = -1;
  std::size_t report = 0;
  for (std::size_t stage = 0; stage + 1 < plan.stage_blocks.size(); ++stage) {
    position += plan.stage_blocks[stage];
    while (position >= reports[report].first + reports[report].count) {
      ++report;
    }
    if (plan.stage_blocks[stage] > 0 && (devices.empty() || devices[stage] != devices[stage + 1])) {
      reporter.add_transfer(position, reports[report]);
    }
  }
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
  constexpr std::array<std::string_view, 5> kNames = {"activation", "weight", "cache", "gradient",
                                                      "optimizer"};
  return name_of(kNames, kind);
}

std::string_view to_text(HeldUse use) {
  constexpr std::array<std::string_view, 3> kNames = {"passing", "saved", "recomputed"};
  return name_of(kNames, use);
}

std::vector<BlockReport> report_layouts(const Plan& stated) {
  // What travels in pieces below a kernel is part of the kernel's step, and travels all the same.
  Plan plan = stated;
  plan.execution.overlap_context = false;
  plan.execution.stream_tp = false;
  const std::vector<StageContent> contents = stage_contents(plan);
  const std::vector<bool> with_table = blocks_with_table(contents, plan.network.blocks.size());
  Reporter reporter(plan, stated.execution, table_holders(plan, contents));
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
        reporter.add_conversion({previous_block, *previous, block, run.layout}, reports.back());
      }
      previous = &run.layout;
      previous_block = block;
    }
  }
  add_transfers(plan, reporter, reports);
  return reports;
}

}  // namespace orrery::plan
