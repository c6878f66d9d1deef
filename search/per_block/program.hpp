// SPDX-License-Identifier: Apache-2.0
// The linear program of per_block/bound.hpp for one mesh and pipeline. Times in parts of `until`,
// bytes in parts of a device's memory.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "plan/modules.hpp"
#include "plan/schedule_traits.hpp"
#include "plan/stage/layout_bounds.hpp"
#include "plan/stage/live_counts.hpp"
#include "plan/stage/transfers.hpp"
#include "search/per_block/costs.hpp"
#include "search/per_block/critical_path.hpp"
#include "search/per_block/linear_program.hpp"

namespace orrery::search {

// Fractions of blocks: of virtual stage s, kind b, the c-th choice.
struct Shares {
  std::vector<std::vector<std::vector<double>>> blocks;
  LinearProgram::Basis basis{};  // where the solver was, with the paths that are kept
};

// What is known of a set of virtual stages.
struct StageRange {
  enum class Of : std::uint8_t {
    Together,    // blocks of any kind in all of them: `least` to `most`
    Each,        // layers in every one of them: no more than `most`; `least` says nothing
    One,         // layers in some one of them: no fewer than `least`; `most` says nothing
    Strategies,  // blocks of `strategies` in all of them: `least` to `most`
  };
  std::vector<std::size_t> stages;  // ascending
  int least = 1;
  int most = 1;
  Of of = Of::Together;
  std::vector<std::uint16_t> strategies{};  // of MeshCosts, ascending
  bool has(std::uint16_t strategy) const {
    return std::binary_search(strategies.begin(), strategies.end(), strategy);
  }
};

// Those of `stages` of which it is not known that they have fewer layers.
std::vector<std::size_t> able_to_hold(std::vector<std::size_t> stages, int layers,
                                      const std::vector<StageRange>& known);

class PeakPaths;

// What the lists of a pipeline say, where they do not depend on times.
struct ListFacts {
  std::vector<plan::LiveCounts> live;
  std::vector<bool> ends_cut;  // by virtual stage: its last backward is cut
  std::vector<std::vector<std::size_t>> reduced_later;  // search/per_block/critical_path.hpp
};

// Bytes that states and activations of a device may take, at most.
double device_memory(const plan::Plan& plan, const MeshCosts& costs);

class PipelineProgram {
 public:
  // `plan` has the mesh and the pipeline; `facts` is empty where lists depend on times.
  PipelineProgram(const plan::Plan& plan, const Pipeline& pipeline,
                  const plan::ScheduleTraits& traits, const MeshCosts& costs, double until,
                  ListFacts facts, const std::vector<StageRange>& ranges,
                  plan::TransferTimes& transfers);

  // Seconds of every kind of pass, by virtual stage; the last two are empty where no backward is
  // cut.
  struct PassTimes {
    std::vector<double> forward;
    std::vector<double> backward;
    std::vector<double> input_grad;
    std::vector<double> weight_grad;
    std::vector<double> send;  // to the next stage, and its gradient back
    // `share` of these and the rest of the other's.
    PassTimes mixed(const PassTimes& other, double share) const;
    // The same sums over layers for all stages; transfers stay.
    PassTimes even() const;
    // Each stage by up to half of `part` slower or faster; `variant` says how.
    PassTimes varied(int variant, double part) const;
  };
  // With all blocks on their fastest choice, as the plan is cut.
  PassTimes cut_times() const;
  PassTimes pass_times(const LinearProgram::Answer& answer) const;
  // Adds a longest path of the lists where passes take `times`, unless it holds at `answer` already
  // within `slack` seconds. Returns the makespan at `times` with what ends a step.
  double add_path(const sim::PipelineOrder& order, const PassTimes& times,
                  const LinearProgram::Answer& answer, double slack);
  // One that was found for other ranges or another `until`; and those that hold with nothing to
  // spare at an answer.
  void add_path(const PassPath& path);
  std::vector<PassPath> tight_paths(const LinearProgram::Answer& answer) const;
  // Where an earlier program of the pipeline ended.
  void begin_with(const Shares& shares);
  // That one stage of a set has a number of layers, as `known` and the mean say; and adds paths of
  // per_block/peaks.hpp through it that do not hold at `answer` within `slack` seconds, if any.
  void add_peaks();
  bool add_peak_paths(const PeakPaths& paths, const LinearProgram::Answer& answer, double slack);
  // Paths with most to spare at the last answer, until `most` are left or none has.
  void forget_paths(const LinearProgram::Answer& answer, std::size_t most);

  // Of which nothing is known.
  LinearProgram::Answer unsolved() const { return program_.unsolved(); }
  LinearProgram::Answer solve() { return program_.solve(); }
  void stop_when(std::function<bool()> stop) { program_.stop_when(std::move(stop)); }
  Shares shares(const LinearProgram::Answer& answer) const;
  // Of the last solution, whose answer this is.
  LinearProgram::Basis basis(const LinearProgram::Answer& answer) const;
  // All blocks on the fastest choice, as the plan is cut.
  Shares even_shares() const;
  std::size_t num_columns() const { return num_columns_; }

