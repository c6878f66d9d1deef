// SPDX-License-Identifier: Apache-2.0
// What a training framework does when a measurement does not say otherwise: one table, one row a
// framework, from its documentation and source, never from measured times.
#pragma once

#include <cstdint>
#include <string_view>

#include "plan/block/memory_facts.hpp"
#include "plan/plan.hpp"
#include "studies/rows/measurement.hpp"

namespace orrery::studies {

// Whose attention kernel runs where a row names none: the framework's own (`execution`), the one
// that TransformerEngine chooses for the GPU, or its FlashAttention, told not to use cuDNN's.
enum class AttentionKernel : std::uint8_t { Own, Engine, EngineFlash };

// What a framework's own modules are, where they are not those of the family "gpt".
struct ModuleFacts {
  bool hidden_dropout = true;  // where scripts keep dropout (gpt_dropout)
  bool attention_dropout = true;
  bool relu = false;           // between the products of an MLP, not GELU
  bool product_biases = true;  // of products behind attention and of MLPs are added
  bool masked = true;          // attention is causal
  std::int64_t classes = 0;    // of a classifier in place of the vocabulary's head
};

struct FrameworkFacts {
  std::string_view name;           // found in the `framework` column, by letters and digits
  std::string_view schedule = {};  // of the runs that it is about; empty: of all
  std::string_view network = {};   // the same: begins the network's name, by letters and digits
  bool pads_vocab = false;         // to a multiple of 128 x tp (Megatron's tokenizer padding)
  bool gpt_dropout = false;        // GPT scripts keep the default dropout of 0.1
  ModuleFacts modules = {};
  bool fp16_gradients = false;  // of fp16 runs stay in fp16; others: has_half_gradients
  plan::Execution execution;
  plan::MemoryFacts memory = {};
  std::int64_t first_year = 0;  // of the runs that it is about; 0: from the beginning
  std::int64_t last_year = 0;   // 0: to this day
  // Stages of a pipeline keep what FSDP gathered and reduce gradients once a step, as ZeRO-1 does.
  bool whole_in_pipelines = false;
  bool tf32_products = false;  // runs in fp32 multiply matrices in tf32
  bool sends_beside = false;   // stages send and receive on streams of their own, always
  // Full recomputation ends with the last tensor that the backward needs.
  bool stops_recomputation = false;
  // The decoder of T5 has a quarter of the encoder's tokens, 128 of 512.
  bool short_t5_targets = false;
  bool unties_embeddings = false;  // where a row does not state it
  // Of LoRA, where a row does not state it; 0: no default.
  std::int64_t adapter_rank = 0;
  // Schedules with a shared output layer do not wait for the device after a message.
  bool shared_output_runs_ahead = false;
  // Experts are spread over consecutive ranks, whatever their place in context parallelism.
  bool folds_experts = false;
  AttentionKernel attention = AttentionKernel::Own;
  bool logs_last_stage = false;    // memory that it reports is of the last stage's device
  bool logs_rates_of_gpu = false;  // "tps" and "wps" of its logs are of one GPU
  // Recomputation of its configurations, which rows that do not state it follow: "none", "full" or
  // a policy, as a row's recompute_detail; empty: not known.
  std::string_view recompute = {};
  // Selective recomputation is that of some whole layers, all where a row does not say which.
  bool selects_layers = false;
  // Gradients are reduced beside the backward where no states are sharded (DDP).
  bool reduces_unsharded_beside = false;
  bool shards_states = false;  // over data ranks, as ZeRO-1, where a row does not state it
};

// Whether a run with `pp` stages shards optimizer states alone, whatever its row says.
inline bool keeps_whole(const FrameworkFacts& framework, std::int64_t pp) {
  return framework.whole_in_pipelines && pp > 1;
}

struct RunFacts {
  std::string_view schedule = {};
  std::string_view network = {};
  std::int64_t year = 0;  // of publication; 0: not known
};
// The first row whose name the text mentions and that is about such a run; null when there is none.
const FrameworkFacts* find_framework(std::string_view framework, const RunFacts& run = {});

// The framework of a row. One that the table does not hold is taken as the relative whose methods
// its plan uses: XLA, DeepSpeed, Megatron-LM, PyTorch FSDP or DDP.
struct RowFramework {
  const FrameworkFacts& facts;
  bool stands_in = false;
};
RowFramework framework_of(const Measurement& row);

// Whether parameters are sharded: the row's stage, or what its framework does unless told
// otherwise.
bool shards_parameters(const Measurement& row);

// Whether tensor ranks share sequences between their layers' products where the row does not say.
bool shards_sequences(const Measurement& row);

}  // namespace orrery::studies
