// SPDX-License-Identifier: Apache-2.0
// Why a schedule refuses its parameters, and what would be allowed.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace orrery::sim {

// What users set of a schedule (ScheduleParams).
enum class Size : std::uint8_t {
  Stages,
  MicroBatches,
  Chunks,
  Slices,
  Replicas,
  WarmUp,
  Iterations,
  Rollbacks,
  Cap
};
inline constexpr std::string_view kCapName = "the cap";
// As messages name it.
std::string_view to_text(Size size, std::string_view cap_name = kCapName);

struct Change {
  Size size = Size::Stages;
  double value = 0.0;
  bool leaves_out = false;
};

struct Refusal {
  std::string constraint = {};       // that is broken, with what was given; "": none
  std::vector<Change> changes = {};  // that meet it; none where no size does
  bool of_product = false;           // sizes are too many together
  bool empty() const { return constraint.empty(); }
};

// That names the value of a size that meets the constraint; of a product of sizes; or to leave the
// size out.
Refusal refused(std::string constraint, Size size, double value);
Refusal too_many(std::string constraint, Size size, double value);
Refusal not_taken(std::string constraint, Size size);

// "stages must be even, not 3: set stages to 4", or "...: set stages to 6 and micro-batches to 12,
// and leave the cap out"; "" when nothing is refused.
std::string to_text(const Refusal& refusal, std::string_view cap_name = kCapName);

}  // namespace orrery::sim
