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
std::int64_t nearest_multiple(std::int64_t value, std::int64_t of) {
  return std::max<std::int64_t>(1, (value + of / 2) / of) * of;
}

// "slices" of "slices (frozen portions)".
std::string_view field_of(std::string_view what) { return what.substr(0, what.find(" (")); }

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

std::string check_sizes(const ScheduleParams& params) {
  std::string small = first_broken({check_at_least(params.stages, 1, "stages"),
                                    check_at_least(params.micro_batches, 1, "micro-batches"),
                                    check_at_least(params.chunks, 1, "chunks")});
  if (!small.empty()) {
    return small;
  }
  constexpr std::int64_t kMaxUnits = limits::kMaxPasses / 3;  // forwards, two kinds of gradients
  const Factor stages{"stages", params.stages};
  const Factor chunks{"chunks", params.chunks};
  const Factor micro_batches{"micro-batches", params.micro_batches};
  std::string large = first_broken({check_product({stages, chunks}, kMaxVirtualStages),
                                    check_product({stages, chunks, micro_batches}, kMaxUnits)});
  if (large.empty() && params.slices > 1) {
    large = check_product({stages, chunks, micro_batches, {"slices", params.slices}}, kMaxUnits);
  }
  return large.empty() ? first_broken({check_at_least(params.slices, 1, "slices"),
                                       check_at_least(params.replicas, 1, "replicas"),
                                       check_at_least(params.iterations, 0, "iterations"),
                                       params.cap < 0 ? check_no_cap(params) : ""})
                       : large;
}

std::string check_one_chunk(const ScheduleParams& params) { return check_chunks(params, 1); }

std::string check_chunks(const ScheduleParams& params, int chunks) {
  return params.chunks == chunks
             ? ""
             : fmt::format("{} model chunk{} per device {} required, not {}: set chunks to {}",
                           chunks == 1 ? "one" : std::to_string(chunks), chunks == 1 ? "" : "s",
                           chunks == 1 ? "is" : "are", params.chunks, chunks);
}

std::string check_own_warm_up(const ScheduleParams& params) {
  return params.warm_up == 0
             ? ""
             : fmt::format("the warm-up of this schedule is fixed, not {}: set warm-up to 0",
                           params.warm_up);
}

std::string check_multiple_of_stages(const ScheduleParams& params) {
  if (params.stages > 0 && params.micro_batches % params.stages == 0) {
    return "";
  }
  return fmt::format(
      "micro-batches must be a multiple of stages, but {} is not one of {}: set micro-batches to "
      "{}",
      params.micro_batches, params.stages,
      nearest_multiple(params.micro_batches, std::max(params.stages, 1)));
}

std::string check_multiple(const ScheduleParams& params, std::int64_t of, std::string_view why) {
  const std::int64_t m = params.micro_batches;
  return of < 1 || m % of == 0
             ? ""
             : fmt::format(
                   "micro-batches must be a multiple of {} ({}), but {} is not: set "
                   "micro-batches to {}",
                   of, why, m, nearest_multiple(m, of));
}

std::string check_heuristic_sizes(const ScheduleParams& params) {
  constexpr std::int64_t kMost = 1'000'000;
  if (!check_sizes(params).empty()) {
    return "";  // named elsewhere
  }
  return check_product({{"stages", params.stages},
                        {"chunks", params.chunks},
                        {"micro-batches", params.micro_batches}},
                       kMost, "this order is searched for: ");
}

std::string check_even_stages(const ScheduleParams& params) {
  return params.stages % 2 == 0 ? ""
                                : fmt::format("stages must be even, not {}: set stages to {}",
                                              params.stages, std::int64_t{params.stages} + 1);
}

std::string check_equal_slices(const ScheduleParams& params) {
  return params.slices_of.empty()
             ? ""
             : fmt::format(
                   "all micro-batches have the same number of slices here: set slices to {}",
                   std::max(params.slices, 1));
}

std::string check_slices_of(const ScheduleParams& params) {
  const std::vector<int>& slices = params.slices_of;
  const bool positive = std::all_of(slices.begin(), slices.end(), [](int n) { return n >= 1; });
  return slices.empty() ||
                 (positive && slices.size() == static_cast<std::size_t>(params.micro_batches))
             ? ""
             : fmt::format(
                   "slices of {} micro-batches, each at least 1, are required, not of {}: "
                   "set {} to {}",
                   params.micro_batches, slices.size(), positive ? "micro-batches" : "slices",
                   positive ? slices.size() : 1);
}

