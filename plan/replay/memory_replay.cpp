// SPDX-License-Identifier: Apache-2.0
#include "plan/replay/memory_replay.hpp"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <numeric>

#include "base/error.hpp"
#include "base/math.hpp"
#include "base/parallel.hpp"
#include "plan/block/reduced_axes.hpp"
#include "plan/block/states.hpp"
#include "plan/modules.hpp"
#include "plan/packs.hpp"
#include "plan/replay/device_replay.hpp"
#include "plan/schedule_traits.hpp"
#include "plan/simulation/simulate.hpp"
#include "plan/stage/live_counts.hpp"
#include "plan/stage/memory.hpp"
#include "plan/stage/offload_time.hpp"
#include "plan/stage/order_cache.hpp"
#include "plan/stage/pass_costs.hpp"
#include "plan/stage/plan_schedule.hpp"
#include "plan/stage/spread_attention.hpp"
#include "plan/stage/stage.hpp"
#include "plan/stage/token_table.hpp"
#include "plan/stage/transfers.hpp"

namespace orrery::plan {
namespace {

constexpr std::size_t kMaxBlockPasses = 1'000'000;  // half a minute
constexpr std::int64_t kMaxRanks = 4;               // of those that hold other states
constexpr std::size_t kFewPasses = 32;

// As many buffers of every stage at most at once.
bool holds_as_much(const sim::PipelineOrder& fewer, const sim::PipelineOrder& more) {
  const std::vector<LiveCounts> a = live_counts(fewer);
  const std::vector<LiveCounts> b = live_counts(more);
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const LiveCounts& one, const LiveCounts& other) {
                      return one.stages == other.stages && one.maxima == other.maxima;
                    });
}

// The pipeline with no more micro-batches than its steady state needs; all where it has none or the
// last stage keeps something of each of them.
sim::PipelineOrder short_order(const Plan& plan, const MemoryFacts& facts, BlockCosts& costs) {
  if (schedule_traits(plan).spreads_attention) {
    return layers_in_turn(plan);
  }
  sim::ScheduleParams params = schedule_params(plan);
  if (schedule_traits(plan).uses_times) {
    SplitBackwards splits;
    params.times = pass_times(plan, schedule_devices(plan), costs, splits);
  }
  // One more round of micro-batches tells whether they are enough.
  sim::ScheduleParams reduced = params;
  sim::ScheduleParams more = params;
  reduced.micro_batches = 2 * plan.pp + params.micro_batches % plan.pp;
  more.micro_batches = reduced.micro_batches + plan.pp;
  const bool shortens = !facts.keeps_last_outputs && more.micro_batches <= params.micro_batches &&
                        check_schedule(plan, reduced).empty() && check_schedule(plan, more).empty();
  if (shortens) {
    sim::PipelineOrder fewer = schedule_order(plan, reduced);
    if (holds_as_much(fewer, schedule_order(plan, more))) {
      return fewer;
    }
  }
  return schedule_order(plan, params);
}

// Micro-batches of one kind: a plan of them alone, what they cost, and what blocks keep of them.
struct Kind {
  Kind(Plan of, const BlockCosts& models)
      : plan(std::move(of)), costs(models, plan.sequence, plan.joined_sequences) {}
  struct Known {
    StagePiece piece;
    Slice slice;
    std::unique_ptr<BlockMemory> memory;
  };
  Plan plan;
  BlockCosts costs;
  std::vector<Known> memories;
};

enum class Stop : std::uint8_t { AtTheEnd, WhenFull };

class PlanReplay {
 public:
  // Of a plan of packs: one replica's.
  PlanReplay(const Plan& plan, const MemoryFacts& facts, Stop stop)
      : plan_(plan), facts_(facts), stop_(stop), models_(plan) {
    if (plan.packs.empty()) {
      kinds_.push_back(std::make_unique<Kind>(plan, models_));
    }
    std::map<Pack, std::uint32_t, PackLess> first_costs;
    std::uint32_t costs = 0;
    const Plan layout = without_packs(plan);
    for (const std::vector<Pack>& micro_batch : plan.packs) {
      const Pack& pack = micro_batch.front();
      const auto count = std::max<std::uint32_t>(1, static_cast<std::uint32_t>(pack.slices.size()));
      const auto [slot, is_new] = first_costs.try_emplace(pack, costs);
      if (is_new) {
        kinds_.push_back(std::make_unique<Kind>(plan_of_pack(layout, pack), models_));
        costs += count;
      }
      const auto first = static_cast<std::uint32_t>(units_.size());
      for (std::uint32_t slice = 0; slice < count; ++slice) {
        units_.push_back({slot->second + slice, first, slice + 1 == count});
      }
    }
  }

