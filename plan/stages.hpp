// SPDX-License-Identifier: Apache-2.0
// Cuts of a chain of blocks into virtual stages that balance their work (even_stages() of
// plan/plan.hpp counts layers): how many positions each stage has.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace orrery::plan {

// Cut of positions with so much work each: the least possible largest stage, then the largest
// possible smallest one; of these cuts the one whose first stages are the largest. Empty where
// there are more stages than positions.
std::vector<int> balanced_stages(std::span<const std::int64_t> work, int num_virtual_stages);

// The same for devices that have several stages each: `stages` after moves of a position from the
// device with most work to the one with least, as long as the most becomes less, at most as many as
// there are stages: so the time is bounded, and the cut stays near the one it began with.
std::vector<int> balance_devices(std::span<const std::int64_t> work,
                                 std::span<const std::uint16_t> device_of, std::vector<int> stages);

// Of the device with most work; without `device_of` every stage has one of its own.
std::int64_t largest_load(std::span<const std::int64_t> work,
                          std::span<const std::uint16_t> device_of, const std::vector<int>& stages);

}  // namespace orrery::plan
