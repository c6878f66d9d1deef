// SPDX-License-Identifier: Apache-2.0
#include "search/table_search.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <numeric>

#include "base/quantity_text.hpp"
#include "plan/recommender/model.hpp"
#include "plan/recommender/pipeline.hpp"
#include "plan/stage/memory.hpp"
#include "search/step_waits.hpp"
#include "search/table_choices.hpp"

namespace orrery::search {
namespace {

using plan::RecommenderModel;
using plan::TableExchange;
using plan::TableGroup;
using plan::TableSharding;
using plan::TableShare;

struct TableNode {
  Seconds work;       // mean lookups and updates, and bytes at the best rate
  Seconds mean_work;  // without the bytes
  Bytes bytes;
  std::vector<Bytes> flows;
};

bool same_tables(const TableGroup& a, const TableGroup& b) {
  return a.count == b.count && a.rows == b.rows && a.dim == b.dim && a.pooling == b.pooling &&
         a.slope == b.slope && a.stated == b.stated && a.sharding == b.sharding &&
         a.slices == b.slices;
}

class Tables {
 public:
  Tables(const plan::Recommender& network, const TableSearch& search)
      : network_(network),
        search_(search),
        model_(network),
        waits_(network, model_),
        begin_(Clock::now()),
        choices_(table_choices(model_, waits_, free_room())) {
    sum_up();
  }

  TableOutcome run() {
    outcome_.plans = plans_.front().front();
    take_first();
    std::vector<std::size_t> chosen;
    chosen.reserve(choices_.order.size());
    TableNode root;
    root.flows.assign(choices_.flows.size(), Bytes());
    descend(0, chosen, root);
    finish();
    return std::move(outcome_);
  }

 private:
  using Clock = std::chrono::steady_clock;

  // Of the group that is decided there.
  const std::vector<TableChoice>& list_at(std::size_t position) const {
    return choices_.of[choices_.order[position]];
  }

  Bytes free_room() const { return model_.room() - model_.dense().bytes; }

  // What the groups from a position on add at least, and how many plans they have.
  void sum_up() {
    const std::size_t count = choices_.order.size();
    rest_.assign(count + 1, Seconds());
    rest_work_.assign(count + 1, Seconds());
    rest_bytes_.assign(count + 1, Bytes());
    plans_.resize(count);
    for (std::size_t position = count; position-- > 0;) {
      const std::vector<TableChoice>& list = list_at(position);
      Seconds least = list.front().least;
      Seconds work = list.front().work;
      Bytes bytes = list.front().share.mean_bytes;
      for (const TableChoice& choice : list) {
        least = std::min(least, choice.least);
        work = std::min(work, choice.work);
        bytes = std::min(bytes, choice.share.mean_bytes);
      }
      rest_[position] = rest_[position + 1] + least;
      rest_work_[position] = rest_work_[position + 1] + work;
      rest_bytes_[position] = rest_bytes_[position + 1] + bytes;
      plans_[position].assign(list.size() + 1, 0);
      for (std::size_t index = list.size(); index-- > 0;) {
        plans_[position][index] = plans_[position][index + 1] + plans_below(position, index);
      }
    }
  }

  // Of the groups after a position, at which a choice was made.
  double plans_below(std::size_t position, std::size_t index) const {
    const std::size_t next = position + 1;
    return next == choices_.order.size() ? 1 : plans_[next][same_as_before(next) ? index : 0];
  }

  // Those of them that were not simulated before.
  double plans_left(const std::vector<std::size_t>& chosen, std::size_t index) const {
    return plans_below(chosen.size(), index) - (holds_first(chosen, index) ? 1 : 0);
  }

  Seconds bound(std::size_t position, const TableNode& node) const {
    Seconds exchanged = node.mean_work + rest_work_[position];
    for (std::size_t flow = 0; flow < choices_.flows.size(); ++flow) {
      if (node.flows[flow] > Bytes()) {
        exchanged += model_.exchange_time(choices_.flows[flow].exchange, node.flows[flow]);
      }
    }
    return waits_.dense_time() + std::max(node.work + rest_[position], exchanged);
  }

  bool overflows(std::size_t position, const TableNode& node) const {
    return node.bytes + rest_bytes_[position] > free_room();
  }

  TableNode with(const TableNode& node, const TableChoice& choice) const {
    TableNode next = node;
    next.work += choice.least;
    next.mean_work += choice.work;
    next.bytes += choice.share.mean_bytes;
    for (std::size_t i = 0; i < choice.flows.size(); ++i) {
      next.flows[choice.flows[i]] += choice.exchanges[i].bytes;
    }
    return next;
  }

