// SPDX-License-Identifier: Apache-2.0
#include "studies/rows/framework_facts.hpp"

#include <array>
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/text.hpp"
#include "studies/rows/framework_executions.hpp"
#include "studies/rows/framework_memory.hpp"

namespace orrery::studies {
namespace {

FrameworkFacts facts(std::string_view name, const plan::Execution& execution, bool pads_vocab,
                     bool gpt_dropout, const plan::MemoryFacts& memory = {}) {
  FrameworkFacts row;
  row.name = name;
  row.pads_vocab = pads_vocab;
  row.gpt_dropout = gpt_dropout;
  row.fp16_gradients = pads_vocab;
  row.execution = execution;
  row.memory = memory;
  return row;
}

// Layers of TransformerEngine.
FrameworkFacts engine(FrameworkFacts row) {
  row.attention = AttentionKernel::Engine;
  return row;
}

// use_distributed_optimizer of the recipes of NeMo (collections/llm/recipes/optim/adam.py) and
// Megatron-Bridge (recipes/common.py), distributed_fused_adam of NeMo's launcher
// (launcher_scripts/conf/training), zero1 of InternEvo's (configs/7B_sft.py).
FrameworkFacts sharding(FrameworkFacts row) {
  row.shards_states = true;
  return row;
}

// NeMo-Framework-Launcher 24.01 to 24.07 sets NVTE_FUSED_ATTN to 0 for all of its scripts
// (launcher_scripts/conf/config.yaml).
FrameworkFacts launched(std::string_view name, const plan::Execution& execution) {
  FrameworkFacts row = sharding(facts(name, execution, true, true));
  row.attention = AttentionKernel::EngineFlash;
  return row;
}

// p2p_communication.py of sail-sg/VocabularyParallelism (enable_vocab_parallel): schedules with a
// shared output layer do not wait for the device. Dropout: 0 in its pretrain_gpt.sh.
FrameworkFacts vocabulary_parallelism() {
  FrameworkFacts row = engine(facts("VocabularyParallelism", transformer_engine(), true, false));
  row.shared_output_runs_ahead = true;
  return row;
}

// The v-half runs of the Vocabulary Parallelism paper are of branch v-half-vocab of
// zero-bubble-pipeline-parallelism, whose script asks for --transformer-impl local.
FrameworkFacts vocabulary_v_half() {
  FrameworkFacts row = vocabulary_parallelism();
  row.attention = AttentionKernel::Own;
  row.execution.fused_bias = false;
  row.execution.flash_version = 2;
  row.schedule = "v-half";
  return row;
}

// PyTorch's pipeline stages reshard and reduce in the last backward of a step alone
// (torch/distributed/pipelining/stage.py, backward_maybe_with_nosync); torchtitan (apply_fsdp) and
// Llama 3's trainer (arXiv 2407.21783, 3.3.2) do not reshard after forwards where they pipeline.
FrameworkFacts pipelined(FrameworkFacts row) {
  row.whole_in_pipelines = true;
  return row;
}

// PyTorch's checkpoint without re-entrance: from 2.1 on a recomputation ends when everything that
// was saved is there again (torch/utils/checkpoint.py, set_checkpoint_early_stop), and
// torch.compile drops what nobody reads.
FrameworkFacts stopping(FrameworkFacts row) {
  row.stops_recomputation = true;
  return row;
}

// torchtitan/metrics.py, _get_metrics_rank: the first rank of the last stage logs, tokens a second
// of a device.
FrameworkFacts torchtitan_facts() {
  FrameworkFacts row =
      stopping(pipelined(facts("torchtitan", torchtitan(), false, false, torchtitan_memory())));
  row.logs_last_stage = true;
  row.logs_rates_of_gpu = true;
  return row;
}

// fms_fsdp/policies/ac_handler.py, apply_fsdp_checkpointing: a share of the blocks, 1 by default
// (config/training.py, selective_checkpointing).
FrameworkFacts fms_fsdp_facts() {
  FrameworkFacts row = stopping(facts("fms-fsdp", fms_fsdp(), false, false));
  row.selects_layers = true;
  return row;
}

// huggingface/nanotron src/nanotron/trainer.py, make_ddp.
FrameworkFacts nanotron_facts() {
  FrameworkFacts row = facts("nanotron", nanotron(), false, false, nanotron_memory());
  row.reduces_unsharded_beside = true;
  return row;
}

// DS3Lab/DT-FM pipeline_parallel/dist_gpipe_pipeline_async.py: a stream each for computing, sending
// and receiving; parameters and the gradients that data ranks sum (data_parallel/
// dist_dp_allreduce.py, dist_dp_sharded_ps.py) are half(); first and last stage share none. SGD
// without momentum keeps fp32 copies alone (dist_gpipe_pipeline_async.py, optimizer/optimizer.py).
// modules/gpt_modules.py: PyTorch's kernels, three projections, no mask, no dropout, ReLU; the last
// stage classifies sequences (modules/dist_gpt_pp_module.py, GlueClassification).
FrameworkFacts dt_fm() {
  plan::Execution execution = early_megatron();
  execution.overlap_p2p = true;
  execution.softmax = plan::Softmax::Eager;
  execution.fused_kernels = false;
  execution.fused_projections = false;
  execution.optimizer_state_bytes = 0;
  FrameworkFacts row = facts("DT-FM", execution, false, false);
  row.sends_beside = true;
  row.fp16_gradients = true;
  row.unties_embeddings = true;
  row.modules = {.relu = true, .masked = false, .classes = 2};
  return row;
}

// Stands in for trainers of Hugging Face's networks in DeepSpeed (framework_names.cpp).
FrameworkFacts transformers(std::string_view name, bool zero3) {
  FrameworkFacts row = facts(name, transformers_deepspeed(zero3), false, false, deepspeed_memory());
  row.fp16_gradients = true;
  return row;
}

// eth-easl/sailor's Dockerfile builds on NVIDIA's PyTorch container 24.10, which turns TF32 on for
// products (TORCH_ALLOW_TF32_CUBLAS_OVERRIDE=1). Its fork's megatron/model/gpt_neo_model.py never
// calls attention's dropout, drops the biases behind attention and of MLPs (skip_bias_add), has a
// head of its own and leaves GELU, dropout and residuals to kernels of PyTorch's.
FrameworkFacts sailor() {
  plan::Execution execution = deepspeed();
  execution.fused_kernels = false;
  FrameworkFacts row =
      facts("Megatron-DeepSpeed (Sailor fork)", execution, true, true, deepspeed_memory());
  row.tf32_products = true;
  row.unties_embeddings = true;
  row.modules = {.attention_dropout = false, .product_biases = false};
  return row;
}

// The same of megatron/model/opt_model.py, whose dropouts are commented out.
FrameworkFacts sailor_opt() {
  FrameworkFacts row = sailor();
  row.network = "opt";
  row.modules = {
      .hidden_dropout = false, .attention_dropout = false, .relu = true, .product_biases = false};
  return row;
}

// google/paxml contrib/gpu/scripts_gpu/configs.py, of which JAX-Toolbox's runs are: layers that are
// repeated recompute as CHECKPOINT_POLICY says, those of LLaMA and GPT-126M, a stack, do not.
FrameworkFacts paxml(std::string_view network, std::string_view recompute) {
  FrameworkFacts row = facts("Paxml", xla(), false, false);
  row.network = network;
  row.recompute = recompute;
  return row;
}

// Of GPT-3's tasks EMBEDDING_LOOKUP_STYLE is matmul (tasks/lm/params/c4.py).
FrameworkFacts paxml_gpt(std::string_view network, std::string_view recompute) {
  FrameworkFacts row = paxml(network, recompute);
  row.execution.lookup_products = true;
  return row;
}

// Which runs without fused attention, with and without TransformerEngine (NVIDIA/JAX-Toolbox
// rosetta/projects/pax: README.md and xla_flags/gpt-126m.env).
FrameworkFacts paxml_gpt_126m() {
  FrameworkFacts row = paxml_gpt("gpt126m", "none");
  row.execution.fused_attention = false;
  return row;
}

// Megatron-Core from 0.10 on (December 2024): the expert ranks have a grid of their own without a
// context axis (megatron/core/parallel_state.py, "MoE Parallel Folding" of its changelog).
FrameworkFacts folding(FrameworkFacts row) {
  row.folds_experts = true;
  return row;
}

// Megatron-LM examples/pretrain_t5.sh (--decoder-seq-length 128), NeMo megatron_t5_config.yaml
// (seq_length_dec), JAX-Toolbox t5x/scripts/example_slurm_pretrain_pile.sub.
FrameworkFacts with_t5_scripts(FrameworkFacts row) {
  row.short_t5_targets = true;
  return row;
}

// NeMo collections/llm/peft/lora.py and Megatron-Bridge peft/lora.py: dim = 32, linear_qkv,
// linear_proj, linear_fc1 and linear_fc2.
FrameworkFacts with_adapters(FrameworkFacts row) {
  row.adapter_rank = 32;
  return row;
}

// The same name in other years (of publication); 0: any.
FrameworkFacts in_years(std::int64_t first, std::int64_t last, FrameworkFacts row) {
  row.first_year = first;
  row.last_year = last;
  return row;
}

// NeMo 1 from 23.05 on: layers of TransformerEngine or Megatron-Core, distributed_fused_adam with
// both overlaps, no variable for attention or for largest magnitudes, which came with 24.01
// (NeMo-Framework-Launcher, tags 23.05 to 23.11: conf/config.yaml, conf/training).
FrameworkFacts first_nemo(std::string_view name) {
  return sharding(engine(with_t5_scripts(facts(name, nemo_launcher(), true, true))));
}

// More specific names first.
const std::vector<FrameworkFacts>& framework_table() {
  static const std::vector<FrameworkFacts> kTable = {
      vocabulary_v_half(),
      vocabulary_parallelism(),
      // Dropout: Megatron's default in examples/pretrain_zero_bubble.sh.
      facts("zero-bubble", zero_bubble(), true, true),
      facts("Megatron-LM+DeepSpeed ZeRO-3", early_megatron(), true, true),
      sailor_opt(),
      sailor(),
      facts("Megatron-DeepSpeed", deepspeed(), true, true, deepspeed_memory()),
      facts("Megatron-Kwai", megatron(), true, true),
      sharding(
          engine(with_adapters(folding(facts("Megatron-Bridge", megatron_bridge(), true, false))))),
      launched("launcher (2024)", nemo_early_launcher()),
      launched("Megatron-Core 24.07", nemo_launcher()),
      sharding(engine(facts("Megatron-Core 24.09", nemo_launcher(), true, true))),
      launched("Megatron-Core 24.0", nemo_early_launcher()),
      first_nemo("NeMo 23.05"),
      first_nemo("NeMo 23.07"),
      first_nemo("NeMo 23.08"),
      first_nemo("NeMo 23.11"),
      with_t5_scripts(launched("NeMo 24.01", nemo_early_launcher())),
      with_t5_scripts(launched("NeMo 24.03", nemo_early_launcher())),
      with_t5_scripts(launched("NeMo 24.05", nemo_early_launcher())),
      with_t5_scripts(launched("NeMo 24.07", nemo_launcher())),
      in_years(0, 2023, first_nemo("NeMo")),
      sharding(engine(with_adapters(with_t5_scripts(folding(facts("NeMo", nemo(), true, true)))))),
      // Releases that are named are Megatron-LM's, with its arguments' defaults.
      engine(folding(facts("Megatron-Core 0.1", transformer_engine(), true, true))),
      engine(facts("Megatron-Core 0.", transformer_engine(), true, true)),
      engine(folding(facts("Megatron-Core", nemo(), true, false))),
      // Releases of Megatron-Core, whose versions begin with 0.
      with_t5_scripts(engine(facts("Megatron-LM 0.", transformer_engine(), true, true))),
      with_t5_scripts(engine(facts("Megatron-LM core", transformer_engine(), true, true))),
      // Async all-reduces came in September 2021, fused gradient accumulation in February 2022, and
      // TransformerEngine became the default in April 2024 (megatron/arguments.py).
      with_t5_scripts(in_years(0, 2021, facts("Megatron-LM", early_megatron(), true, true))),
      with_t5_scripts(
          engine(in_years(2025, 0, facts("Megatron-LM", transformer_engine(), true, true)))),
      with_t5_scripts(facts("Megatron-LM", megatron(), true, true)),
      facts("MegaScale", megatron(), true, true),
      facts("Skywork-Megatron", megatron(), true, false),
      torchtitan_facts(),
      stopping(in_years(2024, 0, facts("Composer", composer(2), false, false))),
      stopping(facts("Composer", composer(1), false, false)),
      stopping(facts("PyTorch single GPU", single_gpu_pytorch(), false, false)),
      fms_fsdp_facts(),
      nanotron_facts(),
      facts("PyTorch FSDP", sdpa_fsdp(), false, false),
      facts("PyTorch DDP", pytorch_ddp(), false, false),
      pipelined(facts("Meta internal 4D", fsdp(), false, false)),
      // What was published in 2024 may have run before; versions from 0.3 on have not.
      sharding(facts("InternEvo 0.3", intern_evo(2), false, false, intern_evo_memory())),
      sharding(
          in_years(2025, 0, facts("InternEvo", intern_evo(2), false, false, intern_evo_memory()))),
      sharding(facts("InternEvo", intern_evo(1), false, false, intern_evo_memory())),
      facts("Hetu-Galvatron", fsdp(), false, false),
      facts("MaxText", xla(), false, false),
      paxml_gpt_126m(),
      paxml_gpt("gpt5b", "save_dot_with_no_batch_dims"),
      paxml_gpt("gpt175b", "full"),
      paxml_gpt("gpt3175b", "full"),
      paxml("llama", "none"),
      facts("Paxml", xla(), false, false),
      with_t5_scripts(facts("T5X", t5x(), false, false)),
      transformers("transformers with DeepSpeed ZeRO-3", true),
      transformers("transformers with DeepSpeed", false),
      facts("DeepSpeed ZeRO-3", deepspeed(true), true, true),
      dt_fm(),
      facts("TeraPipe", early_megatron(), false, false),
      facts("LargeScale", early_megatron(), true, true),
  };
  return kTable;
}

// Of "v0.8", "r0.8", "core_r0.8" the number alone: names of releases are spelt in all these ways.
std::string with_plain_releases(std::string_view framework) {
  constexpr auto kMarks = std::to_array<std::string_view>({"core_r", "core_v", "r", "v"});
  const std::string text = to_lower(framework);
  const auto mark_at = [&](std::size_t begin) -> std::size_t {
    for (const std::string_view mark : kMarks) {
      const std::size_t end = begin + mark.size();
      if (text.compare(begin, mark.size(), mark) == 0 && end < text.size() && is_digit(text[end])) {
        return mark.size();
      }
    }
    return 0;
  };
  std::string plain;
  for (std::size_t at = 0; at < text.size(); ++at) {
    const bool begins = at == 0 || (!is_letter(text[at - 1]) && !is_digit(text[at - 1]));
    at += begins ? mark_at(at) : 0;
    plain += text[at];
  }
  return plain;
}

// "mcore" as Megatron-Core, "NeMo container 24.07" as NeMo 24.07, "Sailor fork of
// Megatron-DeepSpeed" as that with its fork behind it.
std::string with_usual_names(std::string text) {
  constexpr auto kNames = std::to_array<std::pair<std::string_view, std::string_view>>(
      {{"mcore", "megatron-core"}, {" container ", " "}, {" framework ", " "}, {" version ", " "}});
  for (const auto& [name, usual] : kNames) {
    if (const std::size_t at = text.find(name); at != text.npos) {
      text.replace(at, name.size(), usual);
    }
  }
  constexpr std::string_view kFork = " fork of ";
  if (const std::size_t at = text.find(kFork); at != text.npos) {
    text = text.substr(at + kFork.size()) + " " + text.substr(0, at) + " fork";
  }
  return text;
}

}  // namespace

const FrameworkFacts* find_framework(std::string_view framework, const RunFacts& run) {
  const std::string text = letters_and_digits(with_usual_names(with_plain_releases(framework)));
  const std::string network = letters_and_digits(run.network);
  for (const FrameworkFacts& row : framework_table()) {
    const bool in_time = (row.first_year == 0 || run.year >= row.first_year) &&
                         (row.last_year == 0 || (run.year > 0 && run.year <= row.last_year));
    if (text.find(letters_and_digits(row.name)) != std::string::npos && in_time &&
        (row.schedule.empty() || row.schedule == run.schedule) &&
        network.starts_with(row.network)) {
      return &row;
    }
  }
  return nullptr;
}

}  // namespace orrery::studies
