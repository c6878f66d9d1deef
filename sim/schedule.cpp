// SPDX-License-Identifier: Apache-2.0
#include "sim/schedule.hpp"

#include <fmt/core.h>

#include <limits>
#include <utility>

#include "base/error.hpp"
#include "base/limits.hpp"
#include "base/text.hpp"

namespace orrery::sim {

const Schedule& find_schedule(std::string_view name, std::string_view where) {
  std::vector<std::string> names;
  for (const Schedule* schedule : schedule_table()) {
    if (schedule->name == name) {
      return *schedule;
    }
    names.emplace_back(schedule->name);
  }
  bad_input(where, fmt::format("unknown pipeline schedule \"{}\"", printable(name)),
            nearest_hint(name, names));
}

std::vector<std::uint16_t> loop_placement(const ScheduleParams& params) {
  std::vector<std::uint16_t> device_of(static_cast<std::size_t>(params.stages * params.chunks));
  for (std::size_t s = 0; s < device_of.size(); ++s) {
    device_of[s] = static_cast<std::uint16_t>(s % static_cast<std::size_t>(params.stages));
  }
  return device_of;
}

PipelineOrder empty_order(const ScheduleParams& params, std::vector<std::uint16_t> device_of,
                          int kinds) {
  PipelineOrder order;
  order.num_virtual_stages = static_cast<int>(device_of.size());
  order.micro_batches = params.micro_batches;
  order.device_of = std::move(device_of);
  order.passes.resize(static_cast<std::size_t>(params.stages));
  const auto length = static_cast<std::size_t>(params.micro_batches) *
                      static_cast<std::size_t>(params.chunks * kinds);
  for (auto& list : order.passes) {
    list.reserve(length);
  }
  return order;
}

std::string check_sizes(const ScheduleParams& params) {
  if (params.stages < 1 || params.micro_batches < 1 || params.chunks < 1) {
    return fmt::format("stages, micro-batches and chunks must be at least 1, not {}, {} and {}",
                       params.stages, params.micro_batches, params.chunks);
  }
  constexpr std::int64_t kMaxStages = std::numeric_limits<std::uint16_t>::max();
  const std::int64_t virtual_stages = std::int64_t{params.stages} * params.chunks;
  if (virtual_stages > kMaxStages) {
    return fmt::format("stages x chunks must be at most {}, not {}", kMaxStages, virtual_stages);
  }
  constexpr std::int64_t kKinds = 3;
  if (virtual_stages * params.micro_batches > limits::kMaxPasses / kKinds) {
    return fmt::format("stages x chunks x micro-batches must be at most {}, not {}",
                       limits::kMaxPasses / kKinds, virtual_stages * params.micro_batches);
  }
  return "";
}

std::string check_one_chunk(const ScheduleParams& params) {
  return params.chunks == 1
             ? ""
             : fmt::format("one model chunk per device is required, not {}", params.chunks);
}

std::string check_own_warm_up(const ScheduleParams& params) {
  return params.warm_up == 0
             ? ""
             : fmt::format("the warm-up of this schedule is fixed, so warm-up must be 0, not {}",
                           params.warm_up);
}

std::string check_multiple_of_stages(const ScheduleParams& params) {
  return params.stages > 0 && params.micro_batches % params.stages == 0
             ? ""
             : fmt::format("micro-batches must be a multiple of stages, but {} is not one of {}",
                           params.micro_batches, params.stages);
}

std::string first_broken(std::initializer_list<std::string> constraints) {
  for (const std::string& broken : constraints) {
    if (!broken.empty()) {
      return broken;
    }
  }
  return "";
}

void append_all(std::vector<Pass>& list, PassKind kind, int virtual_stage, int count) {
  for (int j = 0; j < count; ++j) {
    list.push_back(
        {kind, static_cast<std::uint16_t>(virtual_stage), static_cast<std::uint32_t>(j)});
  }
}

}  // namespace orrery::sim
