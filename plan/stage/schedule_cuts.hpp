// SPDX-License-Identifier: Apache-2.0
// The cuts into virtual stages that plans of a schedule have: even, and balanced by the work of
// blocks (docs/search.md, Cuts into stages). They differ from schedule to schedule: in modules that
// are cut apart, in devices that share embedding and head, and in where a device's stages are.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "plan/plan.hpp"

namespace orrery::plan {

// Of each position of a chain. All devices have as much of a shared embedding and head as each
// other, so that these are no work of a stage.
struct ChainWork {
  std::vector<std::int64_t> all;
  std::vector<std::int64_t> layers;  // none of embedding and head
  const std::vector<std::int64_t>& of(bool shares_ends) const { return shares_ends ? layers : all; }
};
ChainWork chain_work(const Plan& plan);

// One chain cut by `work`, or `even` where that is as good.
std::vector<int> balanced_cut(std::span<const std::int64_t> work, const std::vector<int>& even);
// The same of devices that have several stages each, from `cut`, which is that of the stages.
std::vector<int> balanced_on_devices(std::span<const std::int64_t> work,
                                     std::span<const std::uint16_t> device_of,
                                     const std::vector<int>& even, std::vector<int> cut);

struct ScheduleCuts {
  std::vector<int> even;
  std::vector<int> balanced;  // the even one where that is as good
};
// Of the plan's schedule and chunks, which it can run (plan_schedule.hpp), whatever its stages are
// now. Empty where layers are lacking.
ScheduleCuts schedule_cuts(Plan plan, const ChainWork& work);

}  // namespace orrery::plan
