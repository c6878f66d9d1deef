// SPDX-License-Identifier: Apache-2.0
#include "calibrate/json_scanner.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <string_view>

#include "base/limits.hpp"

namespace orrery::calibrate {
namespace {

constexpr std::size_t kScanBytes = 1U << 18;

bool is_blank(char c) { return c == ' ' || c == '\n' || c == '\r' || c == '\t'; }

bool is_of_number(char c) {
  return (c >= '0' && c <= '9') || c == '-' || c == '+' || c == '.' || c == 'e' || c == 'E';
}

// Characters at which a search over unread values has to look.
constexpr std::array<bool, 256> stops() {
  std::array<bool, 256> table{};
  for (const unsigned char c : {'"', '{', '}', '[', ']', '\n'}) {
    table[c] = true;
  }
  return table;
}
constexpr std::array<bool, 256> kStops = stops();

void add_utf8(unsigned code, std::string& text) {
  const auto byte = [&](unsigned bits) { text += static_cast<char>(bits); };
  if (code < 0x80) {
    byte(code);
  } else if (code < 0x800) {
    byte(0xC0 | code >> 6);
    byte(0x80 | (code & 0x3F));
  } else if (code < 0x10000) {
    byte(0xE0 | code >> 12);
    byte(0x80 | (code >> 6 & 0x3F));
    byte(0x80 | (code & 0x3F));
  } else {
    byte(0xF0 | code >> 18);
    byte(0x80 | (code >> 12 & 0x3F));
    byte(0x80 | (code >> 6 & 0x3F));
    byte(0x80 | (code & 0x3F));
  }
}

}  // namespace

JsonScanner::JsonScanner(std::istream& stream) : stream_(stream), buffer_(kScanBytes) {}

bool JsonScanner::refill() {
  if (!stream_) {
    return false;
  }
  stream_.read(buffer_.data(), static_cast<std::streamsize>(buffer_.size()));
  at_ = buffer_.data();
  end_ = at_ + stream_.gcount();
  return at_ < end_;
}

char JsonScanner::take() {
  if (at_ == end_ && !refill()) {
    fail();
  }
  return *at_++;
}

char JsonScanner::peek() {
  while (at_ < end_ || refill()) {
    if (!is_blank(*at_)) {
      return *at_;
    }
    line_ += *at_ == '\n' ? 1 : 0;
    ++at_;
  }
  return '\0';
}

void JsonScanner::expect(char wanted) {
  if (peek() != wanted || at_ == end_) {
    fail();
  }
  ++at_;
}

void JsonScanner::open(char bracket) {
  if (first_.size() >= static_cast<std::size_t>(limits::kMaxJsonDepth)) {
    fail(true);
  }
  expect(bracket);
  first_.push_back(true);
}

// Whether another member follows in the bracket opened last; takes the comma or the end.
bool JsonScanner::continues(char end) {
  if (peek() == end) {
    ++at_;
    first_.pop_back();
    return false;
  }
  if (!first_.back()) {
    expect(',');
  }
  first_.back() = false;
  return true;
}

bool JsonScanner::next_key(std::string& key) {
  if (!continues('}')) {
    return false;
  }
  if (peek() != '"') {
    fail();
  }
  string(key);
  expect(':');
  return true;
}

bool JsonScanner::next_element() { return continues(']'); }

void JsonScanner::string(std::string& text) {
  expect('"');
  text.clear();
  while (true) {
    const char* const run = at_;
    at_ = std::find_if(at_, end_, [](char c) {
      return c == '"' || c == '\\' || static_cast<unsigned char>(c) < 0x20;
    });
    text.append(run, at_);
    if (text.size() >= kMaxText) {  // the rest is not kept
      text.resize(kMaxText);
      pass_string();
      return;
    }
    const char c = take();
    if (c == '"') {
      return;
    }
    if (c == '\\') {
      escape(text);
    } else if (static_cast<unsigned char>(c) < 0x20) {
      fail();
    } else {
      text += c;  // the first of a new buffer
    }
  }
}

unsigned JsonScanner::hexadecimal() {
  std::array<char, 4> digits{};
  std::generate(digits.begin(), digits.end(), [this] { return take(); });
  unsigned code = 0;
  const auto read = std::from_chars(digits.data(), digits.data() + digits.size(), code, 16);
  if (read.ec != std::errc() || read.ptr != digits.data() + digits.size()) {
    fail();
  }
  return code;
}

void JsonScanner::escape(std::string& text) {
  constexpr std::string_view kNames = "\"\\/bfnrt";
  constexpr std::string_view kMeanings = "\"\\/\b\f\n\r\t";
  const char name = take();
  if (const std::size_t found = kNames.find(name); found != std::string_view::npos) {
    text += kMeanings[found];
    return;
  }
  if (name != 'u') {
    fail();
  }
  unsigned code = hexadecimal();
  if (code >= 0xD800 && code < 0xDC00) {  // the first half of a pair
    if (take() != '\\' || take() != 'u') {
      fail();
    }
    const unsigned low = hexadecimal();
    if (low < 0xDC00 || low > 0xDFFF) {
      fail();
    }
    code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
  } else if (code >= 0xDC00 && code < 0xE000) {
    fail();
  }
  add_utf8(code, text);
}

JsonScanner::Number JsonScanner::number() {
  std::array<char, 64> digits{};
  std::size_t count = 0;
  peek();
  while ((at_ < end_ || refill()) && is_of_number(*at_)) {
    if (count == digits.size()) {
      fail();
    }
    digits[count++] = *at_++;
  }
  const char* const last = digits.data() + count;
  Number number;
  const auto read = std::from_chars(digits.data(), last, number.value);
  if (read.ptr != last || count == 0 || read.ec == std::errc::invalid_argument) {
    fail();
  }
  const auto whole = std::from_chars(digits.data(), last, number.whole);
  if (whole.ec != std::errc() || whole.ptr != last) {
    number.whole = std::abs(number.value) < 1e18 ? static_cast<std::int64_t>(number.value) : -1;
  }
  return number;
}

char JsonScanner::literal() {
  const char first = peek();
  const std::string_view word = first == 't'   ? "true"
                                : first == 'f' ? "false"
                                : first == 'n' ? "null"
                                               : "";
  if (word.empty()) {
    fail();
  }
  for (const char c : word) {
    if (take() != c) {
      fail();
    }
  }
  return first;
}

void JsonScanner::pass_string() {
  while (true) {
    at_ = std::find_if(at_, end_, [](char c) { return c == '"' || c == '\\'; });
    const char c = take();
    if (c == '"') {
      return;
    }
    if (c == '\\') {
      take();
    }
  }
}

void JsonScanner::pass_brackets(int depth) {
  const int most = limits::kMaxJsonDepth - static_cast<int>(first_.size());
  while (depth > 0) {
    while (at_ < end_ && !kStops[static_cast<unsigned char>(*at_)]) {
      ++at_;
    }
    const char c = take();
    if (c == '"') {
      pass_string();
    } else if (c == '{' || c == '[') {
      if (++depth > most) {
        fail(true);
      }
    } else if (c == '}' || c == ']') {
      --depth;
    } else if (c == '\n') {
      ++line_;
    }
  }
}

void JsonScanner::skip_rest() {
  first_.pop_back();
  pass_brackets(1);
}

void JsonScanner::skip() {
  const char c = peek();
  if (c == '"') {
    ++at_;
    pass_string();
  } else if (c == '{' || c == '[') {
    ++at_;
    pass_brackets(1);
  } else if (c == '-' || (c >= '0' && c <= '9')) {
    number();
  } else {
    literal();
  }
}

}  // namespace orrery::calibrate
