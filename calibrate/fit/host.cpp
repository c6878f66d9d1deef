// SPDX-License-Identifier: Apache-2.0
#include "calibrate/fit/host.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "base/quantity_text.hpp"
#include "base/text.hpp"
#include "calibrate/fit/collectives.hpp"
#include "calibrate/fit/folds.hpp"
#include "calibrate/fit/kernel_errors.hpp"
#include "calibrate/fit/robust_fit.hpp"
#include "calibrate/gpu_names.hpp"
#include "calibrate/statistics.hpp"

namespace orrery::calibrate {
namespace {

constexpr std::string_view kLaunchClass = "launch";
constexpr std::string_view kCopyClass = "host copy pinned";
constexpr std::string_view kByEvents = "gpu event";  // holds no time of the host

void tell(std::string_view name, const std::vector<LeftOut>& points, std::string measured,
          KernelFit& fit) {
  std::vector<double> errors;
  for (const LeftOut& point : points) {
    errors.push_back(std::abs(point.predicted / point.measured - 1));
  }
  std::erase_if(fit.profile.kernels.accuracy, [&](const auto& row) { return row.kernel == name; });
  if (!points.empty()) {
    fit.profile.kernels.accuracy.push_back({.kernel = std::string(name),
                                            .points = static_cast<int>(points.size()),
                                            .median = rounded_quantile(errors, 0.5),
                                            .p90 = rounded_quantile(errors, 0.9),
                                            .measured = std::move(measured)});
    fit.left_out.insert(fit.left_out.end(), points.begin(), points.end());
  }
}

// One kernel until the device is done, as the profiles in the box state it: kernels in a row keep
// the host busy alone, which no framework is quick enough for.
bool is_single_launch(const Sample& sample) {
  const auto* launch = std::get_if<LaunchSample>(&sample.shape);
  return launch != nullptr && launch->count == 1 && !launch->graph && !launch->host_only &&
         sample.implementation != kByEvents && !sample.flags.throttled;
}

struct Copy {
  double bytes = 0;
  double seconds = 0;
  std::size_t fold = 0;
};

struct HostLink {
  double rate = 0;
  std::string name;  // of the node, or of the GPU where none is known
};

HostLink link_of(const topologies::Gpu& gpu) {
  const std::string node = node_of(gpu.name, "");
  return node.empty()
             ? HostLink{gpu.pcie_bandwidth.value(), gpu.name}
             : HostLink{topologies::load_cluster(node + ":1").node.host_link_per_gpu.value(), node};
}

// Below a page the engine's own work is all there is.
constexpr std::int64_t kLeastCopy = 4096;
// Copies that take a hundred times the latency, so that the link's rate shows.
constexpr double kLargeCopy = 16 << 20;
// Two parameters, and two left over to tell their error.
constexpr std::size_t kFewestSizes = 4;
// A choice: what clocks and rounded rates may add to a link.
constexpr double kClockTolerance = 1.02;

// Pinned and one way, by size; a size is in one fold, whichever way it went.
std::vector<Copy> copies_of(std::span<const Sample> samples) {
  std::vector<Copy> copies;
  for (const Sample& sample : samples) {
    const auto* copy = std::get_if<HostCopySample>(&sample.shape);
    if (copy != nullptr && copy->pinned && copy->direction != CopyDirection::Both &&
        copy->bytes >= kLeastCopy && !sample.flags.throttled) {
      copies.push_back({static_cast<double>(copy->bytes), sample.time.median.value()});
    }
  }
  std::stable_sort(copies.begin(), copies.end(),
                   [](const Copy& a, const Copy& b) { return a.bytes < b.bytes; });
  std::size_t sizes = 0;
  for (std::size_t i = 0; i < copies.size(); ++i) {
    sizes += i > 0 && copies[i].bytes > copies[i - 1].bytes ? 1 : 0;
    copies[i].fold = sizes % kFolds;
  }
  return copies;
}

double time_of(const costmodel::HostCopyParameters& copy, double bytes, double link) {
  return copy.latency.value() + bytes / (link * copy.fraction);
}

costmodel::HostCopyParameters fitted(const std::vector<Copy>& copies, double link) {
  const std::vector<double> values = robust_fit(
      {{.start = 8e-6, .min = 1e-7, .max = 1e-3}, {.start = 0.85, .min = 1e-3, .max = 1}},
      [&](const std::vector<double>& trial) {
        std::vector<double> residuals;
        for (const Copy& copy : copies) {
          const double time = time_of({Seconds(trial[0]), trial[1]}, copy.bytes, link);
          residuals.push_back(std::log(time / copy.seconds));
        }
        return residuals;
      });
  return {Seconds(rounded(values[0], 1e9)), std::max(1e-3, rounded(values[1], 1e4))};
}

// Why the copies say nothing of the link; "" where they do.
std::string why_unfit(const std::vector<Copy>& copies, const HostLink& link) {
  std::set<double> sizes;
  double fastest = 0;
  for (const Copy& copy : copies) {
    sizes.insert(copy.bytes);
    fastest = std::max(fastest, copy.bytes / copy.seconds);
  }
  if (sizes.size() < kFewestSizes) {
    return fmt::format("{}, where {} are needed",
                       counted(static_cast<std::int64_t>(sizes.size()), "size"), kFewestSizes);
  }
  if (*sizes.rbegin() < kLargeCopy) {
    return fmt::format("none of {} or more", format_bytes(Bytes(kLargeCopy)));
  }
  return fastest > kClockTolerance * link.rate
             ? fmt::format("up to {:.1f} GB/s, where the link of {} has {:.1f} GB/s", fastest / 1e9,
                           link.name, link.rate / 1e9)
             : "";
}

// What large copies of a kind reach, over the pinned ones one way: "pageable 0.42".
std::string others_text(std::span<const Sample> samples, double rate) {
  std::string text;
  for (const auto& [both, pinned, name] : {std::tuple{false, false, "pageable"},
                                           {true, true, "both ways at once, each way"},
                                           {true, false, "pageable both ways, each way"}}) {
    std::vector<double> shares;
    for (const Sample& sample : samples) {
      const auto* copy = std::get_if<HostCopySample>(&sample.shape);
      if (copy != nullptr && copy->pinned == pinned &&
          (copy->direction == CopyDirection::Both) == both &&
          static_cast<double>(copy->bytes) >= kLargeCopy) {
        shares.push_back(static_cast<double>(copy->bytes) / sample.time.median.value() / rate);
      }
    }
    if (!shares.empty()) {
      text += fmt::format("{}{} {:.2f}", text.empty() ? "" : ", ", name, quantile_of(shares, 0.5));
    }
  }
  return text;
}

}  // namespace

void fit_launch(std::span<const Sample> samples, KernelFit& fit) {
  std::vector<double> times;
  std::int64_t others = 0;
  for (const Sample& sample : samples) {
    if (is_single_launch(sample)) {
      times.push_back(sample.time.median.value());
    } else if (std::holds_alternative<LaunchSample>(sample.shape)) {
      ++others;
    }
  }
  if (others > 0) {
    fit.remarks.push_back(
        fmt::format("{} by graph, in a row or by the device's clock: not what kernel_launch is",
                    counted(others, "launch sample")));
  }
  if (times.empty()) {
    return;
  }
  fit.profile.kernel_launch = Seconds(rounded(quantile_of(times, 0.5), 1e9));
  fit.sections.insert("kernel_launch");
  std::vector<LeftOut> points;
  for (std::size_t i = 0; i < times.size() && times.size() > 1; ++i) {
    std::vector<double> kept = times;
    kept.erase(kept.begin() + static_cast<std::ptrdiff_t>(i));
    points.push_back({std::string(kLaunchClass), times[i], quantile_of(kept, 0.5)});
  }
  tell(kLaunchClass, points, "one empty kernel", fit);
  if (points.empty()) {
    fit.remarks.push_back(fmt::format("kernel_launch is one sample ({}): its error is not known",
                                      format_duration(fit.profile.kernel_launch)));
  }
}

void fit_host_copies(const topologies::Gpu& gpu, std::span<const Sample> samples, KernelFit& fit) {
  const bool any = std::any_of(samples.begin(), samples.end(), [](const Sample& sample) {
    return std::holds_alternative<HostCopySample>(sample.shape);
  });
  if (!any) {
    return;
  }
  const std::vector<Copy> copies = copies_of(samples);
  const HostLink link = link_of(gpu);
  if (const std::string why = why_unfit(copies, link); !why.empty()) {
    fit.remarks.push_back(fmt::format("pinned copies one way: {}: host_copy as in the base", why));
    return;
  }
  std::vector<LeftOut> points;
  for (std::size_t fold = 0; fold < kFolds; ++fold) {
    std::vector<Copy> kept;
    std::copy_if(copies.begin(), copies.end(), std::back_inserter(kept),
                 [&](const Copy& copy) { return copy.fold != fold; });
    const costmodel::HostCopyParameters without = fitted(kept, link.rate);
    for (const Copy& copy : copies) {
      if (copy.fold == fold) {
        points.push_back(
            {std::string(kCopyClass), copy.seconds, time_of(without, copy.bytes, link.rate)});
      }
    }
  }
  fit.profile.host_copy = fitted(copies, link.rate);
  fit.sections.insert("host_copy");
  tell(kCopyClass, points,
       fmt::format("{} to {}", format_bytes(Bytes(copies.front().bytes)),
                   format_bytes(Bytes(copies.back().bytes))),
       fit);
  const std::string others = others_text(samples, link.rate * fit.profile.host_copy.fraction);
  if (!others.empty()) {
    fit.remarks.push_back("copies that profiles have no place for, over pinned ones one way: " +
                          others);
  }
}

}  // namespace orrery::calibrate
