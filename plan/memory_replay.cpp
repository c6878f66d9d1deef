// SPDX-License-Identifier: Apache-2.0
#include "plan/memory_replay.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <memory>

#include "base/error.hpp"
#include "base/math.hpp"
#include "plan/block_memory.hpp"
#include "plan/stage.hpp"
#include "plan/states.hpp"
#include "plan/transfers.hpp"
#include "sim/caching_allocator.hpp"

namespace orrery::plan {
namespace {

using BlockId = sim::CachingAllocator::BlockId;

constexpr int kCompute = 0;
constexpr int kGather = 1;
constexpr int kReduce = 2;

// One chain position of a stage.
struct Position {
  const BlockMemory* memory = nullptr;
  StateBytes states;
  std::int64_t whole = 0;  // elements before ZeRO
  bool gathered = false;   // ZeRO-3
  bool reduced = false;    // ZeRO-2 and 3
  bool end = false;        // embedding or head
};

struct StageReplay {
  std::vector<Position> positions;
};

// The buffers of one micro-batch in one stage.
struct Live {
  std::vector<std::vector<BlockId>> buffers;  // per position
  BlockId output = -1;
};

int parameter_bytes(const Plan& plan) {
  return element_bytes(models::Element::Param, plan.precision);
}

class DeviceReplay {
 public:
  DeviceReplay(const Plan& plan, const MemoryFacts& facts, std::int64_t capacity)
      : plan_(plan), facts_(facts), memory_({facts.expandable_segments, capacity}) {}

  std::map<int, StageReplay> stages;

  MemoryPeak run(const std::vector<sim::Pass>& passes) {
    allocate_states();
    for (int iteration = 0; iteration < 2; ++iteration) {
      for (const sim::Pass& pass : passes) {
        run_pass(pass);
      }
      finish_roots();
      step(iteration == 0);
    }
    return {ByteCount(memory_.peak_allocated()), ByteCount(memory_.peak_reserved()), ByteCount()};
  }

 private:
  std::int64_t sum(ByteCount StateBytes::*part) const {
    std::int64_t total = 0;
    for (const auto& [index, stage] : stages) {
      for (const Position& position : stage.positions) {
        total += (position.states.*part).value();
      }
    }
    return total;
  }


  // A buffer per operator with weights, `bytes` per local parameter; or one for the device.
  std::vector<BlockId> allocate_local(int bytes, bool flat) {
    std::vector<BlockId> result;
    std::int64_t all = 0;
    for (const auto& [index, stage] : stages) {
      for (const Position& position : stage.positions) {
        const double share = position.whole > 0
                                 ? static_cast<double>(position.states.local_parameters) /
                                       static_cast<double>(position.whole)
                                 : 0.0;
        for (const std::int64_t elements : position.memory->weights) {
          const auto local = static_cast<std::int64_t>(static_cast<double>(elements) * share);
          all += local;
          if (!flat) {
            result.push_back(memory_.allocate(local * bytes));
          }
        }
      }
    }
    if (flat) {
      result.push_back(memory_.allocate(all * bytes));
    }
    return result;
  }

  // The same for tensors that every rank holds whole, unless they are sharded as parameters are.
  std::vector<BlockId> allocate_whole(ByteCount StateBytes::*part) {
    std::vector<BlockId> result;
    for (const auto& [index, stage] : stages) {
      for (const Position& position : stage.positions) {
        const double bytes = static_cast<double>((position.states.*part).value());
        for (const std::int64_t elements : position.memory->weights) {
          const double share =
              position.whole > 0
                  ? static_cast<double>(elements) / static_cast<double>(position.whole)
                  : 0.0;
          result.push_back(memory_.allocate(static_cast<std::int64_t>(bytes * share)));
        }
      }
    }
    return result;
  }

  void release_all(std::vector<BlockId>& blocks) {
    for (const BlockId block : blocks) {
      memory_.release(block);
    }
    blocks.clear();
  }

