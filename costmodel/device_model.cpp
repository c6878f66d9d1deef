// SPDX-License-Identifier: Apache-2.0
#include "costmodel/device_model.hpp"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/error.hpp"

namespace orrery::costmodel {

namespace {

constexpr double kGroupedTileRows = 128;
constexpr double kAttentionTile = 128;
// What the kernels that find the scale of a tensor and cast it take for each row, however long: the
// fp8 tables of B200, H100 and L40S, fitted apart, say 4.9, 5.0 and 5.2 ns.
constexpr double kCastOfRow = 5e-9;
// A block of threads takes a row, so rows and bytes bind together, not one after the other: the
// exponent of their smooth maximum (1.5 and 2 leave the same error on the three tables).
constexpr double kCastOverlap = 1.5;
constexpr double kBackwardFlops = 2.5;  // five matrix products against two
// Keys' worth of work that FlashAttention-2 loses a row: its figures on H100 and on A100 (60 rows
// of 512 to 16,384 tokens, arXiv 2307.08691 and 2407.08608) say 76 to 190, whatever the mask and
// head.
constexpr double kFlash2RowOverhead = 140;
// Ada and Hopper add up fp8 products in fewer bits. The products of the backward pass promote the
// sums to fp32 every 128 elements, which takes 1.1 to 1.2 times as long (docs/costmodel.md).
constexpr double kPreciseSums = 1 / 1.15;
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

double as_double(std::int64_t value) { return static_cast<double>(value); }

// Sum over the query rows of the keys each of them sees.
double visible_pairs(const AttentionShape& shape) {
  const double rows = as_double(shape.q_len);
  const double keys = as_double(shape.kv_len);
  const double window = shape.window > 0 ? std::min(keys, as_double(shape.window)) : keys;
  if (!shape.causal) {
    return rows * window;
  }
  // Row i (from the end) sees keys - i keys, at most `window` and at least 0.
  const double seeing = std::min(rows, keys);
  const double first = keys - seeing;  // the first seeing row sees first + 1 keys
  const double limited = std::clamp(keys - window, 0.0, seeing);
  const double growing = seeing - limited;  // rows that see fewer than `window` keys or equal
  return growing * (first + (growing + 1) / 2) + limited * window;
}

// Rate of an older FlashAttention over the best kernel. Version 1, the kernels in Triton, is 1.4
// times slower than version 2 forward and twice backward (FlashAttention-2, arXiv 2307.08691,
// section 4.1).
double version_share(const AttentionParameters& parameters, int version, bool backward) {
  if (version == 0) {
    return 1.0;
  }
  const double flash2 =
      backward ? parameters.flash2_backward_fraction : parameters.flash2_forward_fraction;
  return version == 2 ? flash2 : flash2 / (backward ? 2.0 : 1.4);
}

bool sums_in_few_bits(const topologies::Gpu& gpu) {
  return gpu.compute_capability >= 8.9 && gpu.compute_capability < 10;
}

bool holds(const KernelResiduals& residuals, const ResidualKey& key) {
  const auto sixteen_bits = [](DType dtype) {
    return dtype == DType::Fp16 ? DType::Bf16 : dtype;  // they stand for each other
  };
  const std::vector<ResidualSet>& sets = residuals.sets();
  return std::any_of(sets.begin(), sets.end(), [&](const ResidualSet& set) {
    return set.key.kind == key.kind && set.key.layout == key.layout && set.key.load == key.load &&
           sixteen_bits(set.key.dtype) == sixteen_bits(key.dtype);
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

// FLOP/s that the power limit feeds; 0: no bound known. A tf32 FLOP takes twice the energy of a
// 16-bit one (docs/costmodel.md).
double DeviceModel::powered_rate(DType dtype) const {
  const double energy = profile_.power.picojoules_per_flop * 1e-12;
  if (energy <= 0 || gpu_.power_watts <= 0 || dtype == DType::Fp32) {
    return 0;
  }
  const double fp8 = profile_.power.fp8_energy;
  const double scale = dtype == DType::Fp8 ? fp8 : dtype == DType::Tf32 ? 2.0 : 1.0;
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
      dtype == DType::Fp8 ? measured_factor({KernelKind::Gemm, dtype, GemmLayout::TN, Load::Burst},
                                            {kLargeProduct, kLargeProduct, kLargeProduct})
                          : 1.0;
  return std::min(1.0, powered * factor / computing);
}

double DeviceModel::measured_factor(const ResidualKey& key, const KernelSizes& sizes) const {
  const double log_factor = profile_.kernels.residuals.log_factor(key, sizes, gpu_.sm_count);
  return log_factor == 0 ? 1.0 : std::exp(log_factor);
}

Seconds DeviceModel::gemm(const GemmShape& shape) const {
  if (shape.m <= 0 || shape.n <= 0 || shape.k <= 0 || shape.groups <= 0) {
    return Seconds(0);
  }
  const GemmParameters& parameters = profile_.gemm[static_cast<std::size_t>(shape.dtype)];
  const double m = as_double(shape.m);
  const double n = as_double(shape.n);
  const double k = as_double(shape.k);
  const double groups = as_double(shape.groups);
  double rate = peak(shape.dtype).value() * parameters.compute_fraction;
  double rows = m;
  if (shape.groups > 1) {
    rate *= parameters.grouped_fraction;
    rows = std::ceil(m / kGroupedTileRows) * kGroupedTileRows;  // no tile spans two groups
  }
  const double flops = 2 * m * n * k * groups;
  const double computed = flops / m * rows;
  const double element = bytes_per_element(shape.dtype);
  // Weight gradients accumulate into fp32: the output is read as well, and the rate is lower in
  // bursts and at the power limit.
  const bool accumulates = shape.output_bytes == 4 && element < 4;
  const double accumulating = accumulates ? parameters.accumulate_fraction : 1.0;
  const bool gradient = shape.layout != GemmLayout::TN;
  const bool precise = gradient && shape.dtype == DType::Fp8 && sums_in_few_bits(gpu_);
  rate *= accumulating * clock_share(shape.dtype) * (precise ? kPreciseSums : 1.0);
  const double output = accumulates ? 8 : shape.output_bytes;
  const double bytes = groups * (element * (m * k + k * n) + output * m * n);
  const double bandwidth = gpu_.hbm_bandwidth.value();
  const double memory = bytes / (bandwidth * parameters.memory_fraction);
  const double launch = parameters.launch.value();
  double time = launch + smooth_max(computed / rate, memory, parameters.exponent);

  const bool grouped = shape.groups > 1;
  const KernelSizes sizes = grouped ? KernelSizes{shape.k, shape.n, shape.groups, shape.m}
                                    : KernelSizes{shape.k, shape.n, shape.m};
  ResidualKey key{grouped ? KernelKind::GroupedGemm : KernelKind::Gemm, shape.dtype, GemmLayout::TN,
                  Load::Burst};
  if (!shape.batched) {
    time *= measured_factor(key, sizes);
    if (shape.layout != GemmLayout::TN) {
      key.layout = shape.layout;
      time *= measured_factor(key, sizes);
    }
  }
  if (load_ == Load::Sustained) {
    if (const double powered = powered_rate(shape.dtype); powered > 0) {
      time = std::max(time, launch + smooth_max(computed / (powered * accumulating), memory,
                                                parameters.exponent));
    }
    key.layout = shape.layout;
    key.load = Load::Sustained;
    time *= shape.batched ? 1.0 : measured_factor(key, sizes);
  }
  time = std::max({time, flops / peak(shape.dtype).value(), bytes / bandwidth});
  if (shape.casts_activations) {
    // One kernel reads 16 bits an element for the scale, one reads them again and writes 8.
    const double read = 5 * groups * m * k / (bandwidth * parameters.cast_fraction);
    time += launch + smooth_max(kCastOfRow * groups * m, read, kCastOverlap);
  }
  return Seconds(time);
}

Seconds DeviceModel::attention(const AttentionShape& shape, bool backward) const {
  if (shape.batch <= 0 || shape.heads <= 0 || shape.q_len <= 0 || shape.kv_len <= 0 ||
      shape.head_dim <= 0) {
    return Seconds(0);
  }
  const AttentionParameters& parameters = profile_.attention;
  const double value_dim =
      as_double(shape.value_head_dim > 0 ? shape.value_head_dim : shape.head_dim);
  const double dims = as_double(shape.head_dim) + value_dim;
  const double lanes = as_double(shape.batch) * as_double(shape.heads);
  const double rows = as_double(shape.q_len);
  const double version = version_share(parameters, shape.flash_version, backward);
  const bool best = version == 1;  // the kernel that the profile describes
  // Whole tiles are computed along the diagonal, and a row of tiles has a start and an end.
  const double extra = (shape.causal ? (kAttentionTile - 1) / 2 : 0) +
                       (best ? parameters.row_overhead : kFlash2RowOverhead);
  const double keys =
      as_double(shape.window > 0 ? std::min(shape.window, shape.kv_len) : shape.kv_len);
  const double mean_keys = shape.causal ? std::min(keys, as_double(shape.kv_len) / 2) : keys;
  // The waves lost count once, not for each of the products of the backward pass.
  const double idle_rows = parameters.idle_waves * gpu_.sm_count * kAttentionTile;
  const double flop_factor = backward ? kBackwardFlops : 1;
  const double pairs =
      flop_factor * lanes * (visible_pairs(shape) + rows * extra) + idle_rows * (mean_keys + extra);
  const double flops = 2 * dims * pairs;
  double share = parameters.forward_fraction;
  const double by_head = std::pow(dims / 256, parameters.head_dim_exponent);
  // Larger heads than 128 do not speed up the backward pass, which runs out of registers.
  share *= backward ? parameters.backward_rate_fraction * std::min(1.0, by_head) : by_head;
  share *= version;
  const double peak_rate = peak(shape.dtype).value();
  const double kv_heads = as_double(shape.kv_heads > 0 ? shape.kv_heads : shape.heads);
  // Backward reads what forward read and wrote plus the output gradient, writes three gradients.
  const double bytes = (backward ? 2.5 : 1) * bytes_per_element(shape.dtype) *
                       as_double(shape.batch) * dims *
                       (as_double(shape.heads) * rows + kv_heads * as_double(shape.kv_len));
  const double bandwidth = gpu_.hbm_bandwidth.value();
  const double memory =
      bytes / (bandwidth * profile_.memory.fraction[static_cast<std::size_t>(MemoryKernel::Copy)]);
  const Seconds launch = best ? parameters.launch : profile_.memory.launch;
  double time = launch.value() + std::max(flops / (peak_rate * std::min(1.0, share)), memory);
  const double needed = flop_factor * 2 * dims * lanes * visible_pairs(shape);
  const std::int64_t seen = std::llround(keys);
  const KernelSizes sizes = {shape.head_dim,
                             std::llround(value_dim),
                             shape.causal ? 1 : 0,
                             shape.heads,
                             std::llround(kv_heads),
                             shape.batch,
                             seen == shape.q_len ? 0 : seen,
                             shape.q_len};
  ResidualKey key{backward ? KernelKind::AttentionBackward : KernelKind::AttentionForward,
                  shape.dtype, GemmLayout::TN, load_};
  // Training calls another kernel than inference, which reads pages of keys: where it was measured,
  // it stands on the formula by itself.
  const bool training = load_ == Load::Sustained && holds(profile_.kernels.residuals, key);
  key.load = Load::Burst;
  if (best && !training) {
    time *= measured_factor(key, sizes);
  }
  if (load_ == Load::Sustained) {
    if (const double powered = powered_rate(shape.dtype); powered > 0) {
      time = std::max(time, needed / powered);
    }
  }
  if (best && training) {
    key.load = Load::Sustained;
    time *= measured_factor(key, sizes);
  }
  return Seconds(std::max({time, needed / peak_rate, bytes / bandwidth}));
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
  const double fraction = profile_.memory.fraction[static_cast<std::size_t>(kernel)];
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
