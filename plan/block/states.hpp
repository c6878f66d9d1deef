// SPDX-License-Identifier: Apache-2.0
// Parameters, gradients and optimizer state of a block under ZeRO, and the collectives that keep
// them consistent (ZeRO, Rajbhandari et al. 2020; docs/layouts.md): a gradient is partial over
// the axes that split the batch; where it is stored decides between all-reduce and reduce-scatter,
// where the optimizer works decides the gather of parameters.
#pragma once

#include <vector>

#include "plan/block/cost.hpp"

namespace orrery::plan {

// What the host's update of a block's parameters takes (docs/memory-tiers.md).
struct HostUpdate {
  std::int64_t parameters = 0;
  ByteCount down;  // gradients that are still on the device
  ByteCount up;    // parameters that live on the device
  ByteCount from_disk;
  ByteCount to_disk;
};

struct StateBytes {
  ByteCount parameters;
  ByteCount frozen;        // of `parameters`: that are not trained
  ByteCount replaced;      // of `parameters`: not held, since cast weights stand for them
  ByteCount cast_weights;  // beside them: devices make them for themselves and never send them
  ByteCount gradients;
  ByteCount optimizer;
  ByteCount gathered;             // whole parameters of the block, where ZeRO-3 shards them
  ByteCount unreduced;            // whole gradients of the block, where ZeRO-2 and 3 shard them
  ByteCount pass_casts;           // weights that a product casts for itself, at most
  std::int64_t local_parameters;  // that the optimizer updates on this device
  ByteCount host;                 // of all this, where offloading puts it
  ByteCount disk;
  ByteCount fetched;  // parameters that come from there for every pass
  ByteCount sent;     // gradients that go there in every backward
  HostUpdate update;
  // That this rank updates, on the device or on its host: of as many it holds the sum of gradients.
  std::int64_t updated() const { return local_parameters + update.parameters; }
  // What of a stage's blocks one has at a time.
  ByteCount of_one_block() const { return unreduced + pass_casts; }
  ByteCount held_parameters() const { return parameters - replaced + cast_weights; }
  StateBytes& operator+=(const StateBytes& other);
};

struct StateTraffic {
  Seconds reduce;           // gradients, once per reduction
  Seconds gather;           // parameters: ZeRO-1/2 once a step, ZeRO-3 for every forward
  Seconds gather_backward;  // ZeRO-3: for every backward
  ByteCount gradient;       // to be reduced, on one device
  Seconds copy_forward;     // of whole parameters and gradients, beside the kernels of a pass
  Seconds copy_backward;
  bool between_nodes = false;
  StateTraffic& operator+=(const StateTraffic& other);
};

// One collective of a block's states: gradients once per reduction, parameters once per gather.
struct StateCollective {
  enum class Use : std::uint8_t { Reduce, Gather, BackwardGather };
  // Of the group: all its ranks, those on one node, or one on each node.
  enum class Span : std::uint8_t { All, InsideNode, AcrossNodes };
  sim::CommKind kind = sim::CommKind::None;
  std::vector<Axis> axes;
  double bytes = 0;  // of the buffer, on one device
  Use use = Use::Reduce;
  Span span = Span::All;
  int neighbours = 0;  // of its one axis so many ranks next to one another; 0: all
  costmodel::GroupShape group(const Mesh& mesh, int gpus_per_node) const;
};

// Whether parameters are gathered in 8 bits or fewer (ZeRO++, or shards cast to fp8): with scales
// of blocks a buffer of 16 bits is (Megatron-LM core/distributed/param_and_grad_buffer.py).
bool gathers_quantised(const Execution& execution, DType precision);
// Bytes of an element then, without scales: integers of 8 bits (ZeRO++), fp8, or two of nvfp4 in a
// byte (Megatron-LM core/fp4_utils.py, get_nvfp4_rowwise_packed_shape).
double quantised_weight_bytes(DType precision);

// Elements of a group that are gathered in 8 bits or fewer: what ZeRO gathers, in fp8 and nvfp4 the
// weights of quantised products alone.
std::int64_t quantised_gather_elements(const StateGroup& group, const BlockPlan& layout,
                                       const Mesh& mesh, const Execution& execution,
                                       DType precision);

// Bytes of the buffer in which ZeRO gathers the parameters of a group.
double gathered_bytes(const StateGroup& group, const BlockPlan& layout, const Mesh& mesh,
                      const Execution& execution, DType precision);

// Whether passes under ZeRO-3 read a group as it was gathered, in 8 bits or fewer: weights of
// products in fp8 or nvfp4. ZeRO++ makes 16 bits of its integers.
bool stays_packed(const StateGroup& group, const BlockPlan& layout, const Mesh& mesh,
                  const Execution& execution, DType precision);

// Ranks that share the states of a group, where they are sharded.
std::int64_t num_shards(const StateGroup& group, const Mesh& mesh);
// Of a parameter in a pass, and of its gradient.
int parameter_bytes(DType precision);
int gradient_bytes(const Execution& execution, DType precision);

// `without_tied` leaves out uses of the token table (the stage holds the table itself).
StateBytes state_bytes(const BlockCost& block, const BlockPlan& layout, const Mesh& mesh,
                       const Execution& execution, DType precision, bool without_tied,
                       int gpus_per_node = 1);
std::vector<StateCollective> state_collectives(const BlockCost& block, const BlockPlan& layout,
                                               const Mesh& mesh, const Execution& execution,
                                               DType precision, bool without_tied,
                                               int gpus_per_node);
StateTraffic state_traffic(const BlockCost& block, const BlockPlan& layout, const Mesh& mesh,
                           const BlockCosts& costs, bool without_tied);

}  // namespace orrery::plan
