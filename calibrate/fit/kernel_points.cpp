// SPDX-License-Identifier: Apache-2.0
#include "calibrate/fit/kernel_points.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <tuple>

#include "base/quantile.hpp"
#include "base/random.hpp"
#include "calibrate/kernel_words.hpp"

namespace orrery::calibrate {

namespace {

using costmodel::AttentionShape;
using costmodel::GemmShape;
using costmodel::KernelKind;
using costmodel::KernelSizes;
using costmodel::Load;

// Tables of aiconfigurator time layers in fp8 and nvfp4 as inference runs them, activations
// arriving in 16 bits.
bool casts_activations(const Sample& sample, DType dtype) {
  return is_quantised(dtype) && sample.implementation == "aiconfigurator";
}

// Tables of kernels as training calls them; others hold those of inference, with pages of keys.
bool is_of_training(const Sample& sample) {
  return sample.implementation == "simumax" || sample.implementation.starts_with("FlashAttention");
}

// SimuMax repeats a kernel for long; only where the power limit is known to act does it matter how
// long. Experts stay below what power allows at any duration. Attention of training is another
// kernel than that of inference, so it belongs to the load of plans whatever it was timed under.
Load load_of(const Sample& sample, bool power_limited) {
  if (!is_of_training(sample)) {
    return Load::Burst;
  }
  const auto* gemm = std::get_if<GemmSample>(&sample.shape);
  if (!power_limited || gemm == nullptr || gemm->groups > 1) {
    return Load::Sustained;
  }
  return costmodel::load_of_loop(sample.time.median, costmodel::kSimumaxGemmLaunches);
}

bool in_short_loop(const Sample& sample) {
  return sample.implementation == "simumax" &&
         std::holds_alternative<AttentionSample>(sample.shape) &&
         costmodel::load_of_loop(sample.time.median, costmodel::kSimumaxAttentionLaunches) ==
             Load::Burst;
}

KernelPointOf gemm_point(const Sample& sample, const GemmSample& gemm, Load load) {
  GemmShape shape{
      .m = gemm.m, .n = gemm.n, .k = gemm.k, .groups = gemm.groups, .dtype = gemm.dtype};
  shape.layout = modelled_layout(gemm.layout);
  shape.output_bytes = static_cast<int>(std::ceil(bytes_per_element(gemm.output)));
  if (shape.output_bytes == 4 && !gemm.accumulate && bytes_per_element(gemm.dtype) < 4) {
    shape.output_bytes = 2;  // the model reads a wider output as accumulation
  }
  shape.casts_activations = casts_activations(sample, gemm.dtype);
  KernelPointOf point;
  const bool grouped = gemm.groups > 1;
  point.key = {grouped ? KernelKind::GroupedGemm : KernelKind::Gemm, gemm.dtype, shape.layout,
               load};
  point.sizes = grouped ? KernelSizes{gemm.k, gemm.n, gemm.groups, gemm.m}
                        : KernelSizes{gemm.k, gemm.n, gemm.m};
  point.shape = shape;
  return point;
}

KernelPointOf attention_point(const AttentionSample& attention, Load load) {
  AttentionShape shape{.batch = attention.batch,
                       .heads = attention.heads,
                       .kv_heads = attention.kv_heads,
                       .q_len = attention.q_len,
                       .kv_len = attention.kv_len,
                       .head_dim = attention.head_dim,
                       .value_head_dim = attention.value_head_dim,
                       .causal = attention.causal,
                       .window = attention.window,
                       .dtype = attention.dtype};
  KernelPointOf point;
  point.both_passes = attention.both_passes;
  point.key = {attention.backward ? KernelKind::AttentionBackward : KernelKind::AttentionForward,
               attention.dtype, costmodel::GemmLayout::TN, load};
  const std::int64_t keys = shape.window > 0 ? std::min(shape.window, shape.kv_len) : shape.kv_len;
  point.sizes = {shape.head_dim, shape.value_head_dim, shape.causal ? 1 : 0,           shape.heads,
                 shape.kv_heads, shape.batch,          keys == shape.q_len ? 0 : keys, shape.q_len};
  point.shape = shape;
  return point;
}

// Kernels that are not the fastest of their GPU, which is what the formula describes.
bool is_older_kernel(const std::string& implementation, const topologies::Gpu& gpu,
                     const costmodel::AttentionParameters& attention) {
  const bool flash2_is_best =
      attention.flash2_forward_fraction == 1 && attention.flash2_backward_fraction == 1;
  const std::optional<int> kernel = attention_kernel(implementation, gpu.vendor);
  return !kernel || (*kernel == 2 && !flash2_is_best) || implementation == "cuDNN";
}

std::optional<KernelPointOf> point_of(const Sample& sample, const topologies::Gpu& gpu,
                                      const costmodel::Profile& base, std::string& why_not) {
  if (sample.flags.throttled || sample.flags.above_ceiling) {
    why_not = sample.flags.throttled ? "timed while the clock fell" : "faster than the chip can be";
  } else if (const auto* gemm = std::get_if<GemmSample>(&sample.shape)) {
    const bool best = sample.implementation == "best of many shapes";
    if (!best && !gemm->batched) {
      return gemm_point(sample, *gemm, load_of(sample, power_limited(base)));
    }
    why_not = best ? "best of many shapes" : "products of a batch, which may not be experts";
  } else if (const auto* attention = std::get_if<AttentionSample>(&sample.shape)) {
    const Load load = load_of(sample, power_limited(base));
    if (attention->in_16_bits_s > 0) {
      return std::nullopt;  // fp8_attention.hpp
    }
    if (is_older_kernel(sample.implementation, gpu, base.attention)) {
      why_not = "attention by " + sample.implementation;
    } else if (attention->both_passes && load == Load::Burst) {
      why_not = "attention's passes together, not by a kernel of training that is known";
    } else {
      return attention_point(*attention, load);
    }
  }
  return std::nullopt;
}

// One software stack a set: bursts of training tables fill in what no table of bursts holds.
void leave_out_doubled_bursts(std::vector<KernelPointOf>& points) {
  std::vector<costmodel::ResidualKey> known;
  for (const KernelPointOf& point : points) {
    if (!point.of_training && std::find(known.begin(), known.end(), point.key) == known.end()) {
      known.push_back(point.key);
    }
  }
  std::erase_if(points, [&](const KernelPointOf& point) {
    return point.of_training && std::find(known.begin(), known.end(), point.key) != known.end();
  });
}

int output_bytes_of(const KernelPointOf& point) {
  const auto* gemm = std::get_if<GemmShape>(&point.shape);
  return gemm != nullptr ? gemm->output_bytes : 0;
}

// The formula tells outputs of 16 and of 32 bits apart, the residuals do not.
void leave_out_16_bit_gradients(std::vector<KernelPointOf>& points) {
  std::set<std::tuple<Load, KernelKind, DType, KernelSizes>> in_32_bits;
  const auto key_of = [](const KernelPointOf& point) {
    return std::tuple(point.key.load, point.key.kind, point.key.dtype, point.sizes);
  };
  for (const KernelPointOf& point : points) {
    if (point.key.layout == costmodel::GemmLayout::NT && output_bytes_of(point) == 4) {
      in_32_bits.insert(key_of(point));
    }
  }
  std::erase_if(points, [&](const KernelPointOf& point) {
    return point.key.layout == costmodel::GemmLayout::NT && output_bytes_of(point) == 2 &&
           in_32_bits.contains(key_of(point));
  });
}

// All but what counts rows: a GEMM's n and k, attention's heads and head sizes.
std::uint64_t group_of(const KernelPointOf& point, std::uint64_t seed) {
  KernelSizes shared = point.sizes;
  if (point.key.kind == KernelKind::Gemm) {
    shared[2] = 0;
  } else if (point.key.kind == KernelKind::GroupedGemm) {
    shared[2] = shared[3] = 0;
  } else {
    shared[5] = shared[6] = shared[7] = 0;
  }
  std::uint64_t hash = mix64(seed);
  for (const std::int64_t size : shared) {
    hash = mix64(hash ^ static_cast<std::uint64_t>(size));
  }
  return hash;
}

auto order_of(const KernelPointOf& point) {
  return std::tuple(point.key.load, point.key.kind, point.key.dtype, point.key.layout,
                    point.both_passes, point.sizes);
}

}  // namespace

KernelPoints select(const KernelPoints& points,
                    const std::function<bool(const KernelPointOf&)>& wanted) {
  KernelPoints selected;
  std::copy_if(points.begin(), points.end(), std::back_inserter(selected),
               [&](const KernelPointOf* point) { return wanted(*point); });
  return selected;
}

// The enumerations have one order.
costmodel::GemmLayout modelled_layout(GemmLayout layout) {
  return static_cast<costmodel::GemmLayout>(layout);
}

bool comes_before(const KernelPointOf& a, const KernelPointOf& b) {
  return order_of(a) < order_of(b);
}

bool power_limited(const costmodel::Profile& base) { return base.power.picojoules_per_flop > 0; }

std::vector<KernelPointOf> kernel_points(std::span<const Sample> samples,
                                         const topologies::Gpu& gpu, const costmodel::Profile& base,
                                         std::uint64_t seed, std::vector<std::string>& remarks,
                                         const LoadOf& load_of) {
  std::vector<KernelPointOf> all;
  std::map<std::string, int> left_out;
  for (const Sample& sample : samples) {
    std::string why_not;
    std::optional<KernelPointOf> point = point_of(sample, gpu, base, why_not);
    if (point && gpu.peak_of(point->key.dtype).value() <= 0) {
      why_not = fmt::format("{} has no rate for {}", gpu.name, to_text(point->key.dtype));
      point.reset();
    }
    if (!point) {
      left_out[why_not] += why_not.empty() ? 0 : 1;
      continue;
    }
    point->seconds = sample.time.median.value();
    point->group = group_of(*point, seed);
    point->fold = point->group % kFolds;
    point->of_training = is_of_training(sample);
    point->short_loop = in_short_loop(sample);
    if (load_of && point->of_training && point->key.kind == KernelKind::Gemm) {
      point->key.load = load_of(*point);
    }
    all.push_back(*point);
  }
  leave_out_doubled_bursts(all);
  leave_out_16_bit_gradients(all);
  std::stable_sort(all.begin(), all.end(), comes_before);
  std::vector<KernelPointOf> points;
  for (std::size_t begin = 0; begin < all.size();) {
    std::size_t end = begin;
    std::vector<double> times;
    while (end < all.size() && order_of(all[end]) == order_of(all[begin])) {
      times.push_back(all[end++].seconds);
    }
    std::sort(times.begin(), times.end());
    points.push_back(all[begin]);
    points.back().seconds = quantile(times, 0.5);
    begin = end;
  }
  for (const auto& [reason, count] : left_out) {
    if (!reason.empty()) {
      remarks.push_back(fmt::format("{} samples left out: {}", count, reason));
    }
  }
  return points;
}

double predicted_time(const KernelPointOf& point, const costmodel::DeviceModel& burst,
                      const costmodel::DeviceModel& sustained, bool with_casts) {
  const costmodel::DeviceModel& model = point.key.load == Load::Burst ? burst : sustained;
  if (const auto* attention = std::get_if<AttentionShape>(&point.shape)) {
    if (point.both_passes) {
      return (model.attention_forward(*attention) + model.attention_backward(*attention)).value();
    }
    return (point.key.kind == KernelKind::AttentionBackward ? model.attention_backward(*attention)
                                                            : model.attention_forward(*attention))
        .value();
  }
  GemmShape gemm = std::get<GemmShape>(point.shape);
  gemm.casts_activations = gemm.casts_activations && with_casts;
  return model.gemm(gemm).value();
}

double kernel_seconds(const KernelPointOf& point, const costmodel::DeviceModel& burst,
                      const costmodel::DeviceModel& sustained) {
  const double cast =
      predicted_time(point, burst, sustained) - predicted_time(point, burst, sustained, false);
  return std::max(point.seconds - cast, 0.25 * point.seconds);
}

bool is_large(const KernelPointOf& point) {
  const auto* gemm = std::get_if<costmodel::GemmShape>(&point.shape);
  return gemm != nullptr && std::min({gemm->m, gemm->n, gemm->k}) >= 1024;
}

costmodel::DeviceModel fed_model(const topologies::Gpu& gpu, costmodel::Profile profile) {
  costmodel::AttentionParameters& attention = profile.attention;
  attention.forward_fraction = attention.backward_rate_fraction = 1;
  attention.head_dim_exponent = attention.row_overhead = attention.idle_waves = 0;
  attention.launch = {};
  return {gpu, profile, Load::Sustained};
}

std::string class_name(const costmodel::ResidualKey& key) {
  const bool attention =
      key.kind == KernelKind::AttentionForward || key.kind == KernelKind::AttentionBackward;
  const std::string layout = attention ? "" : fmt::format(" {}", costmodel::to_text(key.layout));
  return fmt::format("{} {}{} {}", costmodel::to_text(key.kind), to_text(key.dtype), layout,
                     costmodel::to_text(key.load));
}

std::string class_name(const KernelPointOf& point) {
  return point.both_passes ? fmt::format("attention-both {} {}", to_text(point.key.dtype),
                                         costmodel::to_text(point.key.load))
                           : class_name(point.key);
}

}  // namespace orrery::calibrate
