// SPDX-License-Identifier: Apache-2.0
#include "studies/rows/metric.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/text.hpp"
#include "base/words.hpp"
#include "studies/rows/flop_counting.hpp"
#include "studies/rows/framework_facts.hpp"
#include "studies/rows/metric_name.hpp"
#include "studies/rows/row_cluster.hpp"
#include "studies/rows/row_words.hpp"
#include "topologies/cluster.hpp"

namespace orrery::studies {
namespace {

using models::Network;

template <class T>
using Expected = tl::expected<T, std::string>;

std::string not_comparable(const std::string& metric) {
  const std::string meant = likely_metric(metric);
  return fmt::format("metric \"{}\" cannot be compared{}", printable(metric, 60),
                     meant.empty() ? std::string() : fmt::format(" (did you mean \"{}\"?)", meant));
}

double stated_or_zero(const OptionalCount& value) { return static_cast<double>(value.value_or(0)); }

// Seconds of one iteration from a rate of FLOPs per second and GPU.
Expected<double> time_of_rate(const Measurement& row, const Network& network, double rate) {
  if (const auto derived = aux_number(row, "derived_iteration_s")) {
    return *derived;
  }
  const Expected<double> flops = counted_flops(row, network);
  if (!flops) {
    return flops;
  }
  return *flops / (stated_or_zero(row.gpus) * rate);
}

Expected<double> utilisation_time(const Measurement& row, const Network& network) {
  if (const auto derived = aux_number(row, "derived_iteration_s")) {
    return *derived;
  }
  const Expected<double> peak = reference_peak(row);
  if (!peak) {
    return peak;
  }
  return time_of_rate(row, network, row.value * *peak);
}

Expected<double> iteration_time(const Measurement& row, const Network& network) {
  const double gpus = stated_or_zero(row.gpus);
  const double samples = global_batch(row);
  if (row.metric == "iteration_s") {
    return row.value;
  }
  if (row.metric == "iterations_per_s") {
    return 1 / row.value;
  }
  if (row.metric == "mfu" || row.metric == "hfu") {
    if (row.value > 1) {
      return tl::unexpected(fmt::format("{} {:g} is above 1", row.metric, row.value));
    }
    return utilisation_time(row, network);
  }
  if (row.metric == "tflops_per_gpu") {
    return time_of_rate(row, network, row.value * 1e12);
  }
  if (samples == 0) {
    return tl::unexpected(std::string("global_batch is not stated"));
  }
  if (row.metric == "samples_per_s") {
    return samples / row.value;
  }
  if (row.metric == "samples_per_s_per_gpu") {
    return samples / (row.value * gpus);
  }
  if (row.metric == "tokens_per_s_per_gpu") {
    return samples * stated_or_zero(row.seq_len) / (row.value * gpus);
  }
  if (row.metric == "tokens_per_s") {
    return samples * stated_or_zero(row.seq_len) / row.value;
  }
  return tl::unexpected(not_comparable(row.metric));
}

// Tools print memory "GB" in units of 2^30 bytes: torch counters divided by 1024^3, nvidia-smi's
// MiB divided by 1024.
constexpr double kGibibyte = 1024.0 * 1024.0 * 1024.0;

// Whether a clause names memory of a kind: "max_memory_reserved", "reserved", not "GPUs reserved".
bool names_memory(std::string_view text, std::string_view kind) {
  constexpr auto kBeside = std::to_array<std::string_view>({"mem", "torch", "cuda", "gib", "gb"});
  const std::vector<std::string> clauses = asserted_clauses(text);
  return std::any_of(clauses.begin(), clauses.end(), [&](const std::string& clause) {
    return clause.find(kind) != clause.npos && (says_any(clause, kBeside) || trim(clause) == kind);
  });
}

// Whether a clause says that a tool read memory: "nvidia-smi snapshot", not "clocks locked with
// nvidia-smi", "power from nvidia-smi".
bool names_tool(std::string_view text) {
  constexpr auto kTools = std::to_array<std::string_view>(
      {"nvidia-smi", "nvidia smi", "nvml", "dcgm", "rocm-smi", "amd-smi"});
  constexpr auto kOthers =
      std::to_array<std::string_view>({"power", "clock", "util", "activity", "temperature"});
  constexpr auto kOtherUnits = std::to_array<std::string_view>({"sm", "w", "watt", "mhz"});
  constexpr auto kMemory = std::to_array<std::string_view>({"mem", "used", "gb", "gib", "mib"});
  constexpr auto kAlone = std::to_array<std::string_view>(
      {"",        "nvidia",   "smi",  "nvidia-smi", "nvml",     "dcgm", "rocm-smi",
       "amd-smi", "snapshot", "peak", "from",       "by",       "via",  "with",
       "of",      "the",      "read", "reading",    "measured", "max"});
  const std::vector<std::string> clauses = asserted_clauses(text);
  return std::any_of(clauses.begin(), clauses.end(), [&](const std::string& clause) {
    const std::vector<std::string_view> words = split(clause, ' ');
    const bool alone = std::all_of(words.begin(), words.end(),
                                   [&](std::string_view word) { return is_among(word, kAlone); });
    return says_any(clause, kTools) && (alone || says_any(clause, kMemory)) &&
           !says_any(clause, kOthers) && !has_word(clause, kOtherUnits);
  });
}

// What the row says was read, first in the metric's name: a counter of the allocator or a tool that
// sees the whole device.
std::optional<Quantity> stated_quantity(const Measurement& row) {
  if (row.metric.starts_with("peak_mem_reserved") || row.metric.starts_with("peak_mem_alloc")) {
    return mentions(row.metric, "reserved") ? Quantity::ReservedMemory : Quantity::AllocatedMemory;
  }
  if (names_tool(row.notes) || says_and_means(row.notes, "\"total\"")) {
    return Quantity::DeviceMemory;
  }
  const bool reserved = names_memory(row.notes, "reserved");
  const bool allocated = names_memory(row.notes, "allocated");
  if (reserved == allocated) {  // neither, or both beside each other
    return std::nullopt;
  }
  return reserved ? Quantity::ReservedMemory : Quantity::AllocatedMemory;
}

// Bytes of a unit of a metric of device memory; no value for others ("peak_mem_fraction").
std::optional<double> memory_unit(std::string_view metric) {
  constexpr std::string_view kPeak = "peak_mem_";
  if (!metric.starts_with(kPeak)) {
    return std::nullopt;
  }
  metric.remove_prefix(kPeak.size());
  for (const std::string_view counter : {"reserved_", "allocated_"}) {
    metric.remove_prefix(metric.starts_with(counter) ? counter.size() : 0);
  }
  return metric == "gib" || metric == "gb" ? std::optional(kGibibyte) : std::nullopt;
}

// torchtitan logs the peak of reserved bytes (components/metrics.py). InternEvo's table lists the
// GPU memory of whole cards, up to 78 of 80 GB; it logs no counter of the allocator.
Quantity memory_quantity(const Measurement& row) {
  if (const auto stated = stated_quantity(row)) {
    return *stated;
  }
  const std::string_view framework = framework_of(row).facts.name;
  return framework == "InternEvo"    ? Quantity::DeviceMemory
         : framework == "torchtitan" ? Quantity::ReservedMemory
                                     : Quantity::AllocatedMemory;
}

}  // namespace

std::optional<double> aux_number(const Measurement& row, const std::string& key) {
  const auto found = row.aux.find(key);
  if (found == row.aux.end()) {
    return std::nullopt;
  }
  double value = 0;
  const std::string& text = found->second;
  const auto result = std::from_chars(text.data(), text.data() + text.size(), value);
  if (result.ec != std::errc() || !std::isfinite(value) || value <= 0) {
    return std::nullopt;
  }
  return value;
}

namespace {

// FLOP/s in the row's precision, 16 bits where it states none; 0 for a GPU that no file has.
double own_peak(const Measurement& row) {
  const DType dtype = row.precision == "fp8" || row.precision == "mxfp8" ? DType::Fp8
                      : row.precision == "nvfp4"                         ? DType::Nvfp4
                      : row.precision == "fp32"                          ? DType::Fp32
                      : row.precision == "tf32"                          ? DType::Tf32
                                                                         : DType::Fp16;
  const std::string gpu = stated_gpu(row.gpu);
  return gpu.empty() ? 0 : topologies::load_gpu(gpu).peak_of(dtype).value();
}

// Of how many GPUs a figure is that does not say so itself.
double gpus_of_flops(Measurement& row) {
  const double gpus = stated_or_zero(row.gpus);
  const bool one = gpus <= 1 || row.value * 1e12 <= own_peak(row);
  row.remarks.push_back(fmt::format("measured {:g} TFLOP/s as of {}", row.value,
                                    one ? "each GPU" : fmt::format("all {:g} GPUs", gpus)));
  return one ? 1 : gpus;
}

void settle_peak_share(Measurement& row) {
  if (const Expected<double> peak = reference_peak(row)) {
    row.metric = "tflops_per_gpu";
    row.value *= *peak / 1e12;
  } else {
    row.unknown = row.unknown.empty() ? peak.error() : row.unknown;
  }
}

// "tps" and "wps": of each GPU where the framework logs them so; words are else fairseq's, of all.
void settle_tokens(Measurement& row) {
  const bool of_words = row.metric == "tokens_per_s_of_words";
  if (framework_of(row).facts.logs_rates_of_gpu || row.gpus == 1) {
    row.metric = "tokens_per_s_per_gpu";
  } else if (of_words) {
    row.metric = "tokens_per_s";
  } else if (row.unknown.empty()) {
    row.unknown = "tokens a second of one GPU or of all: the metric does not say";
  }
}

}  // namespace

void settle_metric(Measurement& row) {
  if (row.metric.starts_with("tokens_per_s_of_")) {
    settle_tokens(row);
    return;
  }
  if (row.value <= 0) {
    return;
  }
  if (row.metric == "peak_share") {
    settle_peak_share(row);
    return;
  }
  const bool of_node = row.metric.ends_with("_per_node");
  const bool open = row.metric == "tflops_of_some";
  if (!of_node && !open && row.metric != "tflops") {
    return;
  }
  const OptionalCount& stated = of_node ? row.gpus_per_node : row.gpus;
  const double gpus = open ? gpus_of_flops(row) : stated_or_zero(stated);
  if (gpus == 0) {
    row.unknown = row.unknown.empty()
                      ? fmt::format("{} without {}", row.metric, of_node ? "gpus_per_node" : "gpus")
                      : row.unknown;
    return;
  }
  row.value /= gpus;
  row.metric =
      row.metric.substr(0, of_node ? row.metric.find("_per_node") : row.metric.find("_of_"));
  row.metric += "_per_gpu";
}

bool is_memory_metric(const std::string& metric) { return mentions(metric, "mem"); }

Expected<Target> measured_target(const Measurement& row, const Network& network) {
  if (row.metric == "layer_forward_ms") {
    return Target{Quantity::LayerForwardTime, row.value / 1e3};
  }
  if (row.metric == "layer_backward_ms") {
    return Target{Quantity::LayerBackwardTime, row.value / 1e3};
  }
  if (const auto unit = memory_unit(row.metric)) {
    return Target{memory_quantity(row), row.value * *unit};
  }
  if (is_memory_metric(row.metric)) {
    return tl::unexpected(not_comparable(row.metric));
  }
  const Expected<double> time = iteration_time(row, network);
  if (!time) {
    return tl::unexpected(time.error());
  }
  return Target{Quantity::IterationTime, *time};
}

}  // namespace orrery::studies
