// SPDX-License-Identifier: Apache-2.0
// Hetu-Galvatron's problem, decided exactly by its own reported time: for every number of
// micro-batches, pipeline degree, shared buffer and layout of embedding and head, how many layers
// of each stage take which strategy. Layers are equal and the reported time counts no conversion
// between them, so counts decide; a setting whose lower bound is not below the best time is not
// opened. "rule": "published" runs its own layer-wise program instead, which minimises sums with
// gradient reduction and conversions, and reports the same time for what that chooses.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>

#include "base/math.hpp"
#include "search/planner.hpp"
#include "search/problems/hetu_cost.hpp"
#include "search/problems/layer_counts.hpp"
#include "search/problems/pareto_chain.hpp"

namespace orrery::search {
namespace {

using hetu::LayerSeconds;
using hetu::Problem;
using hetu::Setting;
using hetu::Strategy;

constexpr std::array<std::string_view, 2> kRules = {"reported", "published"};
constexpr int kMostDevices = 64;

std::map<int, double> read_numbers(const JsonReader& value) {
  ObjectReader object = value.object();
  std::map<int, double> numbers;
  for (const std::string& key : object.keys()) {
    const JsonReader entry = object.required(key);
    if (key.empty() || key.size() > 6 || key.find_first_not_of("0123456789") != std::string::npos) {
      entry.fail("the key is not a number");
    }
    numbers[std::stoi(key)] = entry.number(0, 1e9);
  }
  object.finish();
  return numbers;
}

hetu::Line read_line(const JsonReader& value) {
  ObjectReader object = value.object();
  hetu::Line line{object.required("slope").number(0, 1e9),
                  object.required("constant").number(0, 1e9)};
  object.finish();
  return line;
}

// Every degree up to `devices` has an entry above 0.
void check_degrees(const JsonReader& value, const std::map<int, double>& numbers, int first,
                   int devices) {
  for (int degree = first; degree <= devices; degree *= 2) {
    if (numbers.find(degree) == numbers.end() || numbers.at(degree) <= 0) {
      value.fail(fmt::format("no positive entry for degree {}", degree));
    }
  }
}

hetu::EndMemory read_ends(const JsonReader& value, int devices) {
  ObjectReader object = value.object();
  hetu::EndMemory ends{read_numbers(object.required("states_mib")),
                       read_numbers(object.required("activation_mib"))};
  check_degrees(value, ends.states_mib, 1, devices);
  check_degrees(value, ends.activation_mib, 1, devices);
  object.finish();
  return ends;
}

std::map<int, std::map<int, double>> read_messages(const JsonReader& value, int devices) {
  ObjectReader object = value.object();
  std::map<int, std::map<int, double>> messages;
  for (int ranks = 2; ranks <= devices; ranks *= 2) {
    const JsonReader table = object.required(fmt::format("{}", ranks));
    messages[ranks] = read_numbers(table);
    if (messages[ranks].size() < 2) {
      table.fail("a table of messages needs two sizes or more");
    }
  }
  object.finish();
  return messages;
}

std::map<std::string, double> read_bandwidths(const JsonReader& value, int devices) {
  ObjectReader object = value.object();
  std::map<std::string, double> bandwidths;
  for (int ranks = 2; ranks <= devices; ranks *= 2) {
    for (const char* order : {"0", "1"}) {
      const std::string key = fmt::format("{}_{}", ranks, order);
      bandwidths[key] = object.required(key).number(1e-6, 1e9);
    }
  }
  object.finish();
  return bandwidths;
}

Problem read_problem(ObjectReader& object) {
  Problem problem;
  const JsonReader devices = object.required("devices");
  problem.devices = static_cast<int>(devices.integer(2, kMostDevices));
  if ((problem.devices & (problem.devices - 1)) != 0) {
    devices.fail("the strategies need a power of two devices");
  }
  problem.layers = static_cast<int>(object.required("layers").integer(1, 256));
  problem.sequence = object.required("sequence").number(1, 1e9);
  problem.hidden = object.required("hidden").number(1, 1e9);
  problem.memory_mib = object.required("memory_mib").integer(1, 1 << 30);
  problem.batch = static_cast<int>(object.required("batch").integer(1, 1 << 16));
  problem.parameters_mib = object.required("parameters_mib").number(0, 1e9);
  problem.forward_ms = read_line(object.required("forward_ms"));
  problem.other_forward_ms = read_line(object.required("other_forward_ms"));
  const JsonReader activation = object.required("activation_mib");
  problem.activation_mib = read_numbers(activation);
  check_degrees(activation, problem.activation_mib, 1, problem.devices);
  problem.checkpoint_mib = object.required("checkpoint_mib").number(0, 1e9);
  problem.alone = read_ends(object.required("ends"), problem.devices);
  problem.first = read_ends(object.required("first_end"), problem.devices);
  problem.last = read_ends(object.required("last_end"), problem.devices);
  problem.overlap_slowdown = object.required("overlap_slowdown").number(1, 10);
  problem.context_mib = object.number_or("context_mib", problem.context_mib, 0, 1e9);
  problem.reduce_bandwidth = read_bandwidths(object.required("reduce_bandwidth"), problem.devices);
  const JsonReader transfers = object.required("transfer_bandwidth");
  problem.transfer_bandwidth = read_numbers(transfers);
  check_degrees(transfers, problem.transfer_bandwidth, 2, problem.devices);
  problem.gather_ms = read_messages(object.required("gather_ms"), problem.devices);
  problem.all_to_all_ms = read_messages(object.required("all_to_all_ms"), problem.devices);
  return problem;
}

struct Decision {
  double seconds = std::numeric_limits<double>::infinity();
  Setting setting;
  std::vector<Strategy> strategies;
  std::vector<std::vector<int>> counts;  // by stage and strategy
  std::vector<std::int64_t> memory_mib;  // of the layers, by stage
};

// Which strategies may be mixed: all, or tensor parallelism or Ulysses alone.
enum class Mode { Mixed, Tensor, Ulysses };

class HetuSearch {
 public:
  HetuSearch(const Problem& problem, bool published) : problem_(problem), published_(published) {}

