// SPDX-License-Identifier: Apache-2.0
#include "costmodel/profile.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "base/dtype.hpp"
#include "base/json_reader.hpp"
#include "base/quantity_text.hpp"
#include "base/text.hpp"
#include "costmodel/profile_fields.hpp"

namespace orrery::costmodel {

namespace {

constexpr std::string_view kSchema = "orrery-profile";
constexpr int kVersion = 2;  // 2: residual sets of kernels instead of output tiles
constexpr std::array<std::string_view, kNumCastScales> kCastNames = {"known_scale", "found_scale"};
constexpr int kMaxSms = 65'536;

// Reads the members of one section.
class SectionReader {
 public:
  explicit SectionReader(const JsonReader& value) : object_(value) {}
  void finish() { object_.finish(); }

  void number(std::string_view key, double& value, double min, double max) {
    value = object_.required(key).number(min, max);
  }
  // Absent in profiles of before it was told apart: keeps its default.
  void optional_number(std::string_view key, double& value, double min, double max) {
    value = object_.number_or(key, value, min, max);
  }
  void duration(std::string_view key, Seconds& value) {
    const JsonReader member = object_.required(key);
    value = member.duration();
    if (value.value() > 1) {
      member.fail("a latency of more than one second", "give a time such as \"5.7 us\"");
    }
  }
  void bytes(std::string_view key, Bytes& value) { value = object_.required(key).bytes(true); }
  void bandwidth(std::string_view key, BytesPerSecond& value) {
    value = object_.required(key).bandwidth();
  }
  // Absent in profile files: the peaks are those of the GPU file.
  void peaks(std::string_view key, std::array<FlopsPerSecond, kNumDTypes>& peaks) {
    const auto member = object_.optional(key);
    if (!member) {
      return;
    }
    ObjectReader by_dtype = member->object();
    for (int i = 0; i < kNumDTypes; ++i) {
      if (const auto peak = by_dtype.optional(to_text(static_cast<DType>(i)))) {
        peaks[static_cast<std::size_t>(i)] = peak->flop_rate();
      }
    }
    by_dtype.finish();
  }

 private:
  ObjectReader object_;
};

template <class T>
T read_section(const JsonReader& value) {
  T section;
  SectionReader reader(value);
  fields::visit(reader, section);
  reader.finish();
  return section;
}

KernelAccuracy read_accuracy(const JsonReader& value) {
  ObjectReader object(value);
  KernelAccuracy accuracy;
  accuracy.kernel = object.required("kernel").string();
  accuracy.points = static_cast<int>(object.required("points").integer(1, 10'000'000));
  accuracy.median = object.required("median").number(0, 1e3);
  accuracy.p90 = object.required("p90").number(0, 1e3);
  accuracy.large_median = object.number_or("large_median", 0, 0, 1e3);
  accuracy.measured = object.required("measured").string();
  object.finish();
  return accuracy;
}

Json to_json(const KernelAccuracy& accuracy) {
  Json item = Json::object();
  item.set("kernel", accuracy.kernel);
  item.set("points", accuracy.points);
  item.set("median", accuracy.median);
  item.set("p90", accuracy.p90);
  if (accuracy.large_median > 0) {
    item.set("large_median", accuracy.large_median);
  }
  item.set("measured", accuracy.measured);
  return item;
}

class ProfileReader {
 public:
  explicit ProfileReader(ObjectReader& object)
      : object_(object), sources_(object.required("sources")) {}
  std::vector<ProfileSource> finish() {
    sources_.finish();
    return std::move(texts_);
  }

  void gemm(std::string_view key, GemmOfDType& all) {
    ObjectReader by_dtype(object_.required(key));
    for (int i = 0; i < kNumDTypes; ++i) {
      const auto dtype = static_cast<DType>(i);
      const bool as_fp8 = dtype == DType::Nvfp4 && !by_dtype.optional(to_text(dtype));
      all[static_cast<std::size_t>(i)] =
          as_fp8 ? all[static_cast<std::size_t>(DType::Fp8)]
                 : read_section<GemmParameters>(by_dtype.required(to_text(dtype)));
    }
    by_dtype.finish();
    source(key);
  }
  template <class T>
  void section(std::string_view key, T& value) {
    value = read_section<T>(object_.required(key));
    source(key);
  }

