// SPDX-License-Identifier: Apache-2.0
#include "plan/flat/flat.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "base/error.hpp"
#include "plan/flat/passes.hpp"
#include "plan/schedule_traits.hpp"
#include "plan/stage/order_cache.hpp"
#include "plan/stage/split_backward.hpp"
#include "plan/stage/step_end.hpp"
#include "plan/stage/token_table.hpp"
#include "plan/stage/transfers.hpp"
#include "plan/stage/validated_pace.hpp"

namespace orrery::plan {

namespace {

std::size_t ranks_of_stage(const Plan& plan, const FlatOptions& options) {
  return options.all_ranks ? static_cast<std::size_t>(plan.num_gpus() / plan.pp) : 1;
}

// Lists of one chain without edges, blocks of passes or updates; the costs of anything else are
// those of whole passes.
sim::PipelineOrder order_of(const Plan& plan) {
  BlockCosts costs(plan);
  return OrderCache(costs).order_of(plan);
}

// Traits of schedules whose orders are more than one chain of stages.
constexpr std::pair<bool ScheduleTraits::*, const char*> kBesideOneChain[] = {
    {&ScheduleTraits::two_directions, "it runs two copies of the model"},
    {&ScheduleTraits::copies_to_host, "copies to the host run beside its stages"},
    {&ScheduleTraits::spreads_attention, "attention runs on other devices than its layer"},
    {&ScheduleTraits::runs_arcs, "gradients run on other devices than their layer"},
    {&ScheduleTraits::uses_servers, "parameter servers run beside its stages"},
    {&ScheduleTraits::cascades, "it runs two backbones"},
    {&ScheduleTraits::fills_frozen, "frozen layers run beside its stages"},
    {&ScheduleTraits::by_modules, "an encoder has stages of its own"},
    {&ScheduleTraits::shares_output_layer, "shards of a layer run beside its stages"}};

// Why the order of a schedule is not one list of whole passes a device.
const char* reason_against(const sim::PipelineOrder& order, const ScheduleTraits& traits) {
  for (const auto& [trait, reason] : kBesideOneChain) {
    if (traits.*trait) {
      return reason;
    }
  }
  return order.slices > 1       ? "sequences are cut into slices"
         : !traits.synchronous  ? "it never ends an iteration"
         : traits.lists_updates ? "its stages update each by itself"
         : traits.recomputes    ? "forwards run again in passes of their own"
                                : "its passes run as blocks of several";
}

class FlatBuilder {
 public:
  FlatBuilder(const Plan& plan, const FlatOptions& options)
      : plan_(plan),
        options_(options),
        costs_(plan),
        order_(order_of(plan)),
        ranks_(ranks_of_stage(plan, options)) {}

  sim::Program build() {
    lower_stages();
    check_size();
    if (shares_processors()) {
      ranks_.set_collective_demands(block_collective_demand(costs_.device()),
                                    collective_demand(costs_.device()));
    }
    const std::vector<SimTime> sends = transfers(plan_, costs_, totals_, order_.device_of);
    const MessageWaits waits = message_waits(plan_, costs_, totals_, sends);
    FlatPasses passes(plan_, order_, stages_, sends, waits, ranks_);
    passes.add_all();
    close(passes);
    ranks_.program().finalize();
    return std::move(ranks_.program());
  }

 private:
  void lower_stages() {
    int position = 0;
    contents_ = stage_contents(plan_, order_.device_of);
    for (const StageContent& content : contents_) {
      totals_.push_back(add_up_stage(content, plan_, costs_));
      FlatStage stage;
      stage.amax = amax_reductions(content, plan_, costs_);
      stage.weight_casts = totals_.back().weight_casts;
      stage.activations = totals_.back().saved + totals_.back().saved_ends;
      if (splits_backward(order_)) {
        const SplitBackwards::Kept kept = splits_.kept(content, plan_, costs_);
        stage.kept = kept.layers + kept.ends;
      }
      stage.zero_stage = content.empty() ? 0 : content.front().layout.zero_stage;
      stage.reduces_every_pass = reduces_every_micro_batch(content);
      for (const StagePiece& piece : content) {
        const FlatBlock& block = block_of(piece);
        for (int index = 0; index < piece.count; ++index) {
          stage.blocks.push_back({&block, static_cast<std::uint16_t>(position++)});
        }
      }
      stages_.push_back(std::move(stage));
    }
    hand_on(totals_);
  }

  const FlatBlock& block_of(const StagePiece& piece) {
    const bool without_tied = piece.table_elsewhere;
    for (const Known& known : blocks_) {
      if (known.block == piece.block && known.layout == piece.layout &&
          known.without_tied == without_tied) {
        return *known.flat;
      }
    }
    blocks_.push_back(
        {piece.block, piece.layout, without_tied,
         std::make_unique<FlatBlock>(flat_block({piece.block, piece.layout, without_tied,
                                                 options_.merge_kernels, splits_backward(order_)},
                                                plan_, costs_, ranks_.program()))});
    return *blocks_.back().flat;
  }