  // Slower than the worst plan kept, or than the gap allows.
  bool hopeless(Seconds bound) const {
    return !outcome_.found.empty() && bound.value() >= best_.value() * (1 - search_.gap_fraction);
  }

  bool ends() {
    if (ended_) {
      return true;
    }
    ++steps_;
    outcome_.timed_out = steps_ > search_.most_steps ||
                         (search_.time_limit.value() > 0 && elapsed() >= search_.time_limit);
    outcome_.interrupted = search_.stop && search_.stop();
    ended_ = outcome_.timed_out || outcome_.interrupted;
    return ended_;
  }

  Seconds elapsed() const {
    return Seconds(std::chrono::duration<double>(Clock::now() - begin_).count());
  }

  void descend(std::size_t position, std::vector<std::size_t>& chosen, const TableNode& node) {
    if (position == choices_.order.size()) {
      evaluate(chosen);
      return;
    }
    const std::vector<TableChoice>& list = list_at(position);
    std::vector<std::pair<Seconds, std::size_t>> children;
    for (std::size_t index = first_choice(position, chosen); index < list.size(); ++index) {
      const TableNode next = with(node, list[index]);
      children.emplace_back(list[index].never_fits || overflows(position + 1, next)
                                ? Seconds(std::numeric_limits<double>::infinity())
                                : bound(position + 1, next),
                            index);
    }
    std::stable_sort(children.begin(), children.end(),
                     [](const auto& a, const auto& b) { return a.first < b.first; });
    for (const auto& [least, index] : children) {
      if (std::isinf(least.value()) || hopeless(least)) {
        outcome_.pruned += plans_left(chosen, index);
        skipped_ = std::min(skipped_, least);
      } else if (ends()) {
        outcome_.unexplored += plans_left(chosen, index);
        open_ = std::min(open_, least);
      } else {
        chosen.push_back(index);
        descend(position + 1, chosen, with(node, list[index]));
        chosen.pop_back();
      }
    }
  }

  // Groups of equal tables are in one order of their choices.
  std::size_t first_choice(std::size_t position, const std::vector<std::size_t>& chosen) const {
    return same_as_before(position) ? chosen.back() : 0;
  }

  bool same_as_before(std::size_t position) const {
    return position > 0 && same_tables(network_.tables[choices_.order[position]],
                                       network_.tables[choices_.order[position - 1]]);
  }

  // Whether the plan that was simulated first begins with these choices.
  bool holds_first(const std::vector<std::size_t>& chosen, std::size_t next) const {
    return std::equal(chosen.begin(), chosen.end(), greedy_.begin()) &&
           greedy_[chosen.size()] == next;
  }

  // Each group's own best choice: something to compare with from the beginning. Where that does not
  // fit, the groups of the largest pieces are cut smallest, twice as many each time.
  void take_first() {
    for (const std::size_t group : choices_.order) {
      greedy_.push_back(
          best_of(group, [](const TableChoice& choice) { return choice.least.value(); }));
    }
    std::vector<std::size_t> largest(choices_.order.size());
    std::iota(largest.begin(), largest.end(), std::size_t{0});
    std::stable_sort(largest.begin(), largest.end(), [&](std::size_t a, std::size_t b) {
      return piece_of(a, greedy_[a]) > piece_of(b, greedy_[b]);
    });
    std::size_t cut = 0;
    for (std::size_t count = 1; cut < largest.size() && !cost_of(greedy_).cost.fits; count *= 2) {
      for (; cut < std::min(count, largest.size()); ++cut) {
        const std::size_t position = largest[cut];
        greedy_[position] = best_of(choices_.order[position], [](const TableChoice& choice) {
          return choice.piece().value();
        });
      }
    }
    sort_equal_groups();
    evaluate(greedy_);
  }

  // Equal groups have their choices in order, as the search takes them.
  void sort_equal_groups() {
    auto begin = greedy_.begin();
    for (std::size_t position = 1; position <= choices_.order.size(); ++position) {
      if (position == choices_.order.size() || !same_as_before(position)) {
        const auto end = greedy_.begin() + static_cast<std::ptrdiff_t>(position);
        std::sort(begin, end);
        begin = end;
      }
    }
  }

  Bytes piece_of(std::size_t position, std::size_t index) const {
    return list_at(position)[index].piece();
  }