  std::vector<MemoryPeak> run(int jobs) {
    if (schedule_traits(plan_).runs_arcs) {
      return {};  // a device's allocations follow other devices' passes
    }
    const sim::PipelineOrder order = plan_.packs.empty()
                                         ? short_order(plan_, facts_, costs())
                                         : simulate(plan_, {.record_spans = true}).order;
    contents_ = stage_contents(plan_, devices_of_stages(plan_, order));
    if (block_passes(order) > kMaxBlockPasses) {
      return {};
    }
    const ByteCount outside = context_bytes() + communicator_bytes(plan_);
    const ByteCount shipped = shipped_weights(plan_);  // all there at the peak
    const std::int64_t capacity = std::max<std::int64_t>(
        1, (plan_.cluster.gpu.memory - plan_.memory_reserve - outside - shipped).value());
    // Other workers and services are left out.
    std::vector<DeviceReplay> replays(static_cast<std::size_t>(plan_.pp),
                                      DeviceReplay(plan_, facts_, capacity));
    for (DeviceReplay& replay : replays) {
      replay.units = units_;
      replay.stops_when_full = stop_ == Stop::WhenFull;
    }
    const std::vector<LiveCounts> live = live_counts(order);
    const std::vector<int> versions =
        plan_.packs.empty() ? OrderCache(costs()).versions_of(plan_) : std::vector<int>();
    for (std::size_t stage = 0; stage < contents_.size(); ++stage) {
      if (order.device_of[stage] >= replays.size()) {
        continue;
      }
      StageReplay& one = replays[order.device_of[stage]].stages[static_cast<int>(stage)];
      one = stage_replay(contents_[stage]);
      one.versions = versions.empty() ? 1 : versions[stage];
      const bool copy = stage >= plan_.stage_blocks.size();
      one.portions = copy && schedule_traits(plan_).fills_frozen
                         ? static_cast<std::uint32_t>(frozen_portions(plan_.network))
                         : 0;
      leave_for_host(live[order.device_of[stage]], one);
    }
    for (DeviceReplay& replay : replays) {
      replay.share_tables();
    }
    std::vector<MemoryPeak> peaks(replays.size());
    parallel_for(replays.size(), jobs, [&](std::size_t device) {
      peaks[device] = fullest_rank(replays[device], order.passes[device]);
      peaks[device].allocated += shipped;
      peaks[device].reserved += shipped;
      peaks[device].outside = outside;
    });
    return peaks;
  }

 private:
  // The chain's blocks, once for each pass of their stage.
  std::size_t block_passes(const sim::PipelineOrder& order) const {
    std::vector<std::size_t> blocks;
    for (const StageContent& content : contents_) {
      blocks.push_back(0);
      for (const StagePiece& piece : content) {
        blocks.back() += static_cast<std::size_t>(piece.count);
      }
    }
    std::size_t sum = 0;
    for (const std::vector<sim::Pass>& device : order.passes) {
      for (const sim::Pass& pass : device) {
        sum += pass.virtual_stage < blocks.size() ? blocks[pass.virtual_stage] : 0;
      }
    }
    return sum;
  }

  // States are the same in all kinds.
  BlockCosts& costs() { return kinds_.front()->costs; }

  // Of the ranks that share states; where passes are many, that whose states reserve most.
  static MemoryPeak fullest_rank(const DeviceReplay& device, const std::vector<sim::Pass>& passes) {
    const std::int64_t ranks = std::min(device.differing_ranks(), kMaxRanks);
    if (ranks == 1) {
      return DeviceReplay(device).run(passes);
    }
    MemoryPeak peak;
    DeviceReplay fullest = device;
    std::int64_t most = 0;
    for (std::int64_t index = 0; index < ranks; ++index) {
      DeviceReplay rank = device;
      rank.place = static_cast<double>(index) / static_cast<double>(ranks - 1);
      if (passes.size() <= kFewPasses) {
        const MemoryPeak one = rank.run(passes);
        peak.allocated = std::max(peak.allocated, one.allocated);
        peak.reserved = std::max(peak.reserved, one.reserved);
      } else if (const std::int64_t reserved = rank.reserved_by_states(); reserved > most) {
        most = reserved;
        fullest.place = rank.place;
      }
    }
    return most > 0 ? fullest.run(passes) : peak;
  }

