// SPDX-License-Identifier: Apache-2.0
#include "topologies/words.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>
#include <functional>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

#include "base/text.hpp"
#include "base/words.hpp"
#include "topologies/cluster.hpp"

namespace orrery::topologies {
namespace {

using Words = std::vector<std::string>;

bool holds(const Words& words, std::string_view word) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

bool is_number(std::string_view word) {
  return !word.empty() && word.find_first_not_of("0123456789") == word.npos;
}

// Of letters and digits, in lower case.
Words words_of(std::string_view text) {
  Words words(1);
  for (const char c : to_lower(text)) {
    const bool part = (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
    if (part) {
      words.back() += c;
    } else if (!words.back().empty()) {
      words.emplace_back();
    }
  }
  std::erase(words, "");
  return words;
}

// "rtx3090" is "rtx" and "3090", "8xh100" is "h100", and "2080 ti" is "2080ti", too.
Words words_of_gpu(std::string_view text) {
  Words words;
  for (std::string word : words_of(text)) {
    const std::size_t sign = word.find('x');
    if (sign != word.npos && is_number(std::string_view(word).substr(0, sign))) {
      word.erase(0, sign + 1);
    }
    for (const std::string_view line : {"rtx", "gtx"}) {
      if (word.starts_with(line) && word.size() > line.size()) {
        words.emplace_back(line);
        word.erase(0, line.size());
      }
    }
    if (word == "ti" && !words.empty() && is_number(words.back())) {
      words.push_back(words.back() + word);
    }
    words.push_back(std::move(word));
  }
  return words;
}

// "80gb", "80g"; the "8g" of clouds' nodes ("a3-highgpu-8g") counts their GPUs.
int gigabytes_of(std::string_view word) {
  constexpr int kLeastOfLetter = 10;
  int gigabytes = 0;
  const char* const end = word.data() + word.size();
  const auto read = std::from_chars(word.data(), end, gigabytes);
  const std::string_view unit = word.substr(static_cast<std::size_t>(read.ptr - word.data()));
  const bool stated = unit == "gb" || (unit == "g" && gigabytes >= kLeastOfLetter);
  return read.ec == std::errc() && stated ? gigabytes : 0;
}

int gigabytes_in(const Words& words) {
  for (std::size_t index = 0; index < words.size(); ++index) {
    const bool apart = index + 1 < words.size() && words[index + 1] == "gb";
    const int gigabytes = gigabytes_of(apart ? words[index] + "gb" : words[index]);
    if (gigabytes > 0) {
      return gigabytes;
    }
  }
  return 0;
}

std::string_view form_of(const Words& words) {
  for (const std::string& word : words) {
    for (const std::string_view form : {"sxm", "pcie", "nvl"}) {
      if (word.starts_with(form) && word.find("72") == word.npos) {
        return form;
      }
    }
  }
  return {};
}

// What the files of a model share: "h100" of h100-sxm5-96gb-hbm2e, "6000" and "ada" of
// rtx-6000-ada-48gb.
Words model_words(const Words& name) {
  constexpr auto kOthers = std::to_array<std::string_view>({"gcd", "server", "hbm2e"});
  Words model;
  for (const std::string& word : name) {
    const bool form = !form_of({word}).empty() || gigabytes_of(word) > 0;
    if (!form && !is_among(word, kOthers)) {
      model.push_back(word);
    }
  }
  if (std::any_of(model.begin(), model.end(), [](const std::string& word) {
        return word.find_first_of("0123456789") != word.npos;
      })) {
    std::erase(model, "rtx");
  }
  return model;
}

struct KnownGpu {
  std::string name;
  Words model;
  int letters = 0;  // of the model's words: "2080ti" says more than "2080"
  std::string_view form;
  int gigabytes = 0;
  bool stands_for_others = false;
};

const std::vector<KnownGpu>& known_gpus() {
  static const std::vector<KnownGpu> kKnown = [] {
    std::vector<KnownGpu> known;
    for (const std::string& name : gpu_names()) {
      const Words words = words_of(name);
      Words model = model_words(words);
      const auto letters = static_cast<int>(fmt::format("{}", fmt::join(model, "")).size());
      known.push_back({name, std::move(model), letters, form_of(words), gigabytes_in(words),
                       load_gpu(name).stands_for_others});
    }
    return known;
  }();
  return kKnown;
}

// Nodes by the letters and digits of their names and aliases.
const std::map<std::string, std::string, std::less<>>& known_nodes() {
  static const auto kKnown = [] {
    std::map<std::string, std::string, std::less<>> known;
    const auto add = [&](const std::string& spelling, const std::string& name) {
      known.emplace(fmt::format("{}", fmt::join(words_of(spelling), "")), name);
    };
    for (const std::string& name : node_names()) {
      add(name, name);
      for (const std::string& alias : load_cluster(name + ":1").node.aliases) {
        add(alias, name);
      }
    }
    return known;
  }();
  return kKnown;
}

}  // namespace

int stated_gigabytes(std::string_view text) { return gigabytes_in(words_of(text)); }

std::string similar_gpu(std::string_view text) {
  const Words words = words_of_gpu(text);
  const int gigabytes = gigabytes_in(words);
  const std::string_view form = form_of(words);
  std::string best;
  std::tuple<int, bool, int, bool, bool> best_rank{0, false, 0, false, false};
  for (const KnownGpu& known : known_gpus()) {
    if (!std::all_of(known.model.begin(), known.model.end(),
                     [&](const std::string& word) { return holds(words, word); })) {
      continue;
    }
    const int apart = gigabytes > 0 ? std::abs(gigabytes - known.gigabytes) : 0;
    // Of a card and a module that are alike in all that is said the module.
    const std::tuple<int, bool, int, bool, bool> rank{known.letters,
                                                      form.empty() || known.form == form, -apart,
                                                      known.stands_for_others, known.form == "sxm"};
    if (best.empty() || rank > best_rank) {
      best = known.name;
      best_rank = rank;
    }
  }
  return best;
}

std::string find_node_in_words(std::string_view text) {
  constexpr std::size_t kMostWords = 4;
  const Words words = words_of(text);
  for (std::size_t count = std::min(kMostWords, words.size()); count > 0; --count) {
    for (std::size_t begin = 0; begin + count <= words.size(); ++begin) {
      const auto first = words.begin() + static_cast<std::ptrdiff_t>(begin);
      const auto last = first + static_cast<std::ptrdiff_t>(count);
      const auto found = known_nodes().find(fmt::format("{}", fmt::join(first, last, "")));
      if (found != known_nodes().end()) {
        return found->second;
      }
    }
  }
  return {};
}

}  // namespace orrery::topologies
