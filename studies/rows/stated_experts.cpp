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
#include "base/words.hpp"
#include "plan/block_rules.hpp"
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
  text = with_signs_as(text, "-_/()[],", ' ');
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

// "[0]*3+[1]*58" lists the dense layers that a column states, too.
bool lists_first_dense(std::string_view value, const Measurement& row) {
  constexpr std::string_view kZeros = "[0]*";
  value = value.substr(std::min(value.size(), value.find(kZeros)));
  value.remove_prefix(std::min(value.size(), kZeros.size()));
  std::int64_t dense = 0;
  std::from_chars(value.data(), value.data() + value.size(), dense);
  return dense > 0 && dense == row.first_dense_layers;
}

// "moe_layer_freq=2", "--expert-interval 2", "MoE layer frequency 1/2"; a list of layers or a share
// of more than one is refused.
ExpertLayers frequency_set(std::string_view clause, const Measurement& row) {
  constexpr auto kNames = std::to_array<std::string_view>(
      {"moe layer freq", "moe layer frequency", "moe frequency", "expert interval",
       "interleave moe layer step", "decoder sparse step", "moe layer interval"});
  const std::string text = words_of_options(clause);
  for (const std::string_view name : kNames) {
    const std::size_t at = find_word(text, name);
    if (at == text.npos) {
      continue;
    }
    const std::string_view value = trim(std::string_view(text).substr(at + name.size()));
    std::int64_t frequency = 0;
    if (lists_first_dense(value, row)) {
      return {};
    }
    const auto read = std::from_chars(value.data(), value.data() + value.size(), frequency);
    const std::string_view rest = value.substr(static_cast<std::size_t>(read.ptr - value.data()));
    if (frequency == 1 && rest.starts_with('/')) {
      std::from_chars(rest.data() + 1, rest.data() + rest.size(), frequency);
    }
    return frequency > 0 ? ExpertLayers{frequency} : ExpertLayers{0, std::string(trim(clause))};
  }
  return {};
}

bool is_count(std::string_view word) {
  return !word.empty() && word.find_first_not_of("0123456789") == word.npos;
}

// " layer", " transformer block" behind an ordinal.
bool is_layer(std::string_view behind) {
  constexpr auto kNouns = std::to_array<std::string_view>({"layer", "block"});
  constexpr auto kKinds =
      std::to_array<std::string_view>({"transformer ", "decoder ", "mlp ", "ffn ", "model "});
  behind = trim(behind);
  for (const std::string_view kind : kKinds) {
    behind.remove_prefix(behind.starts_with(kind) ? kind.size() : 0);
  }
  return std::any_of(kNouns.begin(), kNouns.end(), [behind](std::string_view noun) {
    return behind.starts_with(noun) &&
           (behind.size() == noun.size() || behind.find_first_of(" ,;)") == noun.size());
  });
}

// "experts on every other layer", "12 of 24 layers are MoE".
ExpertLayers frequency_in_words(std::string_view clause) {
  constexpr auto kExperts = std::to_array<std::string_view>({"moe", "expert", "experts"});
  constexpr auto kOthers = std::to_array<std::string_view>(
      {"recomput", "checkpoint", "remat", "capacity", "parallel", "per expert"});
  constexpr auto kWords =
      std::to_array<std::pair<std::string_view, std::int64_t>>({{"every other", 2},
                                                                {"every second", 2},
                                                                {"every 2nd", 2},
                                                                {"every third", 3},
                                                                {"every 3rd", 3},
                                                                {"every fourth", 4},
                                                                {"every 4th", 4}});
  constexpr auto kHalf =
      std::to_array<std::string_view>({"half of the layers", "half the layers", "half of layers",
                                       "alternate layers", "alternating layers", "layers alternate",
                                       "alternating dense and moe", "alternating moe and dense"});
  if (!has_word(clause, kExperts) || says_any(clause, kOthers)) {
    return {};
  }
  for (const auto& [words, frequency] : kWords) {
    const std::size_t at = find_word(clause, words);
    if (at != clause.npos && is_layer(clause.substr(at + words.size()))) {
      return {frequency};
    }
  }
  for (const std::string_view words : kHalf) {
    const std::size_t at = find_word(clause, words);
    if (at != clause.npos && !clause.substr(at + words.size()).starts_with('\'')) {
      return {2};
    }
  }
  const std::size_t between = clause.find(" of ");
  const std::size_t layers = clause.find(" layers", between);
  if (between == clause.npos || layers == clause.npos ||
      clause.substr(layers + 7).starts_with('\'')) {
    return {};
  }
  const std::string_view before = clause.substr(0, between);
  const std::string_view some = before.substr(before.find_last_of(' ') + 1);
  std::string_view all = trim(clause.substr(between + 4, layers - between - 4));
  all.remove_prefix(all.starts_with("the ") ? 4 : 0);
  if (!is_count(some) || !is_count(all)) {
    return {};
  }
  std::int64_t share = 0;
  std::int64_t whole = 0;
  std::from_chars(some.data(), some.data() + some.size(), share);
  std::from_chars(all.data(), all.data() + all.size(), whole);
  if (share <= 0 || whole < share) {
    return {};
  }
  return whole % share == 0 ? ExpertLayers{whole / share}
                            : ExpertLayers{0, std::string(trim(clause))};
}

