// SPDX-License-Identifier: Apache-2.0
// The native network document: strict reading, and writing of the members that differ from what
// their absence means, so that reading a written document gives the same network.
#include <fmt/format.h>

#include <algorithm>

#include "base/error.hpp"
#include "base/json_reader.hpp"
#include "models/network.hpp"
#include "models/network_names.hpp"
#include "models/spec_check.hpp"
#include "models/spec_fields.hpp"

namespace orrery::models {
namespace {

constexpr std::string_view kSchema = "orrery-network";
constexpr std::int64_t kVersion = 1;

template <class Enum>
Enum read_name(ObjectReader& reader, std::string_view key, std::span<const std::string_view> names,
               Enum fallback) {
  const std::optional<JsonReader> value = reader.optional(key);
  if (!value) {
    return fallback;
  }
  const std::string name = value->one_of(names);
  const auto found = std::find(names.begin(), names.end(), name);
  return static_cast<Enum>(found - names.begin());
}

template <class Object>
void read_fields(ObjectReader& reader, Object& object,
                 std::span<const IntegerField<Object>> integers,
                 std::span<const NumberField<Object>> numbers,
                 std::span<const FlagField<Object>> flags) {
  for (const IntegerField<Object>& field : integers) {
    object.*field.member = reader.integer_or(field.key, object.*field.member, field.min, field.max);
  }
  for (const NumberField<Object>& field : numbers) {
    object.*field.member = reader.number_or(field.key, object.*field.member, field.min, field.max);
  }
  for (const FlagField<Object>& field : flags) {
    object.*field.member = reader.boolean_or(field.key, object.*field.member);
  }
}

template <class Object>
void write_fields(Json& json, const Object& object, const Object& defaults,
                  std::span<const IntegerField<Object>> integers,
                  std::span<const NumberField<Object>> numbers,
                  std::span<const FlagField<Object>> flags) {
  for (const IntegerField<Object>& field : integers) {
    if (object.*field.member != defaults.*field.member) {
      json.set(field.key, object.*field.member);
    }
  }
  for (const NumberField<Object>& field : numbers) {
    if (object.*field.member != defaults.*field.member) {
      json.set(field.key, object.*field.member);
    }
  }
  for (const FlagField<Object>& field : flags) {
    if (object.*field.member != defaults.*field.member) {
      json.set(field.key, object.*field.member);
    }
  }
}

template <class Enum>
void write_name(Json& json, std::string_view key, std::span<const std::string_view> names,
                Enum value, Enum fallback) {
  if (value != fallback) {
    json.set(key, names[static_cast<std::size_t>(value)]);
  }
}

// The members that decide the defaults of the others.
NetworkSpec read_core(ObjectReader& reader) {
  NetworkSpec core;
  core.name = reader.required("name").string();
  if (core.name.empty() || core.name.size() > 200) {
    reader.value().fail("name must have 1 to 200 characters");
  }
  reader.required("family");
  core.family = read_name(reader, "family", family_names(), Family::Gpt);
  for (const IntegerField<NetworkSpec>& field : integer_fields()) {
    const bool wanted = field.key == "layers" || field.key == "hidden" || field.key == "heads" ||
                        field.key == "sequence";
    if (wanted) {
      core.*field.member = reader.required(field.key).integer(field.min, field.max);
    }
  }
  core.attention_bias = reader.boolean_or("attention_bias", default_attention_bias(core.family));
  return core;
}

void require_head_dim(ObjectReader& reader, const NetworkSpec& defaults) {
  if (defaults.head_dim == 0 && !reader.has("head_dim") && !reader.has("mla")) {
    reader.value().fail(
        fmt::format("hidden {} is not divisible by {} heads", defaults.hidden, defaults.heads),
        "give head_dim");
  }
}

void read_targets(ObjectReader& reader, AdapterSpec& adapters) {
  const std::optional<JsonReader> list = reader.optional("targets");
  if (!list) {
    return;
  }
  std::vector<std::string_view> names;
  for (const FlagField<AdapterSpec>& target : adapter_targets()) {
    names.push_back(target.key);
    adapters.*target.member = false;
  }
  for (const JsonReader& entry : list->array(names.size())) {
    const std::string name = entry.one_of(names);
    for (const FlagField<AdapterSpec>& target : adapter_targets()) {
      if (target.key == name) {
        if (adapters.*target.member) {
          entry.fail(fmt::format("{} is named twice", name));
        }
        adapters.*target.member = true;
      }
    }
  }
}

void write_adapters(Json& json, const AdapterSpec& adapters) {
  if (adapters == AdapterSpec{}) {
    return;
  }
  Json object = Json::object();
  write_fields<AdapterSpec>(object, adapters, {}, adapter_integer_fields(), adapter_number_fields(),
                            adapter_flag_fields());
  Json targets = Json::array();
  for (const FlagField<AdapterSpec>& target : adapter_targets()) {
    if (adapters.*target.member) {
      targets.push(target.key);
    }
  }
  if (targets.as_array().size() < adapter_targets().size()) {
    object.set("targets", std::move(targets));
  }
  json.set("adapters", std::move(object));
}

// An empty part would silently be none; one without its size is refused by the rules between
// fields.
ObjectReader part_of(const JsonReader& value, std::string_view size) {
  ObjectReader part = value.object();
  if (part.keys().empty()) {
    (void)part.required(size);
  }
  return part;
}

void read_parts(ObjectReader& reader, NetworkSpec& spec) {
  if (const auto value = reader.optional("moe")) {
    ObjectReader moe = part_of(*value, "experts");
    read_fields(moe, spec.moe, moe_integer_fields(), moe_number_fields(), moe_flag_fields());
    moe.finish();
  }
  if (const auto value = reader.optional("mla")) {
    ObjectReader mla = part_of(*value, "kv_lora_rank");
    read_fields(mla, spec.mla, mla_integer_fields(), {}, {});
    mla.finish();
  }
  if (const auto value = reader.optional("encoder")) {
    ObjectReader encoder = part_of(*value, "layers");
    read_fields(encoder, spec.encoder, encoder_integer_fields(), {}, encoder_flag_fields());
    encoder.finish();
  }
  if (const auto value = reader.optional("cascade")) {
    ObjectReader cascade = part_of(*value, "layers");
    read_fields(cascade, spec.cascade, cascade_integer_fields(), {}, {});
    cascade.finish();
  }
  if (const auto value = reader.optional("adapters")) {
    ObjectReader adapters = part_of(*value, "rank");
    read_fields(adapters, spec.adapters, adapter_integer_fields(), adapter_number_fields(),
                adapter_flag_fields());
    read_targets(adapters, spec.adapters);
    adapters.finish();
  }
}

}  // namespace

NetworkSpec read_network_spec(const Json& document, const std::string& where) {
  ObjectReader reader = JsonReader(document, where).object();
  reader.expect_schema(kSchema, kVersion);
  NetworkSpec spec = with_defaults(read_core(reader));
  require_head_dim(reader, spec);
  spec.head_dim = std::max<std::int64_t>(spec.head_dim, 1);
  read_fields(reader, spec, integer_fields(), number_fields(), flag_fields());
  spec.norm = read_name(reader, "norm", norm_names(), spec.norm);
  spec.position = read_name(reader, "position", position_names(), spec.position);
  spec.activation = read_name(reader, "activation", activation_names(), spec.activation);
  spec.source = reader.string_or("source", "");
  (void)read_aliases(reader);  // of the zoo's documents (network_names.hpp); networks are without
  read_parts(reader, spec);
  reader.finish();
  check_spec(spec, where);
  return spec;
}

Json to_json(const NetworkSpec& spec) {
  NetworkSpec defaults = with_defaults(spec);
  defaults.head_dim = std::max<std::int64_t>(defaults.head_dim, 1);
  Json json = Json::object();
  json.set("schema", kSchema);
  json.set("version", kVersion);
  json.set("name", spec.name);
  json.set("family", family_names()[static_cast<std::size_t>(spec.family)]);
  // What read_core requires is always written.
  defaults.layers = defaults.hidden = defaults.heads = defaults.sequence = -1;
  defaults.attention_bias = default_attention_bias(spec.family);
  write_fields(json, spec, defaults, integer_fields(), number_fields(), flag_fields());
  write_name(json, "norm", norm_names(), spec.norm, defaults.norm);
  write_name(json, "position", position_names(), spec.position, defaults.position);
  write_name(json, "activation", activation_names(), spec.activation, defaults.activation);
  Json moe = Json::object();
  write_fields(moe, spec.moe, {}, moe_integer_fields(), moe_number_fields(), moe_flag_fields());
  if (!moe.as_object().empty()) {
    json.set("moe", std::move(moe));
  }
  Json mla = Json::object();
  write_fields<MlaSpec>(mla, spec.mla, {}, mla_integer_fields(), {}, {});
  if (!mla.as_object().empty()) {
    json.set("mla", std::move(mla));
  }
  Json encoder = Json::object();
  write_fields<EncoderSpec>(encoder, spec.encoder, {}, encoder_integer_fields(), {},
                            encoder_flag_fields());
  if (!encoder.as_object().empty()) {
    json.set("encoder", std::move(encoder));
  }
  Json cascade = Json::object();
  write_fields<CascadeSpec>(cascade, spec.cascade, {}, cascade_integer_fields(), {}, {});
  if (!cascade.as_object().empty()) {
    json.set("cascade", std::move(cascade));
  }
  write_adapters(json, spec.adapters);
  if (!spec.source.empty()) {
    json.set("source", spec.source);
  }
  return json;
}

Network read_network(const Json& document, const std::string& where) {
  return build_network(read_network_spec(document, where), where);
}

}  // namespace orrery::models