  // All that a micro-batch keeps, where the schedule copies it.
  static void leave_for_host(const LiveCounts& live, StageReplay& stage) {
    stage.leaving = static_cast<std::uint32_t>(live.leaving);
    stage.coming = static_cast<std::uint32_t>(live.coming);
    Offload all;
    all.activations = 1.0;
    if (live.leaving == 0) {
      return;
    }
    for (std::vector<SlicePosition>& positions : stage.slices) {
      for (SlicePosition& part : positions) {
        part.leaving = leaving_buffers(*part.memory, all);
      }
    }
  }

  StageReplay stage_replay(const StageContent& content) {
    StageReplay stage;
    for (const StagePiece& piece : content) {
      const std::int64_t micro_batch = micro_batch_of(piece, kinds_.front()->plan);
      Position position;
      position.end = costs().network().blocks[static_cast<std::size_t>(piece.block)].kind !=
                     models::BlockKind::Layer;
      position.has_table =
          holds_table(costs().network().blocks[static_cast<std::size_t>(piece.block)]) &&
          !piece.table_elsewhere;
      position.frozen = costs().network().blocks[static_cast<std::size_t>(piece.block)].frozen;
      const Mesh mesh = mesh_of(piece.layout, data_ranks_of(piece, plan_));
      position.states = state_bytes(costs().of(piece.block, piece.layout, micro_batch),
                                    piece.layout, mesh, plan_.execution, plan_.precision,
                                    piece.table_elsewhere, plan_.cluster.node.gpus);
      position.gathered = position.states.gathered.value() > 0;
      position.reduced = position.states.unreduced.value() > 0;
      position.fetched = position.states.fetched.value();
      position.ranks_inside =
          group_of(mesh, {kShardAxes.begin(), kShardAxes.end()}, plan_.cluster.node.gpus)
              .ranks_per_node;
      position.memory = memory_of(piece, *kinds_.front(), position, {});
      count_parameters(piece.layout, mesh, position);
      count_packed(piece, micro_batch, mesh, position);
      stage.positions.insert(stage.positions.end(), static_cast<std::size_t>(piece.count),
                             position);
      add_slices(piece, position, stage);
    }
    return stage;
  }

  // What a gather fills and, of parameters that stay so, what the backward adds.
  void count_packed(const StagePiece& piece, std::int64_t micro_batch, const Mesh& mesh,
                    Position& position) {
    const BlockCost& block = costs().of(piece.block, piece.layout, micro_batch);
    const Execution& execution = plan_.execution;
    std::int64_t elements = 0;
    double packed = 0;
    for (const StateGroup& group : block.states) {
      elements += group.elements;
      const double filled = gathered_bytes(group, piece.layout, mesh, execution, plan_.precision);
      packed += filled;
      if (group.tied && piece.table_elsewhere) {
        position.table += group.elements;
        position.packed_table += static_cast<std::int64_t>(filled);
      }
      if (stays_packed(group, piece.layout, mesh, execution, plan_.precision)) {
        position.stays_packed = true;
        position.columns += static_cast<std::int64_t>(static_cast<double>(group.transposed) *
                                                      block.quantised.column_bytes);
      }
    }
    // Of tied uses the whole of the position has one.
    position.packed = static_cast<std::int64_t>(packed) +
                      (position.whole - elements) * parameter_bytes(plan_.precision);
  }

  static void count_parameters(const BlockPlan& layout, const Mesh& mesh, Position& position) {
    const auto sum = [](const std::vector<std::int64_t>& elements) {
      return std::accumulate(elements.begin(), elements.end(), std::int64_t{0});
    };
    position.experts = sum(position.memory->experts);
    const std::int64_t others = sum(position.memory->weights);
    position.trained = position.experts + others;
    position.whole = position.trained + sum(position.memory->frozen);
    std::int64_t ranks = 1;
    for (const Axis axis : kShardAxes) {
      ranks *= mesh.of(axis);
    }
    const std::int64_t local = layout.zero_stage > 0 ? ceil_div(others, ranks) : others;
    position.local_experts =
        std::clamp(position.states.local_parameters - local, std::int64_t{0}, position.experts);
  }

