// SPDX-License-Identifier: Apache-2.0
// A profile: the calibrated (or default) parameters of one GPU type and of the fabrics it is used
// on, each with its source and residual spread. One JSON file in costmodel/profiles/ per GPU;
// GPUs without a file use the defaults of their architecture with wider spreads.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.hpp"
#include "base/units.hpp"
#include "costmodel/collective_fits.hpp"
#include "costmodel/kernel_residuals.hpp"
#include "topologies/cluster.hpp"

namespace orrery::costmodel {

// Smooth roofline of a kernel: t = launch + (tc^p + tm^p)^(1/p).
struct GemmParameters {
  double compute_fraction = 0.75;     // e: share of the peak rate large GEMMs reach
  double memory_fraction = 0.85;      // f: share of HBM bandwidth
  Seconds launch;                     // t0
  double exponent = 2.0;              // p
  double grouped_fraction = 0.9;      // rate of grouped kernels (experts) over that of one GEMM
  double accumulate_fraction = 0.95;  // rate when adding to an fp32 output (weight gradients)
  // fp8: share of HBM bandwidth of the kernels that cast the activations before the GEMM.
  double cast_fraction = 0.85;
  bool operator==(const GemmParameters&) const = default;
};

// Without measurements, products in nvfp4 reach the shares of their peak that those in fp8 reach,
// under the same residual sets: profiles leave them out.
using GemmOfDType = std::array<GemmParameters, kNumDTypes>;
inline bool nvfp4_as_fp8(const GemmOfDType& gemm) {
  return gemm[static_cast<std::size_t>(DType::Nvfp4)] == gemm[static_cast<std::size_t>(DType::Fp8)];
}

struct AttentionParameters {
  double forward_fraction = 0.55;  // e at head size 128
  double head_dim_exponent = 0.3;  // e(d) = e (d / 128)^x
  double row_overhead = 150;  // start and end of each row of tiles, in keys it could have visited
  double idle_waves = 1.0;    // waves of tiles lost while SMs start and run out of work
  Seconds launch;
  double backward_rate_fraction = 0.86;  // backward rate over forward rate, at 2.5x the FLOPs
  // Rate of FlashAttention-2 on this GPU over that of the best kernel.
  double flash2_forward_fraction = 1.0;
  double flash2_backward_fraction = 1.0;
  // Forward in fp8: rate of its products over that in 16 bits at head size 128, and at others times
  // (d / 128)^x; 0: not measured, as fast as in 16 bits.
  double fp8_forward_rate = 0;
  double fp8_head_dim_exponent = 0;
  bool operator==(const AttentionParameters&) const = default;
};

// Kernel tables are timed in bursts; a training run loads the GPU for hours, and its matrix rate is
// then bounded by the power limit over the energy of a FLOP.
struct PowerParameters {
  double picojoules_per_flop = 0;  // 16-bit tensor-core FLOP; 0: no bound known
  double fp8_energy = 0.5;         // of an fp8 FLOP, over that of a 16-bit one
  double nvfp4_energy = 0;         // likewise; 0: not known, half of that of an fp8 one
  // Peak rates of the chip that the energy belongs to; 0: unknown. A hypothetical chip that states
  // a higher peak is taken to be as much more efficient.
  std::array<FlopsPerSecond, kNumDTypes> reference_peak{};
  bool operator==(const PowerParameters&) const = default;
};

// Share of HBM bandwidth that each class of memory-bound kernel reaches, and its launch floor.
enum class MemoryKernel {
  Copy,
  Norm,
  Elementwise,
  Softmax,
  CrossEntropy,
  Embedding,
  Optimizer,
  Cast,
  Permute,
  CastTranspose  // TransformerEngine's kernel: an fp8 tensor and its transpose in one pass
};
inline constexpr int kNumMemoryKernels = 10;

// How well one class of kernels is known: |predicted / measured - 1| over points that took no part
// in the fit, and the sizes that were measured.
struct KernelAccuracy {
  std::string kernel;  // "gemm bf16 tn burst"
  int points = 0;
  double median = 0;
  double p90 = 0;
  double large_median = 0;  // GEMMs with m, n, k >= 1024; 0: none
  std::string measured;     // "m 16 to 32768, n 128 to 65536, k 128 to 65536"
  bool operator==(const KernelAccuracy&) const = default;
};

// What was measured beyond the formulas, by `orrery calibrate fit`; optional.
struct KernelFits {
  KernelResiduals residuals;
  std::vector<KernelAccuracy> accuracy;
  bool empty() const { return residuals.empty() && accuracy.empty(); }
  bool operator==(const KernelFits&) const = default;
};

// Kernels that turn 16-bit tensors into fp8 with one scale, called again and again on the same
// operands: up to `cached` times the L2 cache these stay in it, from `missed` times on nothing is
// found there, between them a growing part is not. Shares are of HBM bandwidth.
struct CastParameters {
  Seconds launch;
  double cache_fraction = 0;  // 0: not measured
  double memory_fraction = 0;
  double cached = 0;
  double missed = 0;
  bool operator==(const CastParameters&) const = default;
};
// With a known scale 2 bytes an element are read and 1 is written; finding the largest value first
// reads 2 more, in a kernel of its own.
enum class CastScale : std::uint8_t { Known, Found };
inline constexpr int kNumCastScales = 2;
constexpr double cast_bytes(CastScale scale) { return scale == CastScale::Known ? 3 : 5; }

struct MemoryParameters {
  std::array<double, kNumMemoryKernels> fraction{};
  Seconds launch;
  bool operator==(const MemoryParameters&) const = default;
};

// t = base + per_peer (n - 1) + bytes (n - 1) / n / bandwidth. Inside a node
// the bandwidth is a share of the GPU's scale-up bandwidth, between nodes of the group's NICs.
struct AllToAllParameters {
  Seconds base;
  Seconds per_peer;
  double bandwidth_fraction = 0.5;
  bool operator==(const AllToAllParameters&) const = default;
};

// Point-to-point: t = latency + bytes / bandwidth. Between nodes the bandwidth is the share of the
// NIC, and never more than one NCCL peer connection carries.
struct SendReceiveParameters {
  Seconds intra_latency;
  double intra_fraction = 0.8;  // share of the nominal scale-up bandwidth between two GPUs
  Seconds inter_latency;
  double nic_fraction = 0.9;
  BytesPerSecond peer_limit;
  bool operator==(const SendReceiveParameters&) const = default;
};

struct HostCopyParameters {
  Seconds latency;
  double fraction = 0.83;  // share of the nominal link rate, pinned memory
  bool operator==(const HostCopyParameters&) const = default;
};

// Relative standard deviations of the residuals, by class of operation; larger by this factor where
// nothing was measured on the GPU itself or in the format.
inline constexpr double kSpreadWidening = 1.5;
struct Spreads {
  double gemm = 0.07;
  double attention = 0.1;
  double memory_bound = 0.1;
  double intra_node_collective = 0.1;
  double inter_node_collective = 0.15;
  double grouped_gemm = 0;  // of experts; 0: not measured
  double all_to_all = 0;    // inside a node; 0: not measured, as collectives between nodes
  bool operator==(const Spreads&) const = default;
};

// Medians of the same shapes under three inference stacks differ by 0.01 to 0.05 (repeat tables).
inline constexpr double kSoftwareSpread = 0.04;
// Four fifths of normal errors are within so many deviations.
inline constexpr double kIn80Percent = 1.2815515655446004;
// Of normal errors of such a 90th percentile.
constexpr double deviation_of_p90(double p90) { return p90 / 1.645; }
// The spread of kernels whose left-out errors have such a standard deviation.
double spread_of(double deviation);

// Where the numbers of one section of a profile come from.
struct ProfileSource {
  std::string section;
  std::string text;
  bool operator==(const ProfileSource&) const = default;
};

struct Profile {
  // Compiled once: many files make and copy them.
  Profile();
  Profile(const Profile&);
  Profile(Profile&&) noexcept;
  Profile& operator=(const Profile&);
  Profile& operator=(Profile&&) noexcept;
  ~Profile();

