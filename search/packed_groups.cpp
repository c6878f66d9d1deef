// SPDX-License-Identifier: Apache-2.0
#include "search/packed_groups.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include "plan/heads.hpp"
#include "plan/packs.hpp"
#include "search/problems/sequence_groups.hpp"

namespace orrery::search {
namespace {

constexpr std::int64_t kTokensOnRank = 8192;  // of the packs that costs are taken from
constexpr int kMoreMicroBatches = 3;          // tried beyond what memory needs

// Time of a pack: q (sum of squared lengths) / degree + l tokens / degree + constant.
struct DegreeCost {
  double quadratic = 0;
  double linear = 0;
  double constant = 0;
};

struct Measured {
  double time;
  double bytes;
};

Measured measure(const plan::Plan& plan, int degree, std::vector<std::int64_t> sequences) {
  const plan::Plan alone = plan::plan_of_pack(plan, {degree, std::move(sequences)});
  const plan::Simulation run = plan::simulate(alone, {.record_spans = true});
  return {to_seconds(run.passes.forward.front() + run.passes.backward.front()).value(),
          static_cast<double>(run.memory.front().total().value())};
}

class LayoutSearch {
 public:
  LayoutSearch(plan::Plan plan, const std::vector<std::int64_t>& lengths)
      : plan_(std::move(plan)), lengths_(lengths.begin(), lengths.end()) {}

  std::optional<Found> run() {
    const models::NetworkSpec& spec = plan_.network.spec;
    const int tp = plan_.blocks.front().layout.tp;
    const auto is_usable = [&](int log_degree) {
      const int degree = 1 << log_degree;
      return plan_.dp % degree == 0 && plan::exchanges_heads(spec, std::int64_t{tp} * degree);
    };
    int degrees = 0;
    while (is_usable(degrees)) {
      ++degrees;
    }
    if (!fit_costs(degrees)) {
      return std::nullopt;
    }
    std::vector<std::vector<int>> sets = degree_sets(plan_.dp);
    std::erase_if(sets, [&](const std::vector<int>& set) { return set.front() >= degrees; });
    const double tokens = std::accumulate(lengths_.begin(), lengths_.end(), 0.0);
    const int least =
        std::max(1, static_cast<int>(std::ceil(tokens / (cost_.tokens_per_gpu * plan_.dp))));
    const BatchAssignment packs =
        assign_batch(lengths_, cost_, sets, least, least + kMoreMicroBatches);
    if (packs.micro_batches.empty()) {
      return std::nullopt;
    }
    tell(packs);
    Found found{plan_, plan::simulate(plan_)};
    return found.simulation.does_not_fit ? std::nullopt : std::optional(std::move(found));
  }

 private:
  // Three packs: one sequence, the same tokens in two, and half of them. Whether any tokens fit.
  bool fit_costs(int degrees) {
    cost_.all_to_all_bytes = 1;
    std::vector<DegreeCost> of;
    for (int d = 0; d < degrees; ++d) {
      const double degree = 1 << d;
      const std::int64_t half = kTokensOnRank / 2 << d;
      const auto tokens = static_cast<double>(half);
      const Measured one = measure(plan_, 1 << d, {2 * half});
      const Measured two = measure(plan_, 1 << d, {half, half});
      const Measured less = measure(plan_, 1 << d, {half});
      const double squares = 2 * tokens * tokens;  // more in one than in two
      DegreeCost cost;
      cost.quadratic = std::max(0.0, one.time - two.time) * degree / squares;
      cost.linear = (two.time - less.time) * degree / tokens - cost.quadratic * tokens;
      cost.constant = less.time - (cost.quadratic * tokens + cost.linear) * tokens / degree;
      of.push_back(cost);
      const double per_token = (two.bytes - less.bytes) * degree / tokens;  // of a rank
      const auto capacity =
          static_cast<double>((plan_.cluster.gpu.memory - plan_.memory_reserve).value());
      const double room = capacity - (less.bytes - per_token * tokens / degree);
      if (room <= 0) {
        return false;
      }
      cost_.tokens_per_gpu = std::min(cost_.tokens_per_gpu, room / per_token);
      // What a token takes beyond its share of one rank's time is exchange.
      const double exchange = cost.linear - of.front().linear;
      cost_.bandwidth.push_back(exchange > 0 ? 1 / exchange : std::numeric_limits<double>::max());
    }
    cost_.quadratic = of.front().quadratic;
    cost_.linear = of.front().linear;
    cost_.constant = std::max(0.0, of.front().constant);
    return true;
  }

  void tell(const BatchAssignment& assignment) {
    for (const BatchAssignment::Part& part : assignment.micro_batches) {
      std::vector<plan::Pack> packs;
      for (std::size_t g = 0; g < part.groups.degrees.size(); ++g) {
        plan::Pack pack{1 << part.groups.degrees[g], {}};
        for (std::size_t i = 0; i < part.lengths.size(); ++i) {
          if (part.groups.group_of[i] == static_cast<int>(g)) {
            pack.sequences.push_back(static_cast<std::int64_t>(part.lengths[i]));
          }
        }
        if (!pack.sequences.empty()) {
          packs.push_back(std::move(pack));
        }
      }
      plan_.packs.push_back(std::move(packs));
    }
  }

  plan::Plan plan_;
  std::vector<double> lengths_;
  GroupCost cost_;
};

}  // namespace

std::optional<Found> group_packs(plan::Plan layout, const std::vector<std::int64_t>& lengths) {
  return LayoutSearch(std::move(layout), lengths).run();
}

}  // namespace orrery::search