  // Absent in profiles without fitted residuals.
  void kernels(std::string_view key, KernelFits& fits) {
    const auto value = object_.optional(key);
    if (!value) {
      return;
    }
    ObjectReader section(*value);
    if (const auto residuals = section.optional("residuals")) {
      fits.residuals = residuals->json().is_string()
                           ? load_kernel_residuals(residuals->string(), residuals->where())
                           : read_kernel_residuals(*residuals, "");
    }
    for (const JsonReader& item : section.required("accuracy").array(1000)) {
      fits.accuracy.push_back(read_accuracy(item));
    }
    section.finish();
    source(key);
  }

  // Absent where no casts were measured.
  void casts(std::string_view key, std::array<CastParameters, kNumCastScales>& all) {
    const auto value = object_.optional(key);
    if (!value) {
      return;
    }
    ObjectReader by_scale(*value);
    for (std::size_t i = 0; i < all.size(); ++i) {
      all[i] = read_section<CastParameters>(by_scale.required(kCastNames[i]));
    }
    by_scale.finish();
    source(key);
  }

  // Absent in profiles without fitted residuals.
  void collectives(std::string_view key, CollectiveFits& fits) {
    const auto value = object_.optional(key);
    if (!value) {
      return;
    }
    ObjectReader object(*value);
    ObjectReader fabrics(object.required("fabrics"));
    for (const std::string& name : fabrics.keys()) {
      const Json text(name);
      fits.fabrics.push_back({read_fabric_class(JsonReader(text, value->where() + "/fabrics")),
                              read_section<CollectiveParameters>(fabrics.required(name))});
    }
    fabrics.finish();
    fits.residuals = read_residuals(object.required("residuals"));
    fits.left_out = read_left_out(object.required("left_out"));
    object.finish();
    source(key);
  }

  void source(std::string_view key) {
    const JsonReader text = sources_.required(key);
    texts_.push_back({std::string(key), text.string()});
    if (texts_.back().text.empty()) {
      text.fail("an empty source", "say where the numbers of this section come from");
    }
  }

 private:
  ObjectReader& object_;
  ObjectReader sources_;
  std::vector<ProfileSource> texts_;
};

class SectionWriter {
 public:
  Json take() { return std::move(object_); }

  void number(std::string_view key, double value, double, double) { object_.set(key, value); }
  void optional_number(std::string_view key, double value, double, double) {
    if (value > 0) {
      object_.set(key, value);
    }
  }
  void duration(std::string_view key, Seconds value) { object_.set(key, quantity_text(value)); }
  void bytes(std::string_view key, Bytes value) { object_.set(key, quantity_text(value)); }
  void bandwidth(std::string_view key, BytesPerSecond value) {
    object_.set(key, quantity_text(value));
  }
  void peaks(std::string_view key, const std::array<FlopsPerSecond, kNumDTypes>& peaks) {
    Json by_dtype = Json::object();
    for (int i = 0; i < kNumDTypes; ++i) {
      if (const FlopsPerSecond peak = peaks[static_cast<std::size_t>(i)]; peak.value() > 0) {
        by_dtype.set(to_text(static_cast<DType>(i)), quantity_text(peak));
      }
    }
    if (!by_dtype.as_object().empty()) {
      object_.set(key, std::move(by_dtype));
    }
  }

