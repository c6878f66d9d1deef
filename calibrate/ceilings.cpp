// SPDX-License-Identifier: Apache-2.0
#include "calibrate/ceilings.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/error.hpp"
#include "base/quantity_text.hpp"
#include "base/text.hpp"
#include "calibrate/shapes.hpp"

namespace orrery::calibrate {
namespace {

std::vector<std::string> words_of(std::string_view text) {
  std::vector<std::string> words = {""};
  for (const char letter : to_lower(text)) {
    if (letter == ' ' || letter == '-' || letter == '_' || letter == '/') {
      words.emplace_back();
    } else {
      words.back() += letter;
    }
  }
  return words;
}

// Words of a GPU file's name that need not be in a driver's name of the device.
bool is_silent(const std::string& word) {
  return word.starts_with("sxm") || word.ends_with("gb") || word.starts_with("hbm") ||
         word == "gcd";
}

// Bytes that a kernel has to read and write at least.
double least_bytes(const Shape& shape) {
  const auto product = [](auto... extents) { return (1.0 * ... * static_cast<double>(extents)); };
  if (const auto* gemm = std::get_if<GemmSample>(&shape)) {
    return product(gemm->groups) * ((product(gemm->m, gemm->k) + product(gemm->k, gemm->n)) *
                                        bytes_per_element(gemm->dtype) +
                                    product(gemm->m, gemm->n) * bytes_per_element(gemm->output));
  }
  if (const auto* attention = std::get_if<AttentionSample>(&shape)) {
    return product(attention->batch) * bytes_per_element(attention->dtype) *
           (product(attention->heads, attention->q_len) +
            product(attention->kv_heads, attention->kv_len)) *
           product(attention->head_dim + attention->value_head_dim);
  }
  if (const auto* memory = std::get_if<MemorySample>(&shape)) {
    return static_cast<double>(memory->bytes_read + memory->bytes_written);
  }
  return 0;
}

// At the peaks of the data sheet; 0 where they do not bound it.
Seconds least_time(const Sample& sample, const topologies::Gpu& gpu) {
  if (const auto* copy = std::get_if<HostCopySample>(&sample.shape)) {
    return gpu.pcie_bandwidth.value() > 0
               ? Bytes(static_cast<double>(copy->bytes)) / gpu.pcie_bandwidth
               : Seconds();
  }
  const double bytes = least_bytes(sample.shape);
  const Achieved reached = achieved(sample, gpu);
  const bool no_peak = reached.rate.value() > 0 && reached.fraction <= 0;  // of this number format
  if (bytes <= 0 || gpu.hbm_bandwidth.value() <= 0 || no_peak) {
    return {};
  }
  const Seconds computing =
      reached.rate.value() > 0 ? sample.time.median * reached.fraction : Seconds();
  return Bytes(bytes) / gpu.hbm_bandwidth + computing;
}

// The shortest kernel of the public tables takes ten times as long.
constexpr double kShortestKernel = 1e-7;

std::string too_fast(const Sample& sample, const topologies::Gpu& gpu) {
  // More than clocks above the boost that data sheets state, or an untold variant, explain.
  constexpr double kMost = 2.0;
  const Achieved reached = achieved(sample, gpu);
  if (std::holds_alternative<HostCopySample>(sample.shape)) {
    // What a copy reads or writes on the device.
    return gpu.hbm_bandwidth.value() <= 0 || reached.bandwidth <= kMost * gpu.hbm_bandwidth
               ? ""
               : fmt::format("a copy at {}, but the memory of a {} moves no more than {}",
                             format_bandwidth(reached.bandwidth), gpu.name,
                             format_bandwidth(gpu.hbm_bandwidth));
  }
  if (reached.fraction <= kMost) {
    return "";
  }
  return reached.rate.value() > 0
             ? fmt::format("{}, but a {} computes no more than {}", format_flop_rate(reached.rate),
                           gpu.name, format_flop_rate(reached.rate / reached.fraction))
             : fmt::format("{}, but the memory of a {} moves no more than {}",
                           format_bandwidth(reached.bandwidth), gpu.name,
                           format_bandwidth(gpu.hbm_bandwidth));
}

// Units are a thousand apart. The slowest product of a millisecond and more in the public tables
// takes ten times what its peaks need; shorter kernels last as long as they take to start.
constexpr double kSlowest = 1000;
constexpr Seconds kStart(1e-3);

std::string too_slow(const Sample& sample, const topologies::Gpu& gpu) {
  const Seconds least = least_time(sample, gpu);
  return least <= Seconds() || sample.time.median <= least * kSlowest + kStart
             ? ""
             : fmt::format("{:g} s, where {} needs some {:.2g} s at its peaks: in another unit?",
                           sample.time.median.value(), gpu.name, least.value());
}

// Of the kernel, or of one of those that were launched.
std::string not_of_a_kernel(const Sample& sample) {
  const auto* launch = std::get_if<LaunchSample>(&sample.shape);
  const double count = launch != nullptr ? static_cast<double>(launch->count) : 1;
  const Seconds each = sample.time.median / count;
  const bool is_long = launch != nullptr && each > kStart;
  return each.value() >= kShortestKernel && !is_long
             ? ""
             : fmt::format("{:g} s for one kernel: in another unit?", each.value());
}

}  // namespace

Achieved achieved(const Sample& sample, const topologies::Gpu& gpu, double clock_ratio) {
  Achieved result;
  const auto judge_rate = [&](double flops, DType dtype) {
    result.rate = Flops(flops) / sample.time.median;
    const FlopsPerSecond peak = gpu.peak_of(dtype) * std::max(1.0, clock_ratio);
    result.fraction = peak.value() > 0 ? result.rate / peak : 0;
  };
  if (const auto* gemm = std::get_if<GemmSample>(&sample.shape)) {
    judge_rate(gemm_flops(*gemm), gemm->dtype);
  } else if (const auto* attention = std::get_if<AttentionSample>(&sample.shape)) {
    judge_rate(attention_flops(*attention), attention->dtype);
  } else if (const auto* memory = std::get_if<MemorySample>(&sample.shape)) {
    const Bytes bytes(static_cast<double>(memory->bytes_read + memory->bytes_written));
    result.bandwidth = bytes / sample.time.median;
    const bool from_hbm = sample.flags.cold_l2 || bytes > 4.0 * gpu.l2_cache.bytes();
    if (from_hbm && gpu.hbm_bandwidth.value() > 0) {
      // A flushed cache may still take in writes that reach HBM after the kernel has ended.
      const Bytes absorbed =
          std::min(gpu.l2_cache.bytes(), Bytes(static_cast<double>(memory->bytes_written)));
      result.fraction = (bytes - absorbed) / sample.time.median / gpu.hbm_bandwidth;
    }
  } else if (const auto* copy = std::get_if<HostCopySample>(&sample.shape)) {
    const double ways = copy->direction == CopyDirection::Both ? 2 : 1;
    result.bandwidth = Bytes(ways * static_cast<double>(copy->bytes)) / sample.time.median;
  }
  return result;
}

int flag_impossible(SampleFile& file, const topologies::Gpu& gpu, double tolerance) {
  const double boost = gpu.boost_clock.value() / 1e6;
  const double ratio = boost > 0 ? file.header.max_sm_clock_mhz / boost : 1;
  int above = 0;
  for (Sample& sample : file.samples) {
    sample.flags.above_ceiling = achieved(sample, gpu, ratio).fraction > 1 + tolerance;
    above += sample.flags.above_ceiling ? 1 : 0;
  }
  return above;
}

std::string implausible_time(const Sample& sample, const topologies::Gpu& gpu) {
  if (std::holds_alternative<CollectiveSample>(sample.shape)) {
    return "";
  }
  std::string why = too_fast(sample, gpu);
  why = why.empty() ? too_slow(sample, gpu) : why;
  return why.empty() && !std::holds_alternative<HostCopySample>(sample.shape)
             ? not_of_a_kernel(sample)
             : why;
}

std::vector<std::string> drop_impossible(SampleFile& file, const topologies::Gpu& gpu,
                                         const std::string& path, bool partial) {
  std::vector<std::string> dropped;
  std::erase_if(file.samples, [&](const Sample& sample) {
    const std::string why = implausible_time(sample, gpu);
    if (why.empty()) {
      return false;
    }
    // A document of samples has no line of its own for each.
    const bool sourced = !sample.source.empty();
    const Error error(ErrorKind::BadInput, sourced ? sample.source : path,
                      sourced ? why : why + ": " + printable(sample_line(sample), 200),
                      "--partial leaves such samples out");
    if (!partial) {
      throw error;
    }
    dropped.emplace_back(error.what());
    return true;
  });
  return dropped;
}

std::string gpu_of_device(std::string_view device, double memory_bytes, int sm_count) {
  const std::vector<std::string> words = words_of(device);
  const auto says = [&](const std::string& word) {
    return std::find(words.begin(), words.end(), word) != words.end();
  };
  std::string best;
  double smallest = 0.06;  // relative difference of memory
  for (const std::string& name : topologies::gpu_names()) {
    const std::vector<std::string> needed = words_of(name);
    const bool named = std::all_of(needed.begin(), needed.end(), [&](const std::string& word) {
      return is_silent(word) || says(word);
    });
    const bool same_slot = says("pcie") == (name.find("pcie") != std::string::npos);
    if (!named || !same_slot) {
      continue;
    }
    const topologies::Gpu gpu = topologies::load_gpu(name);
    const double difference = std::abs(memory_bytes / gpu.memory.bytes().value() - 1);
    const bool same_chip = gpu.sm_count == 0 || sm_count == 0 || gpu.sm_count == sm_count;
    if (same_chip && difference < smallest) {
      best = name;
      smallest = difference;
    }
  }
  return best;
}

}  // namespace orrery::calibrate
