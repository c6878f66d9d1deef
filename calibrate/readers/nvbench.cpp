// SPDX-License-Identifier: Apache-2.0
// JSON of NVIDIA/nvbench (file version 1): benchmarks with axes, states with summaries. The cold
// GPU time (nv/cold/time/gpu/mean and its quartiles where they are written) of a state becomes a
// GEMM sample when its axes name m, n and k, a memory-bound kernel when the benchmark states the
// bytes it moves, else a named duration.
#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <map>

#include "base/json_reader.hpp"
#include "base/text.hpp"
#include "calibrate/gpu_names.hpp"
#include "calibrate/reading_builder.hpp"

namespace orrery::calibrate {
namespace {

bool recognises(const FileHead& head) {
  const std::string_view text = trim(head.text);
  return text.starts_with('{') && text.find("\"nvbench\"") != std::string_view::npos;
}

// Values of a `data` or `axis_values` list: [{"name": n, "type": t, "value": v}, ...]; numbers are
// written as strings.
std::map<std::string, std::string> named_values(const std::optional<JsonReader>& list) {
  std::map<std::string, std::string> values;
  if (!list) {
    return values;
  }
  for (const JsonReader& element : list->array(4096)) {
    ObjectReader entry = element.object();
    const std::string name = entry.required("name").string();
    const std::optional<JsonReader> value = entry.optional("value");
    if (value && value->json().is_string()) {
      values[to_lower(name)] = value->string();
    } else if (value && value->json().is_number()) {
      values[to_lower(name)] = fmt::format("{}", value->json().as_number());
    }
    entry.ignore_rest();
  }
  return values;
}

std::optional<double> parsed_number(const std::string& text) {
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size() ? std::optional(number)
                                                                  : std::nullopt;
}

// 0 where the text is none.
std::int64_t whole_number(const std::string& text) {
  const double number = parsed_number(text).value_or(0);
  const bool whole = number >= 1 && number < 1e15 && number == std::floor(number);
  return whole ? static_cast<std::int64_t>(number) : 0;
}

// What the axes say of the number format; empty where they say nothing.
std::string type_of(const std::map<std::string, std::string>& axes) {
  for (const char* name : {"t", "dtype", "type"}) {
    if (const auto found = axes.find(name); found != axes.end()) {
      return found->second;
    }
  }
  return "";
}

// A batch of equal products.
std::string batch_of(const std::map<std::string, std::string>& axes) {
  for (const char* name : {"batch", "batch_count", "batchcount", "b", "groups"}) {
    if (const auto found = axes.find(name); found != axes.end()) {
      return found->second;
    }
  }
  return "1";
}

struct State {
  std::optional<double> seconds;  // stated, whatever it is
  std::string no_number;          // what stands in place of the time; empty where it is a number
  double p25 = 0;
  double p75 = 0;
  double bytes = 0;
  std::int64_t repetitions = 1;
};

State read_summaries(ObjectReader& state) {
  State result;
  const std::optional<JsonReader> list = state.optional("summaries");
  if (!list) {
    return result;
  }
  for (const JsonReader& element : list->array(4096)) {
    ObjectReader summary = element.object();
    const std::string tag = summary.string_or("tag", "");
    const std::map<std::string, std::string> data = named_values(summary.optional("data"));
    const auto value = data.find("value");
    const std::string text = value == data.end() ? std::string() : value->second;
    const double number = parsed_number(text).value_or(0);
    if (tag == "nv/cold/time/gpu/median" || (tag == "nv/cold/time/gpu/mean" && !result.seconds)) {
      result.seconds = number;
      result.no_number =
          parsed_number(text) ? std::string() : fmt::format("\"{}\"", printable(text, 40));
    } else if (tag == "nv/cold/time/gpu/q1") {
      result.p25 = number;
    } else if (tag == "nv/cold/time/gpu/q3") {
      result.p75 = number;
    } else if (tag == "nv/cold/sample_size" && number >= 1 && number < 1e9) {
      result.repetitions = static_cast<std::int64_t>(number);
    } else if (tag.starts_with("nv/gmem/reads/") || tag.starts_with("nv/gmem/writes/")) {
      result.bytes += number;
    }
    summary.ignore_rest();
  }
  return result;
}

class FileReader {
 public:
  explicit FileReader(ReadingBuilder& builder) : builder_(builder) {}

