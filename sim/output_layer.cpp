// SPDX-License-Identifier: Apache-2.0
#include "sim/output_layer.hpp"

#include <fmt/format.h>

#include <limits>
#include <optional>

#include "base/error.hpp"
#include "sim/list_builder.hpp"
#include "sim/order_blocks.hpp"
#include "sim/policy.hpp"
#include "sim/v_pattern.hpp"

namespace orrery::sim {
namespace {

class Insertion {
 public:
  Insertion(const PipelineOrder& base, const ScheduleParams& params, int barriers)
      : base_(base),
        barriers_(barriers),
        skeleton_(output_layer_skeleton(base, barriers)),
        params_(with_stage_times(skeleton_, params)),
        lists_(skeleton_, params_, splits(base)),
        position_(base.passes.size(), 0),
        choices_(base.passes.size()),
        stale_(base.passes.size(), true),
        met_s_(static_cast<std::size_t>(base.micro_batches), 0),
        met_t_(met_s_) {}

  PipelineOrder run() {
    while (true) {
      const Choice* first = nullptr;
      for (std::size_t d = 0; d < position_.size(); ++d) {
        if (stale_[d]) {
          choices_[d] = choice_of(static_cast<int>(d));
          stale_[d] = false;
        }
        if (choices_[d] && (first == nullptr || choices_[d]->start < first->start)) {
          first = &*choices_[d];
        }
      }
      if (first == nullptr) {
        return lists_.take();
      }
      put(*first);
    }
  }

 private:
  struct Choice {
    Pass pass;
    std::int64_t start;
    int device;
    bool is_base;
  };

  // Devices whose choice the pass can change are looked at again: its own, its neighbours', and all
  // when every device waits for it.
  void put(Choice choice) {
    const int stage = choice.pass.virtual_stage;
    const int last = base_.num_virtual_stages - 1;
    const auto devices = static_cast<int>(position_.size());
    position_[static_cast<std::size_t>(choice.device)] += choice.is_base ? 1 : 0;
    lists_.put(choice.pass);
    stale_[static_cast<std::size_t>(choice.device)] = true;
    bool all = stage == last && choice.pass.kind == PassKind::Forward;
    if (stage > last) {
      std::vector<int>& met = choice.pass.kind == PassKind::Forward ? met_s_ : met_t_;
      all = ++met[choice.pass.micro_batch] == devices;
    } else {
      for (const int near : {stage - 1, stage + 1}) {
        if (near >= 0 && near <= last) {
          stale_[base_.device_of[static_cast<std::size_t>(near)]] = true;
        }
      }
    }
    if (all) {
      stale_.assign(stale_.size(), true);
    }
  }

  static bool splits(const PipelineOrder& base) {
    for (const Pass& pass : base.passes.front()) {
      if (pass.kind == PassKind::WeightGrad) {
        return true;
      }
    }
    return false;
  }

  // The pass that can start first; S and T before the layers' own when both can.
  std::optional<Choice> choice_of(int d) const {
    const int shard = base_.num_virtual_stages + d;
    Pass s = lists_.next(Lane::Forward, shard);
    Pass t = lists_.next(Lane::Gradient, shard);
    t.kind = PassKind::Backward;
    const bool owes_t = t.micro_batch < s.micro_batch;
    std::optional<Choice> best;
    const auto offer = [&](const Pass& pass, bool is_base) {
      const std::optional<std::int64_t> arrives = lists_.arrival(pass);
      if (arrives) {
        const std::int64_t start = std::max(*arrives, lists_.free(d));
        if (!best || start < best->start) {
          best = {pass, start, d, is_base};
        }
      }
    };
    if (owes_t && barriers_ == 2) {
      offer(t, false);
    }
    if (!owes_t && s.micro_batch < static_cast<std::uint32_t>(base_.micro_batches)) {
      offer(s, false);
    }
    const auto at = static_cast<std::size_t>(d);
    if (position_[at] < base_.passes[at].size()) {
      offer(base_.passes[at][position_[at]], true);
    }
    if (owes_t && barriers_ == 1) {
      const bool next_s = s.micro_batch < static_cast<std::uint32_t>(base_.micro_batches) &&
                          lists_.arrival(s).has_value();
      if (next_s) {
        best.reset();  // before the next S
      }
      offer(t, false);
    }
    return best;
  }

