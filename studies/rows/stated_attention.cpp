// SPDX-License-Identifier: Apache-2.0
#include "studies/rows/stated_attention.hpp"

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <string_view>

#include "base/text.hpp"
#include "base/words.hpp"
#include "calibrate/kernel_words.hpp"
#include "studies/rows/cloud_recipes.hpp"
#include "studies/rows/row_cluster.hpp"
#include "studies/rows/row_words.hpp"
#include "topologies/cluster.hpp"

namespace orrery::studies {

bool names_unfused_attention(const std::string& words) {
  constexpr auto kUnfused = std::to_array<std::string_view>(
      {"unfused", "not fused", "non-fused", "non fused", "nonfused", "no flash", "without flash"});
  constexpr auto kOthers = std::to_array<std::string_view>({"eager", "naive", "materiali"});
  constexpr auto kSeparate =
      std::to_array<std::string_view>({"softmax", "standard", "vanilla", "math", "baddbmm"});
  constexpr auto kKernels =
      std::to_array<std::string_view>({"cudnn", "fa2", "fa3", "fa4", "xformers", "efficient"});
  constexpr auto kProducts =
      std::to_array<std::string_view>({"bmm", "matmul", "matmuls", "plain", "original attention"});
  const std::string_view kernel = before_remark(words);  // "cuDNN (standard mask)"
  const bool fused = says_any(kernel, kKernels);
  const std::string_view said = fused ? kernel : std::string_view(words);
  const bool separate = says_any(said, kSeparate) || has_word(said, kProducts);
  return (separate && !mentions(words, "flash")) || says_any(words, kUnfused) ||
         says_any(undenied(words), kOthers);
}

namespace {

// The version of FlashAttention that a row names, where GPUs have later ones; 0 for those, which
// are the best kernels of a GPU.
std::optional<int> stated_flash(std::string_view attention) {
  const std::optional<int> version = calibrate::flash_version(attention);
  return version && *version > 2 ? 0 : version;
}

// FlashAttention came out in May 2022 and needs the tensor cores of Turing.
bool older_than_flash(const Measurement& row, const topologies::Gpu& gpu) {
  return row.year.value_or(2022) < 2022 || gpu.architecture == "pascal" ||
         gpu.architecture == "volta";
}

// "XLA / TE fused": products of XLA's or TransformerEngine's kernel.
bool names_alternatives(std::string_view words) {
  constexpr auto kNames =
      std::to_array<std::string_view>({"xla / ", "xla/", "xla or ", "/ xla", "/xla", " or xla"});
  return says_any(words, kNames);
}

// A cell that is blank, inferred or leaves a choice says nothing against what the framework does by
// itself.
bool fused_attention(const Measurement& row, const FrameworkFacts& framework,
                     const std::string& words, const topologies::Gpu& gpu) {
  if (words.empty() && older_than_flash(row, gpu)) {
    return false;
  }
  if (mentions(words, "flash") && !mentions(undenied(words), "flash")) {
    return false;  // "flash disabled"
  }
  const bool stated =
      !words.empty() && !mentions(row.inferred, "attention_impl") && !names_alternatives(words);
  // attn_impl: torch of llm-foundry (layers/attention.py), --attention-backend local of Megatron.
  const bool named = words == "torch" || words == "local";
  return !named && !names_unfused_attention(words) &&
         (framework.execution.fused_attention || stated);
}

// NeMo's recipes of Gemma turn cuDNN's attention off in 2.0 and 2.1, the containers 24.09 and 24.12
// (nemo/collections/llm/recipes/gemma_2b.py, gemma_7b.py: NVTE_FUSED_ATTN, for heads of 256).
bool recipe_without_cudnn(const Measurement& row, const FrameworkFacts& framework) {
  constexpr auto kReleases =
      std::to_array<std::string_view>({"2409", "2412", "nemo20", "nemov20", "nemo21", "nemov21"});
  constexpr auto kNetworks = std::to_array<std::string_view>({"gemma2b", "gemma7b"});
  if (const CloudRecipe* recipe = cloud_recipe(row, framework); recipe != nullptr) {
    return !recipe->cudnn_attention;
  }
  return framework.name == "NeMo" && says_any(letters_and_digits(row.framework), kReleases) &&
         says_any(letters_and_digits(row.model_name), kNetworks);
}

// TransformerEngine's attention: cuDNN's on Hopper and later, which reads [s, b, h] as it is, and
// FlashAttention-2 with copies in [b, s] order elsewhere, before version 1.2 (December 2023) or
// where NVTE_FUSED_ATTN turns cuDNN's off (pytorch/attention.py: DotProductAttention.forward,
// FlashAttention.forward).
void apply_engine(const Measurement& row, const FrameworkFacts& framework,
                  const topologies::Gpu& gpu, plan::Execution& execution) {
  const bool turned_off =
      framework.attention == AttentionKernel::EngineFlash || recipe_without_cudnn(row, framework);
  const bool cudnn = !turned_off && gpu.compute_capability >= 9 && row.year.value_or(2024) >= 2024;
  execution.flash_version = cudnn ? 0 : 2;
  execution.attention_copies = !cudnn;
  execution.projection_copies = cudnn;
}

// torchtitan puts cuDNN's kernel first: on B200 since May 2025, everywhere since October (commits
// 3b85aa31f and 6a3a9da95, torchtitan/models/attention.py).
bool titan_takes_cudnn(const Measurement& row, const topologies::Gpu& gpu) {
  const bool data_centre_blackwell = gpu.compute_capability >= 10 && gpu.compute_capability < 12;
  return row.year.value_or(0) >= (data_centre_blackwell ? 2025 : 2026);
}

// What runs where the cell names no kernel.
void apply_usual(const Measurement& row, const FrameworkFacts& framework,
                 const topologies::Gpu& gpu, plan::Execution& execution) {
  if (framework.attention != AttentionKernel::Own && gpu.vendor == "NVIDIA") {
    apply_engine(row, framework, gpu, execution);
  }
  if (framework.name == "torchtitan" && titan_takes_cudnn(row, gpu)) {
    execution.flash_version = 0;
  }
  // FlashAttention-2 came out in July 2023 (arXiv 2307.08691).
  if (execution.flash_version == 2 && row.year.value_or(2023) < 2023) {
    execution.flash_version = 1;
  }
}

// "TE", "Transformer Engine", where FlashAttention is not named beside it.
bool names_engine(const std::string& words) {
  constexpr auto kNames =
      std::to_array<std::string_view>({"te", "transformer engine", "transformerengine"});
  return has_word(words, kNames) && !mentions(words, "flash");
}

}  // namespace

void apply_attention(const Measurement& row, const FrameworkFacts& framework,
                     plan::Execution& execution) {
  const std::string name = stated_gpu(row.gpu);
  const topologies::Gpu gpu = name.empty() ? topologies::Gpu() : topologies::load_gpu(name);
  const std::string words(before_comparison(to_lower(row.attention_impl)));
  execution.fused_attention = fused_attention(row, framework, words, gpu);
  apply_usual(row, framework, gpu, execution);
  // PyTorch's modules copy the context of materialised scores back into the order of tokens
  // (huggingface/transformers models/llama/modeling_llama.py, eager_attention_forward).
  execution.attention_copies |=
      !execution.fused_attention && execution.softmax == plan::Softmax::Eager;
  const bool engine = framework.attention != AttentionKernel::Own;
  const std::string asserted_words = undenied(words);
  if (const std::optional<int> version = stated_flash(asserted_words)) {
    execution.flash_version = *version;
    execution.attention_copies |= engine;
    execution.projection_copies &= !engine;
  } else if (mentions(asserted_words, "cudnn")) {
    execution.flash_version = 0;
    execution.attention_copies = false;
    execution.projection_copies = engine;
  } else if (!engine && names_engine(asserted_words)) {
    execution.flash_version = 0;
  }
}

}  // namespace orrery::studies