std::string check_one_slice(const ScheduleParams& params) {
  return params.slices == 1 && params.slices_of.empty()
             ? ""
             : fmt::format("sequences are not sliced here, not into {} either: set slices to 1",
                           params.slices);
}

std::string check_no_cap(const ScheduleParams& params) {
  return params.cap == 0.0 ? ""
                           : fmt::format("the activations of this schedule are fixed: leave {} out",
                                         params.cap_name);
}

std::string check_cap(const ScheduleParams& params, double smallest) {
  return params.cap == 0.0 || params.cap >= smallest
             ? ""
             : fmt::format("a cap of {:g} micro-batches is below the minimum: set {} to {:g}",
                           params.cap, params.cap_name, smallest);
}

std::string check_one_replica(const ScheduleParams& params) {
  if (std::string unequal = check_equal_replicas(params); !unequal.empty()) {
    return unequal;
  }
  return params.replicas == 1
             ? ""
             : fmt::format("one pipeline is required, not {}: set replicas to 1", params.replicas);
}

std::string check_equal_replicas(const ScheduleParams& params) {
  return params.replicas_of.empty()
             ? ""
             : "stages on different numbers of devices are not possible here: set replicas to 1";
}

std::string check_no_rollbacks(const ScheduleParams& params) {
  return params.rollbacks == 0 ? "" : "updates are final here: set rollbacks to 0";
}

std::string check_own_iterations(const ScheduleParams& params) {
  if (std::string broken = check_no_rollbacks(params); !broken.empty()) {
    return broken;
  }
  return params.iterations == 0 || params.iterations == 1
             ? ""
             : fmt::format("this schedule is one iteration, not {}: leave iterations out",
                           params.iterations);
}

std::string check_at_most(int value, int most, std::string_view what) {
  return value <= most ? ""
                       : fmt::format("{} must be at most {}, not {}: set {} to {}", what, most,
                                     value, field_of(what), most);
}

std::string check_at_least(int value, int least, std::string_view what) {
  return value >= least ? ""
                        : fmt::format("{} must be at least {}, not {}: set {} to {}", what, least,
                                      value, field_of(what), least);
}

std::string check_product(std::initializer_list<Factor> factors, std::int64_t most,
                          std::string_view why) {
  double product = 1.0;
  for (const Factor& factor : factors) {
    product *= static_cast<double>(factor.value);
  }
  if (product <= static_cast<double>(most)) {
    return "";
  }
  const auto enough = [&](const Factor& factor) {  // of it, with the others as they are
    return std::floor(static_cast<double>(most) * static_cast<double>(factor.value) / product);
  };
  // The micro-batches are the easiest to change, then the slices, then what stands first.
  const auto rank = [&](const Factor& factor) {
    return enough(factor) < 1                ? 3
           : factor.field == "micro-batches" ? 0
           : factor.field == "slices"        ? 1
                                             : 2;
  };
  const Factor* const change =
      std::min_element(factors.begin(), factors.end(),
                       [&](const Factor& a, const Factor& b) { return rank(a) < rank(b); });
  std::string names;
  for (const Factor& factor : factors) {
    names += fmt::format("{}{}", names.empty() ? "" : " x ", factor.field);
  }
  return fmt::format("{}{} must be at most {}, not {:.0f}: set {} to {:.0f}", why, names, most,
                     product, change->field, std::max(1.0, enough(*change)));
}

std::string check_warm_up(const ScheduleParams& params, int most, std::string_view meaning) {
  return params.warm_up >= 0 && params.warm_up <= most
             ? ""
             : fmt::format("warm-up must be 0 to {} ({}), not {}: set warm-up to {}", most, meaning,
                           params.warm_up, std::clamp(params.warm_up, 0, most));
}

std::string check_basics(const ScheduleParams& params) {
  return first_broken({check_sizes(params), check_one_slice(params), check_no_cap(params),
                       check_one_replica(params), check_own_iterations(params)});
}

std::string first_broken(std::initializer_list<std::string> constraints) {
  for (const std::string& broken : constraints) {
    if (!broken.empty()) {
      return broken;
    }
  }
  return "";
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
