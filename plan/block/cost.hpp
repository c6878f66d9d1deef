// SPDX-License-Identifier: Apache-2.0
// What one block costs a device under one layout and micro-batch: its forward, backward and
// recomputation simulated once on a compute and a communication stream (docs/plan.md,
// hierarchy), its saved activations and its parameters. Cached: equal blocks are lowered once.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/sim_time.hpp"
#include "plan/block/carried.hpp"
#include "plan/block/cost_factors.hpp"
#include "plan/block/steps.hpp"

namespace orrery::plan {

// One pass of a block on one device.
struct PassCost {
  SimTime time;
  Seconds compute;  // kernels alone, without waiting
  Seconds host;     // to issue the kernels; bounds `time`
  Seconds device;   // `time` of kernels that are all issued
  // More than `device`, of a pass that the host begins to issue when it starts: the kernels that it
  // waits for before the host runs ahead.
  Seconds stall;
  Seconds routed;                           // exchanges between experts, one after the other
  std::array<Seconds, kNumAxes> exposed{};  // communication during which no kernel ran
  std::array<Seconds, kNumCostClasses> by_class{};
  Flops flops;
  int launches = 0;
};

PassCost operator+(const PassCost& a, const PassCost& b);  // b after a

// Parameters whose gradients are partial over the same axes.
struct StateGroup {
  // Of them, key and value heads that so many ranks of an axis next to one another hold: gradients
  // are summed over these, too.
  struct Repeated {
    Axis axis = Axis::Tensor;
    int ranks = 1;
    std::int64_t elements = 0;
  };
  std::array<bool, kNumAxes> reduced{};  // axes over which the gradient is summed
  // Of them, tensor-parallel axes with copies of these experts, which share states as data ranks
  // do.
  std::array<bool, kNumAxes> copied{};
  std::int64_t elements = 0;    // on one device, before ZeRO
  std::int64_t quantised = 0;   // of them: weights of products in fp8 or nvfp4
  std::int64_t transposed = 0;  // of those: the backward reads them in columns
  std::vector<Repeated> repeated = {};
  bool tied = false;          // a use of the token table of the embedding
  bool frozen = false;        // parameters alone: no gradient, no update
  bool forward_only = false;  // their block has no backward
  bool reduced_over(Axis axis) const { return reduced[static_cast<std::size_t>(axis)]; }
};

// Products in fp8 or nvfp4, whose tensors have scales: a grouped one counts for each of its
// experts.
struct QuantisedProducts {
  int count = 0;
  std::int64_t weights = 0;     // elements that they read, on one device
  std::int64_t transposed = 0;  // of them, for an input gradient, in columns, too
  std::int64_t again = 0;       // of them, by the backward: in columns, or by what runs again
  // Of an element of a weight that is cast once a step: what the cast one takes in rows, and in
  // columns where products need them.
  double row_bytes = 0;
  double column_bytes = 0;
  ByteCount largest_cast;  // of one product, where its passes cast them: in the backward
};

struct BlockCost {
  PassCost forward;
  PassCost backward;  // recomputation included
  PassCost recompute;
  // No forward and backward that run as one take less, on the device or at the host's pace: what
  // the device takes without the time in which tokens travel and no kernel runs, all exchanges,
  // either pass; and not more than both passes one after the other. A recomputation never makes it
  // less.
  SimTime least_joined() const;
  SimTime most_hidden() const { return forward.time + backward.time - least_joined(); }
  // The same where it may run beside layers unlike it, whose kernels or exchanges are fewer: of
  // both passes what is not kernels.
  SimTime most_hidden_beside_any() const;
  // Of layers without recomputation, or of operators; known once a layout was asked for of which
  // the tensors of some operators leave the device.
  std::optional<SavedByGroup> saved_by_group;
  ByteCount saved;     // from forward to backward of one micro-batch
  ByteCount working;   // live only while its backward runs (recomputed activations)
  ByteCount boundary;  // the output handed to the next stage
  Carried carried;     // beside it
  // Of a slice: gradients of its keys and values, to which later slices add before its backward.
  ByteCount context_gradients;
  std::vector<StateGroup> states;
  QuantisedProducts quantised;
};

// Simulates a list of steps on two streams; kernels and collectives that run side by side share
// the streaming multiprocessors (docs/plan.md). The time is the device's; `host` is what the host
// takes to issue the steps: the framework's time that is given, or their launches where longer.
PassCost queue_steps(const std::vector<Step>& steps, const costmodel::DeviceModel& device,
                     Seconds host);
// With other times than the steps say.
PassCost queue_steps(const std::vector<Step>& steps, std::span<const Seconds> times,
                     const costmodel::DeviceModel& device, Seconds host);
// The same where the device waits for the host: the pass takes no less than the host. Lists that
// follow one another with nothing that stops the host between them are queued and added up first.
PassCost run_steps(const std::vector<Step>& steps, const costmodel::DeviceModel& device,
                   Seconds host);

// Whether no two steps can run side by side: each waits for the one before it or shares its stream.
bool is_serial(const std::vector<Step>& steps);
// Share of the multiprocessors that a collective beside a kernel takes, with the kernel's own being
// 1: both then run at the speed that the profile states.
double collective_demand(const costmodel::DeviceModel& device);
// Of a collective inside a block, beside a matrix product. From Hopper on those are persistent: one
// thread block for each SM, and the blocks whose SM the collective holds start when it ends, or
// when the others have finished, so that a collective no longer than the product hides nothing
// (pytorch/pytorch issue 143988).
double block_collective_demand(const costmodel::DeviceModel& device);

// Parameters of one weight of an operator on one device.
StateGroup states_of(const models::Block& block, const models::Operator& op, int weight,
                     const BlockRules& rules, const Mesh& mesh, DType precision);

// Parameters of a block per device, grouped by the axes that reduce their gradients.
std::vector<StateGroup> state_groups(const models::Block& block, const BlockRules& rules,
                                     const Mesh& mesh, DType precision = DType::Bf16);

// Bytes kept for the backward under a recomputation choice.
ByteCount saved_activations(const BlockContext& context, Recompute recompute);

class BlockCosts {
 public:
  // The references stay alive with the object; degrees come with each request.
  explicit BlockCosts(const Plan& plan);
  // With tensor-parallel groups over unlike GPUs: `devices` by tensor rank.
  BlockCosts(const Plan& plan, std::vector<costmodel::DeviceModel> devices);
  // The same without costs, of micro-batches of other lengths; `packed`: of sequences behind one
  // another. Both share what does not depend on lengths, and one thread uses them.
  BlockCosts(const BlockCosts& same, std::int64_t sequence, std::vector<std::int64_t> packed);
  BlockCosts(BlockCosts&&) noexcept;  // compiled once
  ~BlockCosts();

