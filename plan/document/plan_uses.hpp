// SPDX-License-Identifier: Apache-2.0
// What a plan has, over all of its blocks: what fields of its document need to have an effect.
#pragma once

#include "plan/plan.hpp"

namespace orrery::plan {

struct PlanUses {
  const Plan& plan;
  bool serving = false;
  bool training = false;
  bool tensor_parallel = false;
  bool sequence_parallel = false;
  bool tensor_mesh = false;       // of more than one dimension
  bool cut_adapters = false;      // over tp ranks, which gather what is between their products
  bool gathers_again = false;     // inputs of products, where execution says so
  bool whole_boundaries = false;  // tp ranks that all hold the stream
  bool ring = false;
  bool recomputed_ring = false;    // whole blocks run again
  bool recomputed_gather = false;  // the same of blocks that gather keys
  bool context_parallel = false;
  bool exchanges_heads = false;  // of context ranks
  bool expert_parallel = false;
  bool sends_tokens = false;  // to experts on other ranks: not where all have them
  bool shared_experts = false;
  bool hides_exchanges = false;  // under them
  bool pipeline = false;
  bool data_parallel = false;
  bool shards_states = false;  // ZeRO of any stage over several ranks
  bool zero1 = false;
  bool zero3 = false;
  bool wide_shards = false;      // of ZeRO-3, on several nodes
  bool frozen_products = false;  // all that are quantised
  bool scatters_gradients = false;
  bool device_optimizer = false;
  bool host_optimizer = false;
  bool sharded_host_optimizer = false;  // ZeRO of any stage, over one rank too
  bool device_gradients = false;
  bool trained_table = false;       // of an embedding
  bool fetched_parameters = false;  // that live off the device
  bool biases = false;
  bool epilogue_biases = false;  // in the epilogues of products
  bool loss_passes = false;      // Megatron's loss, not one kernel
  bool keeps_norms = false;      // some layers do not run again
  bool eager_kinds = false;      // RMS norms, rotary positions or gated activations
  bool split_products = false;   // autograd joins the gradients of parts of one product
  bool grouped_heads = false;    // several query heads share keys and values
  bool fp8 = false;
  bool quantised = false;  // fp8 or nvfp4
  bool delayed_scaling = false;
  bool sixteen_bits = false;  // or fewer: parameters are narrower than fp32
  bool slices = false;
};

PlanUses uses_of(const Plan& plan);

}  // namespace orrery::plan
