// SPDX-License-Identifier: Apache-2.0
#include "search/table_choices.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "search/table_variants.hpp"

namespace orrery::search {

namespace {

constexpr int kRateSteps = 96;  // of the grid on which the best rate is found

class Builder {
 public:
  Builder(plan::RecommenderModel& model, StepWaits& waits, Bytes room)
      : model_(model), waits_(waits), room_(room) {}

  TableChoices run() {
    list_choices();
    sort_groups();
    rate_flows();
    return std::move(all_);
  }

 private:
  void list_choices() {
    for (const plan::TableGroup& group : model_.network().tables) {
      std::vector<TableChoice> list;
      for (const plan::TableGroup& variant : table_variants(group, model_.network().cluster)) {
        TableChoice choice{variant, model_.share(variant), {}, {}, {}, {}};
        choice.exchanges = waits_.exchanges_of(variant, choice.share);
        choice.work = waits_.work_of(choice.share);
        choice.never_fits = choice.piece() > room_;
        for (const plan::TableExchange& exchange : choice.exchanges) {
          choice.flows.push_back(flow_of(variant.sharding, exchange));
        }
        list.push_back(std::move(choice));
      }
      all_.of.push_back(std::move(list));
    }
    for (const std::vector<TableChoice>& list : all_.of) {
      std::vector<Bytes> most(all_.flows.size());
      for (const TableChoice& choice : list) {
        for (std::size_t i = 0; i < choice.flows.size(); ++i) {
          Bytes& bytes = most[choice.flows[i]];
          bytes = std::max(bytes, choice.exchanges[i].bytes);
        }
      }
      for (std::size_t flow = 0; flow < all_.flows.size(); ++flow) {
        all_.flows[flow].most_bytes += most[flow];
      }
    }
  }

  std::size_t flow_of(plan::TableSharding sharding, const plan::TableExchange& exchange) {
    for (std::size_t flow = 0; flow < all_.flows.size(); ++flow) {
      const plan::TableExchange& known = all_.flows[flow].exchange;
      if (all_.flows[flow].sharding == sharding && known.of == exchange.of &&
          known.kind == exchange.kind && known.axes == exchange.axes) {
        return flow;
      }
    }
    all_.flows.push_back({sharding, exchange, {}, {}});
    return all_.flows.size() - 1;
  }

  // Largest first, so that what matters is decided early.
  void sort_groups() {
    all_.order.resize(all_.of.size());
    std::iota(all_.order.begin(), all_.order.end(), std::size_t{0});
    const auto weight = [&](std::size_t group) {
      const plan::TableShare& share = all_.of[group].front().share;
      return (share.mean_lookup + share.mean_update).value();
    };
    std::stable_sort(all_.order.begin(), all_.order.end(),
                     [&](std::size_t a, std::size_t b) { return weight(a) > weight(b); });
  }

  // time(b) / b >= time(b_i) / b_i+1 between two points of the grid, since times are monotone.
  void rate_flows() {
    for (TableFlow& flow : all_.flows) {
      SecondsPerByte least(std::numeric_limits<double>::infinity());
      const double ratio = std::pow(2.0, 0.5);
      Bytes bytes = flow.most_bytes;
      for (int i = 0; i < kRateSteps && bytes >= Bytes(1); ++i, bytes = bytes / ratio) {
        least = std::min(least, model_.exchange_time(flow.exchange, bytes / ratio) / bytes);
      }
      flow.pace = std::isfinite(least.value()) ? least : SecondsPerByte();
    }
    for (std::vector<TableChoice>& list : all_.of) {
      for (TableChoice& choice : list) {
        choice.least = choice.work;
        for (std::size_t i = 0; i < choice.flows.size(); ++i) {
          choice.least += all_.flows[choice.flows[i]].pace * choice.exchanges[i].bytes;
        }
      }
    }
  }

  plan::RecommenderModel& model_;
  StepWaits& waits_;
  Bytes room_;
  TableChoices all_;
};

}  // namespace

Bytes TableChoice::piece() const {
  const Bytes one = share.unit.bytes + share.unit.buffers;
  return share.everywhere ? one * static_cast<double>(share.units) : one;
}

TableChoices table_choices(plan::RecommenderModel& model, StepWaits& waits, Bytes room) {
  return Builder(model, waits, room).run();
}

}  // namespace orrery::search
