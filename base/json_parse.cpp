// SPDX-License-Identifier: Apache-2.0
// parse_json over the event interface of nlohmann::json, whose parser does not recurse.
#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <unordered_set>

#include "base/error.hpp"
#include "base/files.hpp"
#include "base/json.hpp"
#include "base/limits.hpp"
#include "base/text.hpp"

namespace orrery {
namespace {

// Tells how far the parser has read, which the events do not.
class CountingIterator {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  CountingIterator(const char* at, const char** furthest) : at_(at), furthest_(furthest) {}
  reference operator*() const { return *at_; }
  CountingIterator& operator++() {
    *furthest_ = ++at_;
    return *this;
  }
  bool operator==(const CountingIterator& other) const { return at_ == other.at_; }
  bool operator!=(const CountingIterator& other) const { return at_ != other.at_; }

 private:
  const char* at_;
  const char** furthest_;
};

class DocumentBuilder {
 public:
  DocumentBuilder(std::string_view text, std::string_view name)
      : text_(text), name_(name), furthest_(text.data()) {}

  bool null() { return add(Json()); }
  bool boolean(bool value) { return add(Json(value)); }
  bool number_integer(std::int64_t value) { return add(Json(value)); }
  bool number_unsigned(std::uint64_t value) {
    if (value > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
      too_large(fmt::format("{}", value));
    }
    return add(Json(static_cast<std::int64_t>(value)));
  }
  bool number_float(double value, const std::string& text) {
    if (text.find_first_of(".eE") == std::string::npos) {
      too_large(text);
    }
    return add(Json(value));
  }
  bool string(std::string& value) {
    check_length(value);
    return add(Json(std::move(value)));
  }
  bool binary(nlohmann::json::binary_t& /*value*/) { fail("binary values are not JSON"); }
  bool start_object(std::size_t /*size*/) { return start(Json::object()); }
  bool start_array(std::size_t /*size*/) { return start(Json::array()); }
  bool end_object() { return end(); }
  bool end_array() { return end(); }
  bool key(std::string& key) {
    check_length(key);
    Frame& frame = frames_.back();
    if (std::ssize(frame.keys) >= limits::kMaxObjectMembers) {
      fail(fmt::format("object with more than {} members", limits::kMaxObjectMembers));
    }
    if (!frame.keys.insert(key).second) {
      fail(fmt::format("duplicate key \"{}\"", printable(key)), "each key may appear once");
    }
    frame.key = std::move(key);
    return true;
  }
  bool parse_error(std::size_t /*position*/, const std::string& /*token*/,
                   const nlohmann::json::exception& error) {
    // "[json.exception.parse_error.101] parse error at line 1, column 2: syntax error while ..."
    const std::string_view message = error.what();
    const std::size_t detail = message.find(": ");
    const std::size_t bracket = message.find("] ");
    const std::size_t begin = detail != std::string_view::npos    ? detail
                              : bracket != std::string_view::npos ? bracket
                                                                  : 0;
    fail(message.substr(begin == 0 ? 0 : begin + 2));
  }

  const char** furthest() { return &furthest_; }
  Json take() { return std::move(root_); }

  [[noreturn]] void fail(std::string_view message, std::string_view hint = {}) const {
    // The last character read may be the line end after the failing token.
    const char* last = furthest_ == text_.data() ? furthest_ : furthest_ - 1;
    const auto line = 1 + std::count(text_.data(), last, '\n');
    bad_input(fmt::format("{}:{}", printable(name_, 800), line), message, hint);
  }

 private:
  struct Frame {
    Json value;
    std::string key;                       // of the member being read
    std::unordered_set<std::string> keys;  // of an object
  };

  [[noreturn]] void too_large(const std::string& text) const {
    fail(fmt::format("integer {} is beyond 64 bits", printable(text, 60)),
         fmt::format("at most {}", std::numeric_limits<std::int64_t>::max()));
  }

  void check_length(const std::string& value) const {
    if (std::ssize(value) > limits::kMaxStringBytes) {
      fail(fmt::format("string of {} bytes", value.size()),
           fmt::format("at most {}", limits::kMaxStringBytes));
    }
  }

  bool start(Json value) {
    if (std::ssize(frames_) >= limits::kMaxJsonDepth) {
      fail(fmt::format("nested more than {} deep", limits::kMaxJsonDepth));
    }
    frames_.push_back({std::move(value), {}, {}});
    return true;
  }

  bool end() {
    Json value = std::move(frames_.back().value);
    frames_.pop_back();
    return add(std::move(value));
  }

  bool add(Json value) {
    if (frames_.empty()) {
      root_ = std::move(value);
      return true;
    }
    Frame& frame = frames_.back();
    if (frame.value.is_object()) {
      frame.value.as_object().emplace_back(std::move(frame.key), std::move(value));
      return true;
    }
    if (std::ssize(frame.value.as_array()) >= limits::kMaxArrayLength) {
      fail(fmt::format("array of more than {} elements", limits::kMaxArrayLength));
    }
    frame.value.push(std::move(value));
    return true;
  }

  std::string_view text_;
  std::string_view name_;
  const char* furthest_;
  std::vector<Frame> frames_;
  Json root_;
};

}  // namespace

Json parse_json(std::string_view text, std::string_view name) {
  if (trim(text).empty()) {
    bad_input(name, "empty document", "a JSON value is expected");
  }
  DocumentBuilder builder(text, name);
  // The parser would take a NUL for the end of the text and ignore the rest.
  if (const std::size_t nul = text.find('\0'); nul != std::string_view::npos) {
    *builder.furthest() = text.data() + nul + 1;
    builder.fail("NUL byte in a JSON document", "is this a binary file?");
  }
  const char* end = text.data() + text.size();
  nlohmann::json::sax_parse(CountingIterator(text.data(), builder.furthest()),
                            CountingIterator(end, builder.furthest()), &builder);
  return builder.take();
}

Json read_json_file(const std::string& path) {
  return parse_json(read_file(path, limits::kMaxConfigFileBytes),
                    path == "-" ? "standard input" : path);
}

}  // namespace orrery
