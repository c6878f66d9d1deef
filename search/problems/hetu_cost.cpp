// SPDX-License-Identifier: Apache-2.0
#include "search/problems/hetu_cost.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/error.hpp"

namespace orrery::search::hetu {
namespace {

constexpr double kMs = 0.001;
constexpr double kBackward = 2;  // times the forward
constexpr double kBytes = 2;     // of bf16
constexpr double kMib = 1024 * 1024;
constexpr double kShardMargin = 0.003;   // of the states, beyond an even share
constexpr double kCacheShare = 0.2;      // that the allocator keeps ...
constexpr std::int64_t kCacheFrom = 21;  // ... of cards of so many whole GiB
constexpr double kGatherMessages = 6;    // a layer with tensor parallelism
constexpr double kUlyssesMessages = 4;
constexpr double kAgain = 1.5;  // messages of a checkpointed layer

double samples(const Problem& problem, const Strategy& s, int chunks) {
  return static_cast<double>(problem.batch) / chunks / s.dp;
}

// ms for a MB of an all-reduce among the ranks that share states.
double reduce_ms(const Problem& problem, const Strategy& s) {
  return s.shards() == 1 ? 0
                         : 1 / problem.reduce_bandwidth.at(
                                   fmt::format("{}_{}", s.shards(), s.tp() > 1 ? 0 : 1));
}

// From the table where the size is in it, else from the line of least squares through it, which may
// pass below zero beyond the sizes of the table.
double message_ms(const std::map<int, double>& table, double mib) {
  const auto known = table.find(static_cast<int>(mib));
  if (known != table.end() && known->first == mib) {
    return known->second;
  }
  double mean_x = 0;
  double mean_y = 0;
  for (const auto& [size, time] : table) {
    mean_x += size / static_cast<double>(table.size());
    mean_y += time / static_cast<double>(table.size());
  }
  double products = 0;
  double squares = 0;
  for (const auto& [size, time] : table) {
    products += (size - mean_x) * (time - mean_y);
    squares += (size - mean_x) * (size - mean_x);
  }
  const double slope = products / squares;
  return std::max(0.0, mean_y + slope * (mib - mean_x));
}

double boundary_mib(const Problem& problem, const Strategy& s, int chunks) {
  return samples(problem, s, chunks) * problem.sequence * problem.hidden * kBytes / kMib;
}

double split_ms(const Problem& problem, const Strategy& s, int chunks) {
  if (s.split == 1) {
    return 0;
  }
  const std::map<int, double>& table =
      s.ulysses ? problem.all_to_all_ms.at(s.split) : problem.gather_ms.at(s.split);
  return (s.ulysses ? kUlyssesMessages : kGatherMessages) * (s.checkpoint ? kAgain : 1) *
         message_ms(table, boundary_mib(problem, s, chunks));
}

// A backward beside an all-reduce of `mb`, both slower while they overlap.
double overlapped(double backward, double mb, double ms_per_mb, double slowdown) {
  const double reduce = mb * ms_per_mb * slowdown;
  const double hidden = backward * slowdown;
  if (reduce > hidden) {
    return hidden + mb * ms_per_mb - backward;
  }
  return reduce + backward - reduce / slowdown;
}

double layer_ms(const Problem& problem, const Strategy& s, int chunks, bool reduces) {
  const double forward = problem.forward_ms.at(samples(problem, s, chunks) / s.split);
  const double backward = forward * (kBackward + (s.checkpoint ? 1 : 0));
  const int shards = s.shards();
  const double mb = (shards - 1.0) / shards * problem.parameters_mib / s.tp();
  const double per_mb = reduce_ms(problem, s);
  double total = forward + split_ms(problem, s, chunks);
  total += s.dp > 1 ? overlapped(backward, reduces ? mb : 0, per_mb, problem.overlap_slowdown)
                    : backward;
  if (s.zero == 3) {
    total += 0.5 * mb * per_mb;
  }
  if (s.pp > 1) {
    total += s.pp * 2 * boundary_mib(problem, s, chunks) / problem.transfer_bandwidth.at(s.pp) /
             problem.layers;
  }
  return total;
}

// Of the states, what a rank keeps; gradients are reduced as they come.
double state_share(const Strategy& s, int chunks) {
  const double even = 1.0 / s.shards() + kShardMargin;
  if (s.zero == 3) {
    return chunks == 1 ? even : 7.0 / 8 * even + 1.0 / 8;
  }
  if (s.zero == 2) {
    return chunks == 1 ? 7.0 / 8 * even + 1.0 / 8 : 6.0 / 8 * even + 2.0 / 8;
  }
  return 1;
}

// Micro-batches that a stage of 1F1B holds.
int held(int pp, int stage) { return pp == 1 ? 1 : pp - stage; }

// A transfer of `mb` that takes `ms_per_mb` under `compute` ms, which run slower beside it.
double under(double transfer, double compute, double slowdown) {
  const double slowed = compute * slowdown;
  return slowed > transfer ? transfer + (slowed - transfer) / slowdown : transfer;
}

const EndMemory& end_memory(const Problem& problem, int pp, int stage) {
  return pp == 1 ? problem.alone : stage == 0 ? problem.first : problem.last;
}

LayerSeconds end_on_stage(const Problem& problem, const Setting& setting, int stage) {
  const Strategy& s = setting.ends;
  const bool alone = setting.pp == 1;
  if (!alone && stage > 0 && stage < setting.pp - 1) {
    return {};
  }
  const double forward =
      problem.other_forward_ms.at(samples(problem, s, setting.chunks) / s.split) / (alone ? 1 : 2);
  const double mb = end_memory(problem, setting.pp, stage).states_mib.at(s.tp()) / 4 / 2;
  const double per_mb = reduce_ms(problem, s) * (s.shards() - 1) / s.shards();
  const double message = s.tp() > 1 ? message_ms(problem.gather_ms.at(s.tp()),
                                                 boundary_mib(problem, s, setting.chunks))
                                    : 0;
  const double backward = kBackward * forward;
  const double gather = s.zero == 3 ? 0.5 * mb * per_mb : 0;
  const double slowdown = problem.overlap_slowdown;
  const auto time = [&](double reduce) {
    return kMs * (under(gather, forward, slowdown) + under(gather + reduce, backward, slowdown) +
                  message * (alone ? 2 : 1));
  };
  return {time(0.5 * mb * per_mb), time(0)};
}

}  // namespace

std::string Strategy::text() const {
  return fmt::format("{}-{}{}{}-{}{}{}", pp, split, ulysses ? "u" : "", split > 1 ? "*" : "", dp,
                     zero == 3 ? "f" : "", checkpoint ? "-c" : "");
}

std::vector<Strategy> end_strategies(const Problem& problem, int pp) {
  std::vector<Strategy> result;
  const int island = problem.devices / pp;
  for (int split = 1; split <= island; split *= 2) {
    const int dp = island / split;
    for (const bool ulysses : {false, true}) {
      for (const int zero : {2, 3}) {
        if ((split == 1 && ulysses) || (dp == 1 && zero == 3)) {
          continue;
        }
        result.push_back({pp, split, ulysses, dp, dp == 1 ? 0 : zero, false});
      }
    }
  }
  return result;
}

std::vector<Strategy> strategies(const Problem& problem, int pp) {
  std::vector<Strategy> result;
  for (Strategy s : end_strategies(problem, pp)) {
    for (const bool checkpoint : {false, true}) {
      s.checkpoint = checkpoint;
      result.push_back(s);
    }
  }
  return result;
}

LayerSeconds layer_seconds(const Problem& problem, const Strategy& s, int chunks) {
  return {kMs * layer_ms(problem, s, chunks, true), kMs * layer_ms(problem, s, chunks, false)};
}

std::int64_t layer_mib(const Problem& problem, const Strategy& s, int chunks, int stage) {
  const double states = 4 * problem.parameters_mib / s.tp() * state_share(s, chunks);
  const double alive = samples(problem, s, chunks) * held(s.pp, stage);
  const double activations =
      s.checkpoint ? problem.checkpoint_mib / s.split : problem.activation_mib.at(s.split);
  return static_cast<std::int64_t>(std::ceil(states + activations * alive));
}

std::vector<LayerSeconds> end_seconds(const Problem& problem, const Setting& setting) {
  std::vector<LayerSeconds> result;
  for (int stage = 0; stage < setting.pp; ++stage) {
    result.push_back(end_on_stage(problem, setting, stage));
  }
  return result;
}

std::int64_t room_mib(const Problem& problem, const Setting& setting, int stage) {
  const bool large = problem.memory_mib / 1024 >= kCacheFrom;
  const auto cache =
      static_cast<std::int64_t>(large ? kCacheShare * static_cast<double>(problem.memory_mib) : 0);
  const Strategy& s = setting.ends;
  double ends = problem.context_mib;
  if (setting.pp == 1 || stage == 0 || stage == setting.pp - 1) {
    const EndMemory& memory = end_memory(problem, setting.pp, stage);
    const double alive = samples(problem, s, setting.chunks) * held(setting.pp, stage);
    ends += memory.states_mib.at(s.tp()) * state_share(s, setting.chunks) +
            memory.activation_mib.at(s.split) * alive;
  }
  std::int64_t buffer = 0;
  if (setting.buffer > 0) {
    const double together = static_cast<double>(problem.batch) / setting.chunks * setting.pp *
                            setting.buffer / problem.devices;
    buffer =
        static_cast<std::int64_t>(together * problem.sequence * problem.hidden * kBytes / kMib);
  }
  return problem.memory_mib - cache - static_cast<std::int64_t>(std::ceil(ends)) - buffer;
}

double switch_seconds(const Problem& problem, const Strategy& from, const Strategy& to,
                      int chunks) {
  constexpr double kUnit = 1e-7;
  if (from.split == to.split) {
    // Puts equal costs in order: plain layers before sharded and checkpointed ones.
    const bool shards = from.zero != 3 && to.zero == 3;
    const bool checkpoints = !from.checkpoint && to.checkpoint;
    return from.ulysses != to.ulysses ? (to.ulysses ? 1e-10 : 0)
                                      : (shards ? 1e-9 : 0) + (checkpoints ? 2e-9 : 0);
  }
  const int split = std::max(from.split, to.split);
  const int dp = problem.devices / from.pp / split;
  const double bytes =
      static_cast<double>(problem.batch) / chunks / dp * problem.sequence * problem.hidden * kBytes;
  return (split - 1.0) / split * bytes / problem.reduce_bandwidth.at(fmt::format("{}_1", split)) *
         kUnit;
}

double step_seconds(const std::vector<double>& local, const std::vector<double>& synced,
                    int chunks) {
  const auto stages = static_cast<int>(local.size());
  const double sum = std::accumulate(local.begin(), local.end(), 0.0);
  const double rest = sum - local.front();
  const double begun = std::min(stages - 1, chunks - 1) * local.front();
  const double steady = local.front() * std::max(0, chunks + 1 - stages);
  const double filled = std::max(begun / 3, rest / 3) + std::max(begun * 2 / 3, rest * 2 / 3);
  double late = 0;
  double before = 0;
  for (std::size_t i = 0; i < local.size(); ++i) {
    before += local[i];
    late = std::max(late, synced[i] - before);
  }
  return std::max(sum + local.back() * (chunks - 1), filled + steady) + late;
}

}  // namespace orrery::search::hetu
