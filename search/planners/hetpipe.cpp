// SPDX-License-Identifier: Apache-2.0
// HetPipe: group GPUs of different types into virtual workers by node (NP), by taking one GPU of
// every type for each (ED) or two GPUs of each of two nodes (HD: the fastest with the slowest, so
// that virtual workers are alike), and cut the chain for each virtual worker so that its slowest
// stage is as fast as possible within the memory of every GPU. A worker is as fast as its slowest
// stage lets it, or as its Nm mini-batches in flight, each on its way through all stages. Clocks of
// workers differ by D + 1 waves at most, so that in the end all are as fast as the slowest.
#include <algorithm>
#include <limits>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "search/planner.hpp"
#include "search/problems/chain.hpp"

namespace orrery::search {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

struct Gpu {
  double speed = 1;
  double memory = kNever;
  int node = 0;
};

struct Problem {
  Chain chain;
  std::vector<std::vector<Gpu>> nodes;
  double inside = 0;  // bytes/s between GPUs of a node
  double between = 0;
  int in_flight = 1;  // mini-batches in a virtual worker, Nm
};

struct Worker {
  std::vector<Gpu> gpus;  // in pipeline order
  std::vector<ChainStage> stages;
  double bottleneck = kNever;
  double round_trip = kNever;  // of one mini-batch alone
  double rate = 0;             // mini-batches/s
};

// Weights and activations of the mini-batches that stage i of k holds: one weight copy and one
// activation each, fewer towards the end.
double stage_memory(const Problem& problem, int first, int last, int stage, int stages) {
  const int held = std::min(problem.in_flight, stages - stage);
  return held * (problem.chain.parameters(first, last) + problem.chain.activations(first, last));
}

// Activation and gradient of a mini-batch over the cut before layer `first` of a stage.
double exchange_time(const Problem& problem, const std::vector<Gpu>& gpus, int stage, int first) {
  const auto at = static_cast<std::size_t>(stage);
  const bool near = stage > 0 && gpus[at - 1].node == gpus[at].node;
  return 2 * problem.chain.cut(first) / (near ? problem.inside : problem.between);
}

// Stages of GPUs in this order by dynamic programming: with the least bottleneck, or of those
// within `bound` with the shortest round trip.
Worker cut(const Problem& problem, const std::vector<Gpu>& gpus, double bound = kNever) {
  const int n = problem.chain.size();
  const int k = static_cast<int>(gpus.size());
  const auto row = static_cast<std::size_t>(n) + 1;
  std::vector<double> best(row * (gpus.size() + 1), kNever);
  std::vector<int> from(best.size(), 0);
  best[0] = 0;
  for (int stage = 0; stage < k; ++stage) {
    const Gpu& gpu = gpus[static_cast<std::size_t>(stage)];
    for (int last = stage + 1; last <= n; ++last) {
      const auto to = static_cast<std::size_t>(stage + 1) * row + static_cast<std::size_t>(last);
      for (int first = stage; first < last; ++first) {
        if (stage_memory(problem, first, last, stage, k) > gpu.memory) {
          continue;
        }
        const double before =
            best[static_cast<std::size_t>(stage) * row + static_cast<std::size_t>(first)];
        const double time = problem.chain.time(first, last) / gpu.speed;
        const double exchange = exchange_time(problem, gpus, stage, first);
        const double cost = bound == kNever                    ? std::max({before, time, exchange})
                            : std::max(time, exchange) > bound ? kNever
                                                               : before + time + exchange;
        if (cost < best[to]) {
          best[to] = cost;
          from[to] = first;
        }
      }
    }
  }
  Worker worker{gpus, {}};
  worker.bottleneck = best.back() < kNever ? 0 : kNever;
  worker.round_trip = worker.bottleneck;
  for (int stage = k, last = n; stage > 0 && worker.bottleneck < kNever; --stage) {
    const int first = from[static_cast<std::size_t>(stage) * row + static_cast<std::size_t>(last)];
    const double time =
        problem.chain.time(first, last) / gpus[static_cast<std::size_t>(stage - 1)].speed;
    const double exchange = exchange_time(problem, gpus, stage - 1, first);
    worker.bottleneck = std::max({worker.bottleneck, time, exchange});
    worker.round_trip += time + exchange;
    worker.stages.insert(worker.stages.begin(), {first, last, 1});
    last = first;
  }
  worker.rate = std::min(1 / worker.bottleneck, problem.in_flight / worker.round_trip);
  return worker;
}

// The cut whose slowest stage is fastest; of those the shortest way where that limits the rate.
Worker fastest_cut(const Problem& problem, const std::vector<Gpu>& gpus) {
  Worker worker = cut(problem, gpus);
  if (worker.bottleneck == kNever || worker.rate * worker.bottleneck >= 1 - 1e-12) {
    return worker;
  }
  return cut(problem, gpus, worker.bottleneck * (1 + 1e-12));
}

// Of every order of the GPUs of a virtual worker (equal ones count once) the one with the fastest
// slowest stage, of those the one with the best rate.
Worker best_order(const Problem& problem, std::vector<Gpu> gpus) {
  const auto less = [](const Gpu& a, const Gpu& b) {
    return std::tie(a.speed, a.memory, a.node) < std::tie(b.speed, b.memory, b.node);
  };
  std::sort(gpus.begin(), gpus.end(), less);
  Worker best;
  do {
    Worker worker = fastest_cut(problem, gpus);
    const bool faster = worker.bottleneck < best.bottleneck * (1 - 1e-12);
    const bool as_fast = worker.bottleneck <= best.bottleneck * (1 + 1e-12);
    if (faster || (as_fast && worker.rate > best.rate)) {
      best = std::move(worker);
    }
  } while (std::next_permutation(gpus.begin(), gpus.end(), less));
  if (best.gpus.empty()) {
    best.gpus = gpus;
  }
  return best;
}

// One GPU of every node in each virtual worker.
std::vector<std::vector<Gpu>> equal_distribution(const Problem& problem) {
  std::vector<std::vector<Gpu>> workers(problem.nodes.front().size());
  for (const std::vector<Gpu>& node : problem.nodes) {
    for (std::size_t w = 0; w < workers.size(); ++w) {
      workers[w].push_back(node[w]);
    }
  }
  return workers;
}

// Two GPUs of the fastest and of the slowest node, of the second fastest and the second slowest ...
std::vector<std::vector<Gpu>> hybrid_distribution(const Problem& problem) {
  std::vector<std::vector<Gpu>> nodes = problem.nodes;
  std::stable_sort(nodes.begin(), nodes.end(),
                   [](const auto& a, const auto& b) { return a.front().speed > b.front().speed; });
  std::vector<std::vector<Gpu>> workers;
  for (std::size_t n = 0; n < nodes.size() / 2; ++n) {
    const std::vector<Gpu>& fast = nodes[n];
    const std::vector<Gpu>& slow = nodes[nodes.size() - 1 - n];
    for (std::size_t g = 0; g + 1 < fast.size(); g += 2) {
      workers.push_back({fast[g], fast[g + 1], slow[g], slow[g + 1]});
    }
  }
  return workers;
}

std::vector<std::vector<Gpu>> allocate(const Problem& problem, std::string_view policy) {
  return policy == "np"   ? problem.nodes
         : policy == "ed" ? equal_distribution(problem)
                          : hybrid_distribution(problem);
}

Problem read(ObjectReader& reader) {
  Problem problem{read_chain(reader, 256), {}, 0, 0, 1};
  const JsonReader list = reader.required("nodes");
  for (const JsonReader& entry : list.array(16)) {
    ObjectReader node = entry.object();
    const int gpus = static_cast<int>(node.required("gpus").integer(1, 8));
    const Gpu gpu{node.number_or("speed", 1, 1e-6, 1e6), node.required("memory").bytes().value(),
                  static_cast<int>(problem.nodes.size())};
    node.finish();
    problem.nodes.emplace_back(static_cast<std::size_t>(gpus), gpu);
    if (problem.nodes.back().size() != problem.nodes.front().size()) {
      list.fail("expected as many GPUs in every node");
    }
  }
  if (problem.nodes.empty() || problem.nodes.size() > 6) {
    list.fail("expected one to six nodes");
  }
  problem.inside = reader.required("bandwidth_inside").bandwidth().value();
  problem.between = reader.required("bandwidth_between").bandwidth().value();
  problem.in_flight = static_cast<int>(reader.integer_or("in_flight", 4, 1, 64));
  return problem;
}

Json to_json(const Problem& problem, const std::vector<Worker>& workers) {
  Json list = Json::array();
  for (const Worker& worker : workers) {
    Json nodes = Json::array();
    for (const Gpu& gpu : worker.gpus) {
      nodes.push(gpu.node);
    }
    Json times = Json::array();
    for (std::size_t i = 0; i < worker.stages.size(); ++i) {
      const ChainStage& stage = worker.stages[i];
      times.push(problem.chain.time(stage.first, stage.last) / worker.gpus[i].speed);
    }
    Json sends = Json::array();  // to the next stage
    for (std::size_t i = 0; i + 1 < worker.stages.size(); ++i) {
      const bool near = worker.gpus[i].node == worker.gpus[i + 1].node;
      sends.push(problem.chain.cut(worker.stages[i].last) /
                 (near ? problem.inside : problem.between));
    }
    Json entry = Json::object();
    entry.set("gpus_by_node", std::move(nodes));
    entry.set("send_s", std::move(sends));
    entry.set("stage_times_s", std::move(times));
    entry.set("stages", to_json(worker.stages));
    entry.set("bottleneck_s", worker.bottleneck);
    list.push(std::move(entry));
  }
  return list;
}

Json plan(ObjectReader& reader) {
  const Problem problem = read(reader);
  double best_rate = 0;
  Json answer = infeasible("no virtual worker fits the GPUs' memory");
  const bool pairs = problem.nodes.size() % 2 == 0 && problem.nodes.front().size() % 2 == 0;
  std::vector<std::string_view> policies = {"np", "ed"};
  if (pairs) {
    policies.push_back("hd");
  }
  if (const auto asked = reader.optional("policy")) {
    const std::string one = asked->one_of(policies);
    std::erase_if(policies, [&one](std::string_view policy) { return policy != one; });
  }
  reader.finish();
  Json rates = Json::object();
  for (const std::string_view policy : policies) {
    std::vector<Worker> workers;
    double slowest = kNever;
    bool fits = true;
    for (const std::vector<Gpu>& gpus : allocate(problem, policy)) {
      if (static_cast<int>(gpus.size()) > std::min(8, problem.chain.size())) {
        fits = false;
        break;
      }
      workers.push_back(best_order(problem, gpus));
      fits = fits && workers.back().bottleneck < kNever;
      slowest = std::min(slowest, workers.back().rate);
    }
    const double rate = static_cast<double>(workers.size()) * slowest;
    rates.set(policy, fits ? rate : 0.0);
    if (fits && rate > best_rate) {
      best_rate = rate;
      answer = Json::object();
      answer.set("policy", policy);
      answer.set("workers", to_json(problem, workers));
      answer.set("mini_batches_per_s", rate);
    }
  }
  answer.set("mini_batches_per_s_by_policy", std::move(rates));
  return answer;
}

}  // namespace

extern const Planner planner_hetpipe = {
    .name = "hetpipe",
    .description = "virtual workers of different GPUs, and the stages of each",
    .source = "Park et al., HetPipe, USENIX ATC 2020 (arXiv 2005.14038), sections 5 and 7",
    .example = R"({"schema": "orrery-problem", "version": 1,
  "layers": [{"forward": "4 ms", "backward": "8 ms", "output": "4 MB", "parameters": "20 MB",
              "activations": "200 MB", "count": 8}],
  "nodes": [{"gpus": 2, "memory": "24 GB"}, {"gpus": 2, "speed": 0.5, "memory": "8 GB"}],
  "bandwidth_inside": "12 GB/s", "bandwidth_between": "7 GB/s", "in_flight": 2})",
    .plan = plan,
};

}  // namespace orrery::search
