// SPDX-License-Identifier: Apache-2.0
#include "base/json.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include "base/error.hpp"
#include "base/text.hpp"

namespace orrery {
namespace {

constexpr std::size_t kMaxInlineArrayBytes = 80;

void append_string(std::string& out, std::string_view text) {
  out += '"';
  while (!text.empty()) {
    const char c = text.front();
    const std::size_t length = utf8_length(text);
    if (length == 0) {
      out += "\\ufffd";  // the replacement character: JSON cannot hold invalid UTF-8
    } else if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '\t') {
      out += "\\t";
    } else if (static_cast<unsigned char>(c) < 0x20) {
      out += fmt::format("\\u{:04x}", static_cast<unsigned char>(c));
    } else {
      out += text.substr(0, length);
    }
    text.remove_prefix(std::max<std::size_t>(length, 1));
  }
  out += '"';
}

void append_double(std::string& out, double value) {
  ORRERY_CHECK(std::isfinite(value), "a JSON number is finite");
  std::array<char, 32> buffer{};
  const auto [end, error] = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value);
  ORRERY_CHECK(error == std::errc(), "a double fits the buffer");
  const std::string_view text(buffer.data(), static_cast<std::size_t>(end - buffer.data()));
  out += text;
  if (text.find_first_of(".e") == std::string_view::npos) {
    out += ".0";  // so that it reads back as a double
  }
}

class Printer {
 public:
  explicit Printer(int indent) : indent_(indent) {}

  void print(const Json& value) {
    if (value.is_array()) {
      print_array(value.as_array());
    } else if (value.is_object()) {
      print_object(value.as_object());
    } else {
      print_scalar(value);
    }
  }

  std::string take() { return std::move(out_); }

 private:
  void print_scalar(const Json& value) {
    if (value.is_null()) {
      out_ += "null";
    } else if (value.is_bool()) {
      out_ += value.as_bool() ? "true" : "false";
    } else if (value.is_integer()) {
      out_ += fmt::format("{}", value.as_integer());
    } else if (value.is_number()) {
      append_double(out_, value.as_number());
    } else {
      append_string(out_, value.as_string());
    }
  }

  void print_array(const Json::Array& array) {
    if (indent_ >= 0 && print_inline(array)) {
      return;
    }
    open('[');
    for (std::size_t i = 0; i < array.size(); ++i) {
      next_item(i == 0);
      print(array[i]);
    }
    close(']', array.empty());
  }

  // A short array of scalars stays on one line of an indented document.
  bool print_inline(const Json::Array& array) {
    const auto is_nested = [](const Json& item) { return item.is_array() || item.is_object(); };
    if (array.size() > kMaxInlineArrayBytes || std::any_of(array.begin(), array.end(), is_nested)) {
      return false;
    }
    Printer one_line(-1);
    one_line.print_array(array);
    if (one_line.out_.size() > kMaxInlineArrayBytes) {
      return false;
    }
    out_ += one_line.out_;
    return true;
  }

  void print_object(const Json::Object& object) {
    open('{');
    for (std::size_t i = 0; i < object.size(); ++i) {
      next_item(i == 0);
      append_string(out_, object[i].first);
      out_ += ": ";
      print(object[i].second);
    }
    close('}', object.empty());
  }

  void open(char bracket) {
    out_ += bracket;
    ++level_;
  }

  void next_item(bool is_first) {
    if (!is_first) {
      out_ += indent_ < 0 ? ", " : ",";
    }
    new_line();
  }

  void close(char bracket, bool is_empty) {
    --level_;
    if (!is_empty) {
      new_line();
    }
    out_ += bracket;
  }

  void new_line() {
    if (indent_ >= 0) {
      out_ += '\n';
      out_.append(static_cast<std::size_t>(indent_) * static_cast<std::size_t>(level_), ' ');
    }
  }

  int indent_;
  int level_ = 0;
  std::string out_;
};

template <typename Variant>
auto* find_member(Variant& value, std::string_view key) {
  using Result = decltype(&std::get<Json::Object>(value).front().second);
  auto* object = std::get_if<Json::Object>(&value);
  if (object == nullptr) {
    return static_cast<Result>(nullptr);
  }
  const auto has_key = [&](const Json::Member& member) { return member.first == key; };
  const auto member = std::find_if(object->begin(), object->end(), has_key);
  return member == object->end() ? static_cast<Result>(nullptr) : &member->second;
}

}  // namespace

Json::Json(const Json&) = default;
Json::Json(Json&&) noexcept = default;
Json& Json::operator=(const Json&) = default;
Json& Json::operator=(Json&&) noexcept = default;
Json::~Json() = default;

bool Json::as_bool() const {
  ORRERY_CHECK(is_bool(), "JSON value read as a boolean");
  return std::get<bool>(value_);
}

std::int64_t Json::as_integer() const {
  ORRERY_CHECK(is_integer(), "JSON value read as an integer");
  return std::get<std::int64_t>(value_);
}

double Json::as_number() const {
  ORRERY_CHECK(is_number(), "JSON value read as a number");
  return is_integer() ? static_cast<double>(std::get<std::int64_t>(value_))
                      : std::get<double>(value_);
}

const std::string& Json::as_string() const {
  ORRERY_CHECK(is_string(), "JSON value read as a string");
  return std::get<std::string>(value_);
}

const Json::Array& Json::as_array() const {
  ORRERY_CHECK(is_array(), "JSON value read as an array");
  return std::get<Array>(value_);
}

Json::Array& Json::as_array() {
  ORRERY_CHECK(is_array(), "JSON value read as an array");
  return std::get<Array>(value_);
}

const Json::Object& Json::as_object() const {
  ORRERY_CHECK(is_object(), "JSON value read as an object");
  return std::get<Object>(value_);
}

Json::Object& Json::as_object() {
  ORRERY_CHECK(is_object(), "JSON value read as an object");
  return std::get<Object>(value_);
}

const Json* Json::find(std::string_view key) const { return find_member(value_, key); }

Json* Json::find(std::string_view key) { return find_member(value_, key); }

Json& Json::set(std::string_view key, Json value) {
  if (Json* member = find(key)) {
    *member = std::move(value);
    return *member;
  }
  return as_object().emplace_back(std::string(key), std::move(value)).second;
}

void Json::push(Json value) { as_array().push_back(std::move(value)); }

std::string Json::dump(int indent) const {
  Printer printer(indent);
  printer.print(*this);
  return printer.take();
}

}  // namespace orrery
