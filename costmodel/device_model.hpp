// SPDX-License-Identifier: Apache-2.0
// Time of one operator on one device: a formula (smooth roofline of compute and memory time, fused
// attention, streaming kernels, host copies) times what was measured beyond it at nearby shapes
// (costmodel/kernel_residuals.hpp). Pure functions of shape and profile, without allocation where a
// thread has asked before; the first lookup of a residual set builds its search tree.
//
// No time is below peak rate or HBM bandwidth, and faster hardware never takes more. The formulas
// never take less time for more work; measured kernels do (a full last wave beats a ragged one),
// and so does a profile with residuals, by at most the square of KernelResiduals::kMaxFactor.
#pragma once

#include <cstdint>

#include "base/dtype.hpp"
#include "base/units.hpp"
#include "costmodel/profile.hpp"
#include "topologies/cluster.hpp"

namespace orrery::costmodel {

// C[m,n] += A[m,k] B[k,n], `groups` of them in one kernel (experts; m rows each).
struct GemmShape {
  std::int64_t m = 0;
  std::int64_t n = 0;
  std::int64_t k = 0;
  std::int64_t groups = 1;
  DType dtype = DType::Bf16;
  int output_bytes = 2;  // per element; 4 with fp32 accumulation into gradients
  GemmLayout layout = GemmLayout::TN;
  // fp8: includes the kernels that find the scale of 16-bit activations and cast them.
  bool casts_activations = false;
  bool batched = false;  // `groups` are a batch of equal GEMMs (attention scores), not experts
  // fp8: sums are promoted to fp32 in the forward product (layout TN), too.
  bool precise_sums = false;
};
Flops flops_of(const GemmShape& shape);  // of all groups: a multiplication and an addition a term

struct AttentionShape {
  std::int64_t batch = 0;
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;
  std::int64_t q_len = 0;
  std::int64_t kv_len = 0;
  std::int64_t head_dim = 0;
  std::int64_t value_head_dim = 0;
  bool causal = true;
  std::int64_t window = 0;
  DType dtype = DType::Bf16;
  int flash_version = 0;  // FlashAttention 1 (Triton) or 2; 0: the best fused kernel of the GPU
};

class DeviceModel {
 public:
  DeviceModel(const topologies::Gpu& gpu, const Profile& profile, Load load = Load::Burst);

  Seconds gemm(const GemmShape& shape) const;
  // Fused (flash) attention; backward includes the recomputed forward inside the kernel.
  Seconds attention_forward(const AttentionShape& shape) const;
  Seconds attention_backward(const AttentionShape& shape) const;
  // A kernel that reads and writes `bytes` of HBM in all.
  Seconds memory_bound(Bytes bytes, MemoryKernel kernel) const;
  Seconds host_copy(Bytes bytes, BytesPerSecond link) const;
  // Share of its speed a compute kernel keeps while an NCCL kernel runs beside it.
  double overlap_speed_fraction() const;

  // A 16-bit tensor to fp8, called again and again on the same operands, as tables time it.
  Seconds cast(double elements, CastScale scale) const;
  // Casting activations and weights to fp8 around a GEMM (TransformerEngine-like recipes).
  Seconds quantise(Bytes input_bytes) const;

  const topologies::Gpu& gpu() const { return gpu_; }
  const Profile& profile() const { return profile_; }

 private:
  FlopsPerSecond peak(DType dtype) const;  // Error when the GPU does not support it
  // `time` (seconds) of the formula times what was measured beyond it in bursts.
  double measured_gemm(const GemmShape& shape, double time) const;
  double activation_casts(const GemmShape& shape) const;  // seconds
  Seconds attention(const AttentionShape& stated, bool backward) const;
  double powered_rate(DType dtype) const;
  double clock_share(DType dtype) const;
  double measured_factor(const ResidualKey& key, const KernelSizes& sizes) const;

  topologies::Gpu gpu_;
  Profile profile_;
  Load load_;
};

}  // namespace orrery::costmodel
