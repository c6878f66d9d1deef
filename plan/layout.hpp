// SPDX-License-Identifier: Apache-2.0
// Sharding by one rule set (docs/layouts.md). A mesh has named axes; each
// operator assigns every axis to at most one of its index variables (Rule 1); the layouts its
// operands must have and its outputs get follow (Rule 2); a conversion between two layouts is at
// most one collective per axis (Rule 3); gradients take the adjoint (Rule 4). No strategy is
// named here: data, tensor, sequence, context and expert parallelism and ZeRO are assignments.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "base/units.hpp"
#include "models/operators.hpp"
#include "plan/tensor_shares.hpp"
#include "sim/engine/tags.hpp"

namespace orrery::plan {

using models::Var;

// Axes of the mesh of one stage. Tensor-parallel ranks are a mesh of columns, rows and depth, of
// which 1-D tensor parallelism uses the columns only. Context ranks may be two axes, the inner one
// trading tokens for heads around attention (Ulysses inside a ring), or with other experts on each
// rank where the outer one has copies of them. Data ranks are cut into the expert-parallel part
// (inner), the part that shards states (ZeRO) and the part that replicates them (HSDP).
enum class Axis : std::uint8_t {
  Tensor,
  TensorRow,
  TensorDepth,
  ContextHeads,
  Context,
  Expert,
  Shard,
  Replica
};
inline constexpr int kNumAxes = 8;
inline constexpr std::array<Axis, kNumAxes> kAxes = {
    Axis::Tensor,  Axis::TensorRow, Axis::TensorDepth, Axis::ContextHeads,
    Axis::Context, Axis::Expert,    Axis::Shard,       Axis::Replica};
inline constexpr std::array<Axis, 3> kTensorAxes = {Axis::Tensor, Axis::TensorRow,
                                                    Axis::TensorDepth};
inline constexpr std::array<Axis, 2> kContextAxes = {Axis::ContextHeads, Axis::Context};
constexpr bool is_tensor_axis(Axis axis) { return axis <= Axis::TensorDepth; }
// "tp", "tp-row", "tp-depth", "cp-heads", "cp", "ep", "dp", "dp-replica"
std::string_view to_text(Axis axis);

struct Mesh {
  std::array<int, kNumAxes> size{1, 1, 1, 1, 1, 1, 1, 1};
  Axis innermost = Axis::Tensor;  // the tensor axis whose ranks are neighbours
  // The axis before which the expert axis is counted; Tensor: before all.
  Axis expert_before = Axis::Shard;
  TensorShares shares{};  // of the tensor axis; empty: equal
  int tensor_rank = 0;    // with shares: the rank whose extents are meant
  int of(Axis axis) const { return size[static_cast<std::size_t>(axis)]; }
  // The axes as ranks are counted, fastest first.
  std::array<Axis, kNumAxes> order() const;
  // Distance in ranks between neighbours along the axis.
  int stride(Axis axis) const;
  // Consecutive ranks that the ranks of a group over these axes are among.
  std::int64_t span(std::span<const Axis> axes) const;
  int num_ranks() const;
};

// How one axis treats a tensor: replicated, partial sums, or sharded along a variable.
class Placement {
 public:
  static constexpr Placement replicated() { return Placement(-1); }
  static constexpr Placement partial() { return Placement(-2); }
  static constexpr Placement sharded(Var var) { return Placement(static_cast<std::int8_t>(var)); }
  constexpr bool is_replicated() const { return code_ == -1; }
  constexpr bool is_partial() const { return code_ == -2; }
  constexpr bool is_sharded() const { return code_ >= 0; }
  constexpr Var var() const { return static_cast<Var>(code_); }
  constexpr bool operator==(const Placement&) const = default;

 private:
  explicit constexpr Placement(std::int8_t code) : code_(code) {}
  std::int8_t code_;
};

class Layout {
 public:
  Layout() { placement_.fill(Placement::replicated()); }
  Placement operator[](Axis axis) const { return placement_[static_cast<std::size_t>(axis)]; }
  void set(Axis axis, Placement placement) {
    placement_[static_cast<std::size_t>(axis)] = placement;
  }
  bool operator==(const Layout&) const = default;

