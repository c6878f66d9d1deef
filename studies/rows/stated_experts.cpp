// SPDX-License-Identifier: Apache-2.0
#include "studies/rows/stated_experts.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
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
  std::string text = to_lower(name);
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

}  // namespace orrery::studies
