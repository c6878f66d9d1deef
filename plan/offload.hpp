// SPDX-License-Identifier: Apache-2.0
// Where the tensors of a block live while no pass uses them (docs/memory-tiers.md): the device, the
// host or the disk of its node. One choice per tensor class, as ZeRO-Infinity gives each of them a
// home (Rajbhandari et al. 2021); ZeRO-Offload is gradients and optimizer on the host.
// Rules that check_plan states by block and tensor: what leaves the device needs that tier in the
// cluster; gradients leave only where every micro-batch reduces them (ZeRO-2 and 3); parameters and
// gradients leave only with the optimizer that uses them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/json.hpp"
#include "plan/operator_set.hpp"

namespace orrery {
class JsonReader;
}

namespace orrery::plan {

struct Plan;

enum class Tier : std::uint8_t { Device, Host, Disk };
std::string_view to_text(Tier tier);
Tier parse_tier(std::string_view text, std::string_view where);

struct Offload {
  double activations = 0;  // share of what a layer saves that waits for the backward elsewhere
  Tier activations_tier = Tier::Host;
  OperatorSet activations_of{};    // whose saved tensors these are; empty: of all operators
  Tier parameters = Tier::Device;  // else fetched for every pass
  Tier gradients = Tier::Device;   // else sent as they are reduced
  Tier optimizer = Tier::Device;   // else the host updates, and sends what lives on the device
  bool operator==(const Offload&) const = default;

  bool any() const { return *this != Offload{}; }
  // Tier of the saved activations that leave; the device when none do.
  Tier home_of_activations() const { return activations > 0 ? activations_tier : Tier::Device; }
};

// {"activations": 0.5, "activations_tier": "host", "activations_of": ["norms"], "parameters":
// "host", "gradients": "host", "optimizer": "disk"}; what is left out stays on the device.
Json to_json(const Offload& offload);
Offload read_offload(const JsonReader& value);

// Throws Error naming block, tensor and tier.
void check_offload(const Plan& plan, const std::string& where);

}  // namespace orrery::plan
