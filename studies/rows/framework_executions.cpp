// SPDX-License-Identifier: Apache-2.0
#include "studies/rows/framework_executions.hpp"

#include "plan/expert_kernels.hpp"

namespace orrery::studies {
namespace {

// Host time of one pass of a layer of Megatron-DeepSpeed: the forward of OPT-350M, micro-batch 1,
// on one GH200 without tensor parallelism takes 1.2 ms where the device needs 0.9 (micro-batches of
// 2 to 8 take 0.88 ms each; Sailor's profile of Megatron-DeepSpeed, eth-easl/sailor).
constexpr Seconds kMegatronHost(1.2e-3);

}  // namespace

// Megatron-LM until 2021: all-reduce after the backward, tensor-parallel collectives in line.
// Boundaries between stages are sent in parts, a rank each, and gathered (Megatron-LM from February
// 2021, --no-scatter-gather-tensors-in-pipeline turns it off; DeepSpeed, is_pipe_partitioned).
// Biases and gradient accumulation are kernels; activations [s, b, h] (mpu, model/transformer.py).
// Since December 2022 --use-flash-attn calls the package flash_attn, whatever the GPU (the same,
// FlashSelfAttention; version 2 since July 2023).
plan::Execution early_megatron() {
  plan::Execution execution;
  execution.fused_bias = false;
  execution.fused_grad_accumulation = false;
  execution.attention_copies = true;
  execution.flash_version = 2;
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
// their gradients are sums that autograd runs (megatron/core/fusions). Without sequence parallelism
// boundaries are sent whole by every rank (megatron/core/pipeline_parallel/p2p_communication.py
// since 2023).
plan::Execution transformer_engine() {
  plan::Execution execution = megatron();
  execution.fused_bias = true;
  execution.flash_version = 0;
  execution.bias_gradient_sums = true;
  execution.split_transfers = false;
  execution.gradient_passes = 4;  // and its norm taken, to find NaNs (param_and_grad_buffer.py)
  plan::use_transformer_engine_experts(true, execution);
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
// with interleaving, cross_entropy_loss_fusion (NVIDIA/NeMo collections/llm/recipes), which is
// Megatron-Core's `native` (core/model_parallel_config.py, cross_entropy_fusion_impl).
plan::Execution nemo() {
  plan::Execution execution = transformer_engine();
  execution.attention_copies = false;
  execution.overlap_grad_reduce = true;
  execution.overlap_param_gather = true;
  execution.overlap_p2p = true;
  execution.compiled_loss = true;
  execution.gradient_passes = 2;  // cleared and checked; the average is taken in the collective
  return execution;
}

// NeMo 1 with the launcher of 2024: the training files do not set cross_entropy_loss_fusion, which
// is off by default (NVIDIA/NeMo-Framework-Launcher launcher_scripts/conf/training).
plan::Execution nemo_launcher() {
  plan::Execution execution = nemo();
  execution.compiled_loss = false;
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
// overrides: grad_reduce_in_fp32 = False) and take TransformerEngine's loss, one kernel
// (recipes: cross_entropy_fusion_impl = "te"). None of their recipes of fp8 scales with delay: fp8
// without a recipe is current scaling (scripts/performance/configs: FP8_CS), mxfp8 is stated.
plan::Execution megatron_bridge() {
  plan::Execution execution = nemo();
  execution.compiled_loss = false;
  execution.fused_cross_entropy = true;
  execution.fp32_gradients = false;
  execution.fp8_scaling = plan::Fp8Scaling::Current;
  execution.amax_ranks = plan::AmaxRanks::None;
  execution.weighted_activations = true;  // Megatron-Core after 0.12.0
  return execution;
}

// PyTorch FSDP: prefetch forward and backward, fp32 sharded parameters that the optimizer updates
// (they are the master copy), gradients reduced in the type that the mixed-precision policy names.
// Without torch.compile each element-wise operation is a kernel. torch.nn.Linear has its bias in
// the epilogue (aten/src/ATen/native/cuda/Blas.cpp, addmm) and sums its gradient in a kernel
// (tools/autograd/derivatives.yaml, addmm and linear).
plan::Execution fsdp() {
  plan::Execution execution;
  execution.fused_kernels = false;
  execution.softmax = plan::Softmax::Eager;
  execution.bias_gradients_apart = true;
  execution.eager_loss = true;  // torch.compile of the layers leaves the loss as it is
  execution.fp32_parameters = true;
  execution.master_weights = false;
  execution.flattens_gradients = true;
  execution.weighted_activations = false;
  return execution;
}

// scaled_dot_product_attention of PyTorch 2.2 to 2.7 runs FlashAttention-2 on every GPU;
// torch.optim.AdamW on CUDA takes its foreach form, a pass a kernel. What is trained with it are
// modules of PyTorch's operators, with a linear layer for each of q, k, v, gate and up
// (huggingface/transformers models/llama/modeling_llama.py: LlamaRMSNorm, apply_rotary_pos_emb,
// LlamaMLP; pytorch/torchtune modules/attention.py, feed_forward.py).
plan::Execution sdpa_fsdp() {
  plan::Execution execution = fsdp();
  execution.flash_version = 2;
  execution.eager_optimizer = true;
  execution.eager_elementwise = true;
  execution.fused_projections = false;
  return execution;
}

// fms_fsdp/policies/mixed_precision.py: gradients are reduced in bf16; config/training.py:
// use_torch_compile. Its networks join projections (fms/modules/attention.py, fused).
plan::Execution fms_fsdp() {
  plan::Execution execution = sdpa_fsdp();
  execution.fp32_gradients = false;
  execution.eager_elementwise = false;
  execution.fused_projections = true;
  return execution;
}

// torchtitan's LLaMA: q, k, v, gate and up are linear layers of their own, positions are complex
// numbers, norms torch.nn.RMSNorm, keys and values are repeated for the query heads
// (torchtitan/models/llama/model.py). Context ranks gather keys and values
// (context_parallel_rotate_method: allgather by default).
plan::Execution torchtitan() {
  plan::Execution execution = sdpa_fsdp();
  execution.flattens_gradients = false;
  execution.copies_gathered = true;  // fully_shard
  execution.repeated_heads = true;
  execution.eager_ring = true;
  execution.gathered_ring = true;
  execution.fp8_scaling = plan::Fp8Scaling::Current;
  execution.cast_transposes = false;
  execution.casts_weights = true;      // torchao/float8/float8_linear.py, Float8Linear.forward
  execution.fp8_inputs = false;        // the same: matmul_with_hp_or_float8_args saves input_hp
  execution.regathers_inputs = false;  // DTensor: products save their inputs as gathered
  return execution;
}

// calibrate/ground_truth: one GPU, eager kernels unless it says torch.compile, FlashAttention-2,
// which reads q, k and v as they were split, bf16 parameters with fp32 gradients and master
// weights.
plan::Execution single_gpu_pytorch() {
  plan::Execution execution = early_megatron();
  execution.attention_copies = false;
  execution.joins_gradients = true;
  execution.fused_kernels = false;
  execution.fused_bias = true;  // as fsdp()
  execution.bias_gradients_apart = true;
  execution.softmax = plan::Softmax::Eager;
  execution.eager_loss = true;
  execution.eager_elementwise = true;
  execution.gradient_passes = 1;
  execution.flash_version = 2;
  return execution;
}

// llm-foundry's scripts/train/benchmarking set attn_impl to triton by default until March 2024 and
// to flash since, flash-attn 2.5 (v0.7.0, which has no triton any more); the loss is flash-attn's
// kernel, and two metrics evaluate PyTorch's (llmfoundry/models/mpt/modeling_mpt.py:
// fused_crossentropy, use_train_metrics; Composer trainer/trainer.py, _eval_train_metrics). q, k
// and v are split from one product (layers/attention.py: qkv.split).
plan::Execution composer(int flash_version) {
  plan::Execution execution = fsdp();
  execution.joins_gradients = true;
  execution.fused_cross_entropy = true;
  execution.loss_evaluations = 2;
  execution.flash_version = flash_version;
  execution.eager_optimizer = true;  // DecoupledAdamW (composer/optim/decoupled_weight_decay.py)
  execution.norms_cast = false;      // fp8: te.Linear behind norms of its own (layers/fc.py),
  execution.casts_weights = true;    // called without is_first_microbatch
  return execution;
}

// XLA fuses element-wise operations, casts too, and hides collectives (latency-hiding scheduler).
// Products keep inputs that were cast and cast back, in 16 bits (google/flax linen/fp8_ops.py:
// in_qdq, dot_general_with_precision).
plan::Execution xla() {
  plan::Execution execution;
  execution.softmax = plan::Softmax::Compiled;
  execution.cast_transposes = false;
  execution.norms_cast = false;
  execution.fp8_inputs = false;
  execution.weighted_activations = false;
  execution.amax_ranks = plan::AmaxRanks::None;
  execution.fused_cross_entropy = true;
  return execution;
}

// T5X computes attention as two products with softmax between them (google-research/t5x,
// examples/t5/layers.py); TransformerEngine's layers, which it takes for fp8, do so unless
// NVTE_FUSED_ATTN is set (jax/flax/transformer.py until 1.12), and no script of JAX-Toolbox sets it
// (rosetta/projects/t5x).
plan::Execution t5x() {
  plan::Execution execution = xla();
  execution.fused_attention = false;
  return execution;
}

// huggingface/nanotron, src/nanotron: layers of one product each for q, k and v and for gate and up
// (models/llama.py), whose parts are copied for FlashAttention-2 in [b, s] order; norms are one
// kernel (nn/layer_norm.py), gates and additions are not, nor is the sum of 16-bit gradients into
// fp32 ones (optim/gradient_accumulator.py). Tensor ranks hide the reduction of a backward beside
// its weight gradient where asked to, as its examples do (tp_linear_async_communication). Until
// June 2025 there is no DistributedDataParallel with ZeRO-1: one all-reduce of the whole fp32
// buffer behind the last backward (trainer.py: make_ddp, reduce_scatter=False), and a gather behind
// the update (optim/zero.py). The buffer is cleared, its norm taken, and scaled
// (optim/clip_grads.py). Receivers wait for the shape of every message (pipeline_parallel/p2p.py).
plan::Execution nanotron() {
  plan::Execution execution = megatron();
  execution.host_per_block = Seconds();
  execution.fused_kernels = false;
  execution.softmax = plan::Softmax::Eager;
  execution.bias_gradients_apart = true;
  execution.joins_gradients = true;
  execution.fused_bias = true;
  execution.fused_grad_accumulation = false;
  execution.split_transfers = false;
  execution.allreduce_gradients = true;
  execution.gradient_passes = 4;
  return execution;
}

// torch.nn.parallel.DistributedDataParallel reduces buckets beside the backward.
plan::Execution pytorch_ddp() {
  plan::Execution execution = single_gpu_pytorch();
  execution.overlap_grad_reduce = true;
  return execution;
}

// DeepSpeed divides gradients by the ranks in place and frees them instead of clearing
// (runtime/engine.py, runtime/zero/stage_1_and_2.py). Its stages exchange an activation and then a
// gradient (runtime/pipe/schedule.py, TrainSchedule.steps) with blocking messages (p2p.py), and the
// host runs on. Stage 3 alone overlaps by default (runtime/zero/config.py, overlap_comm_valid and
// prefetch_bucket_size). Stage 1 all-reduces whole gradients: those of bf16 at the end of the
// pipeline (runtime/pipe/engine.py, _exec_reduce_grads), others since their buckets are not
// contiguous (_configure_zero_optimizer; stage_1_and_2.py, buffered_reduce_fallback).
plan::Execution deepspeed(bool zero3) {
  plan::Execution execution = early_megatron();
  execution.overlap_grad_reduce = execution.overlap_param_gather = zero3;
  execution.allreduce_gradients = !zero3;
  execution.gradient_passes = 2;
  execution.serial_exchanges = true;
  execution.synchronised_messages = false;
  return execution;
}

// Hugging Face's networks, of PyTorch's kernels (transformers/models/llama/modeling_llama.py), in
// DeepSpeed's engine, with its FusedAdam (runtime/engine.py, _configure_basic_optimizer).
plan::Execution transformers_deepspeed(bool zero3) {
  plan::Execution execution = sdpa_fsdp();
  const plan::Execution engine = deepspeed(zero3);
  execution.overlap_grad_reduce = engine.overlap_grad_reduce;
  execution.overlap_param_gather = engine.overlap_param_gather;
  execution.allreduce_gradients = engine.allreduce_gradients;
  execution.gradient_passes = engine.gradient_passes;
  execution.serial_exchanges = engine.serial_exchanges;
  execution.fused_grad_accumulation = engine.fused_grad_accumulation;
  execution.fp32_parameters = engine.fp32_parameters;
  execution.master_weights = engine.master_weights;
  execution.copies_master = engine.copies_master;
  execution.eager_optimizer = engine.eager_optimizer;
  execution.flattens_gradients = engine.flattens_gradients;
  return execution;
}

// InternLM/InternEvo internlm/solver/optimizer (November 2023): gradients stay in 16 bits and are
// cast for the norm (reduce_grads) and again, flat, for torch.optim.AdamW, whose unfused step holds
// two temporaries of the second moment's size. Every rank sums whole buckets of gradients
// (_reduce_and_copy) and gets parameters back by one broadcast a rank (broadcast_params).
// FlashAttention on packed q, k and v, 1.0.5 until February 2024 and 2.2.1 since, with its rotary
// and cross-entropy kernels (doc/en/install.md); biases and their gradients are in epilogues
// (flash_attn/ops/fused_dense.py). Norms take fp32 copies and, unless layers run again as a whole,
// run again themselves (model/modeling_internlm.py, dropout_selective_checkpoint). The product with
// silu is a scripted function since September 2023 (model/utils.py).
plan::Execution intern_evo(int flash_version) {
  plan::Execution execution = early_megatron();
  execution.attention_copies = false;
  execution.flash_version = flash_version;
  execution.softmax = plan::Softmax::Eager;
  execution.fused_kernels = flash_version == 2;  // else silu and product (model/linear.py)
  execution.fused_bias = true;
  execution.fp32_norms = true;
  execution.reruns_norms = true;
  execution.fused_cross_entropy = true;
  execution.fp32_gradients = false;
  execution.allreduce_gradients = true;
  execution.broadcasts_parameters = true;
  execution.eager_optimizer = true;
  execution.gradient_passes = 0;
  return execution;
}

}  // namespace orrery::studies