 private:
  // A margin for sums in another order than the simulator's.
  static constexpr double kRounding = 1.0 - 1e-10;
  // Stages whose parameters may come later than their input.
  static constexpr std::size_t kHeads = 6;

  using Terms = std::vector<std::pair<int, double>>;
  struct PathRow {
    PassPath path;
    Terms terms;
    double low = 0;
    int number = 0;  // of the program's rows
  };
  int tail_of(const PassPath& path) const;  // what ends the step behind it; -1: nothing
  PathRow row_of(const PassPath& path) const;
  double missing(const PathRow& row, const LinearProgram::Answer& answer) const;
  std::vector<const PathRow*> tight(const LinearProgram::Answer& answer) const;
  struct Column {
    std::size_t block = 0;
    std::size_t choice = 0;
    int variable = 0;
  };

  // One stage of a set with a number of layers: what its passes take, at least.
  struct Peak {
    std::vector<std::size_t> stages;
    int forward = 0;
    int gradient = 0;
    int weight_grad = -1;  // -1: of the gradient
  };
  bool follows(const StageRange& range) const;
  void add_peak(const std::vector<std::size_t>& stages, int layers);
  void raise(int variable, const std::map<std::pair<std::size_t, std::size_t>, int>& own,
             double BlockChoice::*part, double BlockChoice::*beside);
  bool is_layer(std::size_t block) const {
    return plan_.network.blocks[block].kind == models::BlockKind::Layer;
  }
  std::vector<const StageRange*> strategies_known(std::size_t stage) const;
  void add_ranges();
  void add_layers(const StageRange& range);

  // Micro-batches of a virtual stage that are whole and cut, at the peaks of its device.
  struct Held {
    double whole = 0;
    double cut = 0;
    auto operator<=>(const Held&) const = default;
  };
  // Blocks at most.
  struct Most {
    double in_stage = 1;
    double on_device = 1;
    auto operator<=>(const Most&) const = default;
  };
  // What tells stages apart that may take different choices of a kind of block.
  struct StageKind {
    std::size_t block = 0;
    bool sends = false;
    bool waits = false;  // for parameters, perhaps
    bool apart = false;  // its device may have buffers that are variables
    double share = 1;    // of its buffers
    Most most;
    std::vector<Held> held;                 // at the peaks
    std::vector<const StageRange*> ranges;  // of strategies
    auto operator<=>(const StageKind&) const = default;
  };
  void count_held();
  void count_blocks();
  void share_buffers();
  double most_ends(std::size_t stage) const;
  double most_within(const StageRange& range, std::size_t stage) const;
  std::vector<double> parts_of(const BlockChoice& one, std::size_t stage, std::size_t block,
                               const StageKind& kind) const;
  // Of a kind of block in a stage: the choices that no other beats there, and those of them that
  // the solver begins with.
  struct Choices {
    std::vector<std::size_t> best;
    std::set<std::size_t> likely;
  };
  const Choices& choices_of(std::size_t stage, std::size_t block);
  std::set<std::size_t> likely_of(std::size_t stage, std::size_t block,
                                  const std::vector<std::size_t>& choices) const;
  double own_bytes(const BlockChoice& choice, std::size_t block, const Held& held) const;
  // What blocks of a stage share, and those of a device, for one of `most`.
  double stage_buffer(const BlockChoice& choice, std::size_t block, double most,
                      std::size_t stage) const;
  double device_buffer(const BlockChoice& choice, std::size_t block, double most,
                       std::size_t stage) const;
  // Whether gathered parameters stay to the backward, of all stages beside each other.
  bool keeps_gathered() const { return !plan_.execution.reshard_after_forward; }
  double bytes(const BlockChoice& choice, std::size_t block, std::size_t stage,
               const Held& held) const;
  using BufferOf = double (PipelineProgram::*)(const BlockChoice&, std::size_t, double,
                                               std::size_t) const;
  // Blocks of which more is known: those of a range, or an end of the chain.
  struct BufferGroup {
    std::vector<std::size_t> stages;
    int least = 0;
    int most = 1;  // in each of the stages
    const StageRange* range = nullptr;
    std::size_t block = 0;  // without a range
  };
  void find_groups();
  bool belongs(const Column& column, const BufferGroup& group) const;
  void add_buffers();
  void add_working(const BufferGroup& group);
  void add_largest();
  void add_buffer(int buffer, const std::vector<std::size_t>& stages, BufferOf part, double most,
                  const BufferGroup* group = nullptr);
  void add_least(const std::vector<int>& buffers, BufferOf part, const BufferGroup& group);
  using StagesHeld = std::map<std::size_t, std::vector<Held>>;
  void add_room(std::size_t device, const StagesHeld& stages);
  bool is_shared(std::size_t block) const;
  void add_columns();
  void add_memory();
  void add_memory_of_any_order();
  void add_little();
  std::vector<double> least_passes() const;
  void add_stays(std::size_t block, const std::vector<double>& stays, Terms& little);
  void add_passes();
  void add_streams();
  void add_first_blocks();
  // What a first block under ZeRO-2 or 3 adds to a backward, in seconds.
  double exposed(std::size_t stage) const { return first_[stage].reduce * (1.0 - costs_.beside); }
  void add_sends();
  // A transfer takes at least the least that its reference says of the blocks that there are.
  // Stages of frozen blocks alone take no gradient: where a stage and those before it may hold no
  // others, transfers count nothing.
  bool sends_time(std::size_t stage) const {
    return stage + 1 < stages_ && !plan_.execution.split_transfers &&
           static_cast<int>(stage) >= plan::frozen_positions(plan_.network);
  }
  double send_of(const BlockChoice& choice, std::size_t stage) const;
  void add_updates();
  void add_step_ends();
  bool has_one_front() const;
  bool sums_tables() const;
  // What the first block of a stage takes to be reduced behind its last backward, at least.
  double least_reduction(std::size_t stage) const;
  void take_less(Terms& terms, std::size_t stage, double most) const;
  void add_stage_tail(std::size_t stage, double reduction);
  std::vector<std::size_t> stages_of(std::size_t device) const;  // of both directions
  void add_device_tails(const std::vector<double>& reductions);
  void add_front();
  bool ends_cut(std::size_t stage) const;  // in all copies
  void add_queues();
  double shortest(std::size_t stage, double BlockChoice::*part) const;  // of any block there
  void add_heads();
  void add_extras();
  void add_later(Terms& terms, const PassPath& path) const;
  void add_capacities();
  // Before the first pass, and after the last one of a stage (or any of a device): what a step
  // adds.
  void add_ends(Terms& terms, int tail, std::size_t device) const;
  void add_device_paths();
  void at_least(int variable, std::size_t stage, double BlockChoice::*part,
                double BlockChoice::*beside = nullptr, Terms more = {});
  const BlockChoice& choice_at(const Column& column) const {
    return costs_.choices[column.block][column.choice];
  }
  bool may_hold(std::size_t stage, std::size_t block) const;
  // A coefficient of the program, rounded to the safe side.
  double scaled(double seconds) const { return seconds * kRounding / until_; }
  // What ends every step beside what variables say, in seconds.
  double fixed_end() const { return traits_.two_directions ? costs_.copies : 0.0; }

