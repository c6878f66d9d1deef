// SPDX-License-Identifier: Apache-2.0
#include "calibrate/fit/memory.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>

#include "base/quantile.hpp"
#include "base/words.hpp"
#include "calibrate/fit/casts.hpp"
#include "calibrate/statistics.hpp"
#include "costmodel/device_model.hpp"

namespace orrery::calibrate {

namespace {

using costmodel::MemoryKernel;

constexpr std::size_t kMinMemoryPoints = 3;
constexpr double kBeyondCache = 4;  // times the L2 cache

// Chains of PyTorch kernels, which the plan counts one by one.
bool is_eager(const Sample& sample) {
  constexpr std::array<std::string_view, 3> kEager = {"huggingface", "torch", "megatron"};
  return is_among(sample.implementation, kEager);
}

struct Stream {
  double bytes = 0;
  double seconds = 0;
};

// Samples by why no class is fitted to them.
struct Unused {
  int eager = 0;
  int marked = 0;  // throttled, or above what the memory allows
  int small = 0;
  int few = 0;

  std::string text() const {
    std::string reasons;
    const auto add = [&](int count, std::string_view why) {
      if (count > 0) {
        reasons += fmt::format("{}{} {}", reasons.empty() ? "" : ", ", count, why);
      }
    };
    add(eager, "chains of unfused kernels");
    add(marked, "marked as throttled or above the ceiling");
    add(small, "below four times the L2 cache");
    add(few, "in classes of fewer than 3");
    return reasons;
  }
};

std::vector<Stream> streams_of(MemoryKernel kernel, const topologies::Gpu& gpu,
                               std::span<const Sample> samples, Unused& unused) {
  std::vector<Stream> streams;
  const double enough =
      kBeyondCache * static_cast<double>(std::max<std::int64_t>(gpu.l2_cache.value(), 4 << 20));
  for (const Sample& sample : samples) {
    const auto* memory = std::get_if<MemorySample>(&sample.shape);
    if (memory == nullptr || memory->kernel != kernel || is_warm_cast(sample)) {
      continue;
    }
    const auto bytes = static_cast<double>(memory->bytes_read + memory->bytes_written);
    if (is_eager(sample)) {
      ++unused.eager;
    } else if (sample.flags.throttled || sample.flags.above_ceiling) {
      ++unused.marked;
    } else if (bytes < enough) {
      ++unused.small;
    } else {
      streams.push_back({bytes, sample.time.median.value()});
    }
  }
  return streams;
}

}  // namespace

void fit_memory(const topologies::Gpu& gpu, std::span<const Sample> samples, KernelFit& fit) {
  std::string fitted;
  Unused unused;
  for (int i = 0; i < costmodel::kNumMemoryKernels; ++i) {
    const auto kernel = static_cast<MemoryKernel>(i);
    const std::vector<Stream> streams = streams_of(kernel, gpu, samples, unused);
    if (streams.size() < kMinMemoryPoints) {
      unused.few += static_cast<int>(streams.size());
      continue;
    }
    const double launch = fit.profile.memory.launch.value();
    std::vector<double> shares;
    for (const Stream& stream : streams) {
      const double moving = std::max(stream.seconds - launch, 0.5 * stream.seconds);
      shares.push_back(std::min(1.0, stream.bytes / moving / gpu.hbm_bandwidth.value()));
    }
    std::sort(shares.begin(), shares.end());
    const double share = rounded(nearest_quantile(shares, 0.5), 1e3);
    fit.profile.memory.fraction[static_cast<std::size_t>(i)] = std::max(1e-3, share);
    std::vector<double> errors;
    const std::string name(costmodel::to_text(kernel));
    for (const Stream& stream : streams) {
      const double predicted = launch + stream.bytes / (gpu.hbm_bandwidth.value() * share);
      errors.push_back(std::abs(predicted / stream.seconds - 1));
      fit.left_out.push_back({"memory " + name, stream.seconds, predicted});
    }
    std::sort(errors.begin(), errors.end());
    const auto at = [&](double q) {
      return rounded(
          errors[static_cast<std::size_t>(q * static_cast<double>(errors.size() - 1) + 0.5)], 1e4);
    };
    const auto [least, most] =
        std::minmax_element(streams.begin(), streams.end(),
                            [](const Stream& a, const Stream& b) { return a.bytes < b.bytes; });
    std::erase_if(fit.profile.kernels.accuracy,
                  [&](const auto& row) { return row.kernel == "memory " + name; });
    fit.profile.kernels.accuracy.push_back(
        {.kernel = "memory " + name,
         .points = static_cast<int>(errors.size()),
         .median = at(0.5),
         .p90 = at(0.9),
         .measured = fmt::format("{:.0f} to {:.0f} MB", least->bytes / 1e6, most->bytes / 1e6)});
    fitted += (fitted.empty() ? "" : ", ") + name;
  }
  if (!fitted.empty()) {
    fit.remarks.push_back(fmt::format("memory classes fitted, one number each: {}", fitted));
  }
  if (const std::string text = unused.text(); !text.empty()) {
    fit.remarks.push_back(fmt::format("samples of memory-bound kernels not fitted: {}", text));
  }
}

void set_source(costmodel::Profile& profile, const std::string& section, const std::string& text) {
  const auto found = std::find_if(profile.sources.begin(), profile.sources.end(),
                                  [&](const auto& source) { return source.section == section; });
  if (found != profile.sources.end()) {
    found->text = text;
    return;
  }
  // After the section that stands before it in the document.
  const auto attention =
      std::find_if(profile.sources.begin(), profile.sources.end(),
                   [](const auto& source) { return source.section == "attention"; });
  profile.sources.insert(attention == profile.sources.end() ? attention : attention + 1,
                         {section, text});
}

}  // namespace orrery::calibrate