  const PipelineOrder& base_;
  int barriers_;
  PipelineOrder skeleton_;
  ScheduleParams params_;
  ListBuilder lists_;
  std::vector<std::size_t> position_;
  std::vector<std::optional<Choice>> choices_;  // by device
  std::vector<bool> stale_;
  std::vector<int> met_s_;  // devices that have run S and T of a unit
  std::vector<int> met_t_;
};

}  // namespace

PipelineOrder output_layer_skeleton(const PipelineOrder& base, int barriers) {
  PipelineOrder order = base;
  const auto devices = static_cast<int>(base.passes.size());
  const int shards = base.num_virtual_stages;  // virtual stage of the first shard
  const auto last = static_cast<std::uint16_t>(shards - 1);
  order.pieces = pieces_of(base);
  order.parts.assign(static_cast<std::size_t>(shards), devices);
  order.parts.resize(static_cast<std::size_t>(shards + devices), order.pieces);
  order.parts_per_share = devices * order.pieces;
  order.chains = chains_of(base);
  for (int d = 0; d < devices; ++d) {
    order.passes[static_cast<std::size_t>(d)].clear();
    add_chain(order, {static_cast<std::uint16_t>(d)},
              {.units = base.micro_batches, .role = Role::Output});
  }
  for (int d = 0; d < devices; ++d) {
    const auto shard = static_cast<std::uint16_t>(shards + d);
    order.edges.push_back({Lane::Forward, last, Lane::Forward, shard});
    order.edges.push_back(
        {barriers == 1 ? Lane::Forward : Lane::Gradient, shard, Lane::Gradient, last});
    for (int other = 0; other < devices; ++other) {
      order.edges.push_back(
          {Lane::Forward, static_cast<std::uint16_t>(shards + other), Lane::Gradient, shard});
    }
  }
  return order;
}

PipelineOrder with_output_layer(const PipelineOrder& base, const ScheduleParams& params,
                                int barriers) {
  PipelineOrder order = Insertion(base, params, barriers).run();
  for (std::size_t d = 0; d < base.passes.size(); ++d) {
    ORRERY_CHECK(order.passes[d].size() ==
                     base.passes[d].size() + 2 * static_cast<std::size_t>(base.micro_batches),
                 "the output layer's barriers deadlock with the base order");
  }
  return order;
}

bool shares_output_layer(std::string_view schedule) {
  return schedule == "vocab-1" || schedule == "vocab-2" || schedule == "interlaced";
}

PipelineOrder vocabulary_base(const ScheduleParams& params, int extra) {
  if (params.chunks == 2) {
    return v_pattern(params, v_half_blocks(params.stages, extra), true);
  }
  PipelineOrder order = empty_order(params, loop_placement(params), 2);
  for (int i = 0; i < params.stages; ++i) {
    const auto pass = [i](PassKind kind, int k) {
      return Pass{kind, static_cast<std::uint16_t>(i), static_cast<std::uint32_t>(k)};
    };
    append_one_forward_one_backward(
        order.passes[static_cast<std::size_t>(i)], params.micro_batches, params.stages - i + extra,
        [&](int k) { return pass(PassKind::Forward, k); },
        [&](int k) { return pass(PassKind::Backward, k); });
  }
  return order;
}

std::string check_vocabulary(const ScheduleParams& params) {
  const bool known = params.chunks == 1 || params.chunks == 2;
  return first_broken(
      {check_basics(params), check_own_warm_up(params), check_looks(params, 1),
       known ? ""
             : fmt::format("one chunk (1f1b) or two (v-half) are required, not {}: set chunks "
                           "to 2",
                           params.chunks)});
}

}  // namespace orrery::sim
