// SPDX-License-Identifier: Apache-2.0
// DawnPiper: cut a graph's nodes into stages whose memory needs differ (1F1B keeps p - i micro-
// batches on stage i, asynchronous pipelines as many weight versions too). Between two neighbouring
// halves of the devices only cuts between those of the compute-balanced and the memory-balanced
// partition are tried, recursively. Since none of these may fit, the cut of the compute-balanced
// partition of those that can fit is within the window, too. A stage that exceeds its memory swaps
// to the host as long as the copies hide behind compute, then swaps or recomputes what costs least
// for each byte.
#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

#include "search/planner.hpp"
#include "search/problems/chain.hpp"
#include "search/problems/chain_halves.hpp"

namespace orrery::search {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();
constexpr double kTolerance = 1e-6;  // of the memory, for rounded sums

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

// More layers are never less of anything.
bool only_grows(const Chain& chain) {
  for (int i = 0; i < chain.size(); ++i) {
    const ChainLayer& layer = chain.layer(i);
    if (chain.time(i, i + 1) < 0 || layer.parameters < Bytes(0) || layer.activations < Bytes(0)) {
      return false;
    }
  }
  return true;
}

class Cutter {
 public:
  explicit Cutter(const Problem& problem)
      : problem_(problem),
        compute_([this](int first, int last, int) { return problem_.chain.time(first, last); },
                 only_grows(problem.chain)),
        memory_([this](int first, int last, int stage) { return memory(first, last, stage); },
                only_grows(problem.chain)),
        fitting_(problem.chain.size(), compute_,
                 [this](int first, int last, int stage) { return fits(first, last, stage); }) {
    for (int i = 0; i < problem.chain.size(); ++i) {
      relievable_.push_back(relievable_.back() +
                            std::max(0.0, problem.chain.layer(i).activations.value()));
    }
  }

  // Slowest stage.
  HalfCut solve(const ChainHalf& half) {
    const std::uint64_t key = half.key();
    if (const auto found = known_.find(key); found != known_.end()) {
      return found->second;
    }
    HalfCut best{kNever, half.last};
    if (half.is_stage()) {
      best.cost = relief(half.first, half.last, half.low).time;
      return known_[key] = best;
    }
    const auto [from, to] = window(half);
    for (int cut = from; cut <= to; ++cut) {
      const double left = solve(half.left(cut)).cost;
      if (left < best.cost) {
        const double time = std::max(left, solve(half.right(cut)).cost);
        best = time < best.cost ? HalfCut{time, cut} : best;
      }
    }
    return known_[key] = best;
  }

  void append_stages(const ChainHalf& half, std::vector<ChainStage>& stages) {
    if (half.is_stage()) {
      stages.push_back({half.first, half.last, 1});
      return;
    }
    const int cut = solve(half).cut;
    append_stages(half.left(cut), stages);
    append_stages(half.right(cut), stages);
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
    return excess > kTolerance * problem_.memory ? Relief{} : result;
  }

 private:
  double rate(int i) const {  // seconds of recomputation per byte
    const ChainLayer& layer = problem_.chain.layer(i);
    return layer.forward.value() / layer.activations.value();
  }

  // Whether swaps and recomputation can make it fit.
  bool fits(int first, int last, int stage) const {
    const double relievable =
        relievable_[static_cast<std::size_t>(last)] - relievable_[static_cast<std::size_t>(first)];
    const double excess = (memory(first, last, stage) - problem_.memory) / held(stage);
    return excess - relievable <= kTolerance * problem_.memory;
  }

  // Cuts between those of the compute-balanced and the memory-balanced partition, and of the
  // compute-balanced one of those whose parameters fit: at least one of these fits if any cut does.
  std::pair<int, int> window(const ChainHalf& half) {
    return std::minmax(
        {compute_.best(half.anywhere()).cut, memory_.best(half).cut, fitting_.best(half).cut});
  }

  const Problem& problem_;
  BalancedHalves compute_;
  BalancedHalves memory_;
  FittingHalves fitting_;
  std::vector<double> relievable_ = {0.0};  // activations of the layers before each
  KnownCuts known_;
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
  reader.finish();
  Cutter cutter(problem);
  const ChainHalf all{0, problem.chain.size(), 0, problem.devices};
  const double time = cutter.solve(all).cost;
  if (time == kNever) {
    return infeasible("parameters alone exceed the memory of a device");
  }
  std::vector<ChainStage> stages;
  cutter.append_stages(all, stages);
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
