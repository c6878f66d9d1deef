// SPDX-License-Identifier: Apache-2.0
#include "studies/rows/flop_counting.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/text.hpp"
#include "base/words.hpp"
#include "models/blocks.hpp"
#include "studies/rows/counting_words.hpp"
#include "studies/rows/row_cluster.hpp"
#include "studies/rows/row_words.hpp"
#include "studies/rows/settings.hpp"
#include "topologies/cluster.hpp"

namespace orrery::studies {
namespace {

using models::Network;
using Count = tl::expected<double, std::string>;

double as_double(const OptionalCount& value) { return static_cast<double>(value.value_or(0)); }

// Of attention's products over all pairs of positions.
double counted_share(CountedAttention attention) {
  switch (attention) {
    case CountedAttention::Full:
      return 1.0;
    case CountedAttention::Half:
      return 0.5;
    case CountedAttention::None:
      break;
  }
  return 0.0;
}

// Narayanan et al. 2021: 72 B l s h^2 (1 + s/6h + V/12lh) forward and backward; 96 and V/16lh with
// the recomputed forward.
double narayanan(const Measurement& row, bool recomputes, CountedAttention attention) {
  const double l = as_double(row.layers);
  const double h = as_double(row.hidden);
  const double s = as_double(row.seq_len);
  const double passes = recomputes ? 4.0 : 3.0;
  return 24.0 * passes * global_batch(row) * l * s * h * h *
         (1.0 + counted_share(attention) * s / (6.0 * h) +
          as_double(row.vocab) / (4.0 * passes * l * h));
}

// N: of a mixture of experts what a token uses, unless the source counts all. As stated, else that
// of the network.
double counted_parameters(const Measurement& row, const Network& network, bool all_experts) {
  if ((row.experts.value_or(0) > 1 && !all_experts) || !row.params_b) {
    return static_cast<double>(all_experts ? models::num_parameters(network)
                                           : models::num_active_parameters(network));
  }
  return *row.params_b * 1e9;
}

// PaLM and llm-foundry: 6 N + 12 L h s a token, a third more with the recomputed forward.
double by_parameters(const Measurement& row, const Network& network, bool recomputes,
                     const FlopCounting& counting) {
  const double s = as_double(row.seq_len);
  const double passes = recomputes ? 4.0 : 3.0;
  const double pairs = 4.0 * passes * as_double(row.layers) * as_double(row.hidden) * s;
  const double per_token = 2.0 * passes * counted_parameters(row, network, counting.all_experts) +
                           counted_share(counting.attention) * pairs;
  return per_token * s * global_batch(row);
}

// Forward and backward of attention's own products.
double attention_flops_of(const Network& network, const models::Workload& sample) {
  double forward = 0;
  for (const int index : network.chain) {
    const models::Block& block = network.blocks[static_cast<std::size_t>(index)];
    for (const models::Operator& op : block.operators) {
      forward += op.kind == models::OpKind::Attention
                     ? models::forward_flops(block, op, sample, false).value()
                     : 0.0;
    }
  }
  return 3.0 * forward;
}

double model_flops_of(const Measurement& row, const Network& network, CountedAttention attention) {
  const models::Workload sample{1, *row.seq_len};
  const double flops =
      models::model_flops(network, sample, attention == CountedAttention::Half).value();
  const double left_out =
      attention == CountedAttention::None ? attention_flops_of(network, sample) : 0.0;
  return (flops - left_out) * global_batch(row);
}

// What the run computes: the layers' forward once more where they are recomputed. Megatron-LM's
// formula where the network is one that it describes.
double hardware_flops(const Measurement& row, const Network& network, CountedAttention attention) {
  const models::NetworkSpec& spec = network.spec;
  const bool recomputes = row.recompute == "full";
  if (spec.moe.experts == 0 && !models::is_gated(spec.activation)) {
    return narayanan(row, recomputes, attention);
  }
  const double model = model_flops_of(row, network, attention);
  const double head = 6.0 * as_double(row.seq_len) * static_cast<double>(spec.vocab) *
                      static_cast<double>(spec.hidden) * global_batch(row);
  return recomputes ? model + (model - head) / 3.0 : model;
}

double counting_flops(const Measurement& row, const Network& network,
                      const FlopCounting& counting) {
  const bool all = counting.recompute == CountedRecompute::All ||
                   (counting.recompute == CountedRecompute::AsRun && row.recompute == "full" &&
                    counting.base != CountedBase::Network);
  switch (counting.base) {
    case CountedBase::Narayanan:
      return narayanan(row, all, counting.attention);
    case CountedBase::Parameters:
      return by_parameters(row, network, all, counting);
    case CountedBase::Network:
      break;
  }
  return counting.recompute == CountedRecompute::AsRun
             ? hardware_flops(row, network, counting.attention)
             : model_flops_of(row, network, counting.attention) * (all ? 4.0 / 3.0 : 1.0);
}

// FLOPs a second of a unit that begins a text: "TFLOPS", "PFLOP/s".
double rate_unit(std::string_view unit) {
  constexpr auto kUnits = std::to_array<std::pair<std::string_view, double>>(
      {{"tflop", 1e12}, {"teraflop", 1e12}, {"pflop", 1e15}, {"petaflop", 1e15}});
  const auto* const known = std::find_if(kUnits.begin(), kUnits.end(), [unit](const auto& one) {
    return unit.starts_with(one.first);
  });
  return known == kUnits.end() ? 1.0 : known->second;
}

// "1,979" as "1979".
std::string without_thousands(std::string text) {
  const auto digit = [&](std::size_t at) { return at < text.size() && is_digit(text[at]); };
  for (std::size_t at = text.find(','); at != text.npos; at = text.find(',', at + 1)) {
    if (at > 0 && digit(at - 1) && digit(at + 1) && digit(at + 2) && digit(at + 3) &&
        !digit(at + 4)) {
      text.erase(at, 1);
    }
  }
  return text;
}

// "fp8 peak": the peak by its name alone.
bool names_fp8_peak(const Measurement& row) {
  const std::string said = undenied(with_blanks(row.flops_convention));
  return (row.precision == "fp8" || row.precision == "mxfp8") &&
         (said.find("fp8 peak") != said.npos || said.find("peak fp8") != said.npos ||
          said.find("fp8 dense peak") != said.npos || said.find("peak of fp8") != said.npos);
}

// A number of a text in lower case that is no part of a word: "989" of "h100 peak 989 tflops".
struct TextNumber {
  double value = 0;
  std::string_view before;  // since the number before it
  std::string_view behind;  // to the end of the text
};

std::vector<TextNumber> numbers_in(std::string_view text) {
  constexpr std::string_view kDigits = "0123456789";
  std::vector<TextNumber> numbers;
  std::size_t last = 0;  // end of the number before
  for (std::size_t at = text.find_first_of(kDigits); at < text.size();) {
    TextNumber number{0, text.substr(last, at - last), {}};
    const auto read = std::from_chars(text.data() + at, text.data() + text.size(), number.value);
    const std::size_t end =
        std::max<std::size_t>(at + 1, static_cast<std::size_t>(read.ptr - text.data()));
    if (read.ec == std::errc() && (at == 0 || !is_letter(text[at - 1]))) {
      number.behind = trim(text.substr(end));
      numbers.push_back(number);
      last = end;
    }
    at = text.find_first_of(kDigits, end);
  }
  return numbers;
}

// Whether what stands before a rate divides by it: "model FLOPs / 989 TFLOPS", not "163 TFLOP/s
// achieved".
bool is_divided_by(std::string_view before) {
  constexpr auto kWords = std::to_array<std::string_view>({"over", "by", "against", "vs", "vs."});
  before = trim(before);
  const std::string_view word = before.substr(before.find_last_of(" (") + 1);
  return before.ends_with('/') || is_among(word, kWords);
}

// Whether a number belongs to the word before it: "peak of 989", not "over peak; sequence 2048".
bool is_behind_peak(std::string_view before, std::string_view peak) {
  const std::size_t at = before.rfind(peak);
  return at != before.npos && before.find_first_of(",;", at) == before.npos;
}

// FLOP/s of a number that is a peak: one with a unit that FLOPs are divided by, one as large as a
// peak in a text that speaks of one, and beside the word itself ("peak 989") a number of TFLOP/s.
double peak_of(const TextNumber& number, bool speaks_of_peak) {
  constexpr std::string_view kPeak = "peak";
  const double rate = number.value * rate_unit(number.behind);
  const bool is_divisor = rate != number.value && is_divided_by(number.before);
  if (rate >= 1e12 && rate <= 1e17 && (speaks_of_peak || is_divisor)) {
    return rate;
  }
  const bool beside = is_behind_peak(number.before, kPeak) || number.behind.starts_with(kPeak);
  const bool counts = !number.behind.starts_with('%') &&
                      (number.behind.empty() || !is_letter(number.behind.front()) ||
                       number.behind.starts_with(kPeak));
  return beside && counts && number.value >= 50 && number.value <= 10'000 ? number.value * 1e12 : 0;
}

// "peak bf16 989e12, fp8 1979e12", "156 TFLOP/s tf32 peak", "model FLOPs / 989 TFLOPS": the rate
// beside the row's precision, else the first.
std::optional<double> stated_peak(const Measurement& row) {
  const std::string text = without_thousands(to_lower(row.flops_convention));
  const std::string precision = row.precision == "mxfp8" ? "fp8" : row.precision;
  const bool speaks_of_peak = text.find("peak") != text.npos;
  std::optional<double> first;
  std::size_t last = 0;  // where the rate before begins
  for (const TextNumber& number : numbers_in(text)) {
    const double rate = peak_of(number, speaks_of_peak);
    const auto end =
        static_cast<std::size_t>(number.before.data() + number.before.size() - text.data());
    if (rate > 0) {
      const std::string_view before = std::string_view(text).substr(last, end - last);
      if (before.find(precision) != before.npos) {
        return rate;
      }
      first = first.value_or(rate);
      last = end;
    }
  }
  return first;
}

}  // namespace

double global_batch(const Measurement& row) {
  const auto product =
      row.micro_batch.value_or(0) * row.num_microbatches.value_or(0) * row.dp.value_or(0);
  return static_cast<double>(row.global_batch.value_or(product));
}

bool states_way_of_counting(const Measurement& row) { return flop_counting(row).has_value(); }

Count counted_flops(const Measurement& row, const Network& network) {
  if (global_batch(row) == 0) {
    return tl::unexpected(std::string("global_batch is not stated"));
  }
  const std::optional<FlopCounting> counting = flop_counting(row);
  if (!counting) {
    return tl::unexpected(std::string("the way the source counts FLOPs is not known"));
  }
  return counting_flops(row, network, *counting);
}

// A100 and H100 modules as the sources of this kind print them.
Count reference_peak(const Measurement& row) {
  if (const auto stated = stated_peak(row)) {
    return *stated;
  }
  // Runs in 8 bits count against the 16-bit peak, unless the source says otherwise.
  const DType dtype = names_fp8_peak(row)       ? DType::Fp8
                      : row.precision == "fp32" ? DType::Fp32
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
