// SPDX-License-Identifier: Apache-2.0
// Cuts of a chain of blocks into virtual stages, by layers or by work: how many positions each
// stage has.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace orrery::models {
struct Network;
}

namespace orrery::plan {

// Even cut of the chain into pp x chunks virtual stages: layers as equal as possible, larger ones
// first, embedding with the first and head with the last stage. Error where layers are lacking.
std::vector<int> even_stages(const models::Network& network, int num_virtual_stages);

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
