// SPDX-License-Identifier: Apache-2.0
#include "costmodel/device_model.hpp"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/error.hpp"
#include "base/math.hpp"
#include "costmodel/attention_work.hpp"

namespace orrery::costmodel {

namespace {

// Rows of a tile of grouped products: the fewest that hold those of a group. Kernels of inference
// are tuned so (vLLM model_executor/layers/fused_moe/configs, A100 to H200: 16 rows for 8 tokens an
// expert, 32 or 64 for 24 and 32, 64 or 128 for 64), and cuBLAS, whose products of single experts
// training runs (TransformerEngine, multi_stream_cublas_gemm), has tiles of all these sizes
// (cublasLtMatmulTile_t). Training kernels of 128 rows alone (CUTLASS's, DeepGEMM's) are slower
// where an expert has few.
constexpr double kLargestTileRows = 128;
constexpr double kSmallestTileRows = 16;
// What the kernels that find the scale of a tensor and cast it take for each row, however long: the
// fp8 tables of B200, H100 and L40S, fitted apart, say 4.9, 5.0 and 5.2 ns.
constexpr double kCastOfRow = 5e-9;
// A block of threads takes a row, so rows and bytes bind together, not one after the other: the
// exponent of their smooth maximum (1.5 and 2 leave the same error on the three tables).
constexpr double kCastOverlap = 1.5;
// Keys' worth of work that FlashAttention-2 loses a row: its figures on H100 and on A100 (60 rows
// of 512 to 16,384 tokens, arXiv 2307.08691 and 2407.08608) say 76 to 190, whatever the mask and
// head.
constexpr double kFlash2RowOverhead = 140;
// Where fp8 products add up in few bits (Gpu::short_fp8_sums), those of the backward pass, and all
// of operands with scales of blocks, promote the sums to fp32 every 128 elements, which takes 1.1
// to 1.2 times as long (docs/costmodel.md).
constexpr double kPreciseSums = 1 / 1.15;
// wgmma, Hopper's instruction, reads operands of 32 bits along the inner dimension alone (PTX ISA,
// asynchronous warpgroup-level matrix instructions: only 16-bit types can be transposed), so that
// tf32 products of other layouts than TN fall back to slower kernels: output layers of 7,168 by
// 50,304 elements on GH200 take 1.30 to 1.43 times their forward product for each of the two
// gradients, 1.39 in the median of 15 (eth-easl/sailor, profiles of OPT-30B).
constexpr double kTransposedTf32 = 1 / 1.39;
constexpr std::int64_t kLargeProduct = 16384;  // rows, columns and depth

// (a^p + b^p)^(1/p) with one power of a ratio <= 1, so that it can neither overflow nor vanish.
double smooth_max(double a, double b, double exponent) {
  const double high = std::max(a, b);
  const double low = std::min(a, b);
  if (low <= 0) {
    return high;
  }
  return high * std::pow(1 + std::pow(low / high, exponent), 1 / exponent);
}

// Rate of FlashAttention-2 over the best kernel, which it is itself on GPUs before Hopper.
double flash2_share(const AttentionParameters& parameters, int version, bool backward) {
  return version == 0 ? 1.0
         : backward   ? parameters.flash2_backward_fraction
                      : parameters.flash2_forward_fraction;
}

// Version 1, the kernels in Triton, is 1.4 times slower than version 2 forward and twice backward
// (FlashAttention-2, arXiv 2307.08691, section 4.1).
double slower_than_flash2(int version, bool backward) {
  return version != 1 ? 1.0 : backward ? 2.0 : 1.4;
}

KernelSizes sizes_of(const AttentionShape& shape) {
  return {shape.head_dim,
          shape.value_head_dim,
          shape.causal ? 1 : 0,
          shape.heads,
          shape.kv_heads,
          shape.batch,
          shape.window == shape.q_len ? 0 : shape.window,
          shape.q_len};
}

KernelSizes sizes_of(const GemmShape& shape) {
  return shape.groups > 1 ? KernelSizes{shape.k, shape.n, shape.groups, shape.m}
                          : KernelSizes{shape.k, shape.n, shape.m};
}

// Weight gradients accumulate into fp32: the output is read as well.
bool accumulates(const GemmShape& shape) {
  return shape.output_bytes == 4 && bytes_per_element(shape.dtype) < 4;
}

double bytes_of(const GemmShape& shape) {
  const double m = as_double(shape.m);
  const double n = as_double(shape.n);
  const double k = as_double(shape.k);
  const double output = accumulates(shape) ? 8 : shape.output_bytes;
  return as_double(shape.groups) *
         (bytes_per_element(shape.dtype) * (m * k + k * n) + output * m * n);
}

// Energy of a FLOP over that of one in 16 bits (docs/costmodel.md).
double energy_scale(DType dtype, const PowerParameters& power) {
  switch (dtype) {
    case DType::Tf32:
      return 2.0;
    case DType::Fp8:
      return power.fp8_energy;
    case DType::Nvfp4:
      return power.nvfp4_energy > 0 ? power.nvfp4_energy : power.fp8_energy / 2;
    default:
      return 1.0;
  }
}

bool has_wgmma(const topologies::Gpu& gpu) {
  return gpu.compute_capability >= 9 && gpu.compute_capability < 10;
}

double grouped_tile(double rows) {
  double tile = kSmallestTileRows;
  while (tile < rows && tile < kLargestTileRows) {
    tile *= 2;
  }
  return tile;
}

// What sums in fp32 and operands in another order leave of the rate of a product's layout TN.
double layout_share(const GemmShape& shape, const topologies::Gpu& gpu) {
  const bool gradient = shape.layout != GemmLayout::TN;
  if (shape.dtype == DType::Fp8) {
    return (gradient || shape.precise_sums) && gpu.short_fp8_sums ? kPreciseSums : 1.0;
  }
  return gradient && shape.dtype == DType::Tf32 && has_wgmma(gpu) ? kTransposedTf32 : 1.0;
}

bool holds(const KernelResiduals& residuals, const ResidualKey& key) {
  const std::vector<ResidualSet>& sets = residuals.sets();
  return std::any_of(sets.begin(), sets.end(), [&](const ResidualSet& set) {
    return set.key.kind == key.kind && set.key.layout == key.layout && set.key.load == key.load &&
           (set.key.dtype == key.dtype || set.key.dtype == stand_in(key.dtype));
  });
}

}  // namespace

DeviceModel::DeviceModel(const topologies::Gpu& gpu, const Profile& profile, Load load)
    : gpu_(gpu), profile_(profile), load_(load) {
  ORRERY_CHECK(gpu_.hbm_bandwidth.value() > 0, gpu_.name);
}

FlopsPerSecond DeviceModel::peak(DType dtype) const {
  FlopsPerSecond rate = gpu_.peak_of(dtype);
  if (rate.value() <= 0 && dtype == DType::Tf32) {
    rate = gpu_.peak_of(DType::Fp32);
  }
  if (rate.value() <= 0) {
    bad_input(gpu_.name, "this GPU has no rate for " + std::string(to_text(dtype)),
              "choose a precision that it supports");
  }
  return rate;
}

// FLOP/s that the power limit feeds; 0: no bound known.
double DeviceModel::powered_rate(DType dtype) const {
  const double energy = profile_.power.picojoules_per_flop * 1e-12;
  if (energy <= 0 || gpu_.power_watts <= 0 || dtype == DType::Fp32) {
    return 0;
  }
  const double scale = energy_scale(dtype, profile_.power);
  const double reference = profile_.power.reference_peak[static_cast<std::size_t>(dtype)].value();
  const double faster = reference > 0 ? std::max(1.0, peak(dtype).value() / reference) : 1.0;
  return faster * gpu_.power_watts / (energy * scale);
}

// Share of its clock that the chip keeps at the power limit: what power feeds over what a large
// product reaches in a burst. The clock does not recover between kernels, so that products which
// would not need the limit run at it, too (docs/costmodel.md, sustained power).
double DeviceModel::clock_share(DType dtype) const {
  const double powered = load_ == Load::Sustained ? powered_rate(dtype) : 0;
  if (powered <= 0) {
    return 1.0;
  }
  const GemmParameters& parameters = profile_.gemm[static_cast<std::size_t>(dtype)];
  const double computing = peak(dtype).value() * parameters.compute_fraction;
  // The formula of fp8 alone is far from what a product reaches: its residuals are large.
  const double factor =
      is_quantised(dtype) ? measured_factor({KernelKind::Gemm, dtype, GemmLayout::TN, Load::Burst},
                                            {kLargeProduct, kLargeProduct, kLargeProduct})
                          : 1.0;
  return std::min(1.0, powered * factor / computing);
}

// Sets are ratios over a formula: those of fp8 say nothing of products in nvfp4 that have their
// own.
double DeviceModel::measured_factor(const ResidualKey& key, const KernelSizes& sizes) const {
  const bool stands_in = key.dtype != DType::Nvfp4 || nvfp4_as_fp8(profile_.gemm);
  const double log_factor =
      profile_.kernels.residuals.log_factor(key, sizes, gpu_.sm_count, stands_in);
  return log_factor == 0 ? 1.0 : std::exp(log_factor);
}

double DeviceModel::measured_gemm(const GemmShape& shape, double time) const {
  const KernelSizes sizes = sizes_of(shape);
  ResidualKey key{shape.groups > 1 ? KernelKind::GroupedGemm : KernelKind::Gemm, shape.dtype,
                  GemmLayout::TN, Load::Burst};
  time *= measured_factor(key, sizes);
  if (shape.layout != GemmLayout::TN) {
    key.layout = shape.layout;
    time *= measured_factor(key, sizes);
  }
  return time;
}

// fp8: one kernel reads 16 bits an element for the scale, one reads them again and writes 8. nvfp4:
// one kernel, since the scale of the tensor is known, writes 4 bits with the scales of blocks; its
// threads share rows, so that these cost nothing by themselves.
double DeviceModel::activation_casts(const GemmShape& shape) const {
  const GemmParameters& parameters = profile_.gemm[static_cast<std::size_t>(shape.dtype)];
  const bool in_fp8 = shape.dtype == DType::Fp8;
  const double rows = as_double(shape.groups) * as_double(shape.m);
  const double bytes = in_fp8 ? 5 : 2 + bytes_per_element(shape.dtype);
  const double read =
      bytes * rows * as_double(shape.k) / (gpu_.hbm_bandwidth.value() * parameters.cast_fraction);
  return parameters.launch.value() + smooth_max(in_fp8 ? kCastOfRow * rows : 0, read, kCastOverlap);
}

Flops flops_of(const GemmShape& shape) {
  return Flops(2 * as_double(shape.m) * as_double(shape.n) * as_double(shape.k) *
               as_double(shape.groups));
}

Seconds DeviceModel::gemm(const GemmShape& shape) const {
  if (shape.m <= 0 || shape.n <= 0 || shape.k <= 0 || shape.groups <= 0) {
    return Seconds(0);
  }
  const GemmParameters& parameters = profile_.gemm[static_cast<std::size_t>(shape.dtype)];
  const double m = as_double(shape.m);
  const double peak_rate = peak(shape.dtype).value();
  double rate = peak_rate * parameters.compute_fraction;
  double rows = m;
  if (shape.groups > 1) {
    rate *= parameters.grouped_fraction;
    const double tile = grouped_tile(m);
    rows = std::ceil(m / tile) * tile;  // no tile spans two groups
  }
  const double flops = 2 * m * as_double(shape.n) * as_double(shape.k) * as_double(shape.groups);
  const double computed = flops / m * rows;
  // In bursts and at the power limit.
  const double accumulating = accumulates(shape) ? parameters.accumulate_fraction : 1.0;
  rate *= accumulating * clock_share(shape.dtype) * layout_share(shape, gpu_);
  const double bytes = bytes_of(shape);
  const double bandwidth = gpu_.hbm_bandwidth.value();
  const double memory = bytes / (bandwidth * parameters.memory_fraction);
  const double launch = parameters.launch.value();
  double time = launch + smooth_max(computed / rate, memory, parameters.exponent);
  time = shape.batched ? time : measured_gemm(shape, time);
  if (load_ == Load::Sustained) {
    if (const double powered = powered_rate(shape.dtype); powered > 0) {
      time = std::max(time, launch + smooth_max(computed / (powered * accumulating), memory,
                                                parameters.exponent));
    }
    const KernelKind kind = shape.groups > 1 ? KernelKind::GroupedGemm : KernelKind::Gemm;
    time *= shape.batched ? 1.0
                          : measured_factor({kind, shape.dtype, shape.layout, Load::Sustained},
                                            sizes_of(shape));
  }
  time = std::max({time, flops / peak_rate, bytes / bandwidth});
  return Seconds(time + (shape.casts_activations ? activation_casts(shape) : 0));
}

Seconds DeviceModel::attention(const AttentionShape& stated, bool backward) const {
  if (stated.batch <= 0 || stated.heads <= 0 || stated.q_len <= 0 || stated.kv_len <= 0 ||
      stated.head_dim <= 0) {
    return Seconds(0);
  }
  AttentionShape shape = completed(stated);
  // In fp8 the forward pass is that of 16 bits with faster products. Nothing is known of a backward
  // pass in fp8: it is taken to be the one in 16 bits.
  const bool in_fp8 = is_quantised(shape.dtype) && !backward;
  const DType products = in_fp8 ? shape.dtype : unquantised(shape.dtype);
  shape.dtype = unquantised(shape.dtype);
  const AttentionParameters& parameters = profile_.attention;
  const double flash2 = flash2_share(parameters, shape.flash_version, backward);
  const bool best = flash2 == 1;  // the kernel that the profile describes, or Triton's beside it
  const AttentionWork work =
      work_of(shape, backward, best ? parameters.row_overhead : kFlash2RowOverhead,
              parameters.idle_waves * gpu_.sm_count);
  const double peak_rate = peak(shape.dtype).value();
  const double share =
      std::min(1.0, attention_share(parameters, head_widths(shape), backward) * flash2) /
      slower_than_flash2(shape.flash_version, backward) *
      (in_fp8 ? fp8_attention_rate(parameters, head_widths(shape)) : 1.0);
  const double bandwidth = gpu_.hbm_bandwidth.value();
  const double memory =
      work.bytes /
      (bandwidth * profile_.memory.fraction[static_cast<std::size_t>(MemoryKernel::Copy)]);
  const Seconds launch = best ? parameters.launch : profile_.memory.launch;
  double time = launch.value() + std::max(work.flops / (peak_rate * share), memory);
  ResidualKey key{backward ? KernelKind::AttentionBackward : KernelKind::AttentionForward,
                  shape.dtype, GemmLayout::TN, load_};
  const KernelSizes sizes = sizes_of(shape);
  // Training calls another kernel than inference, which reads pages of keys: where it was measured,
  // it stands on the formula by itself.
  const bool training = load_ == Load::Sustained && holds(profile_.kernels.residuals, key);
  key.load = Load::Burst;
  if (best && !training) {
    time *= measured_factor(key, sizes);
  }
  if (load_ == Load::Sustained) {
    if (const double powered = powered_rate(products); powered > 0) {
      time = std::max(time, work.needed_flops / powered);
    }
  }
  if (best && training) {
    key.load = Load::Sustained;
    time *= measured_factor(key, sizes);
  }
  return Seconds(
      std::max({time, work.needed_flops / peak(products).value(), work.bytes / bandwidth}));
}

Seconds DeviceModel::attention_forward(const AttentionShape& shape) const {
  return attention(shape, false);
}

Seconds DeviceModel::attention_backward(const AttentionShape& shape) const {
  return attention(shape, true);
}

Seconds DeviceModel::memory_bound(Bytes bytes, MemoryKernel kernel) const {
  if (bytes.value() <= 0) {
    return Seconds(0);
  }
  double fraction = profile_.memory.fraction[static_cast<std::size_t>(kernel)];
  if (kernel == MemoryKernel::CastTranspose && fraction <= 0) {  // no figure of its own
    fraction = profile_.memory.fraction[static_cast<std::size_t>(MemoryKernel::Cast)];
  }
  return profile_.memory.launch + bytes / (gpu_.hbm_bandwidth * fraction);
}

Seconds DeviceModel::host_copy(Bytes bytes, BytesPerSecond link) const {
  if (bytes.value() <= 0) {
    return Seconds(0);
  }
  if (link.value() <= 0) {
    bad_input(gpu_.name, "host copies need a link with bandwidth", "set node.host.link_per_gpu");
  }
  return profile_.host_copy.latency + bytes / (link * profile_.host_copy.fraction);
}

double DeviceModel::overlap_speed_fraction() const {
  if (gpu_.sm_count <= 0) {
    return 1;
  }
  return std::max(0.1, 1 - static_cast<double>(profile_.collective_sms) / gpu_.sm_count);
}

Seconds DeviceModel::cast(double elements, CastScale scale) const {
  const Bytes bytes(elements * cast_bytes(scale));
  const CastParameters& fit = profile_.casts[static_cast<std::size_t>(scale)];
  if (fit.cache_fraction <= 0 || elements <= 0) {
    return memory_bound(bytes, MemoryKernel::Cast);
  }
  const double cache = std::max(1.0, static_cast<double>(gpu_.l2_cache.value()));
  const double span = std::max(1e-3, fit.missed - fit.cached);
  const double missed = std::clamp((bytes.value() / cache - fit.cached) / span, 0.0, 1.0);
  const double rate = gpu_.hbm_bandwidth.value();
  return fit.launch + Seconds(bytes.value() / rate *
                              ((1 - missed) / fit.cache_fraction + missed / fit.memory_fraction));
}

Seconds DeviceModel::quantise(Bytes input_bytes) const {
  // Reads two bytes an element, writes the fp8 tensor and its transpose in one pass.
  return memory_bound(2.0 * input_bytes, MemoryKernel::Cast);
}

}  // namespace orrery::costmodel
