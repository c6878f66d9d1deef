// SPDX-License-Identifier: Apache-2.0
#include "calibrate/samples.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <type_traits>

#include "base/error.hpp"
#include "base/json_reader.hpp"
#include "base/limits.hpp"
#include "base/text.hpp"
#include "calibrate/sample_fields.hpp"

namespace orrery::calibrate {
namespace {

constexpr std::string_view kSchema = "orrery-samples";
constexpr std::int64_t kVersion = 1;
constexpr double kShortest = 1e-12;  // seconds; below is no measurement
constexpr double kLongest = 1e6;
// In the order of the alternatives of Shape.
constexpr std::array<std::string_view, std::variant_size_v<Shape>> kKindNames = {
    "gemm", "attention", "memory", "copy", "launch", "collective"};

class FieldReader {
 public:
  explicit FieldReader(ObjectReader& object) : object_(object) {}

  void required(std::string_view key, std::string& text) {
    text = object_.required(key).string();
    if (text.empty()) {
      object_.required(key).fail("an empty text");
    }
  }
  void optional(std::string_view key, std::string& text) { text = object_.string_or(key, text); }
  void required(std::string_view key, bool& value) { value = object_.required(key).boolean(); }
  void optional(std::string_view key, bool& value) { value = object_.boolean_or(key, value); }
  void required(std::string_view key, std::int64_t& value, std::int64_t min, std::int64_t max) {
    value = object_.required(key).integer(min, max);
  }
  void optional(std::string_view key, std::int64_t& value, std::int64_t min, std::int64_t max) {
    value = object_.integer_or(key, value, min, max);
  }
  void optional(std::string_view key, double& value, double min, double max) {
    value = object_.number_or(key, value, min, max);
  }
  template <class Enum, std::size_t kCount>
  void required(std::string_view key, Enum& value,
                const std::array<std::string_view, kCount>& names) {
    const std::string name = object_.required(key).one_of(names);
    value = static_cast<Enum>(std::find(names.begin(), names.end(), name) - names.begin());
  }
  void optional(std::string_view key, std::optional<GemmSample>& gemm) {
    if (const std::optional<JsonReader> member = object_.optional(key)) {
      ObjectReader inner = member->object();
      FieldReader reader(inner);
      fields(reader, gemm.emplace());
      inner.finish();
    }
  }
  void optional(std::string_view key, std::vector<std::string>& texts) {
    if (const std::optional<JsonReader> member = object_.optional(key)) {
      for (const JsonReader& element : member->array()) {
        texts.push_back(element.string());
      }
    }
  }
  void optional(std::string_view key, std::vector<std::pair<std::string, std::string>>& pairs) {
    if (const std::optional<JsonReader> member = object_.optional(key)) {
      ObjectReader inner = member->object();
      for (const std::string& name : inner.keys()) {
        pairs.emplace_back(name, inner.required(name).string());
      }
    }
  }

 private:
  ObjectReader& object_;
};

class FieldWriter {
 public:
  explicit FieldWriter(Json& object) : object_(object) {}

  template <class T, class... Range>
  void required(std::string_view key, const T& value, const Range&... range) {
    if constexpr (std::is_enum_v<T>) {
      object_.set(key, std::get<0>(std::tie(range...))[static_cast<std::size_t>(value)]);
    } else {
      object_.set(key, value);
    }
  }
  template <class T, class... Range>
  void optional(std::string_view key, const T& value, const Range&... range) {
    if (value != unset<T>(key)) {
      put(key, value, range...);
    }
  }

 private:
  template <class T>
  static T unset(std::string_view key) {
    if constexpr (std::is_same_v<T, std::int64_t>) {
      return key == "groups" || key == "concurrent_groups" ? 1 : 0;
    } else {
      return T();
    }
  }
  template <class T, class... Range>
  void put(std::string_view key, const T& value, const Range&...) {
    object_.set(key, value);
  }
  void put(std::string_view key, const std::optional<GemmSample>& gemm) {
    GemmSample copy = *gemm;
    Json inner = Json::object();
    FieldWriter writer(inner);
    fields(writer, copy);
    object_.set(key, std::move(inner));
  }
  void put(std::string_view key, const std::vector<std::string>& texts) {
    Json array = Json::array();
    for (const std::string& text : texts) {
      array.push(text);
    }
    object_.set(key, std::move(array));
  }
  void put(std::string_view key, const std::vector<std::pair<std::string, std::string>>& pairs) {
    Json inner = Json::object();
    for (const auto& [name, value] : pairs) {
      inner.set(name, value);
    }
    object_.set(key, std::move(inner));
  }

