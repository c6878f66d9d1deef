// SPDX-License-Identifier: Apache-2.0
#include "sim/engine/tags.hpp"

#include <array>
#include <cstddef>

namespace orrery::sim {

std::string_view to_text(PassKind kind) {
  static constexpr std::array<std::string_view, 12> kNames = {
      "forward",       "input-grad", "weight-grad", "backward", "recompute", "optimizer",
      "communication", "transfer",   "offload",     "prefetch", "host",      "other"};
  return kNames[static_cast<std::size_t>(kind)];
}

std::string_view to_text(CommKind kind) {
  static constexpr std::array<std::string_view, 8> kNames = {
      "none",       "all-reduce", "all-gather",   "reduce-scatter",
      "all-to-all", "broadcast",  "send-receive", "copy"};
  return kNames[static_cast<std::size_t>(kind)];
}

}  // namespace orrery::sim
