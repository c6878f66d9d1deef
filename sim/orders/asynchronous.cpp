// SPDX-License-Identifier: Apache-2.0
#include "sim/orders/asynchronous.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/limits.hpp"
#include "sim/orders/policy.hpp"
#include "sim/orders/replicated_stages.hpp"

namespace orrery::sim {

namespace {

// Enough for a pipeline that holds so many micro-batches.
int iterations_for(const ScheduleParams& params, std::int64_t depth) {
  constexpr std::int64_t kSteady = 6;  // times the depth
  const std::int64_t steady = kSteady * depth / std::max(params.micro_batches, 1) + 1;
  return params.iterations > 0 ? params.iterations
                               : static_cast<int>(std::max<std::int64_t>(4, steady));
}

int dealt_iterations_of(const ScheduleParams& params) {
  return has_replicated_stages(params)
             ? iterations_for(params,
                              std::max<std::int64_t>(most_in_flight(params), 2 * turns_of(params)))
             : iterations_of(params);
}

Refusal check_run(const ScheduleParams& params, int least, int iterations) {
  if (Refusal broken = check_no_rollbacks(params); !broken.empty()) {
    return broken;
  }
  if (params.micro_batches < least) {
    return refused(fmt::format("at least {} micro-batches per update are required, not {}", least,
                               params.micro_batches),
                   Size::MicroBatches, least);
  }
  return check_product({{Size::Stages, params.stages},
                        {Size::MicroBatches, params.micro_batches},
                        {Size::Iterations, iterations}},
                       limits::kMaxPasses / 3);
}

}  // namespace

int iterations_of(const ScheduleParams& params) { return iterations_for(params, params.stages); }

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

Refusal check_without_flush(const ScheduleParams& params, int least) {
  return first_broken({check_sizes(params), check_one_slice(params), check_no_cap(params),
                       check_one_replica(params), check_own_warm_up(params),
                       check_one_chunk(params), check_asynchronous(params, least)});
}

PipelineOrder dealt_without_flush(const ScheduleParams& params, int per_update, Versions versions) {
  return has_replicated_stages(params)
             ? with_replicated_stages(params, dealt_iterations_of(params), per_update, versions)
             : without_flush(params, per_update, versions);
}

Refusal check_dealt(const ScheduleParams& params, Least least) {
  if (Refusal broken = check_sizes(params); !broken.empty()) {
    return broken;
  }
  if (Refusal broken = check_replicated_stages(params); !broken.empty()) {
    return broken;
  }
  const auto turns = static_cast<int>(turns_of(params));
  const int fewest = least == Least::One ? 1 : most_in_flight(params);
  return first_broken(
      {check_one_slice(params), check_no_cap(params), check_own_warm_up(params),
       check_one_chunk(params),
       check_run(params, (fewest + turns - 1) / turns * turns, dealt_iterations_of(params)),
       check_turns(params)});
}

Refusal check_workers_together(const ScheduleParams& params, int most) {
  constexpr std::int64_t kMostOfAll = 2'000'000;  // run in some two seconds, in 100 MB
  if (!check_sizes(params).empty() || params.replicas <= 1) {
    return {};
  }
  // The stream on which a worker pushes counts as a stage.
  const std::int64_t of_worker =
      (std::int64_t{params.stages} + 1) * params.micro_batches * iterations_of(params);
  const std::int64_t workers = kMostOfAll / of_worker;
  return params.replicas <= workers
             ? Refusal()
             : too_many(fmt::format("(stages + 1) x replicas x micro-batches x iterations must be "
                                    "at most {}, not {:.0f}",
                                    kMostOfAll, static_cast<double>(of_worker) * params.replicas),
                        Size::Replicas,
                        static_cast<double>(std::clamp<std::int64_t>(workers, 1, most)));
}

Refusal check_asynchronous(const ScheduleParams& params, int least) {
  return check_sizes(params).empty() ? check_run(params, least, iterations_of(params))
                                     : Refusal();  // named elsewhere
}

}  // namespace orrery::sim
