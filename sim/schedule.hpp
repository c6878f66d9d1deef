// SPDX-License-Identifier: Apache-2.0
// Pipeline schedules (docs/sim.md): a schedule is a pure function from parameters to a
// placement of model chunks on devices and an order of passes per device. Dependencies, transfers
// and memory effects are derived by rule (sim/pipeline/pipeline.hpp), never written in a schedule.
// One file in sim/schedules/ defines one constant `schedule_<file name>`.
#pragma once

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/sim_time.hpp"
#include "sim/engine/tags.hpp"
#include "sim/refusal.hpp"
#include "sim/schedule_traits.hpp"

namespace orrery::sim {

// Durations by which a schedule that plans with times decides; in any unit.
struct PassTimes {
  SimTime forward{1};
  SimTime input_grad{1};
  SimTime weight_grad{1};
  SimTime send{0};        // to a neighbouring virtual stage on another device
  SimTime whole{0};       // of a backward that is not cut, where it is not both gradients' sum
  SimTime prediction{0};  // of the parameters, where a schedule predicts them
  SimTime backward() const { return whole > SimTime{0} ? whole : input_grad + weight_grad; }
};

struct ScheduleParams {
  int stages = 1;         // pipeline devices p
  int micro_batches = 1;  // m, per iteration
  int chunks = 1;         // model chunks per device v
  int warm_up = 0;        // 0: the schedule's own rule; else see its constraints
  int slices = 1;         // sequence slices per micro-batch n
  int iterations = 0;     // of asynchronous schedules; 0: enough to become steady
  int replicas = 1;       // pipelines side by side (virtual workers)
  double cap = 0.0;       // activations a device may hold, in micro-batches; 0: the schedule's own
  // What messages call it, where it is the member of a document.
  std::string_view cap_name = kCapName;
  // What one forward keeps, and the part of it that only the weight gradient frees; in any unit.
  std::int64_t activation = 1;
  std::int64_t weight_grad_activation = 1;
  // Per virtual stage, or one entry for all; empty: all passes take 1 and transfers nothing.
  std::vector<PassTimes> times = {};
  // Slices of single micro-batches (sequences of different length); empty: `slices` for all. A
  // slice takes 1 / `slices` of a device's share in either case.
  std::vector<int> slices_of = {};
  // Of `iterations`, the first ones whose update is taken back and made again.
  int rollbacks = 0;
  // Devices of every stage, to which its micro-batches go in turn; empty: `replicas`.
  std::vector<int> replicas_of = {};
  // `activation` and `weight_grad_activation` of every virtual stage; empty: the same for all.
  std::vector<std::int64_t> activations = {};
  std::vector<std::int64_t> weight_grad_activations = {};
  // Devices of the virtual stages that `times` are measured on, which a schedule that chooses its
  // placement then keeps to; empty: the times hold on any.
  std::vector<std::uint16_t> timed_on = {};
  // What single micro-batches keep, of which `cap` counts 1 (`dynapipe`); empty: 1 each.
  std::vector<double> weights = {};
  // Decide every pass, try every candidate, copy and leave out nothing: the same lists, for tests.
  bool decides_all = false;
  const PassTimes& times_of(std::size_t virtual_stage) const;
  std::int64_t activation_of(std::size_t virtual_stage) const {
    return activations.empty() ? activation : activations[virtual_stage];
  }
  std::int64_t weight_grad_activation_of(std::size_t virtual_stage) const {
    return weight_grad_activations.empty() ? weight_grad_activation
                                           : weight_grad_activations[virtual_stage];
  }
};

// One pass of a device's list. Virtual stages are numbered chunk after chunk along the network, and
// chain after chain (PipelineOrder). `micro_batch` is the unit that travels: micro-batch x slices +
// slice, numbered within its chain. A `joined` pass and the next one in the list are one block: it
// starts when the inputs of both are there, and both results leave at its end.
struct Pass {
  PassKind kind = PassKind::Forward;
  bool joined = false;
  std::uint16_t virtual_stage = 0;
  std::uint32_t micro_batch = 0;
  constexpr Pass() = default;
  constexpr Pass(PassKind kind_, std::uint16_t virtual_stage_, std::uint32_t micro_batch_,
                 bool joined_ = false)
      : kind(kind_), joined(joined_), virtual_stage(virtual_stage_), micro_batch(micro_batch_) {}
  bool operator==(const Pass&) const = default;
};
static_assert(sizeof(Pass) == 8);

// What the virtual stages of a chain are.
enum class Role : std::uint8_t {
  Layers,  // counted as activations of micro-batches
  Output,  // shards of the output layer: forward S, backward T
  Input,   // shards of the input embedding
  Frozen,  // forward only, of the next iteration
  Service  // parameter servers, copies, host work: a stream beside the model
};

// Consecutive virtual stages that one set of units travels through: forwards along them, gradients
// back. Two directions, replicas, modules and shards of a layer are chains.
struct Chain {
  int first = 0;
  int stages = 0;
  int units = 0;
  Role role = Role::Layers;
  bool forward_only = false;
  int first_unit = 0;  // number of its unit 0 among all
  // Between the numbers of its units. Above 1: so many chains take the micro-batches of one
  // pipeline in turn, and share the parameters of a stage where they share a device.
  int stride = 1;
  int number_of(std::uint32_t unit) const { return first_unit + static_cast<int>(unit) * stride; }
};

// The results of a pass, by kind; a fused backward gives the gradient.
enum class Lane : std::uint8_t { Forward, Gradient, WeightGrad, Recompute, Optimizer };
inline constexpr std::size_t kNumLanes = 5;
Lane lane_of(PassKind kind);

// An attachment: pass (to, j) waits for pass (from, j - shift) when there is one. Between chains
// with different numbers of units, unit j waits for all units of `from` that it holds or that hold
// it, `shift` units of `from` earlier.
struct Edge {
  Lane from_lane = Lane::Forward;
  std::uint16_t from = 0;
  Lane to_lane = Lane::Forward;
  std::uint16_t to = 0;
  int shift = 0;
  bool operator==(const Edge&) const = default;
};

// The activation of unit j of virtual stage `of` is held on a device from the start of pass
// (from, j) to the end of pass (to, j).
struct Hold {
  std::uint16_t device = 0;
  std::uint16_t of = 0;
  Lane from_lane = Lane::Forward;
  std::uint16_t from = 0;
  Lane to_lane = Lane::Gradient;
  std::uint16_t to = 0;
};

// Which parameters a forward uses when optimizer passes are in the list.
enum class Versions : std::uint8_t {
  Flush,       // every unit of an iteration sees the update of the one before
  Stashed,     // the newest; the backward uses the same, so older ones are kept
  Delayed,     // the one before the newest complete one, for all units of an iteration (lag 1)
  Predicted,   // a predicted copy, made once an iteration
  InputStage,  // the one that the first stage used (vertical sync), kept as long as any unit needs
               // it
};

struct PipelineOrder {
  int num_virtual_stages = 0;
  std::vector<std::uint16_t> device_of;   // per virtual stage
  std::vector<std::vector<Pass>> passes;  // per device, in order
  int micro_batches = 0;                  // units of every chain, or of the longest
  // All that follows is empty or default for one chain of layers with forwards and backwards.
  std::vector<Chain> chains = {};
  std::vector<Edge> edges = {};
  bool extended = false;  // recompute, optimizer or joined passes occur
  int slices = 1;
  int iterations = 1;
  Versions versions = Versions::Flush;
  // Chunks and slices of one micro-batch on one device, each of which a live unit counts as;
  // 0: virtual stages / devices.
  int pieces = 0;
  // A forward of virtual stage s takes parts[s] / parts_per_share of a device's share of the model
  // for one micro-batch; empty: 1 / pieces.
  std::vector<int> parts = {};
  int parts_per_share = 0;
  // Devices of the gradients, and of the weight gradients and updates, where they are not those of
  // the forwards; each empty or complete. Edges then order the passes of a unit (split_placement).
  std::vector<std::uint16_t> gradient_device_of = {};
  std::vector<std::uint16_t> weight_grad_device_of = {};
  // Empty: activations are held from the forward to the last gradient pass; else as listed here.
  std::vector<Hold> holds = {};