  // What decides the cost of a block.
  struct Key {
    int block;
    BlockPlan layout;  // without what concerns states only
    std::int64_t micro_batch;
    Slice slice;
    bool operator==(const Key&) const = default;
  };
  struct KeyHash {
    std::size_t operator()(const Key& key) const;
  };
  Key key_of(int block, const BlockPlan& layout, std::int64_t micro_batch,
             const Slice& slice = {}) const;

  // Cost of a block (index into Network::blocks) for all tokens or a slice of them.
  const BlockCost& of(int block, const BlockPlan& layout, std::int64_t micro_batch,
                      const Slice& slice = {});

  // What a forward and a backward that run as one take less than one after the other: tokens of one
  // travel to their experts beside kernels of the other (plan/block/joined_steps.hpp). Made when it
  // is asked for; valid until there is another draw.
  struct Joined {
    SimTime hidden;
    SimTime covered;  // time in which tokens travel alone that this saves: `hidden` and slowdowns
  };
  struct JoinedLayers {
    Joined first;  // of the layers of a stage
    Joined next;   // each one more goes on where the one before ends
  };
  const JoinedLayers& joined_layers(int block, const BlockPlan& layout, std::int64_t micro_batch);
  // The same of the layers of two stages, so many alike in a row: of equal ones what the fewer
  // hide, of others by all steps of both, and all layers of the one beside those of the other.
  struct LayerRun {
    int block = 0;
    BlockPlan layout;
    std::int64_t micro_batch = 1;
    int count = 1;
    bool operator==(const LayerRun&) const = default;
  };
  Joined joined_stages(const std::vector<LayerRun>& forward, const std::vector<LayerRun>& backward);

  // The steps that the cost of a block was simulated from, at the pace of its tensor-parallel
  // group.
  BlockSteps steps_of(int block, const BlockPlan& layout, std::int64_t micro_batch) const;

  // What a block is lowered from; refers to this object.
  BlockContext block_context(int block, const BlockPlan& layout, std::int64_t micro_batch,
                             const Slice& slice = {}) const {
    return context_of(key_of(block, layout, micro_batch, slice));
  }

