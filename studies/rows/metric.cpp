// SPDX-License-Identifier: Apache-2.0
#include "studies/rows/metric.hpp"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <cmath>
#include <optional>
#include <utility>

#include "base/text.hpp"
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

double global_batch(const Measurement& row) {
  const auto product =
      row.micro_batch.value_or(0) * row.num_microbatches.value_or(0) * row.dp.value_or(0);
  return static_cast<double>(row.global_batch.value_or(product));
}

double as_double(const OptionalCount& value) { return static_cast<double>(value.value_or(0)); }

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

// Narayanan et al. 2021: 72 B l s h^2 (1 + s/6h + V/12lh) forward and backward; 96 and V/16lh with
// the recomputed forward.
double narayanan(const Measurement& row, double factor, double vocab_divisor) {
  const double l = as_double(row.layers);
  const double h = as_double(row.hidden);
  const double s = as_double(row.seq_len);
  const double vocab = as_double(row.vocab);
  return factor * global_batch(row) * l * s * h * h *
         (1.0 + s / (6.0 * h) + vocab / (vocab_divisor * l * h));
}

// PaLM and llm-foundry: 6 N + 12 L h s per token, attention in full.
Expected<double> six_n(const Measurement& row) {
  if (!row.params_b) {
    return tl::unexpected(std::string("params_b is not stated"));
  }
  const double s = as_double(row.seq_len);
  const double per_token =
      6.0 * *row.params_b * 1e9 + 12.0 * as_double(row.layers) * as_double(row.hidden) * s;
  return per_token * s * global_batch(row);
}

// Parameters alone, in every pass: 6 of N and token, 8 with the recomputed forward.
Expected<double> parameters_only(const Measurement& row, double factor) {
  if (!row.params_b) {
    return tl::unexpected(std::string("params_b is not stated"));
  }
  return factor * *row.params_b * 1e9 * as_double(row.seq_len) * global_batch(row);
}

enum class Counting : std::uint8_t {
  Narayanan,            // the formula of 2021
  NarayananRecomputed,  // with the recomputed forward
  SixN,                 // 6 N and attention
  Parameters,           // 6 N
  ParametersRecomputed,
  Hardware,  // what the run computes
  Model,     // nothing that is recomputed
};

// "MFU (not including recompute)".
bool excludes_recomputation(const std::string& text) {
  constexpr std::string_view kWord = "recomput";
  return text.find(kWord) != text.npos && asserted(text).find(kWord) == std::string::npos;
}

// A formula, or words for the usual ways of counting: "model FLOPs" and MFU count nothing that is
// recomputed.
std::optional<Counting> counting_of(const Measurement& row) {
  constexpr auto kFormulas = std::to_array<std::pair<std::string_view, Counting>>(
      {{"96*b", Counting::NarayananRecomputed},
       {"sc21", Counting::NarayananRecomputed},
       {"factor 4", Counting::NarayananRecomputed},
       {"72*b", Counting::Narayanan},
       {"narayanan formula without recompute", Counting::Narayanan}});
  constexpr auto kWords = std::to_array<std::pair<std::string_view, Counting>>(
      {{"palm", Counting::SixN},
       {"nanogpt", Counting::SixN},
       {"8nd", Counting::ParametersRecomputed},
       {"8*n*d", Counting::ParametersRecomputed},
       {"6nd", Counting::Parameters},
       {"6nt", Counting::Parameters},
       {"6*n*d", Counting::Parameters},
       {"6*n*t", Counting::Parameters},
       {"6pd", Counting::Parameters},
       {"6*p", Counting::Parameters},
       {"hardware flop", Counting::Hardware},
       {"hardware tflop", Counting::Hardware},
       {"hfu", Counting::Hardware},
       {"incl. recompute", Counting::Hardware},
       {"includes recompute", Counting::Hardware},
       {"including recompute", Counting::Hardware},
       {"with recompute", Counting::Hardware},
       {"narayanan", Counting::Hardware},
       {"model flop", Counting::Model},
       {"model tflop", Counting::Model},
       {"mfu", Counting::Model},
       {"standard", Counting::Model},
       {"no recompute", Counting::Model},
       {"without recompute", Counting::Model}});
  const std::string text = to_lower(row.flops_convention);
  std::string formula = text;  // "6 N D"
  std::erase(formula, ' ');
  const auto found = [&](std::string_view word) {
    return text.find(word) != text.npos || formula.find(word) != formula.npos;
  };
  const bool excluded = excludes_recomputation(text);
  for (const auto& [word, counting] : kFormulas) {
    if (found(word)) {
      const bool recomputed = counting == Counting::NarayananRecomputed && !excluded;
      return recomputed ? counting : Counting::Narayanan;
    }
  }
  if ((found("6*n") || found("6n")) && (found("12*l") || found("attention"))) {
    return Counting::SixN;
  }
  for (const auto& [word, counting] : kWords) {
    if (found(word)) {
      return counting == Counting::Hardware && excluded ? Counting::Model : counting;
    }
  }
  return row.metric == "mfu"   ? std::optional(Counting::Model)
         : row.metric == "hfu" ? std::optional(Counting::Hardware)
                               : std::nullopt;
}

