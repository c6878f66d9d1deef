// SPDX-License-Identifier: Apache-2.0
// Groups of a layer's operators, so that keep, recompute and offload are chosen tensor by tensor:
// what a group produces, and what its operators keep for themselves, is one choice. Groups follow
// from kinds and index variables of operators, whatever network they are in. Packed in a word,
// because plans are copied and compared by the million.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.hpp"
#include "base/units.hpp"
#include "models/operators.hpp"

namespace orrery {
class JsonReader;
}

namespace orrery::plan {

enum class OperatorGroup : std::uint8_t {
  Norms,
  Qkv,              // products that make queries, keys and values
  Rotary,           // and norms of heads
  AttentionCore,    // what attention keeps for itself: scores and softmax; its result is kept
  Attention,        // its result, too
  AttentionOutput,  // the product behind it
  MlpUp,
  MlpActivation,
  MlpDown,
  Routing,    // router, dispatch and combination
  Residuals,  // and dropout
};
inline constexpr int kNumOperatorGroups = 11;
using SavedByGroup = std::array<ByteCount, kNumOperatorGroups>;

std::string_view to_text(OperatorGroup group);  // "norms", "mlp-activation", ...
std::optional<OperatorGroup> group_named(std::string_view text);
OperatorGroup parse_operator_group(std::string_view text, std::string_view where);

// The group of an operator; never AttentionCore, which is part of Attention.
OperatorGroup group_of(const models::Block& block, const models::Operator& op);

// The group of the operator whose output a tensor is; Residuals for what the block was handed.
OperatorGroup maker_of(const models::Block& block, int tensor);

class OperatorSet {
 public:
  constexpr OperatorSet() = default;
  constexpr void add(OperatorGroup group) {
    bits_ = static_cast<std::uint16_t>(bits_ | bit(group));
  }
  constexpr bool has(OperatorGroup group) const { return (bits_ & bit(group)) != 0; }
  constexpr bool empty() const { return bits_ == 0; }
  constexpr bool intersects(OperatorSet other) const { return (bits_ & other.bits_) != 0; }
  constexpr std::uint16_t bits() const { return bits_; }
  std::vector<OperatorGroup> groups() const;
  std::string text() const;  // joined by plus signs
  constexpr bool operator==(const OperatorSet&) const = default;

 private:
  static constexpr std::uint16_t bit(OperatorGroup group) {
    return static_cast<std::uint16_t>(1U << static_cast<unsigned>(group));
  }
  std::uint16_t bits_ = 0;
};

// ["norms", "mlp-activation"]
Json to_json(OperatorSet set);
OperatorSet read_operator_set(const JsonReader& list);
// text() back: "norms+mlp-activation".
OperatorSet parse_operator_set(std::string_view text, std::string_view where);

// Whether what an operator keeps is a tensor that is there anyway, not a mask or statistics with
// the extents of one.
bool keeps_tensor(const models::Block& block, const models::Saved& saved);

}  // namespace orrery::plan