 private:
  std::array<Placement, kNumAxes> placement_{Placement::replicated(), Placement::replicated(),
                                             Placement::replicated(), Placement::replicated(),
                                             Placement::replicated(), Placement::replicated(),
                                             Placement::replicated(), Placement::replicated()};
};

// Rule 1 for one operator: the variable of every axis, if any.
using Assignment = std::array<std::optional<Var>, kNumAxes>;

// Per axis, the variables it may be assigned to, in order of preference: the whole strategy.
struct AxisRules {
  std::array<std::vector<Var>, kNumAxes> preference;
  // Axes that never take a variable that a product sums over, so that its output is whole and its
  // input is gathered instead (the columns of a two-dimensional mesh).
  std::array<bool, kNumAxes> outputs_only{};
  // Axes on which weights that an operator needs whole are stored sharded: gathered where they
  // are used, their gradients reduced and scattered.
  std::array<bool, kNumAxes> shards_weights{};
  // Axes whose ranks have copies of the same experts: what works on routed tokens takes none but
  // those along which tokens are cut.
  std::array<bool, kNumAxes> copies_experts{};
};

// The first preferred variable of each axis that occurs in the operator's iteration space.
Assignment assign(const models::Block& block, const models::Operator& op, const AxisRules& rules);

// Whether the operator iterates over the variable (KvHead counts as Head; an Expert axis shards
// activations along Choice, the copies of a token).
bool iterates_over(const models::Block& block, const models::Operator& op, Var var);

// Whether it works on the copies of tokens that experts take, between dispatch and combination.
bool works_on_copies(const models::Block& block, const models::Operator& op);

// Whether it sums over the variable (KvHead counts as Head).
bool sums_over(const models::Operator& op, Var var);

// Rule 2. The k and v inputs of attention are read at all key positions: an axis assigned to Seq
// needs them replicated. One assigned to KeySeq has parts of them, and its output is partial:
// numerators and sums of a softmax, which a reduction merges (flash decoding).
Layout required_input(const models::Operator& op, const models::Tensor& tensor, int position,
                      const Assignment& assignment);
Layout produced_output(const models::Operator& op, const models::Tensor& tensor,
                       const Assignment& assignment);
// Layout of the gradient that the operator's backward gives for an operand (partial where the axis
// splits a variable that the operand lacks).
Layout produced_gradient(const models::Operator& op, const models::Tensor& tensor, int position,
                         const Assignment& assignment);
// Storage of a weight: as the operator needs it and, on the axes that shard weights, along its
// first dimension that no axis shards yet (along its last when there is none). Vectors (biases,
// norms) stay whole.
Layout stored_weight(const models::Operator& op, const models::Tensor& weight,
                     const Assignment& assignment, const AxisRules& rules);

// Axes over which the ranks' gradients of a weight are summed at the end of a step: those where the
// gradient is partial, unless the block itself scatters it. A bias is added after the sum over the
// reduced variables: where its ranks then have the whole output, each has the whole gradient, but
// where the sums are scattered that of its own part. `read`: the layout in which the output that
// the weight belongs to is read (steps.hpp).
std::array<bool, kNumAxes> summed_axes(const models::Operator& op, const models::Tensor& weight,
                                       const Assignment& assignment, const AxisRules& rules,
                                       const Layout& read);

// By axis, how many ranks next to one another hold the same of a weight that the axis shards: where
// it cuts key and value heads into more parts than there are, each is on several ranks. Their
// gradients of it are of their own query heads, so that they are summed over those ranks.
using Copies = std::array<int, kNumAxes>;
Copies copies_of_heads(const models::Tensor& weight, const Layout& stored, const Mesh& mesh);

// Axes along which a norm's rows are cut, so that it sums one or two values a token over them.
std::vector<Axis> statistics_axes(const models::Block& block, const models::Operator& op,
                                  const Assignment& assignment);

// Rule 4: the layout in which the gradient of a tensor produced as `forward` is needed.
Layout gradient_of(const Layout& forward);

// Rule 3: the collectives that turn `from` into `to`, reductions before gathers, one per axis that
// changes (slices are free). Bytes are filled in by the caller from the extents.
struct Conversion {
  sim::CommKind kind = sim::CommKind::None;
  Axis axis = Axis::Tensor;
  Layout before;  // layout when the collective starts; on `axis` its own source placement
  Layout after;
};
std::vector<Conversion> conversions(const Layout& from, const Layout& to);
// Whether the axis cuts a dimension before the conversion gathers any: a slice does, and a scatter
// of what another axis gathers. Other scatters choose their parts with the exchanges behind them,
// so that where several axes begin to cut one dimension the outermost cuts it first.
bool cuts_before_gathers(const Layout& from, const Layout& to, Axis axis);
// Whether one of them is over several ranks of a mesh.
bool communicates(const Layout& from, const Layout& to, const Mesh& mesh);

// What is left of a conversion for the backward, whose gathers alone are undone in between.
Layout kept_layout(const Layout& from, const Layout& to);

// Local extents of a tensor under a layout. `batch` is the number of sequences of all data ranks
// together, `sequence` the number of tokens. Where a mesh has tensor shares they are those of its
// rank, otherwise uneven shards round up. Choice is not divided here.
struct Extents {
  std::int64_t batch = 1;
  std::int64_t sequence = 1;
  std::int64_t keys = 0;  // positions that a slice of the sequence sees; 0: `sequence`
};
std::int64_t local_extent(const models::Dim& dim, const Layout& layout, const Mesh& mesh,
                          const Extents& extents);
std::int64_t local_elements(const models::Tensor& tensor, const Layout& layout, const Mesh& mesh,
                            const Extents& extents);
// Copies of tokens are spread over the experts' ranks as a whole, whichever token they belong to:
// the number of parts that the rows of a tensor with a Choice dimension are cut into.
std::int64_t copy_shards(const Layout& layout, const Mesh& mesh);
// Size in elements of the buffer a collective is said to have (collective_model.hpp): the gathered
// or reduced tensor, for all-to-all the per-rank buffer.
std::int64_t collective_elements(const models::Tensor& tensor, const Conversion& conversion,
                                 const Mesh& mesh, const Extents& extents);

}  // namespace orrery::plan