// Whether experts that `cut` tensor-parallel ranks share may be on these ranks, or on some of them.
bool may_be_cut(const Measurement& row, std::int64_t cut, bool folds) {
  plan::BlockPlan layout;
  layout.tp = static_cast<int>(row.tp.value_or(1));
  layout.cp = static_cast<int>(row.cp.value_or(1));
  layout.ep = static_cast<int>(row.ep.value_or(1));
  layout.expert_tp = static_cast<int>(cut);
  layout.expert_cp = folds ? 1 : 0;
  return cut > 0 && layout.tp % cut == 0 && plan::nests_experts(layout);
}

}  // namespace

ExpertLayers stated_expert_layers(const Measurement& row) {
  if (row.experts.value_or(0) <= 1) {
    return {};
  }
  const std::string text = remarks_of(row) + "; " + row.model_name;
  for (const std::string& clause : asserted_clauses(text)) {
    for (const ExpertLayers& layers : {frequency_set(clause, row), frequency_in_words(clause)}) {
      if (layers.frequency > 0 || !layers.refused.empty()) {
        return layers;
      }
    }
  }
  return {};
}

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

std::optional<int> stated_expert_tp(const Measurement& row, bool folds) {
  const auto stated = stated_expert_tensor(row);
  if (!stated || !may_be_cut(row, *stated, folds)) {
    return std::nullopt;
  }
  return *stated == row.tp.value_or(1) ? 0 : static_cast<int>(*stated);
}

// expert_tensor_parallel_size = 1 in all of Megatron-Bridge's recipes (src/megatron/bridge/recipes,
// scripts/performance/configs, v0.1.0rc4 to v0.5.0) but those of Llama 4 (v0.1.0rc4
// recipes/llama/llama4_e16.py: as many as tensor-parallel ranks).
bool recipe_keeps_experts_whole(const Measurement& row, bool folds) {
  return framework_of(row).facts.name == "Megatron-Bridge" &&
         !mentions(letters_and_digits(row.model_name), "llama4") && row.tp.value_or(1) > 1 &&
         row.experts.value_or(0) > 1 && row.ep.value_or(1) > 1 && may_be_cut(row, 1, folds) &&
         !stated_expert_tensor(row);
}

std::vector<std::string> unread_experts(const Measurement& row) {
  const auto stated = stated_expert_tensor(row);
  const bool folds = folds_experts(row, framework_of(row).facts);
  std::vector<std::string> lines;
  if (recipe_keeps_experts_whole(row, folds)) {
    lines.emplace_back("expert tensor parallelism 1 (the recipes')");
  }
  if (const std::int64_t every = stated_expert_layers(row).frequency; every > 0) {
    lines.push_back(every == 1 ? std::string("experts in every layer (notes)")
                               : fmt::format("experts in one of {} layers (notes)", every));
  }
  if (stated && row.experts.value_or(0) > 1 && row.tp.value_or(0) > 0 &&
      !stated_expert_tp(row, folds)) {
    lines.push_back(fmt::format("expert tensor parallelism {} with tp {} and ep {} as not stated",
                                *stated, *row.tp, row.ep.value_or(1)));
  }
  return lines;
}

}  // namespace orrery::studies
