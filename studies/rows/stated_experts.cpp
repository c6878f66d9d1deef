// SPDX-License-Identifier: Apache-2.0
#include "studies/rows/stated_experts.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <string_view>
#include <utility>
#include <vector>

#include "base/text.hpp"
#include "studies/rows/row_words.hpp"

namespace orrery::studies {
namespace {

// "8x7b" in a word: so many experts of so many parameters.
bool counts_experts(std::string_view word) {
  const std::size_t sign = word.find('x');
  return sign != word.npos && sign > 0 && sign + 2 < word.size() && word.back() == 'b' &&
         std::all_of(word.begin(), word.begin() + static_cast<std::ptrdiff_t>(sign), is_digit) &&
         is_digit(word[sign + 1]);
}

// "a3b": the parameters that a token uses.
bool counts_active(std::string_view word) {
  return word.size() > 2 && word.front() == 'a' && word.back() == 'b' &&
         word.substr(1, word.size() - 2).find_first_not_of("0123456789.") == word.npos;
}

// A network that is a mixture of experts by its name, but for one that is called dense.
bool names_mixture(std::string_view name) {
  constexpr auto kNetworks =
      std::to_array<std::string_view>({"mixtral", "expert", "dbrx", "grok", "gptoss", "llama4",
                                       "deepseekv2", "deepseekv3", "kimik2", "minimaxm2"});
  std::string text = to_lower(with_letter_times(name));
  if (text.find("dense") != text.npos) {
    return false;
  }
  const std::string key = letters_and_digits(text);
  std::replace_if(
      text.begin(), text.end(),
      [](char c) { return std::string_view("-_/()[],").find(c) != std::string_view::npos; }, ' ');
  const std::vector<std::string_view> words = split(text, ' ');
  return says_any(key, kNetworks) ||
         std::any_of(words.begin(), words.end(), [](std::string_view word) {
           const bool numbered = word.starts_with("moe") && word.size() > 3 && is_digit(word[3]);
           return numbered || word.ends_with("moe") || counts_experts(word) || counts_active(word);
         });
}

// The first cell that only a mixture fills.
std::optional<std::string> cell_of_mixture(const Measurement& row) {
  const auto cells = std::to_array<std::pair<std::string_view, const OptionalCount*>>(
      {{"top_k", &row.top_k},
       {"moe_ffn_hidden", &row.moe_ffn_hidden},
       {"shared_expert_ffn", &row.shared_expert_ffn},
       {"first_dense_layers", &row.first_dense_layers},
       {"ep", &row.ep}});
  for (const auto& [name, value] : cells) {
    // One expert of one is how some tables write a dense layer.
    const bool of_one = name == "ep" || (name == "top_k" && row.experts.has_value());
    if (value->value_or(0) > (of_one ? 1 : 0)) {
      return fmt::format("{} is {}", name, **value);
    }
  }
  return std::nullopt;
}

// In lower case, with single blanks for the signs of flags and options:
// "--expert-tensor-parallel-size=1" as " expert tensor parallel size 1".
std::string words_of_options(std::string_view cell) {
  std::string text;
  for (const char c : to_lower(cell)) {
    const bool sign = std::string_view("-_=:( ").find(c) != std::string_view::npos;
    if (!sign || text.empty() || text.back() != ' ') {
      text += sign ? ' ' : c;
    }
  }
  return text;
}

// The number behind a name of the degree, beside which "size" and "degree" may stand.
std::optional<std::int64_t> degree_behind(std::string_view text) {
  constexpr auto kFillers = std::to_array<std::string_view>({"ism", "size", "degree", "of", "is"});
  for (const std::string_view filler : kFillers) {
    text = trim(text);
    text.remove_prefix(text.starts_with(filler) ? filler.size() : 0);
  }
  text = trim(text);
  std::int64_t degree = 0;
  const auto read = std::from_chars(text.data(), text.data() + text.size(), degree);
  return read.ec == std::errc() && degree > 0 ? std::optional(degree) : std::nullopt;
}

// "no expert tensor parallelism".
bool denies_behind(std::string_view before) {
  constexpr auto kDenials = std::to_array<std::string_view>({"no", "without", "w/o"});
  const std::string_view text = trim(before);
  return std::any_of(kDenials.begin(), kDenials.end(), [text](std::string_view word) {
    return text.ends_with(word) &&
           (text.size() == word.size() || text[text.size() - word.size() - 1] == ' ');
  });
}

std::optional<std::int64_t> expert_tensor_in(std::string_view cell) {
  constexpr auto kNames =
      std::to_array<std::string_view>({"expert tensor parallel", "expert tp", "etp"});
  const std::string words = words_of_options(cell);
  const std::string_view text = words;
  for (const std::string_view name : kNames) {
    for (std::size_t at = text.find(name); at != text.npos; at = text.find(name, at + 1)) {
      const bool begins = at == 0 || text[at - 1] < 'a' || text[at - 1] > 'z';
      if (const auto degree = degree_behind(text.substr(at + name.size())); begins && degree) {
        return degree;
      }
      if (begins && denies_behind(text.substr(0, at))) {
        return 1;
      }
    }
  }
  return std::nullopt;
}

}  // namespace

std::optional<std::string> missing_experts(const Measurement& row) {
  if (row.experts.value_or(0) > 0) {
    return row.top_k.value_or(0) > 0 ? std::nullopt
                                     : std::optional<std::string>("top_k is not stated");
  }
  if (const auto cell = cell_of_mixture(row)) {
    return row.experts ? fmt::format("the network has no experts, but {}", *cell)
                       : fmt::format("experts is not stated, but {}", *cell);
  }
  for (const std::string* name : {&row.model_name, &row.model_family}) {
    if (!row.experts && names_mixture(*name)) {
      return fmt::format("experts is not stated, but \"{}\" is a mixture of experts",
                         printable(*name, 60));
    }
  }
  return std::nullopt;
}

bool folds_experts(const Measurement& row, const FrameworkFacts& framework) {
  const std::int64_t ep = row.ep.value_or(1);
  const std::int64_t cp = row.cp.value_or(1);
  return framework.folds_experts && cp > 1 && ep > 1 && ep % cp == 0;
}

std::optional<std::int64_t> stated_expert_tensor(const Measurement& row) {
  for (const std::string* cell : {&row.notes, &row.variant, &row.framework}) {
    if (const auto degree = expert_tensor_in(*cell)) {
      return degree;
    }
  }
  return std::nullopt;
}

std::optional<bool> stated_whole_experts(const Measurement& row, bool folds) {
  const auto stated = stated_expert_tensor(row);
  const std::int64_t tp = row.tp.value_or(1);
  const std::int64_t inside = tp * (folds ? row.cp.value_or(1) : 1);
  const bool whole = stated == 1 && row.ep.value_or(1) % inside == 0;
  return whole || (stated && *stated == tp) ? std::optional(whole && tp > 1) : std::nullopt;
}

std::vector<std::string> unread_experts(const Measurement& row) {
  const auto stated = stated_expert_tensor(row);
  const bool folds = folds_experts(row, framework_of(row).facts);
  if (!stated || row.experts.value_or(0) <= 1 || row.tp.value_or(0) == 0 ||
      stated_whole_experts(row, folds)) {
    return {};
  }
  return {fmt::format("expert tensor parallelism {} with tp {} and ep {} as not stated", *stated,
                      *row.tp, row.ep.value_or(1))};
}

}  // namespace orrery::studies
