// SPDX-License-Identifier: Apache-2.0
#include "search/per_block/split.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <set>

namespace orrery::search {

namespace {

constexpr double kWhole = 1e-4;         // nearer to a whole number counts as one
constexpr double kLeastStay = 0.02;     // of the time: what a peak delays
constexpr double kLeastMissing = 0.05;  // of a buffer
constexpr int kMost = std::numeric_limits<int>::max() / 2;
constexpr std::size_t kLongest = 256;  // neighbours that are looked at together
// What lengths count beside half a block: little.
constexpr double kOfLength = 0.1;

using Stages = std::vector<std::size_t>;

double blocks_of(const Shares& shares, std::size_t stage) {
  double sum = 0;
  for (const std::vector<double>& of_block : shares.blocks[stage]) {
    sum = std::accumulate(of_block.begin(), of_block.end(), sum);
  }
  return sum;
}

double blocks_of(const Shares& shares, const Stages& stages) {
  double sum = 0;
  for (const std::size_t stage : stages) {
    sum += blocks_of(shares, stage);
  }
  return sum;
}

// By device, each virtual stage once.
std::vector<Stages> stages_of_devices(const Pipeline& pipeline, std::size_t stages) {
  std::vector<Stages> devices;
  for (std::size_t index = 0; index < pipeline.placement.device_of.size(); ++index) {
    const std::size_t device = pipeline.placement.device_of[index];
    devices.resize(std::max(devices.size(), device + 1));
    Stages& held = devices[device];
    if (std::find(held.begin(), held.end(), index % stages) == held.end()) {
      held.push_back(index % stages);
    }
  }
  for (Stages& held : devices) {
    std::sort(held.begin(), held.end());
  }
  return devices;
}

std::vector<Stages> single_stages(std::size_t stages) {
  std::vector<Stages> each;
  for (std::size_t stage = 0; stage < stages; ++stage) {
    each.push_back({stage});
  }
  return each;
}

// Of neighbours in `groups`, those whose blocks together are farthest from a whole number, and of
// these the ones whose number is nearest to `length`; each stage once. Empty: all are whole.
Stages with_parts(const Shares& shares, const std::vector<Stages>& groups, double length) {
  const std::size_t count = groups.size();
  Stages best;
  double most = -std::numeric_limits<double>::infinity();
  std::vector<std::size_t> seen_from(shares.blocks.size(), count);
  for (std::size_t first = 0; first < count; ++first) {
    Stages stages;
    double blocks = 0;
    for (std::size_t last = first; last < std::min(count, first + kLongest); ++last) {
      for (const std::size_t stage : groups[last]) {
        if (seen_from[stage] != first) {
          seen_from[stage] = first;
          stages.push_back(stage);
          blocks += blocks_of(shares, stage);
        }
      }
      const double away = std::abs(blocks - std::round(blocks));
      const double off = std::abs(static_cast<double>(last + 1 - first) - length);
      const double rank = away - kOfLength * off / static_cast<double>(count);
      if (away > kWhole && rank > most && stages.size() < shares.blocks.size()) {
        most = rank;
        best = stages;
      }
    }
  }
  std::sort(best.begin(), best.end());
  return best;
}

std::vector<StageRange> with(std::vector<StageRange> known, StageRange range) {
  for (StageRange& one : known) {
    if (one.of == range.of && one.stages == range.stages && one.strategies == range.strategies) {
      one.least = std::max(one.least, range.least);
      one.most = std::min(one.most, range.most);
      return known;
    }
  }
  known.push_back(std::move(range));
  return known;
}

// Whether none of a chunk's stages has as many layers, or one has.
bool knows_peak(const std::vector<StageRange>& known, const Stages& chunk, int layers) {
  return able_to_hold(chunk, layers, known).empty() ||
         std::any_of(known.begin(), known.end(), [&](const StageRange& range) {
           const Stages able = able_to_hold(range.stages, range.least, known);
           return range.of == StageRange::Of::One &&
                  std::includes(chunk.begin(), chunk.end(), able.begin(), able.end());
         });
}

// By which strategies are told apart.
constexpr std::array<int (*)(const plan::BlockPlan&), 6> kFields = {
    [](const plan::BlockPlan& one) { return static_cast<int>(one.recompute); },
    [](const plan::BlockPlan& one) { return one.zero_stage; },
    [](const plan::BlockPlan& one) { return one.tp; },
    [](const plan::BlockPlan& one) { return one.cp; },
    [](const plan::BlockPlan& one) { return one.ep; },
    [](const plan::BlockPlan& one) { return one.sequence_parallel ? 1 : 0; },
};

using Strategies = std::vector<std::uint16_t>;

std::set<std::uint16_t> used_strategies(const Shares& shares, const MeshCosts& costs) {
  std::set<std::uint16_t> used;
  for (const auto& stage : shares.blocks) {
    for (std::size_t block = 0; block < stage.size(); ++block) {
      for (std::size_t choice = 0; choice < stage[block].size(); ++choice) {
        if (stage[block][choice] > kWhole) {
          used.insert(costs.choices[block][choice].strategy);
        }
      }
    }
  }
  return used;
}

// Those of a field's value and more, for every value in use but the least.
std::vector<Strategies> classes_of(const std::set<std::uint16_t>& used, const MeshCosts& costs) {
  std::vector<Strategies> classes;
  for (const auto& field : kFields) {
    std::set<int> values;
    for (const std::uint16_t strategy : used) {
      values.insert(field(costs.strategies[strategy]));
    }
    for (auto value = std::next(values.begin()); value != values.end(); ++value) {
      Strategies some;
      for (std::size_t index = 0; index < costs.strategies.size(); ++index) {
        if (field(costs.strategies[index]) >= *value) {
          some.push_back(static_cast<std::uint16_t>(index));
        }
      }
      classes.push_back(std::move(some));
    }
  }
  return classes;
}

double blocks_of(const Shares& shares, const MeshCosts& costs, const Stages& stages,
                 const Strategies& strategies) {
  double sum = 0;
  for (const std::size_t stage : stages) {
    for (std::size_t block = 0; block < shares.blocks[stage].size(); ++block) {
      const std::vector<double>& choices = shares.blocks[stage][block];
      for (std::size_t choice = 0; choice < choices.size(); ++choice) {
        const std::uint16_t strategy = costs.choices[block][choice].strategy;
        const bool counts = std::binary_search(strategies.begin(), strategies.end(), strategy);
        sum += counts ? choices[choice] : 0.0;
      }
    }
  }
  return sum;
}

}  // namespace

std::vector<std::vector<StageRange>> split_chunks(const Shares& shares, const Pipeline& pipeline,
                                                  const std::vector<StageRange>& known) {
  const auto peak = std::find_if(known.begin(), known.end(), [](const StageRange& range) {
    return range.of == StageRange::Of::One;
  });
  if (peak == known.end()) {
    return {};
  }
  const std::size_t devices = shares.blocks.size() / static_cast<std::size_t>(pipeline.chunks);
  Stages fullest;
  double most = 0;
  for (std::size_t begin = 0; begin < shares.blocks.size(); begin += devices) {
    Stages chunk(devices);
    std::iota(chunk.begin(), chunk.end(), begin);
    if (blocks_of(shares, chunk) > most && !knows_peak(known, chunk, peak->least)) {
      most = blocks_of(shares, chunk);
      fullest = std::move(chunk);
    }
  }
  if (fullest.empty()) {
    return {};
  }
  return {with(known, {fullest, 0, peak->least - 1, StageRange::Of::Each}),
          with(known, {fullest, peak->least, kMost, StageRange::Of::One})};
}

std::vector<std::vector<StageRange>> split_stages(const Shares& shares, const Pipeline& pipeline,
                                                  const std::vector<StageRange>& known) {
  const std::vector<Stages> devices = stages_of_devices(pipeline, shares.blocks.size());
  const double half = static_cast<double>(devices.size()) / 2;
  Stages stages = with_parts(shares, devices, half);
  if (stages.empty()) {
    if (auto parts = split_chunks(shares, pipeline, known); !parts.empty()) {
      return parts;
    }
    stages = with_parts(shares, single_stages(shares.blocks.size()), half);
  }
  if (stages.empty()) {
    return {};
  }
  const int least = static_cast<int>(stages.size());
  const int below = std::max(least, static_cast<int>(std::floor(blocks_of(shares, stages))));
  return {with(known, {stages, least, below}), with(known, {stages, below + 1, kMost})};
}

std::vector<std::vector<StageRange>> split_peak(const models::Network& network,
                                                const Pipeline& pipeline, std::size_t stages,
                                                std::int64_t micro_batches) {
  const plan::StagePlacement& placement = pipeline.placement;
  const std::size_t devices = stages / static_cast<std::size_t>(pipeline.chunks);
  const auto layers = std::count_if(network.chain.begin(), network.chain.end(), [&](int block) {
    return network.blocks[static_cast<std::size_t>(block)].kind == models::BlockKind::Layer;
  });
  const auto count = static_cast<std::ptrdiff_t>(stages);
  const std::ptrdiff_t peak = (layers + count - 1) / count;
  // In passes of a layer: what a device has to do, what is before and behind it, and the stays.
  const double before_it = static_cast<double>(devices) - 1.0;
  const double mean = static_cast<double>(layers) / static_cast<double>(count);
  const double busy = mean * pipeline.chunks * static_cast<double>(micro_batches);
  const double stays = before_it * (static_cast<double>(peak) - mean);
  if (placement.device_of.size() != stages || pipeline.chunks < 2 ||
      stays < kLeastStay * (busy + before_it * mean)) {
    return {};
  }
  Stages before(stages - devices);
  std::iota(before.begin(), before.end(), std::size_t{0});
  Stages last(devices);
  std::iota(last.begin(), last.end(), before.size());
  const int least = static_cast<int>(peak);
  return {
      {{before, least, kMost, StageRange::Of::One}},
      {{before, 0, least - 1, StageRange::Of::Each}, {last, least, kMost, StageRange::Of::One}}};
}

std::vector<std::vector<StageRange>> split_strategies(const Shares& shares,
                                                      const Pipeline& pipeline,
                                                      const MeshCosts& costs,
                                                      const std::vector<StageRange>& known) {
  const std::set<std::uint16_t> used = used_strategies(shares, costs);
  if (used.empty()) {
    return {};
  }
  std::vector<Strategies> single;
  for (const std::uint16_t strategy : used) {
    single.push_back({strategy});
  }
  const std::vector<Stages> devices = stages_of_devices(pipeline, shares.blocks.size());
  const std::vector<Stages> each = single_stages(shares.blocks.size());
  for (const std::vector<Strategies>& classes : {classes_of(used, costs), single}) {
    for (const std::vector<Stages>* groups : {&devices, &each}) {
      StageRange range;
      double most = kWhole;
      double count = 0;
      for (const Strategies& strategies : classes) {
        for (const Stages& stages : *groups) {
          const double blocks = blocks_of(shares, costs, stages, strategies);
          const double away = std::abs(blocks - std::round(blocks));
          if (away > most) {
            most = away;
            count = blocks;
            range = {stages, 0, kMost, StageRange::Of::Strategies, strategies};
          }
        }
      }
      if (most > kWhole) {
        StageRange above = range;
        range.most = static_cast<int>(std::floor(count));
        above.least = range.most + 1;
        return {with(known, std::move(range)), with(known, std::move(above))};
      }
    }
  }
  return {};
}

namespace {

// What blocks of a stage share of the device's memory, and what those of a device do.
double of_stage(const BlockChoice& choice) { return choice.gathered + choice.unreduced; }
double of_device(const BlockChoice& choice) { return choice.working; }

struct Buffer {
  double missing = 0;  // bytes that the program does not count
  StageRange range;    // any of the strategies that need as much
};

Buffer most_missing(const Shares& shares, const MeshCosts& costs, const std::vector<Stages>& groups,
                    double (*part)(const BlockChoice&), const std::vector<StageRange>& known) {
  Buffer most;
  for (const Stages& stages : groups) {
    std::set<double> sizes;
    double blocks = 0;
    const auto each = [&](const auto& visit) {
      for (const std::size_t stage : stages) {
        for (std::size_t block = 0; block < shares.blocks[stage].size(); ++block) {
          for (std::size_t index = 0; index < shares.blocks[stage][block].size(); ++index) {
            visit(costs.choices[block][index], shares.blocks[stage][block][index]);
          }
        }
      }
    };
    each([&](const BlockChoice& choice, double share) {
      blocks += share;
      if (share > kWhole && part(choice) > 0) {
        sizes.insert(part(choice));
      }
    });
    for (const double size : sizes) {
      double counted = 0;
      each([&](const BlockChoice& choice, double share) {
        counted += part(choice) >= size ? share * part(choice) / blocks : 0.0;
      });
      if (size - counted <= std::max(most.missing, kLeastMissing * size)) {
        continue;
      }
      std::set<std::uint16_t> some;
      for (const std::vector<BlockChoice>& choices : costs.choices) {
        for (const BlockChoice& choice : choices) {
          if (part(choice) >= size) {
            some.insert(choice.strategy);
          }
        }
      }
      StageRange range{stages, 0, 0, StageRange::Of::Strategies, {some.begin(), some.end()}};
      const bool is_known = std::any_of(known.begin(), known.end(), [&](const StageRange& one) {
        return one.of == range.of && one.stages == range.stages &&
               one.strategies == range.strategies;
      });
      if (!is_known) {
        most = {size - counted, std::move(range)};
      }
    }
  }
  return most;
}

}  // namespace

std::vector<std::vector<StageRange>> split_buffers(const Shares& shares, const Pipeline& pipeline,
                                                   const MeshCosts& costs,
                                                   const std::vector<StageRange>& known) {
  const std::vector<Stages> devices = stages_of_devices(pipeline, shares.blocks.size());
  const std::vector<Stages> each = single_stages(shares.blocks.size());
  Buffer most = most_missing(shares, costs, each, of_stage, known);
  Buffer working = most_missing(shares, costs, devices, of_device, known);
  if (working.missing > most.missing) {
    most = std::move(working);
  }
  if (most.missing <= 0) {
    return {};
  }
  StageRange any = most.range;
  any.least = 1;
  any.most = kMost;
  return {with(known, std::move(most.range)), with(known, std::move(any))};
}

std::vector<std::vector<StageRange>> split_part(const Shares& shares, const Pipeline& pipeline,
                                                const models::Network& network,
                                                const MeshCosts& costs, std::int64_t micro_batches,
                                                const std::vector<StageRange>& known,
                                                const std::function<bool()>& knows_peaks) {
  if (known.empty()) {
    auto parts = split_peak(network, pipeline, shares.blocks.size(), micro_batches);
    if (!parts.empty() && knows_peaks()) {
      return parts;
    }
  }
  auto parts = split_stages(shares, pipeline, known);
  if (parts.empty()) {
    parts = split_buffers(shares, pipeline, costs, known);
  }
  return parts.empty() ? split_strategies(shares, pipeline, costs, known) : parts;
}

}  // namespace orrery::search