 private:
  Json object_ = Json::object();
};

template <class T>
Json written(T section) {
  SectionWriter writer;
  fields::visit(writer, section);
  return writer.take();
}

struct ProfileWriter {
  Json& object;
  void gemm(std::string_view key, const GemmOfDType& all) {
    Json by_dtype = Json::object();
    for (int i = 0; i < kNumDTypes; ++i) {
      const auto dtype = static_cast<DType>(i);
      if (dtype != DType::Nvfp4 || !nvfp4_as_fp8(all)) {
        by_dtype.set(to_text(dtype), written(all[static_cast<std::size_t>(i)]));
      }
    }
    object.set(key, std::move(by_dtype));
  }
  template <class T>
  void section(std::string_view key, const T& value) {
    object.set(key, written(value));
  }
  // Sets of the box by name, others in full.
  void kernels(std::string_view key, const KernelFits& fits) {
    if (fits.empty()) {
      return;
    }
    Json& section = object.set(key, Json::object());
    if (!fits.residuals.empty()) {
      section.set("residuals", fits.residuals.name().empty() ? costmodel::to_json(fits.residuals)
                                                             : Json(fits.residuals.name()));
    }
    Json& accuracy = section.set("accuracy", Json::array());
    for (const KernelAccuracy& item : fits.accuracy) {
      accuracy.push(to_json(item));
    }
  }

  void casts(std::string_view key, const std::array<CastParameters, kNumCastScales>& all) {
    if (all[0].cache_fraction <= 0) {
      return;
    }
    Json& section = object.set(key, Json::object());
    for (std::size_t i = 0; i < all.size(); ++i) {
      section.set(kCastNames[i], written(all[i]));
    }
  }

  void collectives(std::string_view key, const CollectiveFits& fits) {
    if (fits.empty()) {
      return;
    }
    Json& section = object.set(key, Json::object());
    Json& fabrics = section.set("fabrics", Json::object());
    for (const FabricParameters& fabric : fits.fabrics) {
      fabrics.set(to_text(fabric.fabric), written(fabric.parameters));
    }
    section.set("residuals", to_json(fits.residuals));
    section.set("left_out", to_json(fits.left_out));
  }
};

}  // namespace

Profile::Profile() = default;
Profile::Profile(const Profile&) = default;
Profile::Profile(Profile&&) noexcept = default;
Profile& Profile::operator=(const Profile&) = default;
Profile& Profile::operator=(Profile&&) noexcept = default;
Profile::~Profile() = default;

double spread_of(double deviation) { return std::hypot(deviation, kSoftwareSpread); }

std::string_view to_text(MemoryKernel kernel) {
  constexpr std::array<std::string_view, kNumMemoryKernels> kNames = {
      "copy",      "norm",      "elementwise", "softmax", "cross_entropy",
      "embedding", "optimizer", "cast",        "permute", "cast_transpose"};
  return kNames[static_cast<std::size_t>(kernel)];
}

Profile read_profile(const Json& document, const std::string& where, const topologies::Gpu& gpu) {
  const JsonReader root(document, where);
  ObjectReader object(root);
  object.expect_schema(kSchema, kVersion);
  Profile profile;
  profile.name = object.required("name").string();
  profile.source = object.required("source").string();
  profile.calibrated = object.required("calibrated").boolean();
  const JsonReader sms = object.required("collective_sms");
  profile.collective_sms = static_cast<int>(sms.integer(0, kMaxSms));
  if (gpu.sm_count > 0 && profile.collective_sms > gpu.sm_count) {
    sms.fail(fmt::format("more than the {} SMs of {}", gpu.sm_count, gpu.name));
  }
  profile.kernel_launch = object.required("kernel_launch").duration();
  ProfileReader reader(object);
  reader.source("kernel_launch");
  reader.source("collective_sms");
  fields::visit(reader, profile);
  profile.sources = reader.finish();
  object.finish();
  return profile;
}

Json to_json(const Profile& profile) {
  Json document = Json::object();
  document.set("schema", kSchema);
  document.set("version", kVersion);
  document.set("name", profile.name);
  document.set("source", profile.source);
  document.set("calibrated", profile.calibrated);
  document.set("kernel_launch", quantity_text(profile.kernel_launch));
  document.set("collective_sms", profile.collective_sms);
  Profile copy = profile;
  ProfileWriter writer{document};
  fields::visit(writer, copy);
  Json sources = Json::object();
  for (const ProfileSource& source : profile.sources) {
    sources.set(source.section, source.text);
  }
  document.set("sources", std::move(sources));
  return document;
}

}  // namespace orrery::costmodel