  const Decision& run() {
    for (const std::int64_t chunks : divisors(problem_.batch)) {
      for (int pp = 1; pp <= std::min<std::int64_t>(problem_.devices, chunks); pp *= 2) {
        if (problem_.layers % pp == 0) {
          open(pp, static_cast<int>(chunks));
        }
      }
    }
    return best_;
  }
  std::int64_t settings() const { return settings_; }
  std::int64_t opened() const { return opened_; }

 private:
  struct Stage {
    std::vector<CountedStrategy> choices;
    std::int64_t room = 0;
    double ends = 0;  // local seconds of embedding and head
    CountBound bound;
  };

  void open(int pp, int chunks) {
    const int island = problem_.devices / pp;
    const int samples = problem_.batch / chunks;
    const int least = island / std::max(1, std::min(samples, island));
    for (const Mode mode : {Mode::Tensor, Mode::Ulysses, Mode::Mixed}) {
      if (mode == Mode::Tensor && !published_) {
        continue;  // part of the mixed ones
      }
      for (int buffer = mode == Mode::Ulysses ? island : std::max(1, least); buffer <= island;
           buffer *= 2) {
        const auto allowed = [&](const Strategy& s) {
          return s.split <= buffer && samples % s.dp == 0 &&
                 (mode == Mode::Mixed || (mode == Mode::Tensor ? !s.ulysses : s.tp() == 1));
        };
        std::vector<Strategy> strategies = hetu::strategies(problem_, pp);
        std::erase_if(strategies, [&](const Strategy& s) { return !allowed(s); });
        for (const Strategy& ends : hetu::end_strategies(problem_, pp)) {
          if (allowed(ends) && !strategies.empty()) {
            ++settings_;
            solve({pp, chunks, mode == Mode::Ulysses ? 0 : buffer, ends}, strategies);
          }
        }
      }
    }
  }

