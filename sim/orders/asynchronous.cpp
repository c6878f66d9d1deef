// SPDX-License-Identifier: Apache-2.0
#include "sim/orders/asynchronous.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/limits.hpp"
#include "sim/orders/policy.hpp"

namespace orrery::sim {

int iterations_of(const ScheduleParams& params) {
  constexpr std::int64_t kSteady = 6;  // times the pipeline's depth
  const std::int64_t steady = kSteady * params.stages / std::max(params.micro_batches, 1) + 1;
  return params.iterations > 0 ? params.iterations
                               : static_cast<int>(std::max<std::int64_t>(4, steady));
}

int staleness_of_waves(int of_worker, int workers, int wave, int distance) {
  return workers > 1 ? std::max(of_worker, (distance + 1) * wave + wave - 2) : of_worker;
}

PipelineOrder without_flush(const ScheduleParams& params, int per_update, Versions versions) {
  ScheduleParams all = params;
  all.micro_batches *= iterations_of(params);
  PipelineOrder order = empty_order(all, loop_placement(params), 3);
  order.iterations = iterations_of(params);
  order.versions = versions;
  order.extended = true;
  for (int i = 0; i < params.stages; ++i) {
    auto& list = order.passes[static_cast<std::size_t>(i)];
    const auto stage = static_cast<std::uint16_t>(i);
    const int ahead = std::min(params.stages - i, all.micro_batches);
    append_all(list, PassKind::Forward, i, ahead);
    for (int j = 0; j < all.micro_batches; ++j) {
      list.emplace_back(PassKind::Backward, stage, static_cast<std::uint32_t>(j));
      if ((j + 1) % per_update == 0) {
        list.emplace_back(PassKind::Optimizer, stage, static_cast<std::uint32_t>(j / per_update));
      }
      if (j + ahead < all.micro_batches) {
        list.emplace_back(PassKind::Forward, stage, static_cast<std::uint32_t>(j + ahead));
      }
    }
  }
  return order;
}

std::vector<std::vector<Pass>> lists_by_arrival(const ScheduleParams& params) {
  if (params.micro_batches >= params.stages) {
    return without_flush(params, 1, Versions::Stashed).passes;
  }
  ScheduleParams all = params;
  all.micro_batches *= iterations_of(params);
  const Policy policy{[&](const DeviceView& view) {
                        return WithinCap(view, kGradientsFirst,
                                         params.micro_batches * params.activation);
                      },
                      [](const Pass& pass) { return policy_place(pass.micro_batch); }};
  const PipelineOrder worker =
      run_policy(empty_order(all, loop_placement(params), 2), all, false, policy);
  std::vector<std::vector<Pass>> lists(worker.passes.size());
  for (std::size_t i = 0; i < lists.size(); ++i) {
    for (const Pass& pass : worker.passes[i]) {
      lists[i].push_back(pass);
      if (pass.kind == PassKind::Backward) {
        lists[i].emplace_back(PassKind::Optimizer, pass.virtual_stage, pass.micro_batch);
      }
    }
  }
  return lists;
}

std::string check_without_flush(const ScheduleParams& params, int least) {
  return first_broken({check_sizes(params), check_one_slice(params), check_no_cap(params),
                       check_one_replica(params), check_own_warm_up(params),
                       check_one_chunk(params), check_asynchronous(params, least)});
}

std::string check_asynchronous(const ScheduleParams& params, int least) {
  if (!check_sizes(params).empty()) {
    return "";  // named elsewhere
  }
  if (params.micro_batches < least) {
    return fmt::format(
        "at least {} micro-batches per update are required, not {}: set micro-batches to {}", least,
        params.micro_batches, least);
  }
  const std::int64_t passes =
      std::int64_t{params.stages} * params.micro_batches * iterations_of(params);
  return passes <= limits::kMaxPasses / 3
             ? ""
             : fmt::format("stages x micro-batches x iterations must be at most {}, not {}",
                           limits::kMaxPasses / 3, passes);
}

}  // namespace orrery::sim
