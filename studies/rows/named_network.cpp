// SPDX-License-Identifier: Apache-2.0
#include "studies/rows/named_network.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <iterator>
#include <map>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "base/text.hpp"
#include "base/words.hpp"
#include "models/blocks.hpp"
#include "models/network_names.hpp"
#include "studies/rows/row_words.hpp"

namespace orrery::studies {
namespace {

using models::NetworkSpec;

// The network that the letters and digits of a name or alias are those of: publishers leave out
// points, too, and of networks that are one then `with_point` takes the one of the stated size.
std::string known_name(const std::string& key) {
  static const std::map<std::string, std::string> kNames = [] {
    std::map<std::string, std::string> names;
    for (const bool own : {true, false}) {
      for (const auto& [spelling, name] : models::network_names()) {
        if ((spelling == name) == own) {
          names.emplace(letters_and_digits(spelling), name);
        }
      }
    }
    return names;
  }();
  const auto found = kNames.find(key);
  return found == kNames.end() ? std::string() : found->second;
}

// What networks are tuned for.
constexpr auto kTunings =
    std::to_array<std::string_view>({"hf", "instruct", "chat", "base", "it", "deduped"});

// "12layers", "21L": how deep a network was cut; rows say so in `layers`, too.
bool is_depth(std::string_view word) {
  const std::size_t digits = std::min(word.size(), word.find_first_not_of("0123456789"));
  const std::string_view unit = word.substr(digits);
  return digits > 0 && (unit == "l" || unit == "layer" || unit == "layers");
}

// The last word of a name where it does not change the widths: what the network was tuned for, its
// release, the length of its context, its depth, what a token uses of its parameters ("-A3B"); the
// whole name where it has none.
std::string_view without_last_remark(std::string_view name) {
  const std::size_t at = name.find_last_of("-_ ");
  const std::string word = at == name.npos ? std::string() : to_lower(name.substr(at + 1));
  constexpr std::size_t kYearAndMonth = 4;  // "-2507"
  const bool date =
      word.size() == kYearAndMonth && word.find_first_not_of("0123456789") == std::string::npos;
  const bool release = word.starts_with("v0.") || date;
  const bool context = word.size() > 1 && word.back() == 'k' &&
                       word.find_first_not_of("0123456789") == word.size() - 1;
  const bool tuned = is_among(word, kTunings);
  const bool active = word.size() > 2 && word.front() == 'a' && word.back() == 'b' &&
                      word.find_first_not_of("0123456789.", 1) == word.size() - 1;
  const bool cut = word == "proxy" || is_depth(word);
  return release || context || tuned || active || cut ? trim(name.substr(0, at)) : name;
}

// The zoo's name; empty where it has none. Publishers put their own name before a network's and
// say after it for what it was tuned and in which release.
std::string zoo_name(std::string_view text) {
  for (const std::string& whole :
       {models::find_network(text), known_name(letters_and_digits(text))}) {
    if (!whole.empty()) {
      return whole;
    }
  }
  std::string_view name = trim(text.substr(0, text.find('(')));
  name = name.substr(name.rfind('/') + 1);
  std::string key;
  const auto look_up = [&key](std::string_view words) {
    key = letters_and_digits(words);
    key.erase(0, key.starts_with("metallama") ? std::string_view("meta").size() : 0);
    return known_name(key);
  };
  while (look_up(name).empty() && without_last_remark(name) != name) {
    name = without_last_remark(name);
  }
  for (const std::string_view tuning : kTunings) {
    if (known_name(key).empty() && key.ends_with(tuning)) {
      key.erase(key.size() - tuning.size());
    }
  }
  return known_name(key);
}

// Parameters as names state them: "GPT-1.8B", "GPT-2 345M"; 0 where none do.
double size_in_name(std::string_view text) {
  constexpr auto kUnits =
      std::to_array<std::pair<char, double>>({{'m', 1e6}, {'b', 1e9}, {'t', 1e12}});
  const std::string name = to_lower(text);
  double size = 0;
  for (std::size_t at = name.find_first_of("0123456789"); at < name.size();
       at = name.find_first_of("0123456789", at)) {
    double number = 0;
    const auto read = std::from_chars(name.data() + at, name.data() + name.size(), number,
                                      std::chars_format::fixed);
    at = static_cast<std::size_t>(read.ptr - name.data());
    const bool word_ends =
        at + 1 >= name.size() || letters_and_digits(name.substr(at + 1, 1)).empty();
    for (const auto& [letter, unit] : kUnits) {
      if (at < name.size() && name[at] == letter && word_ends) {
        size = number * unit;
      }
    }
  }
  return size;
}

// "Phi-4 14B": a name that needs no size, with just the network's.
std::string zoo_name_with_size(std::string_view text) {
  constexpr double kNear = 0.15;  // names round (14B of 14.7), and the next size is twice as large
  text = without_last_remark(trim(text.substr(0, text.find('('))));
  const std::size_t at = text.find_last_of("-_ ");
  const double size = at == text.npos ? 0 : size_in_name(text.substr(at + 1));
  const std::string name = size > 0 ? zoo_name(text.substr(0, at)) : std::string();
  if (name.empty()) {
    return "";
  }
  const auto known = static_cast<double>(models::num_parameters(models::load_network(name)));
  return std::abs(size / known - 1) <= kNear ? name : std::string();
}

// Whether the size that a name states is that of another network: without points "GPT-3 13B" is
// "gpt3-1.3b", too, which is ten times smaller.
bool loses_point(std::string_view stated, const std::string& name) {
  constexpr double kTimes = 5;
  const double size = name.empty() ? 0 : size_in_name(stated);
  if (size == 0) {
    return false;
  }
  const models::Network network = models::load_network(name);
  const auto known = static_cast<double>(models::num_parameters(network));
  return network.spec.moe.experts == 0 && (size > kTimes * known || known > kTimes * size);
}

// Of the networks that are one without points and hyphens the one of the stated size.
std::string with_point(std::string_view stated, const std::string& name) {
  if (!loses_point(stated, name)) {
    return name;
  }
  const std::vector<std::string> names = models::zoo_names();
  const auto alike = std::find_if(names.begin(), names.end(), [&](const std::string& other) {
    return letters_and_digits(other) == letters_and_digits(name) && !loses_point(stated, other);
  });
  return alike == names.end() ? std::string() : *alike;
}

// "7B" of the family "llama" is LLaMA-7B. A network that its name cuts short ("8B (2 layers)") is
// the whole one only where the row says how deep it is.
std::string zoo_name_of(const Measurement& row) {
  const std::string& stated = row.model_name;
  const std::string_view last = std::string_view(stated).substr(stated.find_last_of("-_ ") + 1);
  const bool cut =
      mentions(stated, "layer") || mentions(stated, "proxy") || is_depth(to_lower(last));
  if (!row.layers && cut) {
    return "";
  }
  std::string alone = zoo_name(stated);
  alone = alone.empty() ? zoo_name_with_size(stated) : alone;
  alone = with_point(stated, alone);
  const bool size = !stated.empty() && is_digit(stated.front());
  return alone.empty() && size ? zoo_name(row.model_family + " " + stated) : alone;
}

// Names are compared without their points, "GPT-1.8B" as "gpt-18b": the size must be that of the
// network, too. Mixtures of experts are named by what they use, and networks cut short have less.
bool has_stated_size(const Measurement& row, const models::Network& network) {
  constexpr double kFar = 0.25;
  const NetworkSpec& spec = network.spec;
  const bool whole = !row.layers || *row.layers == spec.encoder_layers + spec.layers;
  const double stated = whole && row.params_b ? *row.params_b * 1e9 : size_in_name(row.model_name);
  const auto known = static_cast<double>(models::num_parameters(network));
  return stated == 0 || spec.moe.experts > 0 || std::abs(stated / known - 1) <= kFar;
}

bool agrees(const OptionalCount& stated, std::int64_t known) {
  return !stated || known == 0 || *stated == known;
}

// Remembers what it filled.
class NamedCells {
 public:
  void fill(std::string_view column, OptionalCount& cell, std::int64_t value) {
    if (!cell && value > 0) {
      cell = value;
      filled_.push_back(column);
    }
  }
  void fill(std::string_view column, std::optional<bool>& cell, bool value) {
    if (!cell) {
      cell = value;
      filled_.push_back(column);
    }
  }
  const std::vector<std::string_view>& filled() const { return filled_; }