  std::vector<Stage> stages_of(const Setting& setting, const std::vector<Strategy>& strategies) {
    const std::vector<LayerSeconds> ends = hetu::end_seconds(problem_, setting);
    std::vector<Stage> stages;
    for (int stage = 0; stage < setting.pp; ++stage) {
      Stage entry;
      for (const Strategy& s : strategies) {
        const LayerSeconds time = hetu::layer_seconds(problem_, s, setting.chunks);
        entry.choices.push_back(
            {hetu::layer_mib(problem_, s, setting.chunks, stage), time.local, time.synced});
      }
      entry.room = hetu::room_mib(problem_, setting, stage);
      entry.ends = ends[static_cast<std::size_t>(stage)].local;
      stages.push_back(std::move(entry));
    }
    return stages;
  }

  void solve(const Setting& setting, const std::vector<Strategy>& strategies) {
    std::vector<Stage> stages = stages_of(setting, strategies);
    const int depth = problem_.layers / setting.pp;
    std::vector<double> local;
    std::vector<double> synced;
    for (Stage& stage : stages) {
      stage.bound = count_bound(stage.choices, depth, stage.room);
      if (!stage.bound.fits) {
        return;
      }
      local.push_back(stage.bound.first + stage.ends);
      synced.push_back(stage.bound.second);
    }
    if (hetu::step_seconds(local, synced, setting.chunks) >= best_.seconds) {
      return;
    }
    ++opened_;
    if (published_) {
      follow(setting, strategies, stages);
      return;
    }
    std::vector<std::vector<LayerCounts>> found;
    for (std::size_t i = 0; i < stages.size(); ++i) {
      found.push_back(least_counts(
          stages[i].choices, depth, stages[i].room, [&, i](double first, double second) {
            std::vector<double> l = local;
            std::vector<double> s = synced;
            l[i] = first + stages[i].ends;
            s[i] = second;
            return hetu::step_seconds(l, s, setting.chunks) < best_.seconds;
          }));
      if (found.back().empty()) {
        return;
      }
    }
    std::vector<const LayerCounts*> chosen;
    combine(setting, strategies, stages, found, local, synced, chosen);
  }

  // Every choice of one pair for each stage that could still be faster.
  void combine(const Setting& setting, const std::vector<Strategy>& strategies,
               const std::vector<Stage>& stages, const std::vector<std::vector<LayerCounts>>& found,
               std::vector<double> local, std::vector<double> synced,
               std::vector<const LayerCounts*>& chosen) {
    const double seconds = hetu::step_seconds(local, synced, setting.chunks);
    if (seconds >= best_.seconds) {
      return;
    }
    const std::size_t i = chosen.size();
    if (i == stages.size()) {
      best_ = {seconds, setting, strategies, {}, {}};
      for (const LayerCounts* stage : chosen) {
        best_.counts.push_back(stage->counts);
        best_.memory_mib.push_back(stage->memory);
      }
      return;
    }
    for (const LayerCounts& choice : found[i]) {
      local[i] = choice.first + stages[i].ends;
      synced[i] = choice.second;
      chosen.push_back(&choice);
      combine(setting, strategies, stages, found, local, synced, chosen);
      chosen.pop_back();
    }
  }

  // The published layer-wise program on every stage.
  void follow(const Setting& setting, const std::vector<Strategy>& strategies,
              const std::vector<Stage>& stages) {
    std::vector<double> switches;
    for (const Strategy& from : strategies) {
      for (const Strategy& to : strategies) {
        switches.push_back(hetu::switch_seconds(problem_, from, to, setting.chunks));
      }
    }
    Decision decision{0, setting, strategies, {}, {}};
    std::vector<double> local;
    std::vector<double> synced;
    for (const Stage& stage : stages) {
      LayerChoices layer;
      for (const CountedStrategy& choice : stage.choices) {
        layer.time.push_back(choice.second);
        layer.memory.push_back(choice.memory);
      }
      const std::vector<LayerChoices> layers(static_cast<std::size_t>(problem_.layers / setting.pp),
                                             layer);
      const std::optional<ChainPlan> plan =
          stage.room > 0 ? best_chain_plan(layers, switches, stage.room) : std::nullopt;
      if (!plan) {
        return;
      }
      decision.counts.emplace_back(strategies.size(), 0);
      decision.memory_mib.push_back(plan->memory);
      local.push_back(stage.ends);
      synced.push_back(0);
      for (const int s : plan->strategies) {
        ++decision.counts.back()[static_cast<std::size_t>(s)];
        local.back() += stage.choices[static_cast<std::size_t>(s)].first;
        synced.back() += stage.choices[static_cast<std::size_t>(s)].second;
      }
    }
    decision.seconds = hetu::step_seconds(local, synced, setting.chunks);
    if (decision.seconds < best_.seconds) {
      best_ = std::move(decision);
    }
  }