  void read(ObjectReader& document) {
    check_version(document);
    if (const std::optional<JsonReader> devices = document.optional("devices")) {
      for (const JsonReader& value : devices->array(1024)) {
        ObjectReader device = value.object();
        devices_[device.integer_or("id", 0, 0, 1024)] = printable(device.string_or("name", ""));
        device.ignore_rest();
      }
    }
    for (const JsonReader& value : document.required("benchmarks").array(100'000)) {
      ObjectReader benchmark = value.object();
      const std::string name = printable(benchmark.string_or("name", ""));
      // nvbench writes null for the states of a benchmark without any.
      if (const std::optional<JsonReader> states = benchmark.optional("states")) {
        for (const JsonReader& state : states->array()) {
          builder_.part([&] { read_state(name, state); });
        }
      }
      benchmark.ignore_rest();
    }
  }

 private:
  void check_version(ObjectReader& document) {
    ObjectReader meta = document.required("meta").object();
    ObjectReader version = meta.required("version").object();
    ObjectReader json = version.required("json").object();
    const std::int64_t major = json.required("major").integer(0, 1000);
    if (major != 1) {
      builder_.fault(builder_.path() + ": /meta/version/json/major",
                     fmt::format("version {} of the format is not known", major),
                     "version 1 is read");
    }
    json.ignore_rest();
    version.ignore_rest();
    meta.ignore_rest();
  }

  // What a state names must be there: its device, a time, whole widths of a GEMM.
  bool is_sound(const std::string& where, std::int64_t device,
                const std::map<std::string, std::string>& axes, const State& state) {
    if (!devices_.empty() && !devices_.contains(device)) {
      builder_.fault(where, fmt::format("device {} is not among the devices of the file", device));
      return false;
    }
    if (!state.no_number.empty()) {
      builder_.fault(where, fmt::format("the time {} is not a number", state.no_number));
      return false;
    }
    if (is_gemm(axes) && whole_number(batch_of(axes)) == 0) {
      builder_.fault(where, fmt::format("a batch of \"{}\" is not a positive whole number",
                                        printable(batch_of(axes), 40)));
      return false;
    }
    for (const char* name : {"m", "n", "k"}) {
      if (is_gemm(axes) && whole_number(axes.at(name)) == 0) {
        builder_.fault(where, fmt::format("axis {}: \"{}\" is not a positive whole number", name,
                                          printable(axes.at(name), 40)));
        return false;
      }
    }
    return true;
  }

  static bool is_gemm(const std::map<std::string, std::string>& axes) {
    return axes.contains("m") && axes.contains("n") && axes.contains("k");
  }

  void read_state(const std::string& name, const JsonReader& value) {
    ObjectReader state = value.object();
    const bool skipped = state.boolean_or("is_skipped", false);
    const std::string reason = printable(state.string_or("skip_reason", ""), 100);
    const std::int64_t id = state.integer_or("device", 0, 0, 1024);
    const auto axes = named_values(state.optional("axis_values"));
    const State result = read_summaries(state);
    state.ignore_rest();
    if (skipped || !result.seconds) {
      builder_.left_out(!skipped         ? "state without a cold GPU time"
                        : reason.empty() ? "state that was skipped"
                                         : "state that was skipped: " + reason);
      return;
    }
    const double seconds = *result.seconds;
    if (!is_sound(value.where(), id, axes, result) ||
        !check_time(builder_, value.where(), seconds)) {
      return;
    }
    SampleHeader header;
    header.device = devices_.contains(id) ? devices_[id] : builder_.device();
    header.device = header.device.empty() ? "unknown" : header.device;
    header.gpu = gpu_of(header.device);
    Timing time = single_timing(Seconds(seconds), result.repetitions);
    if (result.p25 > 0 && result.p25 <= seconds && result.p75 >= seconds) {
      time.p25 = Seconds(result.p25);
      time.p75 = Seconds(result.p75);
    }
    add(header, name, axes, result, time);
  }

  void add(const SampleHeader& header, const std::string& name,
           const std::map<std::string, std::string>& axes, const State& result,
           const Timing& time) {
    const std::string type = type_of(axes);
    const std::optional<DType> dtype = foreign_dtype(type);
    if (is_gemm(axes) && !type.empty() && !dtype) {
      builder_.left_out("product of type " + printable(type, 40));
      return;
    }
    GemmSample gemm{.dtype = dtype.value_or(DType::Bf16)};
    if (is_gemm(axes)) {
      gemm.groups = whole_number(batch_of(axes));
      gemm.batched = gemm.groups > 1;
      gemm.m = whole_number(axes.at("m"));
      gemm.n = whole_number(axes.at("n"));
      gemm.k = whole_number(axes.at("k"));
    }
    Sample sample{.shape = gemm,
                  .time = time,
                  .implementation = name,
                  .source = builder_.source(1),
                  .flags = {.cold_l2 = true}};
    if (gemm.m > 0 && gemm.n > 0 && gemm.k > 0) {
      std::get<GemmSample>(sample.shape).output = unquantised(gemm.dtype);
    } else if (result.bytes >= 1 && result.bytes < 1e15) {
      // Only the sum is stated.
      sample.shape = MemorySample{.kernel = costmodel::MemoryKernel::Elementwise,
                                  .operation = name,
                                  .bytes_read = static_cast<std::int64_t>(result.bytes),
                                  .dtype = gemm.dtype};
    } else {
      builder_.add_kernel({name, time.repetitions,
                           time.median * static_cast<double>(time.repetitions), time.median});
      return;
    }
    builder_.add(header, std::move(sample));
  }

  ReadingBuilder& builder_;
  std::map<std::int64_t, std::string> devices_;
};

Reading read(const std::string& path, const ReadOptions& options) {
  ReadingBuilder builder(path, options);
  const Json json = builder.json("states");
  ObjectReader document = JsonReader(json, path).object();
  FileReader(builder).read(document);
  document.ignore_rest();
  return builder.finish();
}

}  // namespace

extern const SampleReader reader_nvbench = {
    .name = "nvbench",
    .what = "results of NVIDIA nvbench (JSON)",
    .recognises = recognises,
    .read = read,
};

}  // namespace orrery::calibrate