 private:
  std::vector<std::string_view> filled_;
};

// What the row states otherwise than the network of its name; "" where it is that network.
std::string disagreement(const Measurement& row, const models::Network& network) {
  const NetworkSpec& spec = network.spec;
  const auto cells =
      std::to_array<std::tuple<std::string_view, const OptionalCount*, std::int64_t>>(
          {{"hidden", &row.hidden, spec.hidden},
           {"heads", &row.heads, spec.heads},
           {"ffn_hidden", &row.ffn_hidden, spec.ffn_hidden},
           {"head_dim", &row.head_dim, spec.head_dim},
           {"moe_ffn_hidden", &row.moe_ffn_hidden, spec.moe.ffn_hidden}});
  for (const auto& [name, stated, known] : cells) {
    if (!agrees(*stated, known)) {
      return fmt::format("{} {}, not {}", name, known, **stated);
    }
  }
  if (row.experts.value_or(spec.moe.experts) != spec.moe.experts) {
    return fmt::format("{} experts, not {}", spec.moe.experts, *row.experts);
  }
  return has_stated_size(row, network)
             ? std::string()
             : fmt::format("{:.3g} B parameters",
                           static_cast<double>(models::num_parameters(network)) / 1e9);
}

// Mistral's second release attends to everything, and the third one has a larger vocabulary, too
// (their config.json).
void apply_release(const Measurement& row, NetworkSpec& spec) {
  constexpr std::int64_t kThirdVocab = 32768;
  const bool third = mentions(row.model_name, "v0.3");
  if (spec.name == "mistral-7b" && (third || mentions(row.model_name, "v0.2"))) {
    spec.sliding_window = 0;
    spec.vocab = third ? kThirdVocab : spec.vocab;
  }
}

// Of the networks of the size that a name states, if there are any, the one with the nearest name.
std::string nearest_network(const std::string& key) {
  constexpr double kSame = 0.05;  // "39B" of 39.1
  const std::vector<std::string> names = models::zoo_names();
  const double size = size_in_name(key);
  std::vector<std::string> of_size;
  std::copy_if(
      names.begin(), names.end(), std::back_inserter(of_size),
      [&](const std::string& name) { return std::abs(size_in_name(name) - size) < kSame * size; });
  return nearest_name(key, of_size.empty() ? names : of_size);
}

}  // namespace

std::optional<NetworkSpec> named_network(const Measurement& row) {
  const std::string name = zoo_name_of(row);
  if (name.empty()) {
    return std::nullopt;
  }
  models::Network network = models::load_network(name);
  apply_release(row, network.spec);
  return disagreement(row, network).empty() ? std::optional(std::move(network.spec)) : std::nullopt;
}

std::string why_unnamed(const Measurement& row) {
  if (row.model_name.empty()) {
    return "";
  }
  const std::string name = zoo_name_of(row);
  if (!name.empty()) {
    const std::string other = disagreement(row, models::load_network(name));
    return other.empty() ? "" : fmt::format("{} has {}", name, other);
  }
  return fmt::format("no network is named \"{}\"{}", printable(row.model_name, 60),
                     nearest_network_hint(row.model_name));
}

std::string nearest_network_hint(std::string_view name) {
  std::string key = to_lower(before_remark(name));
  std::replace(key.begin(), key.end(), ' ', '-');
  const std::string nearest = nearest_network(key);
  return nearest.empty() ? std::string() : fmt::format(" (did you mean \"{}\"?)", nearest);
}

std::vector<std::string_view> complete_from_name(Measurement& row) {
  NamedCells cells;
  if (const auto spec = named_network(row)) {
    cells.fill("layers", row.layers, spec->encoder_layers + spec->layers);
    cells.fill("hidden", row.hidden, spec->hidden);
    cells.fill("heads", row.heads, spec->heads);
    cells.fill("kv_heads", row.kv_heads, spec->kv_heads);
    cells.fill("head_dim", row.head_dim, spec->head_dim);
    cells.fill("ffn_hidden", row.ffn_hidden, spec->ffn_hidden);
    cells.fill("gated_mlp", row.gated_mlp, models::is_gated(spec->activation));
    cells.fill("vocab", row.vocab, spec->vocab);
    cells.fill("seq_len", row.seq_len, spec->sequence);
    cells.fill("tied_embeddings", row.tied_embeddings, spec->tied_embeddings);
    cells.fill("experts", row.experts, spec->moe.experts);
    cells.fill("top_k", row.top_k, spec->moe.top_k);
    cells.fill("moe_ffn_hidden", row.moe_ffn_hidden, spec->moe.ffn_hidden);
    cells.fill("shared_expert_ffn", row.shared_expert_ffn, spec->moe.shared_ffn_hidden);
    cells.fill("first_dense_layers", row.first_dense_layers, spec->moe.first_dense_layers);
  }
  return cells.filled();
}

}  // namespace orrery::studies
