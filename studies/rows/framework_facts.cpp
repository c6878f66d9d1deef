// SPDX-License-Identifier: Apache-2.0
#include "studies/rows/framework_facts.hpp"

#include <vector>

#include "base/text.hpp"
#include "studies/rows/framework_memory.hpp"

namespace orrery::studies {
namespace {

// Host time of one pass of a layer of Megatron-DeepSpeed: the forward of OPT-350M, micro-batch 1,
// on one GH200 without tensor parallelism takes 1.2 ms where the device needs 0.9 (micro-batches of
// 2 to 8 take 0.88 ms each; Sailor's profile of Megatron-DeepSpeed, eth-easl/sailor).
constexpr Seconds kMegatronHost(1.2e-3);

// Megatron-LM until 2021: all-reduce after the backward, tensor-parallel collectives in line.
// Boundaries between stages are sent in parts, a rank each, and gathered (Megatron-LM from February
// 2021, --no-scatter-gather-tensors-in-pipeline turns it off; DeepSpeed, is_pipe_partitioned).
// Biases and gradient accumulation are kernels; activations [s, b, h] (mpu, model/transformer.py).
plan::Execution early_megatron() {
  plan::Execution execution;
  execution.fused_bias = false;
  execution.fused_grad_accumulation = false;
  execution.attention_copies = true;
  execution.host_per_block = kMegatronHost;
  execution.gradient_passes = 3;   // cleared, divided by the ranks in place
  execution.copies_master = true;  // megatron/optimizer/optimizer.py, Float16Optimizer.step
  execution.overlap_grad_reduce = false;
  execution.overlap_param_gather = false;
  execution.overlap_p2p = false;
  execution.synchronised_messages = true;  // batch_isend_irecv, then torch.cuda.synchronize
  execution.split_transfers = true;
  execution.overlap_tp = false;
  execution.weighted_activations = false;  // moe/token_dispatcher.py: unpermute with probabilities
  return execution;
}

// Megatron-LM from 2022 on: the input gradient's all-reduce (or reduce-scatter) runs beside the
// weight-gradient GEMM (--no-async-tensor-model-parallel-allreduce turns it off) and gradients are
// accumulated by the GEMM (--no-gradient-accumulation-fusion); gradient and parameter overlap are
// options that a measurement has to state.
plan::Execution megatron() {
  plan::Execution execution = early_megatron();
  execution.fused_grad_accumulation = true;
  execution.overlap_tp = true;
  return execution;
}

// Megatron-LM from 2024 on builds layers of TransformerEngine by default: the bias of q, k and v
// and its gradient in the GEMMs' epilogues; the others are added by the kernel that follows, and
// their gradients are sums that autograd runs (megatron/core/fusions). FlashAttention still gets
// copies in [b, s] order. Without sequence parallelism boundaries are sent whole by every rank
// (megatron/core/pipeline_parallel/p2p_communication.py since 2023).
plan::Execution transformer_engine() {
  plan::Execution execution = megatron();
  execution.fused_bias = true;
  execution.bias_gradient_sums = true;
  execution.split_transfers = false;
  execution.gradient_passes = 4;  // and its norm taken, to find NaNs (param_and_grad_buffer.py)
  return execution;
}

// The scripts behind the zero-bubble papers (branch legacy-main, examples/pretrain_zero_bubble.sh)
// do not pass --use-flash-attn and run layers of --transformer-impl local.
plan::Execution zero_bubble() {
  plan::Execution execution = megatron();
  execution.fused_attention = false;
  return execution;
}

// NeMo's pre-training recipes: distributed optimizer with both overlaps, overlapped point-to-point
// with interleaving, fused cross-entropy (NVIDIA/NeMo collections/llm/recipes).
// cuDNN's fused attention of TransformerEngine reads [s, b, h] without copies.
plan::Execution nemo() {
  plan::Execution execution = transformer_engine();
  execution.attention_copies = false;
  execution.overlap_grad_reduce = true;
  execution.overlap_param_gather = true;
  execution.overlap_p2p = true;
  execution.fused_cross_entropy = true;
  execution.gradient_passes = 2;  // cleared and checked; the average is taken in the collective
  return execution;
}

// NeMo 1 with the launcher of 2024: the training files do not set cross_entropy_loss_fusion, which
// is off by default (NVIDIA/NeMo-Framework-Launcher launcher_scripts/conf/training).
plan::Execution nemo_launcher() {
  plan::Execution execution = nemo();
  execution.fused_cross_entropy = false;
  // Apex' distributed Adam clears its buffer and writes parameters in the kernel of the update.
  execution.gradient_passes = 1;
  execution.copies_master = false;
  return execution;
}

// Until 24.05, with TransformerEngine before 1.6: config.yaml has largest magnitudes reduced over
// tensor ranks alone and beside kernels (NVTE_DP_AMAX_REDUCE_INTERVAL, NVTE_ASYNC_AMAX_REDUCTION).
plan::Execution nemo_early_launcher() {
  plan::Execution execution = nemo_launcher();
  execution.amax_ranks = plan::AmaxRanks::None;
  return execution;
}

// Megatron-Bridge's performance scripts reduce gradients in 16 bits (scripts/performance, common
// overrides: grad_reduce_in_fp32 = False). None of their recipes of fp8 scales with delay.
plan::Execution megatron_bridge() {
  plan::Execution execution = nemo();
  execution.fp32_gradients = false;
  execution.amax_ranks = plan::AmaxRanks::None;
  execution.weighted_activations = true;  // Megatron-Core after 0.12.0
  return execution;
}

// PyTorch FSDP: prefetch forward and backward, fp32 sharded parameters that the optimizer updates
// (they are the master copy), gradients reduced in the type that the mixed-precision policy names.
// Without torch.compile each element-wise operation is a kernel.
plan::Execution fsdp() {
  plan::Execution execution;
  execution.fused_kernels = false;
  execution.eager_loss = true;  // torch.compile of the layers leaves the loss as it is
  execution.fp32_parameters = true;
  execution.master_weights = false;
  execution.flattens_gradients = true;
  execution.weighted_activations = false;
  return execution;
}

// scaled_dot_product_attention of PyTorch 2.2 to 2.7 runs FlashAttention-2 on every GPU;
// torch.optim.AdamW on CUDA takes its foreach form, a pass a kernel.
plan::Execution sdpa_fsdp() {
  plan::Execution execution = fsdp();
  execution.flash_version = 2;
  execution.eager_optimizer = true;
  return execution;
}

// fms_fsdp/policies/mixed_precision.py: gradients are reduced in bf16.
plan::Execution fms_fsdp() {
  plan::Execution execution = sdpa_fsdp();
  execution.fp32_gradients = false;
  return execution;
}

// torchtitan's LLaMA: q, k, v, gate and up are linear layers of their own, positions are complex
// numbers, norms torch.nn.RMSNorm, keys and values are repeated for the query heads
// (torchtitan/models/llama/model.py). Context ranks gather keys and values
// (context_parallel_rotate_method: allgather by default).
plan::Execution torchtitan() {
  plan::Execution execution = sdpa_fsdp();
  execution.gradient_passes = 3;  // clip_grad_norm_ (train.py): its norm, then read and written
  execution.flattens_gradients = false;
  execution.copies_gathered = true;  // fully_shard
  execution.eager_elementwise = true;
  execution.repeated_heads = true;
  execution.eager_ring = true;
  execution.gathered_ring = true;
  execution.fp8_scaling = plan::Fp8Scaling::Current;
  execution.cast_transposes = false;
  execution.casts_weights = true;      // torchao/float8/float8_linear.py, Float8Linear.forward
  execution.fp8_inputs = false;        // the same: matmul_with_hp_or_float8_args saves input_hp
  execution.regathers_inputs = false;  // DTensor: products save their inputs as gathered
  execution.fused_projections = false;
  return execution;
}

// calibrate/ground_truth: one GPU, eager kernels unless it says torch.compile, FlashAttention-2,
// bf16 parameters with fp32 gradients and master weights.
plan::Execution single_gpu_pytorch() {
  plan::Execution execution = early_megatron();
  execution.fused_kernels = false;
  execution.eager_loss = true;
  execution.eager_elementwise = true;
  execution.gradient_passes = 1;
  execution.flash_version = 2;
  return execution;
}

// llm-foundry's scripts/train/benchmarking of 2023 set attn_impl to triton by default; the loss is
// flash-attn's kernel, and two metrics evaluate PyTorch's (llmfoundry/models/mpt/modeling_mpt.py:
// fused_crossentropy, use_train_metrics; Composer trainer/trainer.py, _eval_train_metrics).
plan::Execution composer() {
  plan::Execution execution = fsdp();
  execution.fused_cross_entropy = true;
  execution.loss_evaluations = 2;
  execution.flash_version = 1;
  execution.eager_optimizer = true;  // DecoupledAdamW (composer/optim/decoupled_weight_decay.py)
  execution.gradient_passes = 3;     // gradient_clipping (scripts/train/yamls/pretrain)
  execution.norms_cast = false;      // fp8: te.Linear behind norms of its own (layers/fc.py),
  execution.casts_weights = true;    // called without is_first_microbatch
  return execution;
}

// XLA fuses element-wise operations, casts too, and hides collectives (latency-hiding scheduler).
// Products keep inputs that were cast and cast back, in 16 bits (google/flax linen/fp8_ops.py:
// in_qdq, dot_general_with_precision).
plan::Execution xla() {
  plan::Execution execution;
  execution.cast_transposes = false;
  execution.norms_cast = false;
  execution.fp8_inputs = false;
  execution.weighted_activations = false;
  execution.amax_ranks = plan::AmaxRanks::None;
  execution.fused_cross_entropy = true;
  return execution;
}

// torch.nn.parallel.DistributedDataParallel reduces buckets beside the backward.
plan::Execution pytorch_ddp() {
  plan::Execution execution = single_gpu_pytorch();
  execution.overlap_grad_reduce = true;
  return execution;
}

FrameworkFacts facts(std::string_view name, const plan::Execution& execution, bool pads_vocab,
                     bool gpt_dropout, const plan::MemoryFacts& memory = {}) {
  return {name, {}, pads_vocab, gpt_dropout, pads_vocab, execution, memory};
}

// p2p_communication.py of sail-sg/VocabularyParallelism (enable_vocab_parallel): schedules with a
// shared output layer do not wait for the device. Dropout: 0 in its pretrain_gpt.sh.
FrameworkFacts vocabulary_parallelism() {
  FrameworkFacts row = facts("VocabularyParallelism", transformer_engine(), true, false);
  row.shared_output_runs_ahead = true;
  return row;
}

// The v-half runs of the Vocabulary Parallelism paper are of branch v-half-vocab of
// zero-bubble-pipeline-parallelism, whose script asks for --transformer-impl local.
FrameworkFacts vocabulary_v_half() {
  FrameworkFacts row = vocabulary_parallelism();
  row.execution.fused_bias = false;
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

// DS3Lab/DT-FM pipeline_parallel/dist_gpipe_pipeline_async.py: a stream each for computing, sending
// and receiving; parameters and the gradients that data ranks sum (data_parallel/
// dist_dp_allreduce.py, dist_dp_sharded_ps.py) are half(); first and last stage share none.
FrameworkFacts dt_fm() {
  plan::Execution execution = early_megatron();
  execution.overlap_p2p = true;
  FrameworkFacts row = facts("DT-FM", execution, false, false);
  row.sends_beside = true;
  row.fp16_gradients = true;
  row.unties_embeddings = true;
  return row;
}

// DeepSpeed divides gradients by the ranks in place and frees them instead of clearing
// (runtime/engine.py, runtime/zero/stage_1_and_2.py). Its stages exchange an activation and then a
// gradient (runtime/pipe/schedule.py, TrainSchedule.steps) with blocking messages (p2p.py), and the
// host runs on. Stage 3 alone overlaps by default (runtime/zero/config.py, overlap_comm_valid and
// prefetch_bucket_size).
plan::Execution deepspeed(bool zero3 = false) {
  plan::Execution execution = early_megatron();
  execution.overlap_grad_reduce = execution.overlap_param_gather = zero3;
  execution.gradient_passes = 2;
  execution.serial_exchanges = true;
  execution.synchronised_messages = false;
  return execution;
}

// InternLM/InternEvo internlm/solver/optimizer (November 2023): gradients stay in 16 bits and are
// cast for the norm (reduce_grads) and again, flat, for torch.optim.AdamW, whose unfused step holds
// two temporaries of the second moment's size. Every rank sums whole buckets of gradients
// (_reduce_and_copy) and gets parameters back by one broadcast a rank (broadcast_params).
// FlashAttention 1.0.5 on packed q, k and v, with its rotary and cross-entropy kernels
// (doc/en/install.md).
plan::Execution intern_evo() {
  plan::Execution execution = early_megatron();
  execution.attention_copies = false;
  execution.flash_version = 1;
  execution.fused_kernels = false;  // silu and product are PyTorch's (model/linear.py)
  execution.fused_cross_entropy = true;
  execution.fp32_gradients = false;
  execution.allreduce_gradients = true;
  execution.broadcasts_parameters = true;
  execution.eager_optimizer = true;
  execution.gradient_passes = 0;
  return execution;
}

// eth-easl/sailor's Dockerfile builds on NVIDIA's PyTorch container 24.10, which turns TF32 on for
// products (TORCH_ALLOW_TF32_CUBLAS_OVERRIDE=1).
FrameworkFacts sailor() {
  FrameworkFacts row =
      facts("Megatron-DeepSpeed (Sailor fork)", deepspeed(), true, true, deepspeed_memory());
  row.tf32_products = true;
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

// More specific names first.
const std::vector<FrameworkFacts>& framework_table() {
  static const std::vector<FrameworkFacts> kTable = {
      vocabulary_v_half(),
      vocabulary_parallelism(),
      // Dropout: Megatron's default in examples/pretrain_zero_bubble.sh.
      facts("zero-bubble", zero_bubble(), true, true),
      facts("Megatron-LM+DeepSpeed ZeRO-3", early_megatron(), true, true),
      sailor(),
      facts("Megatron-DeepSpeed", deepspeed(), true, true, deepspeed_memory()),
      facts("Megatron-Kwai", megatron(), true, true),
      with_adapters(folding(facts("Megatron-Bridge", megatron_bridge(), true, false))),
      facts("launcher (2024)", nemo_early_launcher(), true, true),
      facts("Megatron-Core 24.07", nemo_launcher(), true, true),
      facts("Megatron-Core 24.0", nemo_early_launcher(), true, true),
      with_adapters(with_t5_scripts(folding(facts("NeMo", nemo(), true, true)))),
      folding(facts("Megatron-Core", nemo(), true, false)),
      // Releases of Megatron-Core, whose versions begin with 0.
      with_t5_scripts(facts("Megatron-LM 0.", transformer_engine(), true, true)),
      with_t5_scripts(facts("Megatron-LM v0.", transformer_engine(), true, true)),
      with_t5_scripts(facts("Megatron-LM core", transformer_engine(), true, true)),
      // Async all-reduces came in September 2021, fused gradient accumulation in February 2022, and
      // TransformerEngine became the default in April 2024 (megatron/arguments.py).
      with_t5_scripts(in_years(0, 2021, facts("Megatron-LM", early_megatron(), true, true))),
      with_t5_scripts(in_years(2025, 0, facts("Megatron-LM", transformer_engine(), true, true))),
      with_t5_scripts(facts("Megatron-LM", megatron(), true, true)),
      facts("MegaScale", megatron(), true, true),
      facts("Skywork-Megatron", megatron(), true, false),
      stopping(pipelined(facts("torchtitan", torchtitan(), false, false, torchtitan_memory()))),
      stopping(facts("Composer", composer(), false, false)),
      stopping(facts("PyTorch single GPU", single_gpu_pytorch(), false, false)),
      stopping(facts("fms-fsdp", fms_fsdp(), false, false)),
      facts("PyTorch FSDP", sdpa_fsdp(), false, false),
      facts("PyTorch DDP", pytorch_ddp(), false, false),
      pipelined(facts("Meta internal 4D", fsdp(), false, false)),
      facts("InternEvo", intern_evo(), false, false, intern_evo_memory()),
      facts("Hetu-Galvatron", fsdp(), false, false),
      facts("MaxText", xla(), false, false),
      facts("Paxml", xla(), false, false),
      with_t5_scripts(facts("T5X", xla(), false, false)),
      facts("DeepSpeed ZeRO-3", deepspeed(true), true, true),
      dt_fm(),
      facts("TeraPipe", early_megatron(), false, false),
      facts("LargeScale", early_megatron(), true, true),
  };
  return kTable;
}

}  // namespace

const FrameworkFacts* find_framework(std::string_view framework, const RunFacts& run) {
  const std::string text = letters_and_digits(framework);
  for (const FrameworkFacts& row : framework_table()) {
    const bool in_time = (row.first_year == 0 || run.year >= row.first_year) &&
                         (row.last_year == 0 || (run.year > 0 && run.year <= row.last_year));
    if (text.find(letters_and_digits(row.name)) != std::string::npos && in_time &&
        (row.schedule.empty() || row.schedule == run.schedule)) {
      return &row;
    }
  }
  return nullptr;
}

}  // namespace orrery::studies
