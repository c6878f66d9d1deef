// SPDX-License-Identifier: Apache-2.0
#include "plan/launch_script/megatron_patterns.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "base/error.hpp"
#include "base/limits.hpp"
#include "base/text.hpp"

namespace orrery::plan {
namespace {

constexpr int kMaxDepth = 8;
constexpr std::size_t kMaxLength = 4 * static_cast<std::size_t>(limits::kMaxLayers);

// What both languages share: a text read from left to right, groups and "*n".
class PatternReader {
 public:
  PatternReader(std::string_view text, const std::string& where) : text_(text), where_(where) {}

  [[noreturn]] void fail(const std::string& message) const {
    bad_input(where_, fmt::format("{} at \"{}\"", message, printable(text_.substr(pos_), 40)));
  }
  char peek() {
    while (pos_ < text_.size() && (text_[pos_] == ' ' || text_[pos_] == '\t')) {
      ++pos_;
    }
    return pos_ < text_.size() ? text_[pos_] : '\0';
  }
  bool done() { return peek() == '\0' && pos_ >= text_.size(); }
  bool take(char c) {
    const bool found = peek() == c && !done();
    pos_ += found ? 1 : 0;
    return found;
  }
  char next() {
    const char c = peek();
    ++pos_;
    return c;
  }
  std::int64_t number() {
    peek();
    std::int64_t value = 0;
    const auto [end, error] =
        std::from_chars(text_.data() + pos_, text_.data() + text_.size(), value);
    if (error != std::errc() || value < 0) {
      fail("expected a number");
    }
    pos_ = static_cast<std::size_t>(end - text_.data());
    return value;
  }
  // Repeats the items from `begin` on as often as "*n" behind them says.
  template <typename Sequence>
  void repeat(Sequence& items, std::size_t begin) {
    while (take('*')) {
      const std::int64_t count = number();
      const std::size_t length = items.size() - begin;
      if (count > static_cast<std::int64_t>(kMaxLength) ||
          length * static_cast<std::size_t>(count) > kMaxLength - begin) {
        fail("too many repetitions");
      }
      const Sequence unit(items.begin() + static_cast<std::ptrdiff_t>(begin), items.end());
      items.resize(begin);
      for (std::int64_t i = 0; i < count; ++i) {
        items.insert(items.end(), unit.begin(), unit.end());
      }
    }
  }

 private:
  std::string_view text_;
  const std::string& where_;
  std::size_t pos_ = 0;
};

void read_stages(PatternReader& reader, std::string& symbols, int depth) {
  if (depth > kMaxDepth) {
    reader.fail("brackets nested too deeply");
  }
  while (!reader.done() && reader.peek() != ')') {
    const std::size_t begin = symbols.size();
    const char c = reader.next();
    if (c == '(') {
      read_stages(reader, symbols, depth + 1);
      if (!reader.take(')')) {
        reader.fail("expected \")\"");
      }
    } else if (c == 'E' || c == 't' || c == 'L' || c == '|') {
      symbols += c;
    } else if (c != ',') {
      reader.fail(fmt::format("\"{}\" is not modelled (known: E, t, L and |)",
                              printable(std::string_view(&c, 1))));
    }
    reader.repeat(symbols, begin);
    if (symbols.size() > kMaxLength) {
      reader.fail("too many stages");
    }
  }
}

void read_list(PatternReader& reader, std::vector<int>& items, int depth) {
  if (depth > kMaxDepth) {
    reader.fail("brackets nested too deeply");
  }
  do {
    const std::size_t begin = items.size();
    if (reader.take('(')) {
      read_list(reader, items, depth + 1);
      if (!reader.take(')')) {
        reader.fail("expected \")\"");
      }
    } else if (reader.take('[')) {
      do {
        items.push_back(static_cast<int>(std::min<std::int64_t>(reader.number(), 2)));
      } while (reader.take(',') && items.size() <= kMaxLength);
      if (!reader.take(']')) {
        reader.fail("expected \"]\"");
      }
    } else {
      reader.fail("expected \"[\"");
    }
    reader.repeat(items, begin);
    if (items.size() > kMaxLength) {
      reader.fail("too many layers");
    }
  } while (reader.take('+'));
}

}  // namespace

std::vector<int> parse_pipeline_layout(std::string_view text, const std::string& where) {
  PatternReader reader(text, where);
  std::string symbols;
  read_stages(reader, symbols, 0);
  if (!reader.done()) {
    reader.fail("unexpected \")\"");
  }
  const auto others = std::ranges::count_if(symbols, [](char c) { return c == 'E' || c == 'L'; });
  if (!symbols.starts_with('E') || !symbols.ends_with('L') || others != 2) {
    bad_input(where, "the embedding (E) must come first and the loss (L) last, once each");
  }
  std::vector<int> stages;
  for (const std::string_view stage : split(symbols, '|')) {
    stages.push_back(static_cast<int>(stage.size()));
  }
  return stages;
}

std::string pipeline_layout_text(const std::vector<int>& stage_blocks) {
  std::string text;
  for (std::size_t stage = 0; stage < stage_blocks.size(); ++stage) {
    const bool first = stage == 0;
    const bool last = stage + 1 == stage_blocks.size();
    const int layers = stage_blocks[stage] - (first ? 1 : 0) - (last ? 1 : 0);
    text += fmt::format("{}{}", first ? "" : "|", first ? "E" : "");
    text += layers > 0 ? fmt::format("t*{}", layers) : "";
    text += last ? "L" : "";
  }
  return text;
}

std::vector<int> parse_layer_pattern(std::string_view text, std::int64_t layers,
                                     const std::string& where) {
  PatternReader reader(text, where);
  std::vector<int> pattern;
  if (reader.peek() == '[' || reader.peek() == '(') {
    read_list(reader, pattern, 0);
    if (static_cast<std::int64_t>(pattern.size()) != layers) {
      bad_input(where, fmt::format("a pattern of {} layers for {}", pattern.size(), layers));
    }
  } else {
    const std::int64_t frequency = reader.number();
    if (frequency < 1) {
      reader.fail("expected a positive number");
    }
    for (std::int64_t layer = 0; layer < layers; ++layer) {
      pattern.push_back(layer % frequency == 0 ? 1 : 0);
    }
  }
  if (!reader.done() || std::ranges::any_of(pattern, [](int value) { return value > 1; })) {
    bad_input(where, "expected a number or a list of 0 and 1");
  }
  return pattern;
}

std::string layer_pattern_text(const std::vector<int>& pattern) {
  const auto length = static_cast<std::int64_t>(pattern.size());
  for (std::int64_t frequency = 1; frequency <= length; ++frequency) {
    const std::string text = fmt::format("{}", frequency);
    if (parse_layer_pattern(text, length, "pattern") == pattern) {
      return text;
    }
    if (frequency < length && pattern[static_cast<std::size_t>(frequency)] != 0) {
      break;  // the second MoE layer has been reached: no larger frequency fits
    }
  }
  std::string text;
  for (std::size_t begin = 0; begin < pattern.size();) {
    std::size_t end = begin;
    while (end < pattern.size() && pattern[end] == pattern[begin]) {
      ++end;
    }
    text += fmt::format("{}[{}]*{}", text.empty() ? "" : "+", pattern[begin], end - begin);
    begin = end;
  }
  return fmt::format("({})", text);
}

}  // namespace orrery::plan