  void allocate_states() {
    memory_.allocate(workspace_bytes());
    std::vector<BlockId> parameters = allocate_whole(&StateBytes::parameters);
    if (facts_.copies_into_buffer) {
      memory_.allocate(sum(&StateBytes::parameters));
      release_all(parameters);
    }
    const bool kept = facts_.weight_gradient == WeightGradient::Kept;
    if (!kept && !facts_.frees_sharded_gradients) {
      memory_.allocate(sum(&StateBytes::gradients));
    }
    if (has_master()) {
      allocate_local(4, flat_optimizer());
    }
    if (facts_.weight_gradient == WeightGradient::Cached) {
      std::vector<std::int64_t> shapes;
      for (const auto& [index, stage] : stages) {
        for (const Position& position : stage.positions) {
          shapes.insert(shapes.end(), position.memory->placeholders.begin(),
                        position.memory->placeholders.end());
        }
      }
      std::sort(shapes.begin(), shapes.end());
      shapes.erase(std::unique(shapes.begin(), shapes.end()), shapes.end());
      placeholders_ = std::move(shapes);
    }
  }

  bool has_master() const {
    return plan_.execution.master_weights && !plan_.execution.fp32_parameters &&
           parameter_bytes(plan_) < 4;
  }

  bool flat_optimizer() const {
    return facts_.step == OptimizerStep::FlatThenAdam || facts_.step == OptimizerStep::HalfToFloat;
  }

  // cuBLAS workspace of a handle and stream (pytorch/pytorch CUDABlas: 32 MiB from Hopper on, else
  // 8 MiB and 128 KiB).
  std::int64_t workspace_bytes() const {
    return plan_.cluster.gpu.compute_capability >= 9.0 ? std::int64_t{32} << 20
                                                        : (std::int64_t{8} << 20) + (128 << 10);
  }

  void run_pass(const sim::Pass& pass) {
    switch (pass.kind) {
      case sim::PassKind::Forward:
        forward(pass.virtual_stage, pass.micro_batch);
        break;
      case sim::PassKind::Backward:
      case sim::PassKind::WeightGrad:
        backward(pass.virtual_stage, pass.micro_batch);
        break;
      default:
        break;
    }
  }

  void apply(const std::vector<MemoryEvent>& events, std::vector<BlockId>& buffers) {
    for (const MemoryEvent& event : events) {
      BlockId& block = buffers[static_cast<std::size_t>(event.buffer)];
      if (event.bytes > 0) {
        block = memory_.allocate(event.bytes);
      } else {
        memory_.release(block);
        block = -1;
      }
    }
  }

  static BlockId take(std::vector<BlockId>& buffers, std::int32_t index) {
    return index >= 0 ? buffers[static_cast<std::size_t>(index)] : -1;
  }

  bool in_root(const Position& position) const { return facts_.ends_form_root && position.end; }

  std::int64_t gathered_bytes(const Position& position) const {
    return position.whole * parameter_bytes(plan_);
  }

  // Gathered parameters of a unit; the next one's buffer is there before this one is used.
  void gather(const Position& position) {
    if (!position.gathered || in_root(position)) {
      return;
    }
    if (prefetched_ < 0) {
      prefetched_ = memory_.allocate(gathered_bytes(position), kGather);
    }
    if (facts_.gathers_into_copy) {
      unit_ = memory_.allocate(gathered_bytes(position));
      memory_.release(prefetched_);
    } else {
      unit_ = prefetched_;
    }
    prefetched_ = -1;
  }

  void prefetch(const Position* next) {
    if (next != nullptr && next->gathered && !in_root(*next)) {
      prefetched_ = memory_.allocate(gathered_bytes(*next), kGather);
    }
  }

  void free_unit() {
    memory_.release(unit_);
    unit_ = -1;
  }

  void gather_root() {
    if (!facts_.ends_form_root || root_ >= 0) {
      return;
    }
    std::int64_t bytes = 0;
    for (const auto& [index, stage] : stages) {
      for (const Position& position : stage.positions) {
        bytes += position.end && position.gathered ? gathered_bytes(position) : 0;
      }
    }
    root_ = memory_.allocate(bytes);
  }

