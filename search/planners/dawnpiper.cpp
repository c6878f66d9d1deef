// SPDX-License-Identifier: Apache-2.0
// DawnPiper: cut a graph's nodes into stages whose memory needs differ (1F1B keeps p - i micro-
// batches on stage i, asynchronous pipelines as many weight versions too). Between two neighbouring
// halves of the devices only cuts between the compute-balanced and the memory-balanced one are
// tried, recursively. A stage that exceeds its memory swaps to the host as long as the copies hide
// behind compute, then swaps or recomputes what costs least for each byte.
#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

#include "search/planner.hpp"
#include "search/problems/chain.hpp"

namespace orrery::search {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

struct Problem {
  Chain chain;
  int devices = 1;
  double memory = 0;
  double host_bandwidth = 0;
  bool asynchronous = false;
};

struct Relief {
  double time = kNever;  // of the stage with swaps and recomputation
  double swapped = 0;    // bytes of one micro-batch
  double recomputed = 0;
};

class Cutter {
 public:
  explicit Cutter(const Problem& problem) : problem_(problem) {}

  struct Best {
    double time = kNever;
    int cut = 0;
  };

  // Layers [first, last) on devices [low, high): slowest stage.
  Best solve(int first, int last, int low, int high) {
    if (high - low == 1) {
      return {relief(first, last, low).time, last};
    }
    const auto key = std::make_tuple(first, last, low, high);
    if (const auto found = known_.find(key); found != known_.end()) {
      return found->second;
    }
    const int middle = (low + high) / 2;
    const auto [from, to] = window(first, last, low, high);
    Best best;
    for (int cut = from; cut <= to; ++cut) {
      const double time =
          std::max(solve(first, cut, low, middle).time, solve(cut, last, middle, high).time);
      if (time < best.time) {
        best = {time, cut};
      }
    }
    return known_[key] = best;
  }

  void append_stages(int first, int last, int low, int high, std::vector<ChainStage>& stages) {
    if (high - low == 1) {
      stages.push_back({first, last, 1});
      return;
    }
    const int cut = solve(first, last, low, high).cut;
    const int middle = (low + high) / 2;
    append_stages(first, cut, low, middle, stages);
    append_stages(cut, last, middle, high, stages);
  }

  int held(int stage) const { return problem_.devices - stage; }
  double memory(int first, int last, int stage) const {
    const double versions = problem_.asynchronous ? held(stage) : 1;
    return versions * problem_.chain.parameters(first, last) +
           held(stage) * problem_.chain.activations(first, last);
  }

  // What it takes to fit a stage: swaps that hide behind compute are free, the rest goes to the
  // cheaper of exposed swap and recomputation, per byte, cheapest first.
  Relief relief(int first, int last, int stage) const {
    const Chain& chain = problem_.chain;
    const double compute = chain.time(first, last);
    double excess = (memory(first, last, stage) - problem_.memory) / held(stage);
    if (excess <= 0) {
      return {compute, 0, 0};
    }
    std::vector<int> nodes;
    for (int i = first; i < last; ++i) {
      if (chain.layer(i).activations.value() > 0) {
        nodes.push_back(i);
      }
    }
    // Dearest to recompute first: those use the free copies.
    std::stable_sort(nodes.begin(), nodes.end(), [&](int a, int b) { return rate(a) > rate(b); });
    Relief result{compute, 0, 0};
    double free_copies = compute * problem_.host_bandwidth / 2;  // out and back
    std::vector<double> left;
    for (const int i : nodes) {
      const double bytes = std::min({chain.layer(i).activations.value(), free_copies, excess});
      result.swapped += bytes;
      free_copies -= bytes;
      excess -= bytes;
      left.push_back(chain.layer(i).activations.value() - bytes);
    }
    for (std::size_t n = nodes.size(); n-- > 0 && excess > 0;) {
      const double bytes = std::min(left[n], excess);
      const double swap = 2 / problem_.host_bandwidth;
      const bool recompute = rate(nodes[n]) < swap;
      result.time += bytes * (recompute ? rate(nodes[n]) : swap);
      (recompute ? result.recomputed : result.swapped) += bytes;
      excess -= bytes;
    }
    return excess > 1e-6 * problem_.memory ? Relief{} : result;
  }

 private:
  double rate(int i) const {  // seconds of recomputation per byte
    const ChainLayer& layer = problem_.chain.layer(i);
    return layer.forward.value() / layer.activations.value();
  }

  // Cuts between the compute-balanced and the memory-balanced one, leaving a layer a device.
  std::pair<int, int> window(int first, int last, int low, int high) const {
    const int middle = (low + high) / 2;
    const double share = static_cast<double>(middle - low) / (high - low);
    int compute = first + (middle - low);
    int memory_cut = compute;
    const int most = last - (high - middle);
    double compute_gap = kNever;
    double memory_gap = kNever;
    for (int cut = first + (middle - low); cut <= most; ++cut) {
      const double by_time =
          std::abs(problem_.chain.time(first, cut) - share * problem_.chain.time(first, last));
      // Memory of each half per device, at the depth of its first device.
      const double left = memory(first, cut, low) / (middle - low);
      const double right = memory(cut, last, middle) / (high - middle);
      if (by_time < compute_gap) {
        compute_gap = by_time;
        compute = cut;
      }
      if (std::abs(left - right) < memory_gap) {
        memory_gap = std::abs(left - right);
        memory_cut = cut;
      }
    }
    return {std::min(compute, memory_cut), std::max(compute, memory_cut)};
  }

  const Problem& problem_;
  std::map<std::tuple<int, int, int, int>, Best> known_;
};

Json plan(ObjectReader& reader) {
  Problem problem{read_chain(reader, 512), 1, 0, 0, false};
  const JsonReader devices = reader.required("devices");
  problem.devices = static_cast<int>(devices.integer(1, 64));
  problem.memory = reader.required("memory").bytes().value();
  problem.host_bandwidth = reader.required("host_bandwidth").bandwidth().value();
  problem.asynchronous = reader.boolean_or("asynchronous", false);
  if (problem.devices > problem.chain.size()) {
    devices.fail("expected at most one device a layer");
  }
  Cutter cutter(problem);
  const double time = cutter.solve(0, problem.chain.size(), 0, problem.devices).time;
  if (time == kNever) {
    return infeasible("parameters alone exceed the memory of a device");
  }
  std::vector<ChainStage> stages;
  cutter.append_stages(0, problem.chain.size(), 0, problem.devices, stages);
  Json list = to_json(stages);
  for (std::size_t i = 0; i < stages.size(); ++i) {
    const Relief relief = cutter.relief(stages[i].first, stages[i].last, static_cast<int>(i));
    Json& entry = list.as_array()[i];
    entry.set("time_s", relief.time);
    entry.set("swapped_bytes", relief.swapped);
    entry.set("recomputed_bytes", relief.recomputed);
  }
  Json answer = Json::object();
  answer.set("stages", std::move(list));
  answer.set("bottleneck_s", time);
  return answer;
}

}  // namespace

extern const Planner planner_dawnpiper = {
    .name = "dawnpiper",
    .description = "stages for devices short of memory, with swap and recomputation",
    .source = "Peng et al., DawnPiper, 2025 (arXiv 2505.05856), sections 4 and 5",
    .example = R"({"schema": "orrery-problem", "version": 1,
  "layers": [{"forward": "5 ms", "backward": "10 ms", "parameters": "50 MB",
              "activations": "500 MB", "count": 12}],
  "devices": 4, "memory": "4 GB", "host_bandwidth": "12 GB/s"})",
    .plan = plan,
};

}  // namespace orrery::search
