// SPDX-License-Identifier: Apache-2.0
// Which Megatron-LM flags do not matter here, and which matter but are not modelled. Names: the
// argument groups of megatron/training/arguments.py.
#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "plan/launch_script/megatron_arguments.hpp"

namespace orrery::plan {
namespace {

// Families of flags by their common beginning.
constexpr auto kIrrelevantPrefixes = std::to_array<std::string_view>({
    "--adam-",
    "--adlr-",
    "--async-save",
    "--auto-detect-ckpt",
    "--check-for-",
    "--check-weight-",
    "--ckpt-",
    "--clip-grad",
    "--config-logger",
    "--cuda-graph",
    "--data-args",
    "--data-cache",
    "--data-path",
    "--dataloader-",
    "--decoupled-",
    "--dist-ckpt",
    "--distributed-",
    "--enable-cuda-gr",
    "--end-weight-",
    "--error-inject",
    "--eval-",
    "--exit-",
    "--external-cuda",
    "--fim-",
    "--fp8-amax",
    "--fp8-interval",
    "--fp8-margin",
    "--inference-",
    "--init-method",
    "--initial-loss",
    "--load",
    "--log-",
    "--loss-scale",
    "--lr",
    "--manual-gc",
    "--min-l",
    "--moe-aux-loss",
    "--moe-router-",
    "--nccl-",
    "--no-ckpt-",
    "--no-load-",
    "--no-manual-gc",
    "--no-save-",
    "--non-persistent",
    "--override-",
    "--profile",
    "--rerun-",
    "--reset-",
    "--rotary-",
    "--save",
    "--start-weight",
    "--tensorboard-",
    "--test-",
    "--tiktoken-",
    "--timing-",
    "--tp-comm-overlap-",
    "--train-",
    "--disable-tp-comm-",
    "--use-checkpoint-",
    "--use-dist-ckpt",
    "--use-rope-sc",
    "--valid-",
    "--wandb-",
    "--weight-decay",
    "--rope-",
    "--mmap-",
    "--per-split-",
});

constexpr auto kIrrelevant = std::to_array<std::string_view>({
    "--apply-layernorm-1p",
    "--apply-query-key-layer-scaling",
    "--attention-softmax-in-fp32",
    "--bert-no-binary-head",
    "--calculate-per-token-loss",
    "--data-parallel-random-init",
    "--ddp-average-in-collective",
    "--ddp-pad-buckets-for-high-nccl-busbw",
    "--delay-grad-reduce",
    "--deterministic-mode",
    "--disable-gloo-process-groups",
    "--empty-unused-memory-level",
    "--enable-experimental",
    "--enable-gloo-process-groups",
    "--eod-mask-loss",
    "--finetune",
    "--hysteresis",
    "--iterations-to-skip",
    "--lazy-mpu-init",
    "--local-rank",
    "--mask-prob",
    "--master-addr",
    "--master-port",
    "--memory-snapshot-path",
    "--merge-file",
    "--mock-data",
    "--moe-grouped-gemm",
    "--moe-pad-expert-input-to-capacity",
    "--moe-per-layer-logging",
    "--moe-permute-fusion",
    "--moe-token-drop-policy",
    "--moe-use-legacy-grouped-gemm",
    "--moe-z-loss-coeff",
    "--no-align-grad-reduce",
    "--no-align-param-gather",
    "--no-check-for-nan-in-loss-and-grad",
    "--no-create-attention-mask-in-dataloader",
    "--no-delay-grad-reduce",
    "--no-initialization",
    "--no-masked-softmax-fusion",
    "--no-mmap-bin-files",
    "--no-one-logger",
    "--no-persist-layer-norm",
    "--no-rope-fusion",
    "--no-scatter-gather-tensors-in-pipeline",
    "--norm-epsilon",
    "--num-dataset-builder-threads",
    "--num-workers",
    "--onnx-safe",
    "--openai-gelu",
    "--pretrained-checkpoint",
    "--rampup-batch-size",
    "--record-memory-history",
    "--s3-cache-path",
    "--seed",
    "--sgd-momentum",
    "--short-seq-prob",
    "--skip-train",
    "--split",
    "--suggested-communication-unit-size",
    "--tokenizer-model",
    "--use-cpu-initialization",
    "--use-mcore-models",
    "--use-mp-args-from-checkpoint-args",
    "--use-persistent-ckpt-worker",
    "--use-pytorch-profiler",
    "--use-fused-rmsnorm",
    "--use-fused-swiglu",
    "--use-fused-rotary-pos-emb",
    "--vocab-extra-ids",
    "--high-priority-stream-groups",
});

using Reason = std::pair<std::string_view, std::string_view>;
constexpr auto kNotModelled = std::to_array<Reason>({
    {"--apply-residual-connection-post-layernorm", "another order of norms"},
    {"--cpu-offloading", "activations in host memory"},
    {"--ddp-num-buckets", "a number of buckets instead of their size"},
    {"--decrease-batch-size-if-needed", "a batch that changes"},
    {"--defer-embedding-wgrad-compute", "a postponed weight gradient"},
    {"--distribute-saved-activations", "saved activations spread over tensor-parallel ranks"},
    {"--encoder-num-layers", "an encoder"},
    {"--encoder-pipeline-model-parallel-size", "an encoder"},
    {"--encoder-tensor-model-parallel-size", "an encoder"},
    {"--exp-avg-dtype", "low-precision optimizer state"},
    {"--exp-avg-sq-dtype", "low-precision optimizer state"},
    {"--fp16-lm-cross-entropy", "the loss in half precision"},
    {"--fp32-residual-connection", "a residual stream in fp32"},
    {"--heterogeneous-layers-config-path", "layers that differ"},
    {"--hierarchical-context-parallel-sizes", "context parallelism of two levels"},
    {"--main-grads-dtype", "gradients in another precision"},
    {"--main-params-dtype", "master weights in another precision"},
    {"--model-parallel-size", "it was replaced by --tensor-model-parallel-size"},
    {"--moe-layer-recompute", "recomputation of the expert layer alone"},
    {"--mtp-num-layers", "multi-token prediction"},
    {"--no-clone-scatter-output-in-embedding", "another embedding"},
    {"--optimizer-cpu-offload", "optimizer state in host memory"},
    {"--optimizer-offload-fraction", "optimizer state in host memory"},
    {"--overlap-p2p-communication-warmup-flush", "overlap in the warm-up"},
    {"--overlap-param-gather-with-optimizer-step", "gathers beside the optimizer"},
    {"--pipeline-model-parallel-split-rank", "an encoder"},
    {"--retro-encoder-layers", "retrieval"},
    {"--standalone-embedding-stage", "a stage for the embedding alone"},
    {"--use-precision-aware-optimizer", "low-precision optimizer state"},
    {"--use-ring-exchange-p2p", "another transfer between stages"},
    {"--use-tp-pp-dp-mapping", "another order of ranks"},
    {"--yaml-cfg", "arguments in another file"},
});

// Flags that begin like irrelevant ones.
constexpr auto kReadDespitePrefix = std::to_array<std::string_view>(
    {"--moe-router-topk", "--moe-router-num-groups", "--moe-router-group-topk",
     "--moe-router-fusion", "--moe-router-padding-for-fp8", "--moe-router-padding-for-quantization",
     "--cuda-graph-impl", "--cuda-graph-scope", "--enable-cuda-graph", "--external-cuda-graph"});

}  // namespace

bool megatron_flag_is_irrelevant(std::string_view flag) {
  const auto begins = [flag](std::string_view prefix) { return flag.starts_with(prefix); };
  const bool is_read = std::ranges::find(kReadDespitePrefix, flag) != kReadDespitePrefix.end();
  return std::ranges::find(kIrrelevant, flag) != kIrrelevant.end() ||
         (!is_read && megatron_flag_not_modelled(flag).empty() &&
          std::ranges::any_of(kIrrelevantPrefixes, begins));
}

std::string_view megatron_flag_not_modelled(std::string_view flag) {
  const auto found = std::ranges::find(kNotModelled, flag, &Reason::first);
  return found == kNotModelled.end() ? std::string_view() : found->second;
}

}  // namespace orrery::plan
