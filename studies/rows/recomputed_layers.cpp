// SPDX-License-Identifier: Apache-2.0
#include "studies/rows/recomputed_layers.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "base/text.hpp"
#include "base/words.hpp"
#include "studies/rows/metric.hpp"
#include "studies/rows/row_words.hpp"
#include "studies/rows/settings.hpp"

namespace orrery::studies {
namespace {

// The first number of a text; 0 when there is none.
int first_number(std::string_view text) {
  const std::size_t begin = text.find_first_of("0123456789");
  int number = 0;
  if (begin != text.npos) {
    std::from_chars(text.data() + begin, text.data() + text.size(), number);
  }
  return number;
}

LayerShare reduced(int share, int every) {
  const int divisor = std::gcd(share, every);
  return share > 0 && share < every ? LayerShare{share / divisor, every / divisor} : LayerShare();
}

// The number that ends before `end`; 0 where none does.
int number_before(std::string_view text, std::size_t end) {
  std::size_t begin = end;
  while (begin > 0 && is_digit(text[begin - 1])) {
    --begin;
  }
  return first_number(text.substr(begin, end - begin));
}

// "25% of layers", or the per cent alone.
LayerShare share_of_percent(std::string_view detail) {
  const std::size_t sign = detail.find('%');
  if (sign == detail.npos) {
    return {};
  }
  const std::string_view number = trim(detail.substr(0, sign));
  const std::string_view rest = trim(detail.substr(sign + 1));
  const bool alone = rest.find_first_of(";,)") == 0 || rest.empty();  // "(50%)"
  const bool of_layers =
      (rest.starts_with("of") && rest.find("layer") != rest.npos) || rest.starts_with("layer");
  const std::size_t begin = number.find_last_not_of("0123456789.") + 1;
  double percent = 0;
  std::from_chars(number.data() + begin, number.data() + number.size(), percent);
  const bool negative = begin > 0 && number[begin - 1] == '-';
  constexpr int kWhole = 1000;  // "12.5%"
  return (alone || of_layers) && !negative && percent <= 100
             ? reduced(static_cast<int>(std::lround(percent * kWhole / 100)), kWhole)
             : LayerShare();
}

// "0.5" alone.
LayerShare share_alone(std::string_view detail) {
  const std::string_view text = trim(detail);
  double fraction = 0;
  const auto read = std::from_chars(text.data(), text.data() + text.size(), fraction);
  const bool alone = read.ec == std::errc() && read.ptr == text.data() + text.size();
  return alone && fraction > 0 && fraction < 1 ? share_of_fraction(fraction) : LayerShare();
}

// "1 of 3 layers", "2/3 of layers", "8/16" alone.
LayerShare share_in_numbers(std::string_view detail) {
  const bool alone = detail.find_first_not_of("0123456789/ of") == detail.npos;
  for (const std::string_view phrase : {" of ", "/"}) {
    const std::size_t found = detail.find(phrase);
    const std::size_t behind = found + phrase.size();
    if (found != detail.npos && behind < detail.size() && is_digit(detail[behind]) &&
        (alone || detail.find("layer", behind) != detail.npos)) {
      return reduced(number_before(detail, found), first_number(detail.substr(behind)));
    }
  }
  return {};
}

// "every 2nd layer". "Every 2 layers" of full recomputation is Megatron's uniform method, which
// keeps the input of every second layer and recomputes all.
LayerShare share_in_ordinals(std::string_view detail, bool whole_layers) {
  constexpr auto kWords =
      std::to_array<std::pair<std::string_view, int>>({{"every other layer", 2},
                                                       {"half of", 2},
                                                       {"half the layers", 2},
                                                       {"every second layer", 2},
                                                       {"every third layer", 3},
                                                       {"every fourth layer", 4}});
  for (const auto& [words, every] : kWords) {
    if (detail.find(words) != detail.npos) {
      return {1, every};
    }
  }
  constexpr std::string_view kEvery = "every ";
  const std::size_t found = detail.find(kEvery);
  if (found == detail.npos || detail.find("layer", found) == detail.npos) {
    return {};
  }
  const std::size_t digits = detail.find_first_of("0123456789", found);
  const std::size_t end = std::min(detail.size(), detail.find_first_not_of("0123456789", digits));
  const bool ordinal = digits != detail.npos && end < detail.size() && detail[end] != ' ';
  return whole_layers && !ordinal ? LayerShare() : reduced(1, first_number(detail.substr(found)));
}

// "8 layers", as --recompute-num-layers counts them; 0 where the text says something else, as
// "every 8 layers", "all 32 layers" and "3 of 8 layers" do.
int layers_alone(std::string_view detail) {
  constexpr auto kOthers = std::to_array<std::string_view>(
      {"every", "all", "uniform", " of ", " in ", "/", "%", "each"});
  const std::size_t noun = detail.find(" layer");
  return noun == detail.npos || says_any(detail, kOthers) ? 0 : number_before(detail, noun);
}

// Layers that are left out, "disabled for last 2 layers"; 0 where the text names none.
int layers_left_out(std::string_view detail) {
  constexpr auto kWords = std::to_array<std::string_view>(
      {"disabled for", "disabled on", "disabled in", "off for", "except", "all but", "excluding",
       "skipped for", "skip", "not for", "not on", "not in"});
  for (const std::string_view word : kWords) {
    const std::size_t at = detail.find(word);
    const std::size_t noun = at == detail.npos ? at : detail.find(" layer", at);
    if (noun != detail.npos) {
      return number_before(detail, noun);
    }
  }
  return 0;
}

}  // namespace

LayerShare share_of_fraction(double fraction) {
  constexpr int kWhole = 1000;
  return reduced(static_cast<int>(std::lround(fraction * kWhole)), kWhole);
}

std::optional<double> share_of_counts(const Measurement& row) {
  constexpr double kForward = 1.0 / 3;
  const std::optional<double> hardware = aux_number(row, "hfu");
  const std::optional<double> model = aux_number(row, "mfu");
  if (!hardware || !model) {
    return std::nullopt;
  }
  return std::clamp((*hardware / *model - 1) / kForward, 0.0, 1.0);
}

LayerShare share_of_option(std::string_view detail) {
  constexpr auto kNames =
      std::to_array<std::string_view>({"selective ac option", "option", "layer interval"});
  const std::string_view number = trim(detail);
  const bool alone = number.size() == 1 && is_digit(number.front());
  const double every =
      alone ? static_cast<double>(first_number(number)) : number_set(detail, kNames).value_or(0);
  return every > 1 && every < 100 ? reduced(1, static_cast<int>(every)) : LayerShare();
}

bool names_operators_apart(std::string_view detail, bool titan) {
  constexpr auto kNames = std::to_array<std::string_view>(
      {"per op", "selective ac option op", "selective ac option=op", "selective ac option = op"});
  constexpr auto kShort = std::to_array<std::string_view>({"op"});
  std::string plain = with_blanks(detail);
  std::erase(plain, '\'');
  std::replace(plain.begin(), plain.end(), ':', '=');
  return says_any(plain, kNames) || (titan && has_word(plain, kShort));
}

LayerShare stated_share(std::string_view detail, bool whole_layers) {
  for (const LayerShare& stated :
       {share_in_ordinals(detail, whole_layers), share_of_percent(detail), share_in_numbers(detail),
        share_alone(detail)}) {
    if (stated.every > 1) {
      return stated;
    }
  }
  return {};
}

bool states_interval(std::string_view detail) {
  constexpr auto kWords = std::to_array<std::string_view>(
      {"checkpoint num layers", "layer granularity", "layers granularity", "checkpoint interval",
       "checkpointing interval", "per checkpoint", "per segment"});
  return says_any(with_blanks(detail), kWords) && detail.find("block") == detail.npos;
}

int layers_of_a_stage(std::string_view detail) {
  const bool share = share_in_numbers(detail).every > 1;  // "10 of 20 layers per stage"
  if (states_interval(detail) || layers_left_out(detail) > 0 || share) {
    return 0;
  }
  constexpr auto kPer = std::to_array<std::string_view>(
      {"layers per", "layer per", "layers/", "layer/", "layers of each", "layers in each"});
  if (says_any(detail, kPer)) {  // "8 layers per stage"
    return first_number(detail);
  }
  if (const int layers = layers_alone(detail); layers > 0) {
    return layers;
  }
  for (const std::string_view phrase : {"num_layers", "num-layers", "block", "first "}) {
    const std::size_t found = detail.find(phrase);
    if (found != detail.npos && detail.find("uniform") == detail.npos) {
      return first_number(detail.substr(found));
    }
  }
  return 0;
}

LayerShare share_of_layers(const Measurement& row, std::string_view detail) {
  const auto layers = static_cast<int>(row.layers.value_or(0));
  const int left_out = layers_left_out(detail);
  return left_out > 0 && left_out < layers ? reduced(layers - left_out, layers)
                                           : stated_share(detail, true);
}

bool names_some_stages(std::string_view detail) {
  constexpr auto kSome = std::to_array<std::string_view>(
      {"except", "only", "first", "last", "skip", "but", "not in", "not on", "not for", "on stage",
       "on stages", "in stage", "in stages"});
  constexpr auto kOthers = std::to_array<std::string_view>({"zero", "deepspeed", "balanced"});
  constexpr auto kAll = std::to_array<std::string_view>(
      {"per stage", "/stage", "each stage", "every stage", "of a stage", "per vpp stage",
       "per virtual stage", "per pipeline stage", "of the stage", "per model stage"});
  const std::string text = with_signs_as(detail, ",()\n", ';');
  const std::vector<std::string_view> clauses = split(text, ';');
  return !says_any(detail, kAll) &&
         std::any_of(clauses.begin(), clauses.end(), [&](std::string_view clause) {
           return clause.find("stage") != clause.npos && has_word(clause, kSome) &&
                  !has_word(clause, kOthers);
         });
}

bool lacks_method(std::string_view detail) {
  constexpr auto kMethods = std::to_array<std::string_view>({"block", "uniform", "per", "stage"});
  constexpr auto kNumber = std::to_array<std::string_view>({"num layers"});
  return says_any(with_blanks(detail), kNumber) && !says_any(detail, kMethods);
}

}  // namespace orrery::studies