  Json& object_;
};

template <std::size_t... kIndex>
Shape empty_shape(std::size_t index, std::index_sequence<kIndex...>) {
  Shape shape;
  ((index == kIndex ? void(shape.emplace<kIndex>()) : void()), ...);
  return shape;
}

void check_shape(const Shape& shape, const JsonReader& where) {
  if (const auto* attention = std::get_if<AttentionSample>(&shape)) {
    if (attention->heads % attention->kv_heads != 0) {
      where.fail(fmt::format("{} heads do not divide into {} kv_heads", attention->heads,
                             attention->kv_heads));
    }
    if (attention->backward && attention->both_passes) {
      where.fail("\"backward\" says one pass, \"both_passes\" two", "one of them");
    }
    if (attention->in_16_bits_s > 0 && !is_quantised(attention->dtype)) {
      where.fail("\"in_16_bits_s\" beside a time in 16 bits", "of fp8 alone");
    }
  } else if (const auto* memory = std::get_if<MemorySample>(&shape)) {
    if (memory->bytes_read + memory->bytes_written == 0) {
      where.fail("a kernel that moves no bytes");
    }
  } else if (const auto* collective = std::get_if<CollectiveSample>(&shape)) {
    if (collective->kind == sim::CommKind::None || collective->kind == sim::CommKind::Copy) {
      where.fail(fmt::format("\"{}\" is no collective", to_text(collective->kind)));
    }
    if (collective->ranks != collective->ranks_per_node * collective->nodes) {
      where.fail(fmt::format("{} ranks are not {} nodes of {}", collective->ranks,
                             collective->nodes, collective->ranks_per_node));
    }
    if (collective->times_gemm && !collective->beside) {
      where.fail("times_gemm without a GEMM beside the collective");
    }
  }
}

Timing read_timing(ObjectReader& object) {
  Timing time;
  const JsonReader median = object.required("time_s");
  time.median = Seconds(median.number(kShortest, kLongest));
  const auto quartile = [&](std::string_view key) {
    return Seconds(object.number_or(key, time.median.value(), kShortest, kLongest));
  };
  time.p25 = quartile("p25_s");
  time.p75 = quartile("p75_s");
  if (time.p25 > time.median || time.median > time.p75) {
    object.value().fail(fmt::format("quartiles {} and {} do not enclose the median {}",
                                    time.p25.value(), time.p75.value(), time.median.value()));
  }
  time.repetitions = object.integer_or("repetitions", 1, 1, kMaxRepetitions);
  return time;
}

Sample read_sample(const JsonReader& value) {
  ObjectReader object = value.object();
  const std::string kind = object.required("kind").one_of(kKindNames);
  const auto index = static_cast<std::size_t>(
      std::find(kKindNames.begin(), kKindNames.end(), kind) - kKindNames.begin());
  Sample sample;
  sample.shape = empty_shape(index, std::make_index_sequence<std::variant_size_v<Shape>>());
  FieldReader reader(object);
  std::visit([&](auto& shape) { fields(reader, shape); }, sample.shape);
  check_shape(sample.shape, value);
  sample.time = read_timing(object);
  sample.implementation = object.string_or("implementation", "");
  sample.source = object.string_or("source", "");
  if (const std::optional<JsonReader> member = object.optional("flags")) {
    ObjectReader inner = member->object();
    FieldReader flags(inner);
    fields(flags, sample.flags);
    inner.finish();
  }
  object.finish();
  return sample;
}

Json sample_json(Sample sample) {
  Json json = Json::object();
  json.set("kind", kind_text(sample.shape));
  FieldWriter writer(json);
  std::visit([&](auto& shape) { fields(writer, shape); }, sample.shape);
  json.set("time_s", sample.time.median.value());
  json.set("p25_s", sample.time.p25.value());
  json.set("p75_s", sample.time.p75.value());
  json.set("repetitions", sample.time.repetitions);
  writer.optional("implementation", sample.implementation);
  writer.optional("source", sample.source);
  Json flags = Json::object();
  FieldWriter flag_writer(flags);
  fields(flag_writer, sample.flags);
  if (!flags.as_object().empty()) {
    json.set("flags", std::move(flags));
  }
  return json;
}

}  // namespace

std::string_view to_text(GemmLayout layout) {
  return kLayoutNames[static_cast<std::size_t>(layout)];
}

std::string_view to_text(CopyDirection direction) {
  return kDirectionNames[static_cast<std::size_t>(direction)];
}

std::string_view kind_text(const Shape& shape) { return kKindNames[shape.index()]; }

SampleFile read_samples(const Json& document, const std::string& name,
                        std::vector<std::string>* faults) {
  ObjectReader object = JsonReader(document, name).object();
  object.expect_schema(kSchema, kVersion);
  SampleFile file;
  ObjectReader header = object.required("header").object();
  FieldReader reader(header);
  fields(reader, file.header);
  header.finish();
  for (const JsonReader& value : object.required("samples").array()) {
    try {
      file.samples.push_back(read_sample(value));
    } catch (const Error& error) {
      if (faults == nullptr) {
        throw;
      }
      faults->emplace_back(error.what());
    }
  }
  object.finish();
  return file;
}

std::string sample_line(const Sample& sample) { return sample_json(sample).dump(-1); }

std::string sample_text(const SampleFile& file) {
  SampleHeader copy = file.header;
  Json header = Json::object();
  FieldWriter writer(header);
  fields(writer, copy);
  std::string text = fmt::format(
      "{{\n  \"schema\": \"{}\",\n  \"version\": {},\n  \"header\": {},\n  \"samples\": [", kSchema,
      kVersion, header.dump(-1));
  for (const Sample& sample : file.samples) {
    text += (&sample == file.samples.data() ? "\n    " : ",\n    ") + sample_line(sample);
  }
  return text + (file.samples.empty() ? "]\n}\n" : "\n  ]\n}\n");
}

}  // namespace orrery::calibrate
