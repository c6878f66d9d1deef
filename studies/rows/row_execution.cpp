// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <cctype>
#include <cstdlib>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/text.hpp"
#include "base/words.hpp"
#include "studies/rows/cloud_recipes.hpp"
#include "studies/rows/expert_kernels.hpp"
#include "studies/rows/row_plan.hpp"
#include "studies/rows/row_words.hpp"
#include "studies/rows/settings.hpp"
#include "studies/rows/stated_attention.hpp"
#include "studies/rows/stated_dispatch.hpp"
#include "studies/rows/stated_gradients.hpp"
#include "studies/rows/stated_optimizer.hpp"
#include "studies/rows/stated_overlap.hpp"
#include "studies/rows/stated_scaling.hpp"

namespace orrery::studies {
namespace {

// With scales of tensors or of blocks.
bool is_fp8(const Measurement& row) { return row.precision == "fp8" || row.precision == "mxfp8"; }

// NeMo's recipes with gradients in 16 bits: all of fp8 (NVIDIA/NeMo scripts/performance/helpers.py:
// grad_reduce_in_fp32 = False), those of Nemotron in bf16, too (nemo/collections/llm/recipes, their
// performance mode).
bool recipe_has_half_gradients(const Measurement& row, const FrameworkFacts& framework) {
  if (const CloudRecipe* recipe = cloud_recipe(row, framework); recipe != nullptr) {
    return recipe->half_gradients;
  }
  const bool nemotron = letters_and_digits(row.model_name).find("nemotron4") != std::string::npos;
  return framework.name == "NeMo" && (nemotron || is_fp8(row));
}

// As stated, or as the other counts leave it.
bool has_one_micro_batch(const Measurement& row) {
  const bool follows = !row.num_microbatches && row.global_batch && row.micro_batch && row.dp;
  return row.num_microbatches == 1 || (follows && *row.global_batch <= *row.micro_batch * *row.dp);
}

// NeMo's scripts/performance/helpers.py asks for cross_entropy_fusion_impl = "te" since June 2025,
// between the releases 25.04 and 25.07.
bool has_loss_of_engine(const Measurement& row, const FrameworkFacts& framework) {
  constexpr auto kReleases =
      std::to_array<std::string_view>({"25.07", "25.08", "25.09", "25.10", "25.11", "26."});
  const std::string release = row.framework + "; " + row.origin;
  // Not the end of another number: NCCL 2.26.2.
  const auto names = [&](std::string_view name) {
    std::size_t at = release.find(name);
    while (at != release.npos && at > 0 && (is_digit(release[at - 1]) || release[at - 1] == '.')) {
      at = release.find(name, at + 1);
    }
    return at != release.npos;
  };
  return framework.name == "NeMo" && std::ranges::any_of(kReleases, names);
}

// FSDP's gathers in fp8 (torchtitan: enable_fsdp_float8_all_gather).
bool states_fp8_gathers(const Measurement& row) {
  constexpr auto kNames = std::to_array<std::string_view>(
      {"fp8 all-gather", "fp8 all gather", "fp8 allgather", "float8 all-gather",
       "float8 all gather", "float8 allgather", "float8_all_gather"});
  return std::ranges::any_of(
      kNames, [&](std::string_view name) { return says_and_means(row.precision_detail, name); });
}

// Their fp8 recipes keep parameters in fp8 and gather them so (NVIDIA/dgxc-benchmarking:
// fp8_params; Megatron-Bridge training/mixed_precision.py: fp8_param_gather, fp4_param_gather), but
// for scales of blocks (Megatron-LM core/distributed/param_and_grad_buffer.py: a bf16 buffer).
// torchao casts the shards of FSDP where asked to (torchao/float8/fsdp_utils.py).
bool gathers_quantised_weights(const Measurement& row, const FrameworkFacts& framework) {
  const bool blocks = row.precision == "mxfp8" || mentions(row.precision_detail, "mxfp8");
  const bool eight_bits = is_fp8(row) && !blocks;
  return states_fp8_gathers(row) ||
         (eight_bits && (framework.name == "NeMo" || framework.name == "Megatron-Bridge")) ||
         (row.precision == "nvfp4" && framework.name == "Megatron-Bridge");
}

// Types of gradients that a remark states.
void apply_gradients(const Measurement& row, plan::Execution& execution) {
  if (has_pure_precision(row)) {
    execution.fp32_gradients = false;
  }
  if (const auto stated = stated_fp32_gradients(row.notes + "; " + row.precision_detail)) {
    execution.fp32_gradients = *stated;
  }
}

// What stands behind the 0 of a release: "12.1" of Megatron-LM 0.12.1, "8.0" of Megatron-Core
// r0.8.0 and of Megatron-LM core_r0.8.0; nothing for other frameworks.
std::string core_release(std::string_view framework) {
  const std::string words = with_signs_as(to_lower(framework), " _", '-');
  for (const std::string_view name : {"megatron-lm", "megatron-core", "mcore"}) {
    std::size_t at = words.find(name);
    at = at == words.npos ? at : words.find("0.", at);
    if (at != words.npos && std::isdigit(static_cast<unsigned char>(words[at - 1])) == 0 &&
        words[at - 1] != '.') {
      return words.substr(at + 2);
    }
  }
  return "";
}

// Releases of Megatron-Core after 0.12.0 multiply router weights into the experts' activations
// (core/transformer/moe/token_dispatcher.py, core/fusions/fused_bias_swiglu.py).
bool weighs_activations(std::string_view framework) {
  const std::string release = core_release(framework);
  const int minor = std::atoi(release.c_str());
  return minor > 12 || (minor == 12 && release.starts_with("12.") && release[3] > '0');
}

// "TE2.11", "TE v2", "Transformer Engine 2".
bool names_transformer_engine_2(std::string_view framework) {
  constexpr auto kNames =
      std::to_array<std::string_view>({"te2", "tev2", "transformerengine2", "transformerenginev2"});
  return says_any(letters_and_digits(framework), kNames);
}

// Whether the gradients of a run are in its 16 bits. DeepSpeed reduces them so (runtime/engine.py,
// communication_data_type); bf16 ones go to fp32 in BF16_Optimizer, which its stages 2 and 3 do not
// have (the same, _do_optimizer_sanity_check).
bool has_half_gradients(const Measurement& row, const FrameworkFacts& framework) {
  const bool partitioned = mentions(framework.name, "DeepSpeed") && row.zero_stage.value_or(0) >= 2;
  const bool low = row.precision == "bf16" || is_fp8(row);
  return framework.fp16_gradients && (row.precision == "fp16" || (low && partitioned));
}

// Gradients of fewer bits, casts, scales and gathers of fp8.
void apply_precision(const Measurement& row, const FrameworkFacts& framework,
                     plan::Execution& execution) {
  const bool half = has_half_gradients(row, framework);
  if (half || recipe_has_half_gradients(row, framework)) {
    execution.fp32_gradients = false;
  }
  // BF16_Optimizer of DeepSpeed (runtime/bf16_optimizer.py, update_hp_grads): hp.add_(lp.to(fp32)).
  if (row.precision == "bf16" && !half && mentions(framework.name, "DeepSpeed")) {
    execution.cast_gradients = true;
  }
  execution.quantised_gather = gathers_quantised_weights(row, framework);
  // Rows of scales belong to 16-bit gathers (torchtitan docs/float8.md).
  execution.fp8_gathers = !says_and_means(row.precision_detail, "rowwise");
  // TransformerEngine finds current scales in a pass of its own, after a norm in 16 bits, nor do
  // its norms write scales of blocks (pytorch/csrc/extensions/normalization.cpp).
  execution.fp8_scaling = stated_scaling(row).value_or(execution.fp8_scaling);
  // FSDP's fp8 gathers cast shards (torchao/float8/fsdp_utils.py).
  if (states_fp8_gathers(row)) {
    execution.casts_weights = false;
  }
}

// Whether a cell says that layers are compiled: "torch.compile", of torchtitan, which does nothing
// else with the word, "compiled" and "compile=True", too.
bool says_compiled(std::string_view cell, bool titan) {
  constexpr auto kNames =
      std::to_array<std::string_view>({"torch.compile", "torch compile", "torch_compile"});
  constexpr auto kSettings = std::to_array<std::string_view>(
      {"compile=true", "compile = true", "compile: true", "compile=1", "--compile", "compile=on"});
  constexpr auto kShort = std::to_array<std::string_view>({"compile", "compiled"});
  constexpr auto kOthers =  // "eager vs compile", "compiled from source", "compiled with gcc"
      std::to_array<std::string_view>(
          {"eager", "from", "against", "cuda", "nccl", "gcc", "nvcc", "clang", "results", "table"});
  constexpr std::string_view kGraphs = "cuda graph";
  const std::vector<std::string> clauses = asserted_clauses(cell);
  return std::any_of(clauses.begin(), clauses.end(), [&](std::string clause) {
    if (const std::size_t at = clause.find(kGraphs); at != clause.npos) {
      clause.erase(at, kGraphs.size());  // "torch.compile + CUDA graphs"
    }
    const bool named = says_any(clause, kNames) || says_any(clause, kSettings) ||
                       (titan && has_word(clause, kShort));
    const bool of_loss = clause.find("only") != clause.npos && clause.find("loss") != clause.npos;
    return named && !of_loss && !has_word(clause, kOthers);
  });
}

// Kernels that need no logits in fp32, or few of them at a time.
bool says_fused_loss(const Measurement& row) {
  constexpr auto kNames = std::to_array<std::string_view>(
      {"fused ce", "fused cross entropy", "fused crossentropy", "fused linear cross entropy",
       "fused linear ce", "chunked cross entropy", "chunked ce", "cross entropy fusion",
       "cross entropy loss fusion", "liger flce", "flce", "cut cross entropy", "chunked loss",
       "chunked losses", "linear cross entropy fused"});
  // Liger's patches of a whole model fuse the loss, too, unless a list of them leaves it out.
  constexpr auto kLiger = std::to_array<std::string_view>({"liger kernel", "liger kernels"});
  constexpr auto kParts = std::to_array<std::string_view>(
      {"rmsnorm", "swiglu", "rope", "norm", "norms", "layernorm", "geglu"});
  constexpr auto kLoss = std::to_array<std::string_view>({"ce", "cross entropy", "loss"});
  const std::string said = asserted_with_blanks(row.notes);
  const bool liger = has_word(said, kLiger) && (!has_word(said, kParts) || has_word(said, kLoss));
  return liger || has_word(said, kNames);  // not "unfused"
}

// "reshard_after_forward=False", "no reshard after forward": what a forward gathers stays.
void apply_resharding(const Measurement& row, plan::Execution& execution) {
  constexpr auto kNames = std::to_array<std::string_view>({"reshard after forward"});
  const std::string remarks =
      row.notes + "; " + row.precision_detail + "; " + row.zero_detail + "; " + row.overlap;
  if (row.zero_stage == 3 && switch_set(remarks, kNames) == false) {
    execution.reshard_after_forward = false;
  }
}

// What torch.compile changes. torchtitan asks for it with float8 (docs/float8.md); asynchronous
// tensor parallelism is a pass of it.
void apply_compiler(const Measurement& row, const FrameworkFacts& framework,
                    plan::Execution& execution) {
  const bool titan = framework.name == "torchtitan";
  const bool late = row.year.value_or(0) >= 2025;
  const bool needs_compiler =
      titan && (is_fp8(row) || row.overlap_says("async tp") || row.overlap_says("async tensor"));
  if (needs_compiler || says_compiled(row.notes, titan) || says_compiled(row.framework, titan)) {
    execution.fused_kernels = true;
    execution.softmax = plan::Softmax::Compiled;
    execution.eager_elementwise = false;
    execution.joins_gradients = false;  // kernels of gradients write their part of the whole
    // Equal expressions are computed once (torch/_functorch/compile_utils.py, fx_graph_cse).
    execution.reuses_gathered = execution.gathered_ring;
    // Until April 2025 Inductor moved collectives right before the kernel that waits for them
    // (pytorch/pytorch pull request 150074).
    execution.overlap_context = late;
  }
  if (const CloudRecipe* recipe = cloud_recipe(row, framework); recipe != nullptr) {
    execution.compiled_loss = recipe->fused_loss;
  }
  // torchtitan compiles the loss with the layers since February 2025.
  // Remarks on recipes that have Megatron-Core's fusion mean that one.
  if ((says_fused_loss(row) && !execution.compiled_loss) || has_loss_of_engine(row, framework) ||
      (execution.fused_kernels && titan && late)) {
    execution.fused_cross_entropy = true;
    execution.compiled_loss = false;
  }
}

}  // namespace

bool names_graphs(const Measurement& row) {
  constexpr auto kNames = std::to_array<std::string_view>({"cuda graph", "cudagraph"});
  const std::string remarks =
      row.notes + "; " + row.framework + "; " + row.variant + "; " + row.overlap;
  return says_any(asserted_with_blanks(remarks), kNames);
}

plan::Execution row_execution(const Measurement& row, const FrameworkFacts& framework) {
  plan::Execution execution = framework.execution;
  apply_precision(row, framework, execution);
  execution.weighted_activations |= weighs_activations(row.framework);
  if (keeps_whole(framework, row.pp.value_or(1))) {
    execution.fp32_parameters = false;  // 16 bits beside the fp32 shard
    execution.master_weights = true;
  }
  execution.overlap_grad_reduce |=
      framework.reduces_unsharded_beside && row.zero_stage.value_or(0) == 0;
  apply_overlap(row, framework, execution);
  constexpr auto kFusion = std::to_array<std::string_view>({"gradient accumulation fusion"});
  if (const auto fused = switch_set(remarks_of(row), kFusion)) {
    execution.fused_grad_accumulation = *fused;
  }
  if (has_one_micro_batch(row)) {
    execution.fused_grad_accumulation = true;  // the first gradient of a step is not added
  }
  if (keeps_no_master(row)) {
    execution.master_weights = false;
    execution.fp32_parameters = false;
    execution.fp32_gradients = false;
  }
  apply_gradients(row, execution);
  apply_resharding(row, execution);
  apply_attention(row, framework, execution);
  execution.blocking_launches = row.notes_say("CUDA_LAUNCH_BLOCKING");
  execution.cuda_graphs = names_graphs(row);
  if (framework.shared_output_runs_ahead && !row.variant.empty() && row.variant != "redis") {
    execution.synchronised_messages = false;
  }
  apply_compiler(row, framework, execution);
  apply_dispatch(row, execution);
  apply_expert_kernels(row, execution);
  if (const auto optimizer = stated_optimizer(row)) {
    execution.optimizer_state_bytes = optimizer->state_bytes;
  }
  return execution;
}

plan::MemoryFacts row_memory(const Measurement& row) {
  const FrameworkFacts& framework = framework_of(row).facts;
  plan::MemoryFacts memory = framework.memory;
  memory.keeps_last_outputs &= row.pp.value_or(1) > 1;
  const bool half = has_half_gradients(row, framework);
  if (row.precision == "bf16" && !half && mentions(framework.name, "DeepSpeed")) {
    // BF16_Optimizer: fp32 gradients in a flat buffer beside those of the backward.
    memory.keeps_low_gradients = true;
    memory.step = plan::OptimizerStep::Fused;
    memory.bucket_elements = 0;
  } else if (half) {
    memory.step = plan::OptimizerStep::HalfToFloat;  // Float16Optimizer copies gradients to fp32
  }
  const int minor = std::atoi(core_release(row.framework).c_str());
  memory.routed_variables &= minor == 0 || minor >= 13;  // MoELayer.custom_forward
  if (names_transformer_engine_2(row.framework)) {
    memory.weight_gradient = plan::WeightGradient::Cached;  // get_dummy_wgrad
    memory.output_placeholder = minor >= 14;                // core/tensor_parallel/layers.py
    memory.exchange_stream = true;                          // flash_attn_a2a_communicate
    // Its own, one more for each of four streams of grouped products (cpp_extensions/gemm.py).
    memory.product_workspaces = row.experts.value_or(0) > 0 ? 6 : 2;
    if (says_fused_loss(row)) {
      memory.loss = plan::LossMemory::InLogits;  // --cross-entropy-fusion-impl te
    }
  }
  if (memory.step == plan::OptimizerStep::FlatThenAdam && row.zero_stage == 3) {
    memory.step = plan::OptimizerStep::FloatAndAdam;  // fsdp_optimizer.py
    memory.copies_into_buffer = false;
    memory.whole_at_start = true;
    memory.frees_sharded_gradients = true;
    memory.bucket_elements = 0;
  }
  return memory;
}

}  // namespace orrery::studies
