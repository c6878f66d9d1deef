// SPDX-License-Identifier: Apache-2.0
#include "studies/rows/flop_counting.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <span>
#include <string_view>

#include "base/text.hpp"
#include "models/blocks.hpp"
#include "studies/rows/row_cluster.hpp"
#include "studies/rows/row_words.hpp"
#include "topologies/cluster.hpp"

namespace orrery::studies {
namespace {

using models::Network;
using Count = tl::expected<double, std::string>;

double as_double(const OptionalCount& value) { return static_cast<double>(value.value_or(0)); }

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

// N: of a mixture of experts what a token uses. As stated, else those of the network.
Count counted_parameters(const Measurement& row, const Network& network) {
  if (row.experts.value_or(0) > 1) {
    return static_cast<double>(models::num_active_parameters(network));
  }
  if (!row.params_b) {
    return tl::unexpected(std::string("params_b is not stated"));
  }
  return *row.params_b * 1e9;
}

// PaLM and llm-foundry: 6 N + 12 L h s per token, attention in full.
Count six_n(const Measurement& row, const Network& network) {
  const double s = as_double(row.seq_len);
  return counted_parameters(row, network).map([&](double n) {
    const double per_token = 6.0 * n + 12.0 * as_double(row.layers) * as_double(row.hidden) * s;
    return per_token * s * global_batch(row);
  });
}

// Parameters alone, in every pass: 6 of N and token, 8 with the recomputed forward.
Count parameters_only(const Measurement& row, const Network& network, double factor) {
  return counted_parameters(row, network).map([&](double n) {
    return factor * n * as_double(row.seq_len) * global_batch(row);
  });
}

double model_flops_of(const Measurement& row, const Network& network) {
  const models::Workload sample{1, *row.seq_len};
  return models::model_flops(network, sample).value() * global_batch(row);
}

// What the run computes: the layers' forward once more where they are recomputed. Megatron-LM's
// formula where the network is one that it describes.
double hardware_flops(const Measurement& row, const Network& network, bool recomputes) {
  const models::NetworkSpec& spec = network.spec;
  if (spec.moe.experts == 0 && !models::is_gated(spec.activation)) {
    return recomputes ? narayanan(row, 96.0, 16.0) : narayanan(row, 72.0, 12.0);
  }
  const double model = model_flops_of(row, network);
  const double head = 6.0 * as_double(row.seq_len) * static_cast<double>(spec.vocab) *
                      static_cast<double>(spec.hidden) * global_batch(row);
  return recomputes ? model + (model - head) / 3.0 : model;
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

// A convention in lower case, and its formula without signs and spaces: "96 * B * s" as "96bs".
struct Convention {
  explicit Convention(const std::string& stated)
      : text(to_lower(stated)), said(asserted(text)), formula(said) {
    std::erase_if(formula, [](char c) { return c == ' ' || c == '*' || c == '^'; });
  }
  bool has(std::string_view word) const { return text.find(word) != text.npos || has_factor(word); }
  // "6nd", not that of "16 nodes".
  bool has_factor(std::string_view word) const {
    for (std::size_t at = formula.find(word); at != formula.npos; at = formula.find(word, at + 1)) {
      if (at == 0 || formula[at - 1] < '0' || formula[at - 1] > '9') {
        return true;
      }
    }
    return false;
  }
  bool says(std::string_view word) const { return said.find(word) != said.npos; }
  // "MFU (not including recompute)".
  bool denies(std::string_view word) const { return text.find(word) != text.npos && !says(word); }

  std::string text;
  std::string said;  // without what it denies
  std::string formula;
};

constexpr std::string_view kRecompute = "recomput";

bool has_any(const Convention& convention, std::span<const std::string_view> words) {
  return std::any_of(words.begin(), words.end(),
                     [&](std::string_view word) { return convention.has(word); });
}

std::optional<Counting> narayanan_formula(const Convention& convention) {
  constexpr auto kRecomputed =
      std::to_array<std::string_view>({"96bsl", "96bls", "sc21", "factor 4"});
  constexpr auto kPlain =
      std::to_array<std::string_view>({"72bsl", "72bls", "narayanan formula without recompute"});
  if (has_any(convention, kRecomputed)) {
    return convention.denies(kRecompute) ? Counting::Narayanan : Counting::NarayananRecomputed;
  }
  return has_any(convention, kPlain) ? std::optional(Counting::Narayanan) : std::nullopt;
}

// 6 of the parameters, 8 with the recomputed forward; with attention where it is named.
std::optional<Counting> parameter_formula(const Convention& convention) {
  constexpr auto kSix = std::to_array<std::string_view>({"6n", "6pd", "6pt", "6psi"});
  constexpr auto kPalm = std::to_array<std::string_view>({"palm", "nanogpt"});
  const bool six = std::any_of(kSix.begin(), kSix.end(), [&](std::string_view factor) {
    return convention.has_factor(factor);
  });
  if (has_any(convention, kPalm) || (six && (convention.formula.find("12l") != std::string::npos ||
                                             convention.says("attention")))) {
    return Counting::SixN;
  }
  if (convention.has_factor("8nd") ||
      (six && (convention.has("4/3") || convention.says(kRecompute)))) {
    return Counting::ParametersRecomputed;
  }
  return six ? std::optional(Counting::Parameters) : std::nullopt;
}

// A formula, or words for the usual ways of counting: "model FLOPs" and MFU count nothing that is
// recomputed.
std::optional<Counting> counting_of(const Measurement& row) {
  constexpr auto kHardware =
      std::to_array<std::string_view>({"hardware flop", "hardware tflop", "hfu", "narayanan"});
  constexpr auto kModel =
      std::to_array<std::string_view>({"model flop", "model tflop", "mfu", "standard"});
  const Convention convention(row.flops_convention);
  if (const auto formula = narayanan_formula(convention)) {
    return formula;
  }
  if (const auto formula = parameter_formula(convention)) {
    return formula;
  }
  const bool excluded = convention.denies(kRecompute);
  if (convention.says(kRecompute)) {
    return Counting::Hardware;
  }
  if (has_any(convention, kHardware)) {
    return excluded ? Counting::Model : Counting::Hardware;
  }
  if (excluded || has_any(convention, kModel)) {
    return Counting::Model;
  }
  return row.metric == "mfu"   ? std::optional(Counting::Model)
         : row.metric == "hfu" ? std::optional(Counting::Hardware)
                               : std::nullopt;
}

// "peak bf16 989e12, fp8 1979e12", "156 TFLOP/s tf32 peak": the rate beside the row's precision,
// else the first, where a peak is spoken of.
std::optional<double> stated_peak(const Measurement& row) {
  const std::string text = to_lower(row.flops_convention);
  if (text.find("peak") == text.npos) {
    return std::nullopt;
  }
  std::optional<double> first;
  std::size_t behind = 0;  // of the rate before
  for (std::size_t at = text.find_first_of("0123456789"); at < text.size();
       at = text.find_first_of("0123456789", at)) {
    double value = 0;
    const auto read = std::from_chars(text.data() + at, text.data() + text.size(), value);
    const std::size_t end =
        std::max<std::size_t>(at + 1, static_cast<std::size_t>(read.ptr - text.data()));
    const std::string_view unit = trim(std::string_view(text).substr(end));
    const bool teraflops = unit.starts_with("tflop") || unit.starts_with("teraflop");
    value *= teraflops ? 1e12 : 1.0;
    if (read.ec == std::errc() && value >= 1e12 && value <= 1e17) {
      const std::string_view before = std::string_view(text).substr(behind, at - behind);
      if (before.find(row.precision) != before.npos) {
        return value;
      }
      first = first.value_or(value);
      behind = end;
    }
    at = end;
  }
  return first;
}

}  // namespace

double global_batch(const Measurement& row) {
  const auto product =
      row.micro_batch.value_or(0) * row.num_microbatches.value_or(0) * row.dp.value_or(0);
  return static_cast<double>(row.global_batch.value_or(product));
}

bool states_way_of_counting(const Measurement& row) { return counting_of(row).has_value(); }

Count counted_flops(const Measurement& row, const Network& network) {
  if (global_batch(row) == 0) {
    return tl::unexpected(std::string("global_batch is not stated"));
  }
  const std::optional<Counting> counting = counting_of(row);
  if (!counting) {
    return tl::unexpected(std::string("the way the source counts FLOPs is not known"));
  }
  switch (*counting) {
    case Counting::SixN:
      return six_n(row, network);
    case Counting::Parameters:
      return parameters_only(row, network, 6.0);
    case Counting::ParametersRecomputed:
      return parameters_only(row, network, 8.0);
    case Counting::Narayanan:
      return narayanan(row, 72.0, 12.0);
    case Counting::NarayananRecomputed:
      return narayanan(row, 96.0, 16.0);
    case Counting::Hardware:
      return hardware_flops(row, network, row.recompute == "full");
    case Counting::Model:
      break;
  }
  return model_flops_of(row, network);
}

// A100 and H100 modules as the sources of this kind print them.
Count reference_peak(const Measurement& row) {
  if (const auto stated = stated_peak(row)) {
    return *stated;
  }
  // Runs in 8 bits count against the 16-bit peak, too.
  const DType dtype = row.precision == "fp32"   ? DType::Fp32
                      : row.precision == "tf32" ? DType::Tf32
                                                : DType::Fp16;
  const std::string gpu = stated_gpu(row.gpu);
  if (dtype == DType::Fp16 && (gpu.starts_with("a100") || gpu.starts_with("a800"))) {
    return 312e12;
  }
  if (dtype == DType::Fp16 && (gpu.starts_with("h100-sxm") || gpu.starts_with("h800-sxm"))) {
    return 989e12;
  }
  const double peak = gpu.empty() ? 0 : topologies::load_gpu(gpu).peak_of(dtype).value();
  if (peak <= 0) {
    return tl::unexpected(fmt::format("the peak rate of {} that the source divides by is not known",
                                      printable(row.gpu, 60)));
  }
  return peak;
}

}  // namespace orrery::studies
