// SPDX-License-Identifier: Apache-2.0
#include <charconv>

#include "plan/launch_script/shell_expand.hpp"

namespace orrery::plan::shell {
namespace {

using Number = std::optional<std::int64_t>;

Number apply(char operation, std::int64_t a, std::int64_t b) {
  std::int64_t result = 0;
  switch (operation) {
    case '+':
      return __builtin_add_overflow(a, b, &result) ? Number() : result;
    case '-':
      return __builtin_sub_overflow(a, b, &result) ? Number() : result;
    case '*':
      return __builtin_mul_overflow(a, b, &result) ? Number() : result;
    default:
      // Negative divisors are left out: the only overflow of a division is with -1.
      return b <= 0 ? Number() : Number(operation == '/' ? a / b : a % b);
  }
}

Number parse(std::string_view text) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() ? Number(value) : Number();
}

class Arithmetic {
 public:
  Arithmetic(std::string_view text, const Variables& variables)
      : text_(text), variables_(variables) {}

  Number evaluate() {
    const Number result = sum(0);
    skip_blanks();
    return pos_ == text_.size() ? result : Number();
  }

 private:
  static constexpr int kMaxDepth = 64;

  char peek() const { return pos_ < text_.size() ? text_[pos_] : '\0'; }
  void skip_blanks() {
    while (is_blank(peek()) || peek() == '\n') {
      ++pos_;
    }
  }
  bool at_any(std::string_view characters) {
    skip_blanks();
    return peek() != '\0' && characters.find(peek()) != std::string_view::npos;
  }

  Number sum(int depth) {
    Number left = product(depth);
    while (left.has_value() && at_any("+-")) {
      const char operation = text_[pos_++];
      const Number right = product(depth);
      left = right.has_value() ? apply(operation, *left, *right) : Number();
    }
    return left;
  }

  Number product(int depth) {
    Number left = factor(depth);
    while (left.has_value() && at_any("*/%")) {
      const char operation = text_[pos_++];
      const Number right = factor(depth);
      left = right.has_value() ? apply(operation, *left, *right) : Number();
    }
    return left;
  }

  Number factor(int depth) {
    if (depth > kMaxDepth) {
      return std::nullopt;
    }
    if (at_any("-")) {
      ++pos_;
      const Number value = factor(depth + 1);
      return value.has_value() ? apply('-', 0, *value) : Number();
    }
    if (at_any("(")) {
      ++pos_;
      const Number value = sum(depth + 1);
      if (!at_any(")")) {
        return std::nullopt;
      }
      ++pos_;
      return value;
    }
    const bool braces = text_.substr(pos_).starts_with("${");
    pos_ += braces ? 2 : peek() == '$' ? 1 : 0;
    const std::size_t begin = pos_;
    while (is_name(peek())) {
      ++pos_;
    }
    const std::string_view word = text_.substr(begin, pos_ - begin);
    if (braces && (peek() != '}' || pos_++ == text_.size())) {
      return std::nullopt;
    }
    return value_of(word);
  }

  Number value_of(std::string_view word) const {
    if (word.empty() || !is_name_start(word.front())) {
      return parse(word);
    }
    const auto found = variables_.find(word);
    const bool scalar = found != variables_.end() && found->second.size() == 1;
    return scalar ? parse(found->second.front()) : Number();
  }

  std::string_view text_;
  const Variables& variables_;
  std::size_t pos_ = 0;
};

}  // namespace

std::optional<std::int64_t> evaluate_arithmetic(std::string_view text, const Variables& variables) {
  return Arithmetic(text, variables).evaluate();
}

}  // namespace orrery::plan::shell
