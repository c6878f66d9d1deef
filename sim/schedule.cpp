// SPDX-License-Identifier: Apache-2.0
#include "sim/schedule.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "base/error.hpp"
#include "base/limits.hpp"
#include "base/text.hpp"

namespace orrery::sim {
namespace {

// Of `of` >= 1, at least once; of two as near the larger.
double nearest_multiple(std::int64_t value, std::int64_t of) {
  return static_cast<double>(std::max<std::int64_t>(1, (value + of / 2) / of) * of);
}

// "slices (frozen portions)".
std::string with_meaning(Size size, std::string_view meaning) {
  return meaning.empty() ? std::string(to_text(size))
                         : fmt::format("{} ({})", to_text(size), meaning);
}

}  // namespace

const Schedule& find_schedule(std::string_view name, std::string_view where) {
  for (const Schedule* schedule : schedule_table()) {
    if (schedule->name == name) {
      return *schedule;
    }
  }
  std::vector<std::string> names;
  for (const Schedule* schedule : schedule_table()) {
    names.emplace_back(schedule->name);
  }
  bad_input(where, fmt::format("unknown pipeline schedule \"{}\"", printable(name)),
            nearest_hint(name, names));
}

bool is_registered_schedule(std::string_view name) {
  const auto table = schedule_table();
  return std::any_of(table.begin(), table.end(),
                     [&](const Schedule* schedule) { return schedule->name == name; });
}

const PassTimes& ScheduleParams::times_of(std::size_t virtual_stage) const {
  static const PassTimes kUnit;
  return times.empty() ? kUnit : times[times.size() == 1 ? 0 : virtual_stage];
}

Lane lane_of(PassKind kind) {
  switch (kind) {
    case PassKind::Forward:
      return Lane::Forward;
    case PassKind::WeightGrad:
      return Lane::WeightGrad;
    case PassKind::Recompute:
      return Lane::Recompute;
    case PassKind::Optimizer:
      return Lane::Optimizer;
    default:
      return Lane::Gradient;
  }
}

std::uint16_t device_of(const PipelineOrder& order, Lane lane, std::size_t virtual_stage) {
  if (lane == Lane::Gradient && !order.gradient_device_of.empty()) {
    return order.gradient_device_of[virtual_stage];
  }
  const bool weights = lane == Lane::WeightGrad || lane == Lane::Optimizer;
  return weights && !order.weight_grad_device_of.empty()
             ? order.weight_grad_device_of[virtual_stage]
             : order.device_of[virtual_stage];
}

std::vector<bool> recomputed_stages(const PipelineOrder& order) {
  std::vector<bool> recomputed(static_cast<std::size_t>(order.num_virtual_stages), false);
  for (std::size_t d = 0; order.extended && d < order.passes.size(); ++d) {
    for (const Pass& pass : order.passes[d]) {
      if (pass.kind == PassKind::Recompute) {
        recomputed[pass.virtual_stage] = true;
      }
    }
  }
  return recomputed;
}

int pieces_of(const PipelineOrder& order) {
  const auto devices = static_cast<int>(order.passes.size());
  return order.pieces > 0 ? order.pieces : std::max(1, order.num_virtual_stages / devices);
}

std::vector<Chain> chains_of(const PipelineOrder& order) {
  if (!order.chains.empty()) {
    return order.chains;
  }
  return {{.first = 0, .stages = order.num_virtual_stages, .units = order.micro_batches}};
}

std::vector<std::uint16_t> loop_placement(const ScheduleParams& params) {
  std::vector<std::uint16_t> device_of(static_cast<std::size_t>(params.stages * params.chunks));
  for (std::size_t s = 0; s < device_of.size(); ++s) {
    device_of[s] = static_cast<std::uint16_t>(s % static_cast<std::size_t>(params.stages));
  }
  return device_of;
}

std::vector<int> slices_of_all(const ScheduleParams& params) {
  return params.slices_of.empty()
             ? std::vector<int>(static_cast<std::size_t>(params.micro_batches), params.slices)
             : params.slices_of;
}

std::vector<int> replicas_of_all(const ScheduleParams& params) {
  return params.replicas_of.empty()
             ? std::vector<int>(static_cast<std::size_t>(std::max(params.stages, 0)),
                                params.replicas)
             : params.replicas_of;
}

bool has_copies(const PipelineOrder& order) {
  return !order.chains.empty() && order.chains.front().stride > 1;
}

int stage_of_copy(const PipelineOrder& order, std::size_t virtual_stage) {
  const int stage = static_cast<int>(virtual_stage);
  return has_copies(order) ? stage % order.chains.front().stages : stage;
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

Refusal check_sizes(const ScheduleParams& params) {
  Refusal small = first_broken({check_at_least(params.stages, 1, Size::Stages),
                                check_at_least(params.micro_batches, 1, Size::MicroBatches),
                                check_at_least(params.chunks, 1, Size::Chunks)});
  if (!small.empty()) {
    return small;
  }
  constexpr std::int64_t kMaxUnits = limits::kMaxPasses / 3;  // forwards, two kinds of gradients
  const Factor stages{Size::Stages, params.stages};
  const Factor chunks{Size::Chunks, params.chunks};
  const Factor micro_batches{Size::MicroBatches, params.micro_batches};
  Refusal large = first_broken({check_product({stages, chunks}, kMaxVirtualStages),
                                check_product({stages, chunks, micro_batches}, kMaxUnits)});
  if (large.empty() && params.slices > 1) {
    large =
        check_product({stages, chunks, micro_batches, {Size::Slices, params.slices}}, kMaxUnits);
  }
  return large.empty() ? first_broken({check_at_least(params.slices, 1, Size::Slices),
                                       check_at_least(params.replicas, 1, Size::Replicas),
                                       check_at_least(params.iterations, 0, Size::Iterations),
                                       params.cap < 0 ? check_no_cap(params) : Refusal()})
                       : large;
}

Refusal check_one_chunk(const ScheduleParams& params) { return check_chunks(params, 1); }

Refusal check_chunks(const ScheduleParams& params, int chunks) {
  return params.chunks == chunks
             ? Refusal()
             : refused(
                   fmt::format("{} model chunk{} per device {} required, not {}",
                               chunks == 1 ? "one" : std::to_string(chunks), chunks == 1 ? "" : "s",
                               chunks == 1 ? "is" : "are", params.chunks),
                   Size::Chunks, chunks);
}

Refusal check_own_warm_up(const ScheduleParams& params) {
  return params.warm_up == 0
             ? Refusal()
             : refused(fmt::format("the warm-up of this schedule is fixed, not {}", params.warm_up),
                       Size::WarmUp, 0);
}

Refusal check_multiple_of_stages(const ScheduleParams& params) {
  if (params.stages > 0 && params.micro_batches % params.stages == 0) {
    return {};
  }
  return refused(fmt::format("micro-batches must be a multiple of stages, but {} is not one of {}",
                             params.micro_batches, params.stages),
                 Size::MicroBatches,
                 nearest_multiple(params.micro_batches, std::max(params.stages, 1)));
}

Refusal check_multiple(const ScheduleParams& params, std::int64_t of, std::string_view why) {
  const std::int64_t m = params.micro_batches;
  return of < 1 || m % of == 0
             ? Refusal()
             : refused(fmt::format("micro-batches must be a multiple of {} ({}), but {} is not", of,
                                   why, m),
                       Size::MicroBatches, nearest_multiple(m, of));
}

Refusal check_fewest_micro_batches(const ScheduleParams& params, std::int64_t least) {
  return params.micro_batches >= least
             ? Refusal()
             : refused(fmt::format("at least {} micro-batches are required, not {}", least,
                                   params.micro_batches),
                       Size::MicroBatches, static_cast<double>(least));
}

Refusal check_heuristic_sizes(const ScheduleParams& params) {
  constexpr std::int64_t kMost = 1'000'000;
  if (!check_sizes(params).empty()) {
    return {};  // named elsewhere
  }
  return check_product({{Size::Stages, params.stages},
                        {Size::Chunks, params.chunks},
                        {Size::MicroBatches, params.micro_batches}},
                       kMost, "this order is searched for: ");
}

Refusal check_even_stages(const ScheduleParams& params) {
  return params.stages % 2 == 0 ? Refusal()
                                : refused(fmt::format("stages must be even, not {}", params.stages),
                                          Size::Stages, params.stages + 1.0);
}

Refusal check_equal_slices(const ScheduleParams& params) {
  return params.slices_of.empty() ? Refusal()
                                  : refused("all micro-batches have the same number of slices here",
                                            Size::Slices, std::max(params.slices, 1));
}

Refusal check_slices_of(const ScheduleParams& params) {
  const std::vector<int>& slices = params.slices_of;
  const bool positive = std::all_of(slices.begin(), slices.end(), [](int n) { return n >= 1; });
  return slices.empty() ||
                 (positive && slices.size() == static_cast<std::size_t>(params.micro_batches))
             ? Refusal()
             : refused(fmt::format("slices of {} micro-batches, each at least 1, are required, not "
                                   "of {}",
                                   params.micro_batches, slices.size()),
                       positive ? Size::MicroBatches : Size::Slices,
                       positive ? static_cast<double>(slices.size()) : 1);
}

Refusal check_one_slice(const ScheduleParams& params) {
  return params.slices == 1 && params.slices_of.empty()
             ? Refusal()
             : refused(
                   fmt::format("sequences are not sliced here, not into {} either", params.slices),
                   Size::Slices, 1);
}

Refusal check_no_cap(const ScheduleParams& params) {
  return params.cap == 0.0 ? Refusal()
                           : not_taken("the activations of this schedule are fixed", Size::Cap);
}

Refusal check_cap(const ScheduleParams& params, double smallest) {
  return params.cap == 0.0 || params.cap >= smallest
             ? Refusal()
             : refused(fmt::format("a cap of {:g} micro-batches is below the minimum", params.cap),
                       Size::Cap, smallest);
}

Refusal check_one_replica(const ScheduleParams& params) {
  if (Refusal unequal = check_equal_replicas(params); !unequal.empty()) {
    return unequal;
  }
  return params.replicas == 1
             ? Refusal()
             : refused(fmt::format("one pipeline is required, not {}", params.replicas),
                       Size::Replicas, 1);
}

Refusal check_equal_replicas(const ScheduleParams& params) {
  return params.replicas_of.empty()
             ? Refusal()
             : refused("stages on different numbers of devices are not possible here",
                       Size::Replicas, 1);
}

Refusal check_no_rollbacks(const ScheduleParams& params) {
  return params.rollbacks == 0 ? Refusal() : refused("updates are final here", Size::Rollbacks, 0);
}

Refusal check_own_iterations(const ScheduleParams& params) {
  if (Refusal broken = check_no_rollbacks(params); !broken.empty()) {
    return broken;
  }
  return params.iterations == 0 || params.iterations == 1
             ? Refusal()
             : not_taken(fmt::format("this schedule is one iteration, not {}", params.iterations),
                         Size::Iterations);
}

Refusal check_at_most(int value, int most, Size size, std::string_view meaning) {
  return value <= most ? Refusal()
                       : refused(fmt::format("{} must be at most {}, not {}",
                                             with_meaning(size, meaning), most, value),
                                 size, most);
}

Refusal check_at_least(int value, int least, Size size, std::string_view meaning) {
  return value >= least ? Refusal()
                        : refused(fmt::format("{} must be at least {}, not {}",
                                              with_meaning(size, meaning), least, value),
                                  size, least);
}

Refusal check_product(std::initializer_list<Factor> factors, std::int64_t most,
                      std::string_view why) {
  double product = 1.0;
  for (const Factor& factor : factors) {
    product *= static_cast<double>(factor.value);
  }
  if (product <= static_cast<double>(most)) {
    return {};
  }
  const auto enough = [&](const Factor& factor) {  // of it, with the others as they are
    return std::floor(static_cast<double>(most) * static_cast<double>(factor.value) / product);
  };
  // The micro-batches are the easiest to change, then the slices, then what stands first.
  const auto rank = [&](const Factor& factor) {
    return enough(factor) < 1                  ? 3
           : factor.size == Size::MicroBatches ? 0
           : factor.size == Size::Slices       ? 1
                                               : 2;
  };
  const Factor* const change =
      std::min_element(factors.begin(), factors.end(),
                       [&](const Factor& a, const Factor& b) { return rank(a) < rank(b); });
  std::string names;
  for (const Factor& factor : factors) {
    names += fmt::format("{}{}", names.empty() ? "" : " x ", to_text(factor.size));
  }
  return too_many(fmt::format("{}{} must be at most {}, not {:.0f}", why, names, most, product),
                  change->size, std::max(1.0, enough(*change)));
}

Refusal check_warm_up(const ScheduleParams& params, int most, std::string_view meaning) {
  return params.warm_up >= 0 && params.warm_up <= most
             ? Refusal()
             : refused(fmt::format("warm-up must be 0 to {} ({}), not {}", most, meaning,
                                   params.warm_up),
                       Size::WarmUp, std::clamp(params.warm_up, 0, most));
}

Refusal check_basics(const ScheduleParams& params) {
  return first_broken({check_sizes(params), check_one_slice(params), check_no_cap(params),
                       check_one_replica(params), check_own_iterations(params)});
}

Refusal first_broken(std::initializer_list<Refusal> constraints) {
  for (const Refusal& broken : constraints) {
    if (!broken.empty()) {
      return broken;
    }
  }
  return {};
}

double all_micro_batches(const ScheduleParams& params) { return params.micro_batches; }

double one_per_stage(const ScheduleParams& params) {
  return std::min(params.stages, params.micro_batches);
}

double cap_or_one_per_stage(const ScheduleParams& params) {
  return params.cap > 0 ? std::min<double>(params.cap, params.micro_batches)
                        : one_per_stage(params);
}

void append_all(std::vector<Pass>& list, PassKind kind, int virtual_stage, int count) {
  for (int j = 0; j < count; ++j) {
    list.push_back(
        {kind, static_cast<std::uint16_t>(virtual_stage), static_cast<std::uint32_t>(j)});
  }
}

}  // namespace orrery::sim