  // Of a group, the choice with the least value of those that may fit.
  template <typename Value>
  std::size_t best_of(std::size_t group, Value value) const {
    const std::vector<TableChoice>& list = choices_.of[group];
    const auto best =
        std::min_element(list.begin(), list.end(), [&](const TableChoice& a, const TableChoice& b) {
          return std::pair(a.never_fits, value(a)) < std::pair(b.never_fits, value(b));
        });
    return static_cast<std::size_t>(best - list.begin());
  }

  struct Costed {
    std::vector<TableGroup> tables;
    plan::RecommenderCost cost;
  };
  Costed cost_of(const std::vector<std::size_t>& chosen) const {
    Costed costed;
    costed.tables.resize(choices_.order.size());
    std::vector<TableShare> shares(choices_.order.size());
    for (std::size_t position = 0; position < choices_.order.size(); ++position) {
      const TableChoice& choice = list_at(position)[chosen[position]];
      costed.tables[choices_.order[position]] = choice.group;
      shares[choices_.order[position]] = choice.share;
    }
    costed.cost = plan::cost_of(model_, costed.tables, shares);
    if (network_.nested) {
      plan::Recommender network = network_;
      network.tables = costed.tables;
      plan::add_nested(network, costed.cost);
    }
    return costed;
  }

  void evaluate(const std::vector<std::size_t>& chosen) {
    if (chosen == greedy_ && outcome_.simulated > 0) {
      return;  // the first plan, met again
    }
    Costed costed = cost_of(chosen);
    ++outcome_.simulated;
    if (costed.cost.fits) {
      keep(std::move(costed.tables), std::move(costed.cost));
      return;
    }
    ++outcome_.infeasible;
    if (closest_ == Bytes() || costed.cost.fullest_bytes < closest_) {
      closest_ = costed.cost.fullest_bytes;
    }
  }

  void keep(std::vector<TableGroup> tables, plan::RecommenderCost cost) {
    const auto slower = [](const TableFound& a, const TableFound& b) {
      return a.cost.iteration() < b.cost.iteration();
    };
    TableFound found{network_, std::move(cost)};
    found.network.tables = std::move(tables);
    const auto at = std::upper_bound(outcome_.found.begin(), outcome_.found.end(), found, slower);
    outcome_.found.insert(at, std::move(found));
    if (outcome_.found.size() > search_.top) {
      outcome_.found.pop_back();
    }
    best_ = outcome_.found.front().cost.iteration();
  }

  void finish() {
    outcome_.search_time = elapsed();
    if (outcome_.found.empty()) {
      const Bytes capacity = network_.cluster.gpu.memory.bytes();
      const Bytes least = rest_bytes_.front() + model_.dense().bytes;
      outcome_.closest =
          least > model_.room()
              ? fmt::format(
                    "tables, the results of their lookups and the dense network need {} a "
                    "rank, spread evenly, of the {} beside {} of context",
                    format_bytes(least), format_bytes(model_.room()),
                    format_bytes(plan::context_bytes().bytes()))
              : fmt::format("its fullest rank needs {} of {}", format_bytes(closest_),
                            format_bytes(capacity));
      return;
    }
    outcome_.lower_bound = std::min({best_, skipped_, open_});
    outcome_.gap_fraction = 1 - outcome_.lower_bound / best_;
    for (TableFound& found : outcome_.found) {
      found.cost = plan::simulate_recommender(found.network);
    }
  }

  const plan::Recommender& network_;
  const TableSearch& search_;
  RecommenderModel model_;
  StepWaits waits_;
  Clock::time_point begin_;
  const TableChoices choices_;
  std::vector<Seconds> rest_;  // by position
  std::vector<Seconds> rest_work_;
  std::vector<Bytes> rest_bytes_;
  // Of the groups from a position on, where the first has none of the choices before one; equal
  // groups in one order.
  std::vector<std::vector<double>> plans_;
  std::vector<std::size_t> greedy_;
  std::int64_t steps_ = 0;
  bool ended_ = false;
  Bytes closest_;
  Seconds best_;
  Seconds skipped_ = Seconds(std::numeric_limits<double>::infinity());
  Seconds open_ = Seconds(std::numeric_limits<double>::infinity());
  TableOutcome outcome_;
};

}  // namespace

TableOutcome search_tables(const plan::Recommender& network, const TableSearch& search) {
  return Tables(network, search).run();
}

}  // namespace orrery::search
