// SPDX-License-Identifier: Apache-2.0
#include "search/problems/galvatron_cost.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.hpp"

namespace orrery::search::galvatron {
namespace {

constexpr double kBackward = 2;           // times the forward
constexpr double kSecondsPerMs = 0.0011;  // with the artifact's fixed margin of 10 %
constexpr double kLayers = 24;  // costs are those of 24 layers, on which the overhead was profiled

constexpr double kShardedMargin = 0.025;  // of the states, beyond an even share
constexpr double kTieBreak = 1e-4;        // seconds; SDP layers come after DP layers

std::string group_name(int degree, bool both, bool consecutive) {
  return both ? fmt::format("{} {}", degree, consecutive ? "consecutive" : "strided")
              : fmt::format("{}", degree);
}

double link_of(const Problem& problem, const Strategy& s, int degree, bool consecutive) {
  return degree == 1 ? 0 : link(problem, s.pp, group_name(degree, s.both(), consecutive));
}

double micro_batches(const Problem& problem, const Strategy& s, double per_device) {
  for (const MicroBatchRule& rule : problem.micro_batches) {
    const bool matches = rule.pp.value_or(s.pp) == s.pp && rule.tp.value_or(s.tp) == s.tp &&
                         per_device == rule.equal.value_or(per_device) &&
                         (!rule.below || per_device < *rule.below) &&
                         per_device <= rule.up_to.value_or(per_device);
    if (matches) {
      return rule.per_sample * per_device + rule.constant;
    }
  }
  return 1;
}

// Share of the backward that the all-reduce of gradients can hide under.
double overlapped_share(const LayerType& layer, const Strategy& s) {
  if (s.tp == 1) {
    return 1;
  }
  if (s.pp == 1 && layer.decoder) {
    return 2.0 / 3.0;
  }
  return s.pp == 1 && s.tp == 2 ? 1 : 0.5;
}

bool in_space(const Strategy& s, Space space) {
  switch (space) {
    case Space::Full:
      return true;
    case Space::Dp:
      return s.pp == 1 && s.tp == 1 && !s.sharded;
    case Space::Tp:
      return s.pp == 1 && s.dp == 1;
    case Space::Pp:
      return s.tp == 1 && s.dp == 1;
    case Space::Sdp:
      return s.pp == 1 && s.tp == 1 && s.sharded;
    case Space::DpTp:
      return s.pp == 1 && !s.sharded;
    case Space::DpPp:
      return s.tp == 1 && !s.sharded;
  }
  return false;
}

bool order_flips(const Strategy& from, const Strategy& to) {
  return from.both() && to.both() && from.consecutive != to.consecutive;
}

}  // namespace

std::string Strategy::text() const {
  return fmt::format("{}-{}{}-{}{}{}", pp, tp, both() && consecutive ? "*" : "", dp,
                     sharded ? "f" : "", both() && !consecutive ? "*" : "");
}

std::vector<Strategy> leaves(int devices, int pp, Space space) {
  std::vector<Strategy> result;
  const int island = devices / pp;
  for (int tp = 1; tp <= island; tp *= 2) {
    const int dp = island / tp;
    for (const bool sharded : {false, true}) {
      for (const bool consecutive : {false, true}) {
        const Strategy s{pp, tp, dp, sharded, consecutive};
        if ((sharded && dp == 1) || (consecutive && !s.both()) || !in_space(s, space)) {
          continue;
        }
        result.push_back(s);
      }
    }
  }
  return result;
}

double link(const Problem& problem, int pp, const std::string& group) {
  const auto row = problem.links.find(pp);
  const auto end = problem.links.end();
  if (row == end || row->second.find(group) == row->second.end()) {
    bad_input(problem.where, fmt::format("no link \"{}\" for {} pipeline stage(s)", group, pp),
              fmt::format("give /links/{}/{} in ms/MiB", pp, group));
  }
  return row->second.at(group);
}

double overlap(double x, double y, double slowdown) {
  return std::max(x, y) + (slowdown - 1) * std::min(x, y);
}

double layer_seconds(const Problem& problem, const LayerType& layer, const Strategy& s, int batch) {
  const double per_device = static_cast<double>(batch) / s.dp;
  const double forward = layer.forward_ms * per_device / s.tp * kLayers;
  const double backward = kBackward * forward;
  const double reduce_mib = 2.0 * (s.dp - 1) / s.dp * (layer.parameters_mib / s.tp) * kLayers;
  const double reduce_link = link_of(problem, s, s.dp, !s.consecutive);
  const double reduce = reduce_mib * reduce_link;
  const double message_mib = per_device * layer.sequence * layer.hidden * 4 / 1024 / 1024;
  const double messages = 2.0 * (s.tp - 1) / s.tp * (layer.decoder ? 6 : 4) * message_mib *
                          kLayers * link_of(problem, s, s.tp, s.consecutive);
  const double compute = forward + backward + messages;
  double communication = 0;
  if (s.dp > 1) {
    const double hidden_under = overlapped_share(layer, s) * backward;
    double together = overlap(hidden_under, reduce, problem.overlap_slowdown);
    // Of an all-reduce that outlasts the backward, a stage's rest is paid once, not once a stage.
    const double rest = reduce - hidden_under;
    if (s.tp == 1 && !s.sharded && rest > 0) {
      together -= rest * (1 - 1.0 / s.pp);
    }
    communication = together - hidden_under + problem.extra_overhead_ms;
  }
  double total = compute + communication;
  if (s.pp > 1) {
    const double m = micro_batches(problem, s, per_device);
    total = compute * (s.pp + m - 1) / (s.pp * m) + communication;
  }
  if (s.sharded) {
    total += 0.5 * reduce;
  }
  return total * kSecondsPerMs / kLayers;
}

double layer_mib(const LayerType& layer, const Strategy& s, int batch) {
  double states = 4 * layer.parameters_mib / s.tp;
  if (s.sharded) {
    states *= 1.0 / s.dp + kShardedMargin;
  }
  return states + layer.activation_mib.at(s.tp) * (static_cast<double>(batch) / s.dp);
}

double other_mib(const Problem& problem, int batch, int island) {
  return problem.other_states_mib + problem.other_activation_mib * batch / island +
         problem.context_mib;
}

double switch_seconds(const Problem& problem, const Strategy& from, const Strategy& to, int batch) {
  if (from.same_degrees(to) && from.consecutive == to.consecutive) {
    return from.sharded && !to.sharded ? kTieBreak : 0;
  }
  const bool flips = order_flips(from, to);
  const bool moves = to.tp > from.tp || (to.tp == from.tp && flips) ||
                     (from.tp * from.dp == 8 && from.tp == 4 && to.tp == 2 && flips);
  if (!moves) {
    return 0;
  }
  const double activation_mib = 2.0 * batch / to.dp * (to.tp - 1) / to.tp;
  return activation_mib * link_of(problem, to, to.tp, to.consecutive) * 0.001;
}

}  // namespace orrery::search::galvatron