  // Of every kind of micro-batch.
  void add_slices(const StagePiece& piece, const Position& position, StageReplay& stage) {
    std::size_t index = 0;
    for (const std::unique_ptr<Kind>& kind : kinds_) {
      for (const Slice& slice : slices_of(kind->plan)) {
        SlicePosition part;
        part.memory = memory_of(piece, *kind, position, slice);
        if (!slice.is_whole()) {
          part.context_gradients =
              kind->costs.of(piece.block, piece.layout, micro_batch_of(piece, kind->plan), slice)
                  .context_gradients.value();
        }
        part.keys = piece.layout.recompute == Recompute::Full ? part.context_gradients : 0;
        if (!position.end && piece.layout.offload.activations > 0) {
          part.leaving = leaving_buffers(*part.memory, piece.layout.offload);
        }
        stage.slices.resize(std::max(stage.slices.size(), ++index));
        std::vector<SlicePosition>& positions = stage.slices[index - 1];
        positions.insert(positions.end(), static_cast<std::size_t>(piece.count), part);
      }
    }
  }

  // Of fused attention only the length of a slice matters.
  const BlockMemory* memory_of(const StagePiece& piece, Kind& kind, const Position& position,
                               Slice slice) {
    slice.start = plan_.execution.fused_attention ? 0 : slice.start;
    slice.last = false;
    for (const Kind::Known& known : kind.memories) {
      if (known.piece.block == piece.block && known.piece.layout == piece.layout &&
          known.slice == slice) {
        return known.memory.get();
      }
    }
    const BlockContext context = kind.costs.block_context(piece.block, piece.layout,
                                                          micro_batch_of(piece, kind.plan), slice);
    kind.memories.push_back(
        {piece, slice,
         std::make_unique<BlockMemory>(block_memory(context, facts_, position.reduced,
                                                    position.states.pass_casts.value() > 0))});
    return kind.memories.back().memory.get();
  }

  const Plan& plan_;
  const MemoryFacts& facts_;
  std::vector<StageContent> contents_;
  Stop stop_;
  BlockCosts models_;  // what all kinds share
  std::vector<std::unique_ptr<Kind>> kinds_;
  std::vector<Unit> units_;  // of a plan of packs
};

std::vector<MemoryPeak> replay(const Plan& plan, const MemoryFacts& facts, int jobs, Stop stop) {
  if (schedule_traits(plan).packs_sequences) {
    return replay(plan_of_pack(without_packs(plan), fullest_pack(plan)), facts, jobs, stop);
  }
  if (!runs_packed_pipeline(plan)) {
    return PlanReplay(plan, facts, stop).run(jobs);
  }
  const std::vector<PackedReplica> replicas = packed_replicas(plan);
  std::vector<std::vector<MemoryPeak>> peaks(replicas.size());
  std::atomic<bool> is_full = false;  // a replica
  parallel_for(replicas.size(), jobs, [&](std::size_t index) {
    if (!is_full) {
      peaks[index] =
          PlanReplay(replicas[index].plan, facts, stop).run(replicas.size() > 1 ? 1 : jobs);
      if (stop == Stop::WhenFull && !replayed_verdict(plan, peaks[index]).fits) {
        is_full = true;
      }
    }
  });
  std::vector<MemoryPeak> fullest;
  for (const std::vector<MemoryPeak>& of_replica : peaks) {
    fullest.resize(std::max(fullest.size(), of_replica.size()));
    for (std::size_t device = 0; device < of_replica.size(); ++device) {
      if (fullest[device].device() < of_replica[device].device()) {
        fullest[device] = of_replica[device];
      }
    }
  }
  return fullest;
}

}  // namespace

std::vector<MemoryPeak> replay_memory(const Plan& plan, const MemoryFacts& facts, int jobs) {
  return replay(plan, facts, jobs, Stop::AtTheEnd);
}

bool replay_fits(const Plan& plan, int jobs) {
  return replayed_verdict(plan, replay(plan, {}, jobs, Stop::WhenFull)).fits;
}

}  // namespace orrery::plan
