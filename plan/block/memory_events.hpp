// SPDX-License-Identifier: Apache-2.0
// Writes the events of one block (memory.hpp). memory.cpp has the forward, memory_backward.cpp the
// backward.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/block/event_writer.hpp"
#include "plan/block/operator_replay.hpp"
#include "plan/block/tensors.hpp"

namespace orrery::plan {

class BlockEvents : private BlockTensors, private EventWriter {
 public:
  BlockEvents(const BlockContext& context, const MemoryFacts& facts, bool gathered, bool casts);
  BlockMemory run();

 private:
  // Which tensors the forward leaves alive.
  enum class Keep : std::uint8_t { Nothing, Saved, Products, Chosen };

  void set_input();
  void forward(Keep keep);
  void forward_operator(std::size_t index, Keep keep, const std::vector<int>& products);
  void leave_logits(int tensor);
  // Whether a copy that this pass gathers waits for the backward.
  static bool waits(GatheredCopy copy, Keep keep) {
    return keep == Keep::Saved ? copy != GatheredCopy::Dropped
                               : keep == Keep::Chosen && copy == GatheredCopy::FromForward;
  }
  // Brings an input into the layout that the operator needs. A gathered copy lives as long as the
  // operator; a scattered or exchanged one, or the part that alone is kept, takes the place of the
  // tensor, and is what is gathered where sums are scattered over one axis and gathered over
  // another.
  void convert(std::size_t index, std::size_t position, Keep keep,
               std::vector<std::int32_t>& temporaries);
  void gather_input(std::size_t index, std::size_t position, Keep keep,
                    std::vector<std::int32_t>& temporaries);
  void move_input(std::size_t index, int tensor, const Layout& to, Keep keep);
  // Queries, keys and values for heads; the attention layer's variables name queries and keys as
  // they were.
  void exchange_for_heads(std::size_t index, Keep keep);
  // The same for tokens on their way to the experts or back, with the buffers that Megatron-LM's
  // variables hold meanwhile.
  void route(std::size_t index, int tensor);
  void create(int output, bool keep);
  void save(std::size_t index, Keep keep);
  // The tensor whose views queries, keys and values are, and the copy of values for attention.
  void create_views(std::size_t index);
  void copy_value();
  // What the variables of layers of experts and attention let go behind an operator.
  void end_layers(std::size_t index);
  // The weights of a product as its pass casts them.
  void cast_weights(std::size_t index, bool backward, std::vector<std::int32_t>& temporaries);
  void take_output();
  // The forward again, with everything that the backward needs kept; returns its output, which
  // lives until the backward has ended.
  std::int32_t replay();

  void backward();
  void operator_backward(std::size_t index);
  // Where the forward scattered an output's partial sums, the backward gathers their gradient.
  void gather_gradients(const models::Operator& op, std::vector<std::int32_t>& temporaries);
  void replay_core(std::size_t index, std::vector<std::int32_t>& temporaries);
  // Gradients of those views become one.
  void join_gradients();
  // The gradient of attention's result comes back for heads; what came stays to the end.
  void exchange_result_gradient(std::size_t index, std::vector<std::int32_t>& temporaries);
  void pass_gradients(const models::Operator& op);
  void input_gradients(std::size_t index, std::vector<std::int32_t>& temporaries);
  std::int32_t input_gradient(std::size_t index, std::size_t position);
  void exchange_gradients(std::size_t index);
  // Gradients of tokens go back the way of their tokens, copy by copy.
  void route_back(int tensor, int copies);
  void weight_gradient(std::size_t index);
  // Of a product in 8 or 4 bits the gradients as they were cast.
  void list_read_by_weight_gradient(std::size_t index, std::vector<std::int32_t>& temporaries);
  std::int64_t cast_gradients(std::size_t index, int output) const;
  void release_leftovers();

  // Inputs and outputs of an operator that are not needed any more; what neighbours share stays.
  template <typename Stays>
  void release_tensors(std::size_t index, Stays stays) {
    const models::Operator& op = block_.operators[index];
    for (const std::vector<int>* list : {&op.inputs, &op.outputs}) {
      for (const int tensor : *list) {
        std::int32_t& buffer = buffer_of_[slot_of(tensor)];
        if (tensor != block_.input && tensor != block_.output && !stays(tensor)) {
          release(buffer);
          buffer = -1;
        }
      }
    }
  }

  bool gathered_;
  bool casts_;
  OperatorReplay chosen_;                // of Recompute::Operators
  bool replaying_ = false;               // its operators alone
  std::vector<std::int32_t> buffer_of_;  // of a tensor, -1 when not live
  std::vector<bool> is_kept_;            // saved for the backward
  std::vector<bool> moved_;
  std::vector<std::int32_t> whole_gradients_;  // beside their parts, of the operator that runs
  std::vector<std::int32_t> scattered_;        // products that were kept before they were scattered
  std::vector<std::vector<std::int32_t>> extras_;  // saved, per operator, beside tensors
  std::vector<std::int32_t> cast_inputs_;          // of those, a product's input as it was cast
  // Of a tensor the gathered gradient that its product's backward reads, -1 where none was
  // gathered.
  std::vector<std::int32_t> gathered_gradients_;
  std::vector<std::int32_t> variables_;  // buffers that a layer of experts holds to its end
  std::vector<std::int32_t> attention_variables_;  // the same of a layer of attention
  BlockMemory result_;
};

}  // namespace orrery::plan