// "... peak bf16 2250e12 ...": the first number with an exponent behind the word.
std::optional<double> stated_peak(std::string_view text) {
  const std::size_t word = to_lower(text).find("peak");
  for (std::size_t at = word; at < text.size(); ++at) {
    double value = 0;
    const auto read = std::from_chars(text.data() + at, text.data() + text.size(), value);
    if (read.ec == std::errc() && value >= 1e12 && value <= 1e17) {
      return value;
    }
    at = read.ec == std::errc() ? static_cast<std::size_t>(read.ptr - text.data()) : at;
  }
  return std::nullopt;
}

// Dense peak the source divides by: A100 and H100 as the sources of this kind print it, else as
// stated, else the data sheet's.
Expected<double> reference_peak(const Measurement& row) {
  if (mentions(row.gpu, "A100") || mentions(row.gpu, "A800")) {
    return 312e12;
  }
  if (mentions(row.gpu, "H100") || mentions(row.gpu, "H800")) {
    if (row.precision == "fp8" && mentions(row.flops_convention, "fp8 1979e12")) {
      return 1979e12;
    }
    return mentions(row.flops_convention, "989.5e12") ? 989.5e12 : 989e12;
  }
  if (const auto stated = stated_peak(row.flops_convention)) {
    return *stated;
  }
  // Runs in 8 bits count against the 16-bit peak, too.
  const DType dtype = row.precision == "fp32"   ? DType::Fp32
                      : row.precision == "tf32" ? DType::Tf32
                                                : DType::Fp16;
  const std::string gpu = stated_gpu(row.gpu);
  const double peak = gpu.empty() ? 0 : topologies::load_gpu(gpu).peak_of(dtype).value();
  if (peak <= 0) {
    return tl::unexpected(fmt::format("the peak rate of {} that the source divides by is not known",
                                      printable(row.gpu, 60)));
  }
  return peak;
}

// Seconds of one iteration from a rate of FLOPs per second and GPU.
Expected<double> time_of_rate(const Measurement& row, const Network& network, double rate) {
  if (const auto derived = aux_number(row, "derived_iteration_s")) {
    return *derived;
  }
  const Expected<double> flops = counted_flops(row, network);
  if (!flops) {
    return flops;
  }
  return *flops / (as_double(row.gpus) * rate);
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
  const double gpus = as_double(row.gpus);
  const double samples = global_batch(row);
  if (row.metric == "iteration_s") {
    return row.value;
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
    return samples * as_double(row.seq_len) / (row.value * gpus);
  }
  if (row.metric == "tokens_per_s") {
    return samples * as_double(row.seq_len) / row.value;
  }
  return tl::unexpected(not_comparable(row.metric));
}

// Tools print memory "GB" in units of 2^30 bytes: torch counters divided by 1024^3, nvidia-smi's
// MiB divided by 1024.
constexpr double kGibibyte = 1024.0 * 1024.0 * 1024.0;

// torchtitan logs the peak of reserved bytes (components/metrics.py). InternEvo's table lists the
// GPU memory of whole cards, up to 78 of 80 GB; it logs no counter of the allocator.
Quantity memory_quantity(const Measurement& row) {
  if (row.notes_mention("nvidia-smi") || row.notes_mention("\"total\"") ||
      mentions(row.framework, "InternEvo")) {
    return Quantity::DeviceMemory;
  }
  return mentions(row.framework, "torchtitan") ? Quantity::ReservedMemory
                                               : Quantity::AllocatedMemory;
}

}  // namespace

bool is_memory_metric(const std::string& metric) { return mentions(metric, "mem"); }

bool states_way_of_counting(const Measurement& row) { return counting_of(row).has_value(); }

Expected<double> counted_flops(const Measurement& row, const Network& network) {
  if (global_batch(row) == 0) {
    return tl::unexpected(std::string("global_batch is not stated"));
  }
  const std::optional<Counting> counting = counting_of(row);
  if (!counting) {
    return tl::unexpected(std::string("the way the source counts FLOPs is not known"));
  }
  const bool recomputes = row.recompute == "full" || *counting == Counting::NarayananRecomputed;
  switch (*counting) {
    case Counting::SixN:
      return six_n(row);
    case Counting::Parameters:
      return parameters_only(row, 6.0);
    case Counting::ParametersRecomputed:
      return parameters_only(row, 8.0);
    case Counting::Narayanan:
      return narayanan(row, 72.0, 12.0);
    case Counting::NarayananRecomputed:
    case Counting::Hardware:
      return recomputes ? narayanan(row, 96.0, 16.0) : narayanan(row, 72.0, 12.0);
    case Counting::Model:
      break;
  }
  const models::Workload sample{1, *row.seq_len};
  return models::model_flops(network, sample).value() * global_batch(row);
}

Expected<Target> measured_target(const Measurement& row, const Network& network) {
  if (row.metric == "layer_forward_ms") {
    return Target{Quantity::LayerForwardTime, row.value / 1e3};
  }
  if (row.metric == "layer_backward_ms") {
    return Target{Quantity::LayerBackwardTime, row.value / 1e3};
  }
  if (row.metric == "peak_mem_gib" || row.metric == "peak_mem_gb") {
    return Target{memory_quantity(row), row.value * kGibibyte};
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