  const models::Network& network() const { return network_; }
  const topologies::Cluster& cluster() const { return cluster_; }
  const costmodel::DeviceModel& device() const { return device_; }
  const costmodel::CollectiveModel& collectives() const { return collectives_; }
  const Execution& execution() const { return execution_; }
  DType precision() const { return precision_; }
  std::int64_t sequence() const { return sequence_; }

  // Collectives of data-parallel groups are priced by these costs, where the ranks of a stage are
  // of several kinds (plan/mixed/simulate.hpp); null: by these ones, as all others.
  void set_data_costs(const BlockCosts* costs) { data_costs_ = costs; }
  const BlockCosts& data_costs() const { return data_costs_ != nullptr ? *data_costs_ : *this; }

  // Before any cost is asked for: collectives between the replicas that share experts are priced by
  // these costs, where those are on GPUs of several kinds.
  void set_expert_costs(const BlockCosts* costs) { expert_costs_ = costs; }
  // Before any cost is asked for, too: those of the unlike replicas that share experts with these
  // ranks. Whoever is last on the way to an exchange of tokens is waited for.
  void set_expert_peers(std::vector<const BlockCosts*> peers) { expert_peers_ = std::move(peers); }

  // From now on all times are those of a draw of the cost model's errors; the costs handed out so
  // far change with it.
  void set_factors(const CostFactors& factors);
  // A time under the draw; as it is without one.
  Seconds scaled(CostClass kind, Seconds time) const;
  Seconds scaled(const costmodel::GroupShape& group, Seconds time) const;

 private:
  // Data ranks beyond the expert-parallel ones do not change what a rank does for a block.
  BlockContext context_of(const Key& key) const;
  BlockContext context_of(const Key& key, int tensor_rank) const;
  BlockSteps steps_of(const Key& key) const;
  BlockSteps lower(const Key& key) const;
  BlockSteps lower_own(const Key& key) const;  // without those that it shares experts with
  // The slowest to issue and to overlap of the GPUs of a group.
  PassCost queue_on_slowest(const std::vector<Step>& steps, std::span<const Seconds> times,
                            Seconds host) const;
  BlockCost compute(const Key& key) const;
  // The passes of a block under the draw.
  void time_passes(const Key& key, const BlockSteps& steps, BlockCost& cost) const;
  std::uint32_t number_of(const std::vector<LayerRun>& layers);
  JoinedLayers join_layers(const BlockSteps& steps, const BlockCost& cost) const;
  // By two passes of this cost, replayed as one in so much time.
  Joined saved_by(const BlockCost& cost, SimTime time, SimTime exposed) const;
  Joined join_stages(const std::vector<LayerRun>& forward, const std::vector<LayerRun>& backward);
  std::vector<Step> scaled(std::vector<Step> steps) const;
  PassCost queue(const std::vector<Step>& steps, Seconds host) const;
  PassCost with_host(PassCost cost) const;

  struct Models {
    models::Network network;
    topologies::Cluster cluster;
    costmodel::DeviceModel device;
    costmodel::CollectiveModel collectives;
    Execution execution;
  };
  std::shared_ptr<const Models> models_;
  const models::Network& network_;
  const topologies::Cluster& cluster_;
  const costmodel::DeviceModel& device_;
  const costmodel::CollectiveModel& collectives_;
  const Execution& execution_;
  std::vector<costmodel::DeviceModel> devices_;  // by tensor rank; empty: all as device_
  DType precision_;
  std::int64_t sequence_;
  std::vector<std::int64_t> packed_;  // of a plan of one pack: the tokens of its sequences
  std::unordered_map<Key, std::unique_ptr<BlockCost>, KeyHash> cache_;
  std::unordered_map<Key, JoinedLayers, KeyHash> joined_;  // under the draw
  // Layers of stages that were joined, by number, and pairs of these: forward and backward.
  struct LayersHash {
    std::size_t operator()(const std::vector<LayerRun>& layers) const;
  };
  std::unordered_map<std::vector<LayerRun>, std::uint32_t, LayersHash> layer_lists_;
  std::unordered_map<std::uint64_t, Joined> joined_stages_;  // under the draw
  const BlockCosts* data_costs_ = nullptr;
  const BlockCosts* expert_costs_ = nullptr;
  std::vector<const BlockCosts*> expert_peers_;
  std::optional<CostFactors> factors_;
  std::unordered_map<Key, BlockSteps, KeyHash>
      steps_;  // of the cached blocks, once there is a draw
};

}  // namespace orrery::plan
