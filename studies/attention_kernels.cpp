// SPDX-License-Identifier: Apache-2.0
#include "studies/attention_kernels.hpp"

namespace orrery::studies {
namespace {

// FlashAttention repository, assets: H100 SXM5, head size 128, causal, 16,384 tokens, TFLOP/s.
constexpr double kFlash3Forward = 616;
constexpr double kFlash2Forward = 335;
constexpr double kFlash2Both = 328;  // forward and backward; the backward has 2.5 times the FLOPs
constexpr double kFlash2Backward = 2.5 / (3.5 / kFlash2Both - 1.0 / kFlash2Forward);

// FlashAttention-2 (arXiv 2307.08691, section 4.1) against FlashAttention in Triton: forward 1.3 to
// 1.5 times faster, backward around twice.
constexpr double kTritonForward = 1.0 / 1.4;
constexpr double kTritonBackward = 1.0 / 2.0;

}  // namespace

costmodel::AttentionParameters attention_parameters(const costmodel::AttentionParameters& best,
                                                    const topologies::Gpu& gpu,
                                                    AttentionKernel kernel) {
  costmodel::AttentionParameters parameters = best;
  if (kernel == AttentionKernel::OfProfile) {
    return parameters;
  }
  // FlashAttention-2 is the kernel of the Ampere profiles; on Hopper it leaves the new instructions
  // unused. Newer architectures are taken as Hopper.
  if (gpu.compute_capability >= 9.0) {
    parameters.forward_fraction *= kFlash2Forward / kFlash3Forward;
    parameters.backward_rate_fraction = kFlash2Backward / kFlash2Forward;
  }
  if (kernel == AttentionKernel::TritonFlash) {
    parameters.forward_fraction *= kTritonForward;
    parameters.backward_rate_fraction *= kTritonBackward / kTritonForward;
  }
  return parameters;
}

}  // namespace orrery::studies