  void forward(int stage, std::uint32_t micro_batch) {
    const std::vector<Position>& positions = stages[stage].positions;
    Live& live = live_[{stage, micro_batch}];
    live.buffers.resize(positions.size());
    gather_root();
    BlockId current = -1;
    for (std::size_t index = 0; index < positions.size(); ++index) {
      const BlockMemory& memory = *positions[index].memory;
      std::vector<BlockId>& buffers = live.buffers[index];
      buffers.assign(static_cast<std::size_t>(memory.num_buffers), -1);
      gather(positions[index]);
      prefetch(index + 1 < positions.size() ? &positions[index + 1] : nullptr);
      if (memory.input >= 0) {
        if (index == 0) {
          current = memory_.allocate(memory.boundary);  // received
        }
        buffers[static_cast<std::size_t>(memory.input)] = current;
      }
      apply(memory.forward, buffers);
      free_unit();
      current = take(buffers, memory.output);
    }
    if (facts_.keeps_stage_outputs) {
      live.output = current;
    } else {
      memory_.release(current);
    }
  }

  void backward(int stage, std::uint32_t micro_batch) {
    const std::vector<Position>& positions = stages[stage].positions;
    Live& live = live_[{stage, micro_batch}];
    begin_gradients();
    BlockId gradient = -1;
    if (!positions.empty() && positions.back().memory->output_gradient >= 0) {
      gradient = memory_.allocate(positions.back().memory->boundary);  // received
    }
    for (std::size_t index = positions.size(); index-- > 0;) {
      const BlockMemory& memory = *positions[index].memory;
      std::vector<BlockId>& buffers = live.buffers[index];
      gather(positions[index]);
      prefetch(index > 0 ? &positions[index - 1] : nullptr);
      if (memory.output_gradient >= 0) {
        buffers[static_cast<std::size_t>(memory.output_gradient)] = gradient;
      }
      apply(memory.backward, buffers);
      free_unit();
      gradient = take(buffers, memory.input_gradient);
      reduce(positions[index], buffers);
    }
    memory_.release(gradient);
    memory_.release(live.output);
    live_.erase({stage, micro_batch});
  }

  // Gradients that are allocated when the first backward of a step makes them.
  void begin_gradients() {
    if (facts_.weight_gradient == WeightGradient::Kept && gradients_.empty() && !any_reduced()) {
      gradients_ = allocate_whole(&StateBytes::gradients);
    }
    if (facts_.keeps_low_gradients && low_gradients_.empty()) {
      low_gradients_ = allocate_whole(&StateBytes::parameters);
    }
    if (!placeholders_.empty()) {
      for (const std::int64_t elements : placeholders_) {
        memory_.allocate(elements * parameter_bytes(plan_));
      }
      placeholders_.clear();
    }
  }

  bool any_reduced() const {
    for (const auto& [index, stage] : stages) {
      for (const Position& position : stage.positions) {
        if (position.reduced) {
          return true;
        }
      }
    }
    return false;
  }

  // Whole gradients of a unit become its shard; the buffer of the reduction lives until the next
  // one (pytorch/pytorch torch/distributed/fsdp, foreach_reduce).
  void reduce(const Position& position, std::vector<BlockId>& buffers) {
    std::vector<BlockId> gradients;
    for (const std::int32_t buffer : position.memory->weight_gradients) {
      gradients.push_back(buffers[static_cast<std::size_t>(buffer)]);
    }
    if (!position.reduced) {
      return;
    }
    if (in_root(position)) {
      root_gradients_.insert(root_gradients_.end(), gradients.begin(), gradients.end());
      root_elements_ += position.whole;
      root_sharded_ += position.states.gradients.value();
      return;
    }
    scatter(position.whole, position.states.gradients.value(), gradients);
  }

