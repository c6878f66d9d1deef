// SPDX-License-Identifier: Apache-2.0
// Numbers the buffers of a block and writes its events. A gradient that passes through an addition
// is one buffer with several readers; the last of them releases it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "plan/block/memory.hpp"
#include "plan/block/tensors.hpp"

namespace orrery::plan {

class EventWriter {
 public:
  std::int32_t new_buffer() {
    groups_.push_back(group_);
    return next_buffer_++;
  }
  std::int32_t allocate(std::int64_t bytes, int stream = 0) {
    const std::int32_t buffer = new_buffer();
    events_->push_back({buffer, std::max<std::int64_t>(bytes, 1), stream});
    return buffer;
  }
  void keep_for_all(std::int32_t kind, std::int64_t bytes) { events_->push_back({kind, bytes}); }
  // What exchanges of heads make of tensors of so many bytes, on a stream of their own: each is put
  // in order for the ranks and received, and there put in the order of tokens, one tensor behind
  // the other (TransformerEngine's flash_attn_a2a_communicate, `before` attention or behind it).
  std::vector<std::int32_t> exchange_heads(const std::vector<std::int64_t>& bytes, int stream,
                                           bool before) {
    std::vector<std::int32_t> results;
    std::vector<std::int32_t> buffers;
    for (std::size_t step = 0; step < bytes.size() + 2; ++step) {
      if (step > 0 && step <= bytes.size()) {
        buffers.push_back(allocate(bytes[step - 1]));
      }
      for (const bool ordering : {before, !before}) {
        if (ordering && step > 1) {
          results.push_back(allocate(bytes[step - 2], stream));
        } else if (!ordering && step < bytes.size()) {
          buffers.push_back(allocate(bytes[step]));
        }
      }
    }
    release_all(buffers);
    return results;
  }
  void release(std::int32_t buffer) {
    if (buffer >= 0 && buffer != left_) {
      events_->push_back({buffer, 0});
    }
  }
  void hold(std::int32_t buffer) {
    if (slot_of(buffer) >= references_.size()) {
      references_.resize(slot_of(buffer) + 1, 0);
    }
    ++references_[slot_of(buffer)];
  }

  void drop(std::int32_t buffer) {
    if (buffer >= 0 && --references_[slot_of(buffer)] == 0) {
      release(buffer);
    }
  }
  void release_all(std::vector<std::int32_t>& buffers) {
    for (const std::int32_t buffer : buffers) {
      release(buffer);
    }
    buffers.clear();
  }
  // The first gradient of a tensor is kept; another one is added to it in place and freed.
  void add_to(std::int32_t& known, std::int32_t buffer) {
    if (known < 0) {
      known = buffer;
      return;
    }
    if (is_shared(known) && !is_shared(buffer)) {
      std::swap(known, buffer);  // the one that nobody else reads takes the sum
    }
    drop(buffer);
  }
  // A gradient to a tensor of which it is one, too.
  void pass_on(std::int32_t gradient, std::size_t tensor) {
    if (gradient >= 0) {
      hold(gradient);
      add_to(gradient_of_tensor_[tensor], gradient);
    }
  }
  bool is_shared(std::int32_t buffer) const { return references_[slot_of(buffer)] > 1; }
  void begin_gradients() { references_.assign(static_cast<std::size_t>(next_buffer_), 0); }

  // Passes of the loss over the logits (of so many bytes in fp32) beside the copy that is saved:
  // eager PyTorch makes a float copy and its log-softmax; Megatron works in place in the copy.
  void loss_forward(LossMemory loss, std::int64_t logits, std::vector<std::int32_t>& temporaries) {
    if (loss == LossMemory::Eager || loss == LossMemory::Sharded) {
      temporaries.push_back(allocate(logits));
    }
    if (loss == LossMemory::Sharded) {
      temporaries.push_back(allocate(logits));  // less its maximum
      release(allocate(logits));                // its exponential
    }
  }
  // False: in place in what was saved.
  bool loss_backward(LossMemory loss, std::int64_t logits, std::vector<std::int32_t>& temporaries) {
    if (loss != LossMemory::Eager && loss != LossMemory::Sharded) {
      return false;
    }
    const std::int32_t of_loss = allocate(logits);  // of nll_loss
    if (loss == LossMemory::Sharded) {              // (gradient + exp(x)) x factor
      const std::int32_t exponential = allocate(logits);
      const std::int32_t sum = allocate(logits);
      release(exponential);
      temporaries.push_back(allocate(logits));
      release(sum);
    } else {
      temporaries.push_back(allocate(logits));  // of log_softmax
    }
    release(of_loss);
    return true;
  }

  std::vector<MemoryEvent>* events_ = nullptr;
  std::int32_t next_buffer_ = 0;
  std::int32_t left_ = -1;                          // a buffer that somebody else releases
  OperatorGroup group_ = OperatorGroup::Residuals;  // whose buffers are made now
  std::vector<OperatorGroup> groups_;               // of every buffer
  std::vector<std::int32_t> gradient_of_tensor_;    // its buffer, -1 where there is none

 private:
  std::vector<int> references_;
};

}  // namespace orrery::plan
