// SPDX-License-Identifier: Apache-2.0
// What an output layer cut over all stages costs a device beside its matrix products, as
// sail-sg/VocabularyParallelism runs it (megatron/core/tensor_parallel/vocab_output.py,
// megatron/core/pipeline_parallel/vocab_parallel_schedule.py and interlaced_schedule.py):
//   kernels      the hidden state arrives in fp32 and is copied and cast; the softmax of a shard is
//                rescaled once the others are known; with one barrier it is cast for the input
//                gradient in S already, whose two parts are then scaled and subtracted
//   collectives  beside the barriers', the sum of the input layer's shards and the broadcast of its
//                gradient: in line where shards run all together, else beside the passes, of whose
//                multiprocessors they take some while they move bytes. While they wait for the last
//                device they take next to none: a small all-reduce is before each large collective
//                (comm_wait_tensor, the maximum of the logits), and NCCL runs it on one channel.
// O(1).
#pragma once

#include "plan/stage/stage.hpp"

namespace orrery::plan {

struct SharedOutputTimes {
  Seconds forward;   // of S
  Seconds backward;  // of T
};
// On every device for every micro-batch, or a slice of one; without barriers all devices run their
// shards together.
SharedOutputTimes shared_output_times(const Plan& plan, int barriers, const BlockCosts& costs,
                                      const Slice& slice = {});

// Bytes of the broadcast of a hidden state: in fp32, with the gradient of a token's loss beside it,
// unless all devices meet for it.
Bytes hidden_broadcast_bytes(const Plan& plan, Bytes boundary);

}  // namespace orrery::plan