  void scatter(std::int64_t whole, std::int64_t sharded, std::vector<BlockId>& gradients) {
    memory_.release(reducing_);
    const int bytes = plan_.execution.fp32_gradients ? 4 : parameter_bytes(plan_);
    reducing_ = -1;
    if (bytes > parameter_bytes(plan_) || facts_.gathers_into_copy) {
      reducing_ = memory_.allocate(whole * bytes);
      release_all(gradients);
    }
    const BlockId shard = memory_.allocate(sharded, kReduce);
    if (facts_.frees_sharded_gradients && first_backward_) {
      gradients_.push_back(shard);
    } else {
      memory_.release(shard);  // added to the one that is kept
    }
    release_all(gradients);
  }

  void finish_roots() {
    if (!root_gradients_.empty()) {
      scatter(root_elements_, root_sharded_, root_gradients_);
    }
    root_elements_ = 0;
    root_sharded_ = 0;
    memory_.release(reducing_);
    memory_.release(root_);
    memory_.release(prefetched_);
    reducing_ = root_ = prefetched_ = -1;
  }

  void step(bool first) {
    std::vector<BlockId> copies;
    std::vector<BlockId> temporaries;
    const bool flat = flat_optimizer();
    if (facts_.bucket_elements > 0) {
      memory_.release(memory_.allocate(facts_.bucket_elements * parameter_bytes(plan_)));
    }
    switch (facts_.step) {
      case OptimizerStep::Fused:
      case OptimizerStep::Foreach:
        break;
      case OptimizerStep::HalfToFloat:
        temporaries = allocate_local(parameter_bytes(plan_), true);
        copies = allocate_local(4, true);
        release_all(temporaries);
        break;
      case OptimizerStep::FlatThenAdam:
        copies = allocate_local(4, false);  // for the norm
        release_all(copies);
        temporaries = allocate_local(parameter_bytes(plan_), true);
        release_all(gradients_);
        copies = allocate_local(4, true);
        release_all(temporaries);
        break;
      case OptimizerStep::FloatAndAdam:
        copies = allocate_local(4, false);
        release_all(copies);
        copies = allocate_local(4, false);
        break;
    }
    if (first) {
      for (int moment = 0; moment < plan_.execution.optimizer_state_bytes / 4; ++moment) {
        allocate_local(4, flat);
      }
    }
    const bool two = facts_.step == OptimizerStep::FlatThenAdam ||
                     facts_.step == OptimizerStep::FloatAndAdam;
    std::vector<BlockId> roots;
    if (two || facts_.step == OptimizerStep::Foreach) {
      roots = allocate_local(4, flat);
    }
    if (two) {
      temporaries = allocate_local(4, flat);
    }
    release_all(roots);
    release_all(temporaries);
    release_all(copies);
    release_all(gradients_);
  }

  const Plan& plan_;
  const MemoryFacts& facts_;
  sim::CachingAllocator memory_;
  std::map<std::pair<int, std::uint32_t>, Live> live_;
  std::vector<BlockId> gradients_;
  std::vector<BlockId> low_gradients_;
  std::vector<std::int64_t> placeholders_;
  BlockId prefetched_ = -1;
  BlockId unit_ = -1;
  BlockId root_ = -1;
  BlockId reducing_ = -1;
  std::vector<BlockId> root_gradients_;
  std::int64_t root_elements_ = 0;
  std::int64_t root_sharded_ = 0;
  bool first_backward_ = true;
};

// The pipeline with no more micro-batches than its steady state needs.
sim::PipelineOrder short_order(const Plan& plan) {
  const sim::Schedule& schedule = sim::find_schedule(plan.schedule, "schedule");
  sim::ScheduleParams params = schedule_params(plan);
  sim::ScheduleParams reduced = params;
  const int steady = 3 * plan.pp;
  if (params.micro_batches > steady + plan.pp) {
    reduced.micro_batches = steady + params.micro_batches % plan.pp;
  }
  return schedule.order(schedule.check(reduced).empty() ? reduced : params);
}

class PlanReplay {
 public:
  PlanReplay(const Plan& plan, const MemoryFacts& facts)
      : plan_(plan), facts_(facts), costs_(plan), contents_(stage_contents(plan)) {}

