// SPDX-License-Identifier: Apache-2.0
#include "calibrate/trace_events.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/limits.hpp"
#include "base/text.hpp"
#include "calibrate/byte_stream.hpp"
#include "calibrate/json_scanner.hpp"

namespace orrery::calibrate {
namespace {

constexpr std::size_t kMaxElements = 256;  // of one list of arguments

void lower_in_place(std::string& text) {
  for (char& c : text) {
    c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  }
}

bool is_number(char c) { return c == '-' || (c >= '0' && c <= '9'); }

class TraceParser {
 public:
  TraceParser(std::istream& stream, std::span<const std::string_view> categories,
              const std::function<void(const TraceEvent&)>& on_event)
      : in_(stream), categories_(categories), on_event_(on_event) {}

  TraceEnd run() {
    try {
      document();
    } catch (const Repeated&) {
      end_.fault = fmt::format("member \"{}\" comes twice in event {}", key_, end_.events);
    } catch (const JsonScanner::Fault& fault) {
      end_.fault =
          fault.too_deep
              ? fmt::format("nested deeper than {} at event {}", limits::kMaxJsonDepth, end_.events)
              : fmt::format("not valid JSON at line {}, event {}", fault.line, end_.events);
    }
    return std::move(end_);
  }

 private:
  void document() {
    if (in_.peek() == '[') {  // a trace may be the bare list
      events();
    } else if (in_.peek() == '{') {
      in_.open('{');
      while (in_.next_key(key_)) {
        const char next = in_.peek();
        if (key_ == "traceEvents" && next == '[') {
          events();
        } else if (key_ == "deviceProperties" && next == '[') {
          devices();
        } else {
          in_.skip();
        }
      }
    } else {
      in_.skip();
    }
    if (in_.peek() != '\0') {
      in_.literal();  // nothing may follow
    }
  }

  void events() {
    in_.open('[');
    while (in_.next_element()) {
      if (in_.peek() == '{') {
        event();
      } else {
        in_.skip();
      }
    }
  }

  struct Repeated {};  // the member of key_

  // Of two members of one name nobody knows which is meant.
  void see_member(unsigned& seen) const {
    constexpr auto kMembers = std::to_array<std::string_view>({"cat", "name", "ph", "dur", "args"});
    const auto* found = std::find(kMembers.begin(), kMembers.end(), key_);
    if (found == kMembers.end()) {
      return;
    }
    const unsigned bit = 1U << static_cast<unsigned>(found - kMembers.begin());
    if ((seen & bit) != 0) {
      throw Repeated{};
    }
    seen |= bit;
  }

  bool is_wanted() const {
    return categories_.empty() ||
           std::find(categories_.begin(), categories_.end(), event_.category) != categories_.end();
  }

  void event() {
    event_.clear();
    event_.number = ++end_.events;
    unsigned seen = 0;
    in_.open('{');
    while (in_.next_key(key_)) {
      see_member(seen);
      const char next = in_.peek();
      if (next == '"' && key_ == "cat") {
        in_.string(event_.category);
        lower_in_place(event_.category);
        if (!is_wanted()) {
          in_.skip_rest();
          return;
        }
      } else if (next == '"' && key_ == "name") {
        in_.string(event_.name);
      } else if (next == '"' && key_ == "ph") {
        in_.string(event_.phase);
      } else if (is_number(next) && key_ == "dur") {
        event_.duration_us = in_.number().value;
      } else if (next == '{' && key_ == "args") {
        arguments();
      } else {
        in_.skip();
      }
    }
    if (is_wanted()) {
      on_event_(event_);
    }
  }

  void arguments() {
    in_.open('{');
    while (in_.next_key(key_)) {
      lower_in_place(key_);
      const char next = in_.peek();
      if (next == '[') {
        list();
      } else if (std::string* text = text_of_key(); text != nullptr && next == '"') {
        in_.string(*text);
      } else if (std::int64_t* count = count_of_key(); count != nullptr && is_number(next)) {
        *count = in_.number().whole;
      } else {
        in_.skip();
      }
    }
  }