  const Problem& problem_;
  bool published_;
  Decision best_;
  std::int64_t settings_ = 0;
  std::int64_t opened_ = 0;
};

Json stages_json(const Problem& problem, const Decision& best) {
  Json stages = Json::array();
  for (std::size_t i = 0; i < best.counts.size(); ++i) {
    Json runs = Json::array();
    for (std::size_t s = 0; s < best.strategies.size(); ++s) {
      if (best.counts[i][s] > 0) {
        runs.push(Json::Object{{"layers", static_cast<std::int64_t>(best.counts[i][s])},
                               {"strategy", best.strategies[s].text()}});
      }
    }
    const std::int64_t room = hetu::room_mib(problem, best.setting, static_cast<int>(i));
    stages.push(Json::Object{
        {"layers_mib", best.memory_mib[i]}, {"room_mib", room}, {"runs", std::move(runs)}});
  }
  return stages;
}

Json plan(ObjectReader& object) {
  const Problem problem = read_problem(object);
  bool published = false;
  if (const std::optional<JsonReader> rule = object.optional("rule")) {
    rule->one_of(kRules);
    published = rule->string() == kRules[1];
  }
  object.finish();
  HetuSearch search(problem, published);
  const Decision& best = search.run();
  if (best.counts.empty()) {
    return infeasible(
        fmt::format("no strategy fits {} MiB at batch {}", problem.memory_mib, problem.batch));
  }
  Json answer = Json::object();
  answer.set("step_s", best.seconds);
  answer.set("samples_per_s", problem.batch / best.seconds);
  answer.set("pp", best.setting.pp);
  answer.set("chunks", best.setting.chunks);
  answer.set("buffer_ranks", best.setting.buffer);
  answer.set("ends", best.setting.ends.text());
  answer.set("stages", stages_json(problem, best));
  answer.set("settings", search.settings());
  answer.set("settings_opened", search.opened());
  return answer;
}

}  // namespace

extern const Planner planner_hetu_galvatron = {
    .name = "hetu-galvatron",
    .description = "Galvatron's successor: ZeRO, Ulysses and checkpointing layer by layer, exactly",
    .source = "PKU-DAIR/Hetu-Galvatron as of 2026, galvatron/core/cost_model and search_engine",
    .example = R"({"schema": "orrery-problem", "version": 1,
  "devices": 2, "layers": 4, "sequence": 2048, "hidden": 4096, "memory_mib": 20000, "batch": 4,
  "parameters_mib": 778.2, "forward_ms": {"slope": 3.86, "constant": 0.83},
  "other_forward_ms": {"slope": 2.68, "constant": 2.35},
  "activation_mib": {"1": 514.6, "2": 273.3}, "checkpoint_mib": 32,
  "ends": {"states_mib": {"1": 4130, "2": 2322}, "activation_mib": {"1": 842, "2": 359}},
  "first_end": {"states_mib": {"1": 2021, "2": 1267}, "activation_mib": {"1": 199, "2": 84}},
  "last_end": {"states_mib": {"1": 2021, "2": 1267}, "activation_mib": {"1": 718, "2": 343}},
  "overlap_slowdown": 1.13, "reduce_bandwidth": {"2_0": 151.3, "2_1": 138.2},
  "transfer_bandwidth": {"2": 163.7},
  "gather_ms": {"2": {"16": 0.07, "32": 0.11, "64": 0.2}},
  "all_to_all_ms": {"2": {"16": 0.12, "32": 0.18, "64": 0.29}}})",
    .plan = plan,
};

}  // namespace orrery::search
