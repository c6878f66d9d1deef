// SPDX-License-Identifier: Apache-2.0
// What an input and an output layer cut over all stages cost a device beside their look-ups and
// matrix products, as sail-sg/VocabularyParallelism runs them
// (megatron/core/tensor_parallel/vocab_output.py,
// megatron/core/pipeline_parallel/vocab_parallel_schedule.py and interlaced_schedule.py):
//   kernels      the hidden state arrives in fp32 and is copied and cast; the softmax of a shard is
//                rescaled once the others are known; with one barrier it is cast for the input
//                gradient in S already, whose two parts are then scaled and subtracted
//   collectives  the barriers', the sum of the input layer's shards and the broadcast of its
//                gradient: of the input layer in line where shards run all together, else beside
//                the passes, of whose multiprocessors they take some while they move bytes. While
//                they wait for the last device they take next to none: a small all-reduce is before
//                each large collective (comm_wait_tensor, the maximum of the logits), and NCCL runs
//                it on one channel.
//   tensor ranks  cut the vocabulary once more. What they exchange stands in line in the passes, as
//                Megatron-LM's vocabulary-parallel layers do it: the loss's statistics, the sum of
//                hidden gradients and of looked-up rows; with sequence parallelism tokens are
//                gathered before the head and sums are scattered.
// O(1).
#pragma once

#include <string_view>
#include <vector>

#include "plan/stage/stage.hpp"
#include "sim/schedule.hpp"

namespace orrery::plan {

struct ShardTimes {
  Seconds forward;         // of S or IF
  Seconds backward;        // of T or IB
  Seconds collectives;     // of both: in line, or what those beside them take
  Seconds tensor_forward;  // of them, collectives of the tensor ranks
  Seconds tensor_backward;
};
// On every device for every micro-batch, or a slice of one; without barriers all devices run their
// shards together.
ShardTimes shared_output_times(const Plan& plan, int barriers, const BlockCosts& costs,
                               const Slice& slice = {});
ShardTimes shared_input_times(const Plan& plan, int barriers, const BlockCosts& costs,
                              const Slice& slice = {});

// What the devices exchange for their shards of the head or of the embedding, of a micro-batch or a
// slice of one: with the last or first stage and, of the loss's two statistics, among themselves;
// and what tensor ranks exchange within each stage.
struct ShardCollective {
  sim::PassKind pass = sim::PassKind::Forward;
  sim::CommKind kind = sim::CommKind::None;
  Bytes bytes;
  std::string_view of;
  bool of_tensor_ranks = false;  // else of the stages
};
std::vector<ShardCollective> shard_collectives(const Plan& plan, models::BlockKind kind,
                                               const Slice& slice = {});

// Of the order's edges, which are between shards and the first and last stage: the collectives that
// run beside the passes, of one micro-batch's boundary between stages.
std::vector<SimTime> shard_latencies(const Plan& plan, const sim::PipelineOrder& order,
                                     Bytes boundary, const BlockCosts& costs);

// Bytes of the broadcast of a hidden state: in fp32, with the gradient of a token's loss beside it,
// unless all devices meet for it.
Bytes hidden_broadcast_bytes(const Plan& plan, Bytes boundary);

}  // namespace orrery::plan
