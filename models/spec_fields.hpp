// SPDX-License-Identifier: Apache-2.0
// The members of a native network document as tables: key, field, range. Reading, writing and
// checking walk the same tables, so that a field cannot be read but not written.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "models/network.hpp"

namespace orrery::models {

template <class Object>
struct IntegerField {
  std::string_view key;
  std::int64_t Object::*member;
  std::int64_t min;
  std::int64_t max;
};

template <class Object>
struct NumberField {
  std::string_view key;
  double Object::*member;
  double min;
  double max;
};

template <class Object>
struct FlagField {
  std::string_view key;
  bool Object::*member;
};

std::span<const IntegerField<NetworkSpec>> integer_fields();
std::span<const NumberField<NetworkSpec>> number_fields();
std::span<const FlagField<NetworkSpec>> flag_fields();
std::span<const IntegerField<MoeSpec>> moe_integer_fields();
std::span<const NumberField<MoeSpec>> moe_number_fields();
std::span<const FlagField<MoeSpec>> moe_flag_fields();
std::span<const IntegerField<MlaSpec>> mla_integer_fields();
std::span<const IntegerField<EncoderSpec>> encoder_integer_fields();
std::span<const FlagField<EncoderSpec>> encoder_flag_fields();
std::span<const IntegerField<CascadeSpec>> cascade_integer_fields();
std::span<const IntegerField<AdapterSpec>> adapter_integer_fields();
std::span<const NumberField<AdapterSpec>> adapter_number_fields();
// The member "targets" of a document lists those that are set.
std::span<const FlagField<AdapterSpec>> adapter_flag_fields();
std::span<const FlagField<AdapterSpec>> adapter_targets();

// Names by enumerator value.
std::span<const std::string_view> family_names();
std::span<const std::string_view> norm_names();
std::span<const std::string_view> position_names();
std::span<const std::string_view> activation_names();

// The values of absent members: from the family, and from layers, hidden, heads, sequence and
// attention_bias of `core`, which are kept.
NetworkSpec with_defaults(const NetworkSpec& core);
// Whether attention projections have biases unless the document says otherwise.
bool default_attention_bias(Family family);

}  // namespace orrery::models