  bool is_plain() const { return chains.empty() && edges.empty() && !extended && slices == 1; }
};

// The device of a lane.
std::uint16_t device_of(const PipelineOrder& order, Lane lane, std::size_t virtual_stage);
// Virtual stages with recompute passes.
std::vector<bool> recomputed_stages(const PipelineOrder& order);

int pieces_of(const PipelineOrder& order);
// The chains, also of a plain order.
std::vector<Chain> chains_of(const PipelineOrder& order);

struct Schedule {
  std::string_view name;         // kebab-case, as on the command line
  std::string_view description;  // one line
  std::string_view constraints;  // for `orrery list schedules`
  std::string_view source;       // paper and section
  ScheduleTraits traits = {};
  // Of parameters that are not allowed one broken constraint and, where one does, a change that
  // meets it. To report it, ask refusal() (sim/schedule_changes.hpp) for all changes it takes.
  Refusal (*check)(const ScheduleParams&);
  PipelineOrder (*order)(const ScheduleParams&);  // parameters must have passed check
  // What the schedule promises: micro-batches of activations that a device holds, at most.
  double (*most_activations)(const ScheduleParams&);
  bool runs_blocking = false;       // claims to run with rendezvous transfers, too
  bool for_experts = false;         // without experts another schedule is as fast in less memory
  bool own_with_one_chunk = false;  // unlike any schedule without chunks, also with v = 1
  // Plans and the search.
  bool in_plans = false;           // a plan can name it
  std::string_view needs = "";     // what it runs on that plans do not have, if they cannot
  bool chooses_placement = false;  // of several chunks, by the times of their passes
  bool one_list_in_plans = false;  // made once, for F : B = 1 : 2, whatever the passes take
  bool in_search = false;          // tried by the search without being named
  int most_chunks_tried = 0;       // by the search, without being asked; 0: any number
};

std::span<const Schedule* const> schedule_table();  // generated; sorted by name
// By name; Error with the nearest name when unknown. `where` is cited.
const Schedule& find_schedule(std::string_view name, std::string_view where);
bool is_registered_schedule(std::string_view name);

// Building blocks of the files in sim/schedules/.

// Virtual stage s on device s mod p ("loop placement"; linear when v = 1).
std::vector<std::uint16_t> loop_placement(const ScheduleParams& params);

// Slices of every micro-batch.
std::vector<int> slices_of_all(const ScheduleParams& params);

// Devices of every stage.
std::vector<int> replicas_of_all(const ScheduleParams& params);

// Whether chains take the units of one pipeline in turn.
bool has_copies(const PipelineOrder& order);
// The model's stage that a virtual stage is a copy of, where they do; else itself.
int stage_of_copy(const PipelineOrder& order, std::size_t virtual_stage);

// An order without passes whose lists have room for `kinds` passes per chunk and micro-batch (2 for
// a fused backward, 3 for a split one).
PipelineOrder empty_order(const ScheduleParams& params, std::vector<std::uint16_t> device_of,
                          int kinds);

// Constraints, each empty when met: positive sizes within the limits, one chunk per device, the
// schedule's own warm-up only, micro-batches a multiple of stages.
inline constexpr std::int64_t kMaxVirtualStages = std::numeric_limits<std::uint16_t>::max();
Refusal check_sizes(const ScheduleParams& params);
Refusal check_one_chunk(const ScheduleParams& params);
Refusal check_own_warm_up(const ScheduleParams& params);
Refusal check_multiple_of_stages(const ScheduleParams& params);
Refusal check_fewest_micro_batches(const ScheduleParams& params, std::int64_t least);
// Micro-batches a multiple of `of`, for the reason `why`.
Refusal check_multiple(const ScheduleParams& params, std::int64_t of, std::string_view why);
Refusal check_chunks(const ScheduleParams& params, int chunks);
// Few enough passes for a heuristic that takes microseconds for each.
Refusal check_heuristic_sizes(const ScheduleParams& params);
Refusal check_even_stages(const ScheduleParams& params);
Refusal check_one_slice(const ScheduleParams& params);
Refusal check_equal_slices(const ScheduleParams& params);
// None, or one number of slices per micro-batch, each at least 1.
Refusal check_slices_of(const ScheduleParams& params);
// None, or room for `smallest` micro-batches.
Refusal check_cap(const ScheduleParams& params, double smallest);
// No cap of activations, one pipeline, one iteration: for schedules without these parameters.
Refusal check_no_cap(const ScheduleParams& params);
Refusal check_one_replica(const ScheduleParams& params);
Refusal check_equal_replicas(const ScheduleParams& params);  // all stages on as many devices
Refusal check_own_iterations(const ScheduleParams& params);
Refusal check_no_rollbacks(const ScheduleParams& params);
// One parameter within a bound, with its meaning here; a product of some, after `why`; the warm-up
// from 0 to `most`, with its meaning.
Refusal check_at_most(int value, int most, Size size, std::string_view meaning = "");
Refusal check_at_least(int value, int least, Size size, std::string_view meaning = "");
struct Factor {
  Size size = Size::Stages;
  std::int64_t value = 1;
};
Refusal check_product(std::initializer_list<Factor> factors, std::int64_t most,
                      std::string_view why = "");
Refusal check_warm_up(const ScheduleParams& params, int most, std::string_view meaning);
// check_sizes, and none of the parameters that few schedules have: slices, cap, replicas,
// iterations.
Refusal check_basics(const ScheduleParams& params);
// The first of them that is broken, if any.
Refusal first_broken(std::initializer_list<Refusal> constraints);

// Promises of Schedule::most_activations that several schedules share: all micro-batches; one per
// stage; the given cap or one per stage.
double all_micro_batches(const ScheduleParams& params);
double one_per_stage(const ScheduleParams& params);
double cap_or_one_per_stage(const ScheduleParams& params);

// Micro-batches 0 .. count - 1 of one virtual stage, in order.
void append_all(std::vector<Pass>& list, PassKind kind, int virtual_stage, int count);

// `ahead` forwards, then one backward and one forward in turn until the forwards are used up, then
// the remaining backwards: `total` of each. forward(k) and backward(k) give the k-th Pass.
template <typename Forward, typename Backward>
void append_one_forward_one_backward(std::vector<Pass>& list, int total, int ahead, Forward forward,
                                     Backward backward) {
  int next = 0;
  for (; next < std::min(ahead, total); ++next) {
    list.push_back(forward(next));
  }
  for (int k = 0; k < total; ++k) {
    list.push_back(backward(k));
    if (next < total) {
      list.push_back(forward(next++));
    }
  }
}

}  // namespace orrery::sim