  const plan::Plan& plan_;
  const Pipeline& pipeline_;
  const plan::ScheduleTraits traits_;
  const MeshCosts& costs_;
  double until_;
  double room_;
  std::size_t stages_;
  std::vector<Most> most_;  // by virtual stage
  ListFacts facts_;
  const std::vector<StageRange>& ranges_;
  std::vector<std::vector<Held>> held_;  // by virtual stage and peak
  std::map<StageKind, Choices> choices_;
  std::size_t num_columns_ = 0;
  LinearProgram program_;
  std::vector<PathRow> paths_;
  std::vector<Peak> peaks_;
  int time_ = 0;
  std::vector<std::vector<Column>> columns_;  // by virtual stage
  std::vector<BufferGroup> groups_;
  std::vector<bool> apart_;  // by virtual stage: buffers of its device may be variables
  std::vector<int> buffer_;  // by virtual stage: what its blocks share; -1: part of the columns
  // By virtual stage: what counts of its buffers beside those of its device's other stages. They
  // are not there at the same time; the largest are no less than the mean.
  std::vector<double> share_;
  std::vector<int> largest_;  // by device: of these, where some are variables; -1: all count
  std::vector<int> working_;  // by device, of those that recompute
  // By virtual stage: how much of its first block is under ZeRO-2 or 3, which reduce its gradients
  // behind every backward. -1: nothing is known.
  struct FirstBlock {
    int sharded = -1;
    double reduce = 0;  // seconds, at least
  };
  std::vector<FirstBlock> first_;
  std::vector<int> forward_;
  std::vector<int> backward_;
  std::vector<int> input_grad_;  // where backwards are cut
  std::vector<int> weight_grad_;
  plan::TransferTimes& transfers_;
  std::vector<int> sends_;  // by virtual stage, to the next; -1: they take no time
  int update_ = 0;          // the optimizer
  std::vector<int> heads_;  // by virtual stage: gathers that its first forward waits for; -1: none
  int tied_ = -1;           // sum of tied gradients
  std::vector<int> tails_;  // by virtual stage: reduction of the block that is reduced last
  std::vector<int> reductions_;  // of all its blocks
  std::vector<int> extras_;      // of its last backward, beside reductions; -1: none
  std::vector<int> device_tails_;
};

}  // namespace orrery::search