  std::vector<MemoryPeak> run() {
    const sim::PipelineOrder order = short_order(plan_);
    const ByteCount outside = outside_allocator(plan_);
    const std::int64_t capacity =
        std::max<std::int64_t>(1, (plan_.cluster.gpu.memory - outside).value());
    std::vector<MemoryPeak> peaks;
    for (std::size_t device = 0; device < order.passes.size(); ++device) {
      DeviceReplay replay(plan_, facts_, capacity);
      for (std::size_t stage = 0; stage < contents_.size(); ++stage) {
        if (order.device_of[stage] == device) {
          replay.stages[static_cast<int>(stage)] = stage_replay(contents_[stage]);
        }
      }
      peaks.push_back(replay.run(order.passes[device]));
      peaks.back().outside = outside;
    }
    return peaks;
  }

 private:
  StageReplay stage_replay(const StageContent& content) {
    StageReplay stage;
    const bool without_tied = holds_embedding(content, costs_.network());
    for (const StagePiece& piece : content) {
      const std::int64_t micro_batch = plan_.micro_batch_of(piece.layout);
      Position position;
      position.gathered = piece.layout.zero_stage == 3 && plan_.data_ranks(piece.layout) > 1;
      position.reduced = piece.layout.zero_stage >= 2 && plan_.data_ranks(piece.layout) > 1;
      position.end = costs_.network().blocks[static_cast<std::size_t>(piece.block)].kind !=
                     models::BlockKind::Layer;
      const Mesh mesh = mesh_of(piece.layout, plan_.data_ranks(piece.layout));
      position.states = state_bytes(costs_.of(piece.block, piece.layout, micro_batch), piece.layout,
                                    mesh, plan_.execution, plan_.precision, without_tied);
      position.memory = memory_of(piece, micro_batch, position.reduced);
      for (const std::int64_t elements : position.memory->weights) {
        position.whole += elements;
      }
      stage.positions.insert(stage.positions.end(), static_cast<std::size_t>(piece.count),
                             position);
    }
    return stage;
  }

  const BlockMemory* memory_of(const StagePiece& piece, std::int64_t micro_batch, bool reduced) {
    for (const auto& [known, memory] : memories_) {
      if (known.block == piece.block && known.layout == piece.layout) {
        return memory.get();
      }
    }
    const BlockContext context = costs_.block_context(piece.block, piece.layout, micro_batch);
    memories_.emplace_back(
        piece, std::make_unique<BlockMemory>(block_memory(context, facts_, reduced)));
    return memories_.back().second.get();
  }

  const Plan& plan_;
  const MemoryFacts& facts_;
  BlockCosts costs_;
  std::vector<StageContent> contents_;
  std::vector<std::pair<StagePiece, std::unique_ptr<BlockMemory>>> memories_;
};

}  // namespace

ByteCount outside_allocator(const Plan& plan) {
  // CUDA context and loaded kernels; Galvatron's artifact reserves the same 1,024 MB.
  constexpr ByteCount kContext(std::int64_t{1} << 30);
  // Buffers of one receiving connection for the Simple, LL and LL128 protocols (NVIDIA/nccl
  // src/include/comm.h: 4 MiB, 512 KiB, 4800 KiB).
  constexpr ByteCount kConnection((std::int64_t{4} << 20) + (512 << 10) + (4800 << 10));
  constexpr int kRingAndTrees = 3;  // a rank receives from its ring neighbour and in two trees
  const BlockPlan& layout = plan.blocks.front().layout;
  const std::array<int, 4> degrees = {layout.tp, layout.cp, plan.dp, plan.pp};
  ByteCount bytes = kContext;
  int stride = 1;
  for (const int degree : degrees) {
    const bool within = stride * degree <= plan.cluster.node.gpus;
    const int channels = within ? 2 * plan.cluster.node.scale_up.nccl_channels
                                : 2 * std::max(1, plan.cluster.node.scale_out.nics);
    if (degree > 1) {
      bytes += kConnection * (kRingAndTrees * std::max(2, channels));
    }
    stride *= degree;
  }
  return bytes;
}

std::vector<MemoryPeak> replay_memory(const Plan& plan, const MemoryFacts& facts) {
  return PlanReplay(plan, facts).run();
}

}  // namespace orrery::plan