  void check_size() const {
    std::int64_t nodes = 0;
    for (const FlatStage& stage : stages_) {
      for (const FlatStage::Item& item : stage.blocks) {
        nodes += static_cast<std::int64_t>(item.block->forward.steps.size() +
                                           item.block->recompute.steps.size() +
                                           item.block->backward.steps.size()) +
                 2;
      }
    }
    const double total = static_cast<double>(nodes) *
                         static_cast<double>(plan_.num_micro_batches()) *
                         static_cast<double>(ranks_.num_ranks());
    if (total > static_cast<double>(kMaxFlatNodes)) {
      bad_input("kernels", fmt::format("the iteration has {:.0f} of them", total),
                fmt::format("at most {}, or passes instead of kernels", kMaxFlatNodes));
    }
  }

  // Only where a collective may run beside a kernel.
  bool shares_processors() const {
    const Execution& execution = plan_.execution;
    return std::any_of(stages_.begin(), stages_.end(), [&](const FlatStage& stage) {
      return std::any_of(
          stage.blocks.begin(), stage.blocks.end(), [&](const FlatStage::Item& item) {
            const bool reduces = item.block->reduce.value() > 0 &&
                                 (execution.overlap_grad_reduce || stage.zero_stage == 3);
            const bool gathers = item.block->gather.value() > 0 && execution.overlap_param_gather;
            return !item.block->serial || reduces || gathers;
          });
    });
  }

  // Devices meet at the gradient norm; then the optimizer and gathers that do not overlap.
  void close(FlatPasses& passes) {
    const std::vector<int> devices = devices_with_table(plan_, order_.device_of, contents_);
    const Seconds tied_time = tied_embedding_time(plan_, devices, costs_);
    Spread tied;
    if (tied_time.value() > 0) {
      tied = passes.add_tied_sum(devices, tied_time);
    }
    const Spread norm = passes.add_norm(tied);
    for (std::size_t device = 0; device < order_.passes.size(); ++device) {
      std::vector<StageCost> mine;
      for (std::size_t stage = 0; stage < stages_.size(); ++stage) {
        if (order_.device_of[stage] == device) {
          mine.push_back(totals_[stage]);
        }
      }
      const std::vector<std::uint16_t> here(mine.size(), 0);
      passes.add_optimizer(device, optimizer_time(plan_, mine, here, costs_), norm);
    }
  }

  struct Known {
    int block;
    BlockPlan layout;
    bool without_tied;
    std::unique_ptr<FlatBlock> flat;
  };

  const Plan& plan_;
  const FlatOptions& options_;
  BlockCosts costs_;
  SplitBackwards splits_;
  sim::PipelineOrder order_;
  RankProgram ranks_;
  std::vector<Known> blocks_;
  std::vector<FlatStage> stages_;
  std::vector<StageContent> contents_;
  std::vector<StageCost> totals_;
};

}  // namespace

std::optional<std::string> why_not_flat(const Plan& plan) {
  const bool offloads = std::any_of(plan.blocks.begin(), plan.blocks.end(),
                                    [](const BlockRun& run) { return run.layout.offload.any(); });
  if (!plan.packs.empty()) {
    return "packs of sequences of different length are simulated pass by pass";
  }
  if (offloads) {
    return "copies to other memory tiers are simulated pass by pass";
  }
  if (plan.execution.backward_prefetch != BackwardPrefetch::Pre) {
    return "late prefetches are simulated pass by pass";
  }
  if (validates_afterwards(plan)) {
    return "iterations that begin before all devices have updated are simulated pass by pass";
  }
  const sim::PipelineOrder order = order_of(plan);
  if (order.is_plain()) {
    return std::nullopt;
  }
  return fmt::format("schedule \"{}\" is simulated pass by pass: {}", plan.schedule,
                     reason_against(order, schedule_traits(plan)));
}

sim::Program flat_program(const Plan& plan, const FlatOptions& options) {
  if (const std::optional<std::string> reason = why_not_flat(plan)) {
    bad_input("kernels", *reason, "passes instead of kernels");
  }
  return FlatBuilder(plan, options).build();
}

FlatSimulation simulate_flat(const Plan& plan, const FlatOptions& options) {
  FlatSimulation result;
  result.program = flat_program(plan, options);
  result.timeline = sim::sweep(result.program);
  ORRERY_CHECK(!result.timeline.deadlock, "the nodes of a plan wait for each other");
  result.iteration_time = to_seconds(result.timeline.makespan);
  return result;
}

}  // namespace orrery::plan