  std::string* text_of_key() {
    return key_ == "collective name"       ? &event_.collective
           : key_ == "dtype"               ? &event_.dtype
           : key_ == "process group ranks" ? &event_.group_ranks
                                           : nullptr;
  }

  std::int64_t* count_of_key() {
    return key_ == "external id"      ? &event_.external_id
           : key_ == "device"         ? &event_.device
           : key_ == "bytes"          ? &event_.bytes
           : key_ == "in msg nelems"  ? &event_.in_elements
           : key_ == "out msg nelems" ? &event_.out_elements
           : key_ == "group size"     ? &event_.group_size
                                      : nullptr;
  }

  void list() {
    if (key_ == "input dims") {
      all_dims(event_.input_dims);
    } else if (key_ == "input strides") {
      all_dims(event_.input_strides);
    } else if (key_ == "input type") {
      texts(event_.input_types);
    } else if (key_ == "concrete inputs") {
      texts(event_.concrete_inputs);
    } else if (key_ == "process group ranks") {
      std::vector<std::string> ranks;
      texts(ranks);
      event_.group_ranks = fmt::format("{}", fmt::join(ranks, ", "));
    } else {
      in_.skip();
    }
  }

  // A list for every tensor; a scalar among them stands for no tensor and is empty.
  void all_dims(std::vector<Dims>& all) {
    in_.open('[');
    while (in_.next_element()) {
      if (all.size() >= kMaxElements) {
        in_.skip();
        continue;
      }
      all.emplace_back();
      if (in_.peek() == '[') {
        dims(all.back());
      } else {
        in_.skip();
      }
    }
  }

  void dims(Dims& of_tensor) {
    in_.open('[');
    while (in_.next_element()) {
      if (is_number(in_.peek()) && of_tensor.size() < kMaxElements) {
        of_tensor.push_back(in_.number().whole);
      } else {
        in_.skip();
      }
    }
  }

  void texts(std::vector<std::string>& all) {
    in_.open('[');
    while (in_.next_element()) {
      const char next = in_.peek();
      if (all.size() >= kMaxElements || next == '[' || next == '{') {
        in_.skip();
      } else if (next == '"') {
        in_.string(all.emplace_back());
      } else if (is_number(next)) {
        all.push_back(std::to_string(in_.number().whole));
      } else {
        const char word = in_.literal();
        all.emplace_back(word == 't' ? "True" : word == 'f' ? "False" : "");
      }
    }
  }

  void devices() {
    in_.open('[');
    while (in_.next_element()) {
      if (in_.peek() != '{') {
        in_.skip();
        continue;
      }
      TraceDevice device;
      in_.open('{');
      while (in_.next_key(key_)) {
        if (key_ == "name" && in_.peek() == '"') {
          in_.string(device.name);
        } else if (key_ == "id" && is_number(in_.peek())) {
          device.id = in_.number().whole;
        } else {
          in_.skip();
        }
      }
      if (end_.devices.size() < kMaxElements) {
        device.name = printable(device.name);
        end_.devices.push_back(std::move(device));
      }
    }
  }

  JsonScanner in_;
  std::span<const std::string_view> categories_;
  const std::function<void(const TraceEvent&)>& on_event_;
  std::string key_;
  TraceEvent event_;
  TraceEnd end_;
};

}  // namespace

void TraceEvent::clear() {
  for (std::string* text : {&phase, &category, &name, &collective, &dtype, &group_ranks}) {
    text->clear();
  }
  input_dims.clear();
  input_strides.clear();
  input_types.clear();
  concrete_inputs.clear();
  duration_us.reset();
  external_id = device = bytes = in_elements = out_elements = group_size = -1;
  number = 0;
}

TraceEnd stream_trace(const std::string& path, std::span<const std::string_view> categories,
                      const std::function<void(const TraceEvent&)>& on_event) {
  ByteStream stream(path);
  TraceEnd end = TraceParser(stream, categories, on_event).run();
  end.fault = stream.damage().empty() ? end.fault : stream.damage();
  return end;
}

}  // namespace orrery::calibrate
