// SPDX-License-Identifier: Apache-2.0
#include "calibrate/trace_events.hpp"

#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "base/limits.hpp"
#include "base/text.hpp"
#include "calibrate/byte_stream.hpp"

namespace orrery::calibrate {
namespace {

using nlohmann::json;

constexpr std::size_t kMaxElements = 256;  // of one list of arguments
constexpr std::size_t kMaxText = 4096;

// Where the parser stands. Lists are those of arguments, two deep.
enum class Level { Document, Events, Event, Arguments, List, Inner, Devices, Device, Other };

class Handler : public json::json_sax_t {
 public:
  explicit Handler(const std::function<void(const TraceEvent&)>& on_event) : on_event_(on_event) {}

  TraceEnd take() { return std::move(end_); }

  bool null() override { return value_text(""); }
  bool boolean(bool value) override { return value_text(value ? "True" : "False"); }
  bool number_integer(number_integer_t value) override { return value_number(value); }
  bool number_unsigned(number_unsigned_t value) override {
    return value_number(
        static_cast<std::int64_t>(std::min<std::uint64_t>(value, std::uint64_t{1} << 62)));
  }
  bool number_float(number_float_t value, const string_t&) override {
    if (level() == Level::Event && key_ == "dur") {
      event_.duration_us = value;
      return true;
    }
    return value_number(std::abs(value) < 1e18 ? static_cast<std::int64_t>(value) : -1);
  }
  bool string(string_t& value) override { return value_text(value); }
  bool binary(binary_t&) override { return true; }

  bool start_object(std::size_t) override {
    Level next = Level::Other;
    if (levels_.empty()) {
      next = Level::Document;
    } else if (level() == Level::Events) {
      next = Level::Event;
      event_ = TraceEvent{};
      event_.number = ++end_.events;
    } else if (level() == Level::Event && key_ == "args") {
      next = Level::Arguments;
    } else if (level() == Level::Devices) {
      next = Level::Device;
    }
    return enter(next);
  }

  bool key(string_t& value) override {
    if (level() == Level::Arguments) {
      key_ = to_lower(value.substr(0, kMaxText));
    } else {
      key_ = value.substr(0, kMaxText);
    }
    return true;
  }

  bool end_object() override {
    if (level() == Level::Event) {
      on_event_(event_);
    }
    return leave();
  }

  bool start_array(std::size_t) override {
    Level next = Level::Other;
    if (levels_.empty() || (level() == Level::Document && key_ == "traceEvents")) {
      next = Level::Events;  // a trace may be the bare list
    } else if (level() == Level::Document && key_ == "deviceProperties") {
      next = Level::Devices;
    } else if (level() == Level::Arguments) {
      next = Level::List;
    } else if (level() == Level::List) {
      next = Level::Inner;
      if (std::vector<Dims>* dims = dims_of_key(); dims != nullptr && dims->size() < kMaxElements) {
        dims->emplace_back();
      }
    }
    return enter(next);
  }
  bool end_array() override { return leave(); }

  bool parse_error(std::size_t, const std::string&, const json::exception& error) override {
    // "... parse error at line 3, column 7: ..."; the rest repeats what the file says.
    const std::string text = error.what();
    const std::size_t line = text.find("line ");
    const std::size_t comma = text.find(',', line == std::string::npos ? 0 : line);
    end_.fault = line == std::string::npos
                     ? "not valid JSON"
                     : fmt::format("not valid JSON at {}, event {}",
                                   text.substr(line, comma - line), end_.events);
    return false;
  }

 private:
  Level level() const { return levels_.empty() ? Level::Other : levels_.back(); }
  bool enter(Level next) {
    if (levels_.size() >= static_cast<std::size_t>(limits::kMaxJsonDepth)) {
      end_.fault =
          fmt::format("nested deeper than {} at event {}", limits::kMaxJsonDepth, end_.events);
      return false;
    }
    levels_.push_back(next);
    return true;
  }
  bool leave() {
    levels_.pop_back();
    return true;
  }

  std::vector<Dims>* dims_of_key() {
    if (key_ == "input dims") {
      return &event_.input_dims;
    }
    return key_ == "input strides" ? &event_.input_strides : nullptr;
  }

  // A scalar among dims stands for no tensor; a list of tensors leaves an empty one.
  bool value_number(std::int64_t value) {
    std::vector<Dims>* dims = dims_of_key();
    if (level() == Level::Inner && dims != nullptr && !dims->empty() &&
        dims->back().size() < kMaxElements) {
      dims->back().push_back(value);
    } else if (level() == Level::Event && key_ == "dur") {
      event_.duration_us = static_cast<double>(value);
    } else if (level() == Level::Arguments) {
      argument(value);
    } else if (level() == Level::List) {
      value_text(std::to_string(value));
    }
    return true;
  }

  void argument(std::int64_t value) {
    if (key_ == "external id") {
      event_.external_id = value;
    } else if (key_ == "bytes") {
      event_.bytes = value;
    } else if (key_ == "in msg nelems") {
      event_.in_elements = value;
    } else if (key_ == "out msg nelems") {
      event_.out_elements = value;
    } else if (key_ == "group size") {
      event_.group_size = value;
    }
  }

  bool value_text(const std::string& value) {
    std::string text = value.substr(0, kMaxText);
    if (level() == Level::Event) {
      if (key_ == "ph") {
        event_.phase = std::move(text);
      } else if (key_ == "cat") {
        event_.category = to_lower(text);
      } else if (key_ == "name") {
        event_.name = std::move(text);
      }
    } else if (level() == Level::Arguments) {
      if (key_ == "collective name") {
        event_.collective = std::move(text);
      } else if (key_ == "dtype") {
        event_.dtype = std::move(text);
      } else if (key_ == "process group ranks") {
        event_.group_ranks = std::move(text);
      }
    } else if (level() == Level::List) {
      list_text(std::move(text));
    } else if (level() == Level::Device && key_ == "name" && end_.devices.size() < kMaxElements) {
      end_.devices.push_back(printable(text));
    }
    return true;
  }

  void list_text(std::string text) {
    if (std::vector<Dims>* dims = dims_of_key(); dims != nullptr) {
      if (dims->size() < kMaxElements) {
        dims->emplace_back();
      }
    } else if (key_ == "input type" && event_.input_types.size() < kMaxElements) {
      event_.input_types.push_back(std::move(text));
    } else if (key_ == "concrete inputs" && event_.concrete_inputs.size() < kMaxElements) {
      event_.concrete_inputs.push_back(std::move(text));
    } else if (key_ == "process group ranks" && event_.group_ranks.size() < kMaxText) {
      event_.group_ranks += (event_.group_ranks.empty() ? "" : ", ") + text;
    }
  }

  const std::function<void(const TraceEvent&)>& on_event_;
  std::vector<Level> levels_;
  std::string key_;
  TraceEvent event_;
  TraceEnd end_;
};

}  // namespace

TraceEnd stream_trace(const std::string& path,
                      const std::function<void(const TraceEvent&)>& on_event) {
  ByteStream stream(path);
  Handler handler(on_event);
  (void)json::sax_parse(stream, &handler);
  return handler.take();
}

}  // namespace orrery::calibrate
