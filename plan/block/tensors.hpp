// SPDX-License-Identifier: Apache-2.0
// What the memory of a block needs to know of its tensors on one device: sizes in the layouts in
// which they are produced and read, which of them are saved, which collectives make a copy.
// Questions only; memory_events.hpp has the events. O(operators) each.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/block/cost.hpp"
#include "plan/block/gathered.hpp"
#include "plan/block/memory.hpp"
#include "plan/block/memory_facts.hpp"

namespace orrery::plan {

inline constexpr int kExchangeStream = 3;  // beside those of gathers and reductions
inline std::size_t slot_of(int index) { return static_cast<std::size_t>(index); }
bool contains(const std::vector<int>& list, int value);

// Tokens that a layer of experts sends to the ranks of their experts and takes back.
struct RoutedTokens {
  bool holds = false;      // MemoryFacts::routed_variables, and there are such tokens
  bool exchanged = false;  // between ranks
  bool sorted = false;     // by expert behind the exchange: several experts on a device
  bool quantised = false;  // tokens on their way to experts, and gradients of what these give back
  int sent = -1;           // tensors: tokens as permuted, results of the experts
  int returned = -1;
  std::size_t dispatch = 0;  // operators: permutes tokens, first product of the experts, combines
  std::size_t experts = 0;
  std::size_t combine = 0;
  std::size_t end = 0;  // the last one of the layer's function, which lets go of its variables
};

// Self-attention of Megatron-LM: queries, keys and values are views of what one product makes.
// Rotary positions make new queries and keys; values are copied for attention.
struct AttentionLayer {
  static constexpr std::size_t kNone = static_cast<std::size_t>(-1);
  std::size_t core = kNone;  // operators: attention, the product whose outputs are views
  std::size_t split = kNone;
  std::size_t end = kNone;  // the product behind attention, with which the layer's function ends
  int split_value = -1;     // a tensor
  int split_query = -1;     // copied because its groups of heads are not adjacent
  bool latent = false;      // the views are gone before attention runs
  bool holds = false;       // MemoryFacts::attention_variables
};

class BlockTensors {
 public:
  BlockTensors(const BlockContext& context, const MemoryFacts& facts);

  std::int64_t bytes_of(const models::Tensor& tensor, const Layout& layout) const;
  std::int64_t stream_bytes(int tensor) const;
  std::int64_t weight_elements(std::size_t index, int weight) const;
  // Weights that take part in the products, without biases.
  std::int64_t gemm_elements(std::size_t index) const;
  // Of an operator's weights as its backward makes it; 0 for those of no table and no product.
  std::int64_t weight_gradient_bytes(std::size_t index) const;
  std::int64_t local_experts(std::size_t index) const;
  // Elements of the weights of every operator.
  void list_weights(BlockMemory& memory) const;
  // Whether the forward scatters partial sums of the tensor, so that the backward gathers.
  bool is_scattered(int tensor) const;
  bool read_after(std::size_t index, int tensor) const;
  Layout required(std::size_t index, std::size_t position) const;
  bool gathers(int tensor, const Layout& to) const;
  bool moves(int tensor, const Layout& to) const;
  // Whether the operator keeps a part of what every rank of an axis made, and nobody keeps more.
  bool takes_part(std::size_t index, int tensor) const;
  // Whether sums are reduced and scattered.
  bool scatters(int tensor, const Layout& to) const;
  // Whether the backward gathers this input of a product again.
  bool regathers(std::size_t index, int tensor) const;
  // Whose memory that copy is in, where heads are exchanged on a stream of their own; else 0.
  int exchange_stream(int tensor, const Layout& to) const;
  // A placeholder of a weight gradient that all layers share (MemoryFacts), of one expert.
  bool has_placeholder(std::size_t index) const;
  std::int64_t placeholder_bytes(std::size_t index) const;
  // Fused attention adds up the gradient of the queries in fp32 beside the gradients it returns
  // (FlashAttention's dq_accum, cuDNN's dQ_accum): bytes, 0 for other operators.
  std::int64_t query_sums(std::size_t index) const;
  // Bytes of the buffer that a gather fills; 0 where nothing is gathered. SUMMA holds two pieces,
  // unless the copy waits for the backward.
  std::int64_t gathered_bytes(const models::Tensor& tensor, const Layout& from, const Layout& to,
                              bool waits) const;
  // Of a tensor in the 8 bits in which tokens travel to experts, with their scales.
  std::int64_t quantised_bytes(const models::Tensor& tensor, const Layout& layout) const;
  // Of all weights of an operator that a mesh stores sharded.
  std::int64_t gathered_weights(std::size_t index, bool waits) const;
  // Whether what the block gathers lands in a buffer that stays.
  bool in_gather_buffer() const;
  // The fused attention whose output the tensor is: its backward reads the output as it wrote it,
  // whatever becomes of it afterwards.
  int attention_of(int tensor) const;
  // Whether it keeps that output for itself alone.
  bool keeps_result(int attention) const;
  // Saved as the operator sees it, where no tensor of the chain is that.
  std::int64_t extra_bytes(std::size_t index, const models::Saved& saved) const;
  std::int64_t cast_gradient_bytes(int tensor) const;  // of a tensor, as products cast it
  bool is_produced(int tensor) const;
  bool is_tensor_itself(const models::Saved& saved) const;
  LossMemory loss_memory() const;
  std::int64_t fp32_logits(std::size_t index) const;
  bool passes_through(const models::Operator& op) const;
  bool has_gradient(int tensor) const;
  // Whether an operator whose backward is still to come holds the tensor.
  bool saved_before(std::size_t index, int tensor) const;
  // Outputs of a fused product that one operator reads together are one buffer (gate and up): the
  // first of them holds the others.
  bool holds_itself(int tensor) const { return holder_[slot_of(tensor)] == tensor; }
  // Over a tensor and those that it holds.
  template <typename Bytes>
  std::int64_t sum_held(int tensor, Bytes bytes) const {
    std::int64_t sum = bytes(tensor);
    for (std::size_t slot = 0; slot < holder_.size(); ++slot) {
      const int other = static_cast<int>(slot);
      sum += other != tensor && holder_[slot] == tensor ? bytes(other) : 0;
    }
    return sum;
  }
  // Whether it is part of a tensor that has a buffer.
  bool is_view(int tensor) const;
  // Whether the operator reads tokens from or for other experts.
  bool is_routed(std::size_t index, int tensor) const;

 protected:
  const BlockContext& context_;
  const models::Block& block_;
  const MemoryFacts& facts_;
  BlockRules rules_;
  std::vector<Layout> produced_;
  std::vector<Assignment> assignments_;
  std::vector<std::vector<models::Saved>> kept_;  // by operator (plan/block/kept.hpp)
  std::vector<int> holder_;                       // of a tensor's bytes
  GatheredCopies copies_;
  RoutedTokens routed_;
  AttentionLayer attention_;
  std::vector<std::size_t> order_;  // of operators
  std::vector<std::size_t> rank_;   // of an operator in it

 private:
  // Whether a collective of that kind is among those that bring a tensor into a layout.
  bool makes(int tensor, const Layout& to, sim::CommKind kind) const;
  void find_holders();
  void find_routed();
  void find_attention();
  bool is_split(const models::Operator& product) const;
  // Megatron-LM runs shared experts before the others (core/transformer/moe/moe_layer.py,
  // experts_compute).
  void find_order();
};

}  // namespace orrery::plan
