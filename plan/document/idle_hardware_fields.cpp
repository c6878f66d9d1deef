// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>

#include "plan/document/idle_fields.hpp"
#include "topologies/documents.hpp"

namespace orrery::plan {
namespace {

struct HardwareRule {
  std::string_view path;  // as --set names it
  bool (*applies)(const Plan&);
  std::string_view needs;
};

bool limits_products(const Plan& plan) {
  return plan.profile.power.picojoules_per_flop > 0 && plan.precision != DType::Fp32;
}

constexpr std::array kHardwareRules = {
    HardwareRule{"gpu.power_watts", limits_products,
                 "an energy of a FLOP (gpu.picojoules_per_flop), and products other than fp32"},
    HardwareRule{"gpu.picojoules_per_flop", limits_products, "products other than fp32"},
    HardwareRule{"gpu.l2_cache", [](const Plan&) { return false; },
                 "calibrate or validate, which alone read it"},
    HardwareRule{"gpu.boost_clock", [](const Plan&) { return false; },
                 "calibrate or validate, which alone read it"},
};

}  // namespace

std::vector<IdleField> idle_hardware_fields(const Plan& plan) {
  const std::vector<std::string>& settings = plan.cluster.overrides;
  std::vector<IdleField> idle;
  for (const HardwareRule& rule : kHardwareRules) {
    const bool stated = std::any_of(settings.begin(), settings.end(), [&](const std::string& text) {
      return topologies::overridden_path(text) == rule.path;
    });
    if (stated && !rule.applies(plan)) {
      idle.push_back({std::string(rule.path), std::string(rule.needs)});
    }
  }
  return idle;
}

}  // namespace orrery::plan
