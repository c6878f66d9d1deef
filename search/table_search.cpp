// SPDX-License-Identifier: Apache-2.0
#include "search/table_search.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>

#include "base/quantity_text.hpp"
#include "plan/recommender/model.hpp"
#include "plan/recommender/pipeline.hpp"
#include "search/step_waits.hpp"
#include "search/table_variants.hpp"

namespace orrery::search {
namespace {

using plan::RecommenderModel;
using plan::TableExchange;
using plan::TableGroup;
using plan::TableSharding;
using plan::TableShare;

constexpr int kRateSteps = 96;  // of the grid on which the best rate is found

using SecondsPerByte = decltype(Seconds() / Bytes());

struct Choice {
  TableGroup group;
  TableShare share;
  std::vector<TableExchange> exchanges;  // that a step waits for
  Seconds work;                          // mean, that it waits for
  Seconds least;  // mean work and exchanged bytes at the best rate: adds up over groups
  std::vector<std::size_t> flows;
};

// A collective that tables of one sharding make together.
struct Flow {
  TableSharding sharding;
  TableExchange exchange;
  Bytes most_bytes;
  SecondsPerByte pace;  // never less, between the smallest and the largest buffer
};

struct Node {
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
        begin_(Clock::now()) {
    list_choices();
    sort_groups();
    rate_flows();
    sum_up();
  }

  TableOutcome run() {
    outcome_.plans = orders_[0];
    take_first();
    std::vector<std::size_t> chosen;
    chosen.reserve(order_.size());
    Node root;
    root.flows.assign(flows_.size(), Bytes());
    descend(0, chosen, root);
    finish();
    return std::move(outcome_);
  }

 private:
  using Clock = std::chrono::steady_clock;

  void list_choices() {
    for (const TableGroup& group : network_.tables) {
      std::vector<Choice> list;
      for (const TableGroup& variant : table_variants(group, network_.cluster)) {
        Choice choice{variant, model_.share(variant), {}, {}, {}, {}};
        choice.exchanges = waits_.exchanges_of(variant, choice.share);
        choice.work = waits_.work_of(choice.share);
        for (const TableExchange& exchange : choice.exchanges) {
          choice.flows.push_back(flow_of(variant.sharding, exchange));
        }
        list.push_back(std::move(choice));
      }
      choices_.push_back(std::move(list));
    }
    for (const std::vector<Choice>& list : choices_) {
      std::vector<Bytes> most(flows_.size());
      for (const Choice& choice : list) {
        for (std::size_t i = 0; i < choice.flows.size(); ++i) {
          Bytes& bytes = most[choice.flows[i]];
          bytes = std::max(bytes, choice.exchanges[i].bytes);
        }
      }
      for (std::size_t flow = 0; flow < flows_.size(); ++flow) {
        flows_[flow].most_bytes += most[flow];
      }
    }
  }

  std::size_t flow_of(TableSharding sharding, const TableExchange& exchange) {
    for (std::size_t flow = 0; flow < flows_.size(); ++flow) {
      const TableExchange& known = flows_[flow].exchange;
      if (flows_[flow].sharding == sharding && known.of == exchange.of &&
          known.kind == exchange.kind && known.axes == exchange.axes) {
        return flow;
      }
    }
    flows_.push_back({sharding, exchange, {}, {}});
    return flows_.size() - 1;
  }

  // Largest first, so that what matters is decided early.
  void sort_groups() {
    order_.resize(choices_.size());
    std::iota(order_.begin(), order_.end(), std::size_t{0});
    const auto weight = [&](std::size_t group) {
      const TableShare& share = choices_[group].front().share;
      return (share.mean_lookup + share.mean_update).value();
    };
    std::stable_sort(order_.begin(), order_.end(),
                     [&](std::size_t a, std::size_t b) { return weight(a) > weight(b); });
  }

  // time(b) / b >= time(b_i) / b_i+1 between two points of the grid, since times are monotone.
  void rate_flows() {
    for (Flow& flow : flows_) {
      SecondsPerByte least(std::numeric_limits<double>::infinity());
      const double ratio = std::pow(2.0, 0.5);
      Bytes bytes = flow.most_bytes;
      for (int i = 0; i < kRateSteps && bytes >= Bytes(1); ++i, bytes = bytes / ratio) {
        least = std::min(least, model_.exchange_time(flow.exchange, bytes / ratio) / bytes);
      }
      flow.pace = std::isfinite(least.value()) ? least : SecondsPerByte();
    }
    for (std::vector<Choice>& list : choices_) {
      for (Choice& choice : list) {
        choice.least = choice.work;
        for (std::size_t i = 0; i < choice.flows.size(); ++i) {
          choice.least += flows_[choice.flows[i]].pace * choice.exchanges[i].bytes;
        }
      }
    }
  }

  // What the groups from a position on add at least, and how many choices they have.
  void sum_up() {
    const std::size_t count = order_.size();
    rest_.assign(count + 1, Seconds());
    rest_work_.assign(count + 1, Seconds());
    rest_bytes_.assign(count + 1, Bytes());
    orders_.assign(count + 1, 1);
    for (std::size_t position = count; position-- > 0;) {
      const std::vector<Choice>& list = choices_[order_[position]];
      Seconds least = list.front().least;
      Seconds work = list.front().work;
      Bytes bytes = list.front().share.mean_bytes;
      for (const Choice& choice : list) {
        least = std::min(least, choice.least);
        work = std::min(work, choice.work);
        bytes = std::min(bytes, choice.share.mean_bytes);
      }
      rest_[position] = rest_[position + 1] + least;
      rest_work_[position] = rest_work_[position + 1] + work;
      rest_bytes_[position] = rest_bytes_[position + 1] + bytes;
      orders_[position] = orders_[position + 1] * static_cast<double>(list.size());
    }
  }