  std::string name;  // of the GPU file it is for, or "default-<architecture>"
  std::string source;
  bool calibrated = false;
  GemmOfDType gemm;
  AttentionParameters attention;
  KernelFits kernels;
  PowerParameters power;
  MemoryParameters memory;
  std::array<CastParameters, kNumCastScales> casts;  // optional
  Seconds kernel_launch;   // host time to launch one kernel (stream, no graph)
  int collective_sms = 0;  // SMs an NCCL kernel occupies while it overlaps compute
  CollectiveParameters intra_node;
  CollectiveParameters inter_node;
  CollectiveParameters inter_node_plugin;  // networks whose plug-in declares a latency (EFA)
  AllToAllParameters all_to_all_intra;
  AllToAllParameters all_to_all_inter;
  SendReceiveParameters send_receive;
  CollectiveFits collectives;  // optional: residuals and networks of their own
  HostCopyParameters host_copy;
  Spreads spread;
  std::vector<ProfileSource> sources;  // one for each section of the document
  bool operator==(const Profile&) const = default;
};

std::string_view to_text(MemoryKernel kernel);  // "copy", "norm", ...

// The profile of the cluster's GPU, or the architecture defaults. Text may name a profile or a
// JSON file explicitly ("" picks by GPU).
Profile load_profile(const std::string& text, const topologies::Gpu& gpu);
Profile read_profile(const Json& document, const std::string& where, const topologies::Gpu& gpu);
Json to_json(const Profile& profile);  // as a Plan embeds it; read_profile reads it back equal
std::vector<std::string> profile_names();

}  // namespace orrery::costmodel