  Seconds bound(std::size_t position, const Node& node) const {
    Seconds exchanged = node.mean_work + rest_work_[position];
    for (std::size_t flow = 0; flow < flows_.size(); ++flow) {
      if (node.flows[flow] > Bytes()) {
        exchanged += model_.exchange_time(flows_[flow].exchange, node.flows[flow]);
      }
    }
    return waits_.dense_time() + std::max(node.work + rest_[position], exchanged);
  }

  bool overflows(std::size_t position, const Node& node) const {
    return node.bytes + rest_bytes_[position] > model_.room() - model_.dense().bytes;
  }

  Node with(const Node& node, const Choice& choice) const {
    Node next = node;
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
    const bool looks = steps_ % 256 == 0;
    outcome_.timed_out = steps_ > search_.most_steps || (looks && search_.time_limit.value() > 0 &&
                                                         elapsed() >= search_.time_limit);
    outcome_.interrupted = looks && search_.stop && search_.stop();
    ended_ = outcome_.timed_out || outcome_.interrupted;
    return ended_;
  }

  Seconds elapsed() const {
    return Seconds(std::chrono::duration<double>(Clock::now() - begin_).count());
  }

  void descend(std::size_t position, std::vector<std::size_t>& chosen, const Node& node) {
    if (position == order_.size()) {
      evaluate(chosen);
      return;
    }
    const std::vector<Choice>& list = choices_[order_[position]];
    std::vector<std::pair<Seconds, std::size_t>> children;
    for (std::size_t index = first_choice(position, chosen); index < list.size(); ++index) {
      const Node next = with(node, list[index]);
      children.emplace_back(overflows(position + 1, next)
                                ? Seconds(std::numeric_limits<double>::infinity())
                                : bound(position + 1, next),
                            index);
    }
    std::stable_sort(children.begin(), children.end(),
                     [](const auto& a, const auto& b) { return a.first < b.first; });
    for (const auto& [least, index] : children) {
      if (std::isinf(least.value()) || hopeless(least)) {
        outcome_.pruned += orders_[position + 1] - (holds_first(chosen, index) ? 1 : 0);
        skipped_ = std::min(skipped_, least);
      } else if (ends()) {
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
    if (position == 0 ||
        !same_tables(network_.tables[order_[position]], network_.tables[order_[position - 1]])) {
      return 0;
    }
    return chosen.back();
  }

  // Whether the plan that was simulated first begins with these choices.
  bool holds_first(const std::vector<std::size_t>& chosen, std::size_t next) const {
    return std::equal(chosen.begin(), chosen.end(), greedy_.begin()) &&
           greedy_[chosen.size()] == next;
  }

  // Each group's own best choice: something to compare with from the beginning.
  void take_first() {
    std::vector<std::size_t> chosen;
    for (const std::size_t group : order_) {
      const std::vector<Choice>& list = choices_[group];
      const auto best =
          std::min_element(list.begin(), list.end(),
                           [](const Choice& a, const Choice& b) { return a.least < b.least; });
      chosen.push_back(static_cast<std::size_t>(best - list.begin()));
    }
    greedy_ = chosen;
    evaluate(chosen);
  }

  void evaluate(const std::vector<std::size_t>& chosen) {
    if (chosen == greedy_ && outcome_.simulated > 0) {
      return;  // the first plan, met again
    }
    std::vector<TableGroup> tables(order_.size());
    std::vector<TableShare> shares(order_.size());
    for (std::size_t position = 0; position < order_.size(); ++position) {
      const Choice& choice = choices_[order_[position]][chosen[position]];
      tables[order_[position]] = choice.group;
      shares[order_[position]] = choice.share;
    }
    plan::RecommenderCost cost = plan::cost_of(model_, tables, shares);
    if (network_.nested) {
      plan::Recommender network = network_;
      network.tables = tables;
      plan::add_nested(network, cost);
    }
    ++outcome_.simulated;
    if (!cost.fits) {
      ++outcome_.infeasible;
      if (closest_ == Bytes() || cost.fullest_bytes < closest_) {
        closest_ = cost.fullest_bytes;
      }
      return;
    }
    keep(std::move(tables), std::move(cost));
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
      const bool never = rest_bytes_.front() + model_.dense().bytes > model_.room();
      outcome_.closest =
          never ? fmt::format("tables and the results of their lookups need {} a rank, spread evenly, of {}",
                              format_bytes(rest_bytes_.front()), format_bytes(capacity))
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
  std::vector<std::vector<Choice>> choices_;  // by group of the document
  std::vector<std::size_t> order_;            // groups in the order of decision
  std::vector<Flow> flows_;
  std::vector<Seconds> rest_;  // by position
  std::vector<Seconds> rest_work_;
  std::vector<Bytes> rest_bytes_;
  std::vector<double> orders_;  // choices of the groups from a position on
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
