// SPDX-License-Identifier: Apache-2.0
#include "sim/orders/list_advice.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "sim/orders/document_lists.hpp"
#include "sim/orders/list_run.hpp"
#include "sim/pipeline/pass_inputs.hpp"
#include "sim/pipeline/pipeline.hpp"
#include "sim/pipeline/share_costs.hpp"

namespace orrery::sim {
namespace {

constexpr const char* kGeneral = "list what is waited for earlier";
constexpr int kMostChanges = 6;
constexpr std::int64_t kPassesTried = 100'000'000;  // of all lists that are tried: some seconds

std::string pass_text(const PipelineOrder& order, const Pass& pass) {
  const std::vector<Chain> chains = chains_of(order);
  std::size_t of = 0;
  while (pass.virtual_stage >= chains[of].first + chains[of].stages) {
    ++of;
  }
  std::string text =
      fmt::format("{} of stage {}", pass_name(pass.kind), pass.virtual_stage - chains[of].first);
  text += chains.size() > 1 ? fmt::format(" of direction {}", of) : "";
  if (pass.kind == PassKind::Optimizer) {
    return text + fmt::format(", update {}", pass.micro_batch);
  }
  const int number = PassInputs(order).number_of(pass);
  text += fmt::format(", micro-batch {}", number / order.slices);
  return order.slices == 1 ? text : text + fmt::format(", slice {}", number % order.slices);
}

// The fewest changes after which lists run, if few are enough: blocks move, or passes join others
// or none.
class FewestChanges {
 public:
  // Only if `all`, passes may join others.
  FewestChanges(PipelineOrder order, bool all) : order_(std::move(order)), all_(all) {}

  // At most so many; how many it takes, or 0.
  int search(int most) {
    for (int changes = 1; changes <= most && left_ > 0; ++changes) {
      if (find(changes)) {
        return changes;
      }
    }
    return 0;
  }

  // Those that were found.
  std::string text() const {
    std::vector<std::string> texts = texts_;
    for (std::size_t k = 0; k < moves_.size(); ++k) {
      texts.push_back(text_of(k));
    }
    return fmt::format("{}", fmt::join(texts, "; then "));
  }

 private:
  // At most so many more.
  bool find(int more) {
    const ListRun run(order_, moves_, left_);
    if (left_ <= 0) {
      return false;
    }
    if (run.is_complete()) {
      ran_ = run.ran();
      return runs();
    }
    if (more == 0) {
      return false;
    }
    const ListRun::Circle circle = run.circle();
    return std::any_of(circle.moves.begin(), circle.moves.end(),
                       [&](const Move& move) { return move_block(move, more - 1); }) ||
           any_pass_of(circle, [&](const Block& block,
                                   std::size_t at) { return move_pass(block, at, more - 1); }) ||
           any_pass_of(circle, [&](const Block& block, std::size_t at) {
             return leave_joined_out(block.device, at, more - 1);
           });
  }

  // Whether lists in the order that was found do.
  bool runs() const {
    PipelineOrder moved = order_;
    for (std::size_t d = 0; d < ran_.size(); ++d) {
      moved.passes[d].clear();
      for (const Block& block : ran_[d]) {
        const auto list = order_.passes[d].begin();
        moved.passes[d].insert(moved.passes[d].end(),
                               list + static_cast<std::ptrdiff_t>(block.begin),
                               list + static_cast<std::ptrdiff_t>(block.end));
      }
    }
    return check_order(moved, moved.micro_batches).empty();
  }

  template <typename Try>
  bool any_pass_of(const ListRun::Circle& circle, Try try_pass) const {
    return std::any_of(circle.blocks.begin(), circle.blocks.end(), [&](const Block& block) {
      for (std::size_t at = block.begin; at < block.end && left_ > 0; ++at) {
        if (try_pass(block, at)) {
          return true;
        }
      }
      return false;
    });
  }

  bool move_block(const Move& move, int more) {
    moves_.push_back(move);
    const bool found = find(more);
    if (!found) {
      moves_.pop_back();
    }
    return found;
  }

  // A pass takes along that it is joined with the next one, and lets those beside it meet.
  bool move_pass(const Block& block, std::size_t at, int more) {
    const std::size_t device = block.device;
    const std::vector<Pass>& list = order_.passes[device];
    if (!list[at].joined && block.begin < at && list_alone(block, more)) {
      return true;
    }
    // One that lets others be joined with this one, to move with it.
    if (block.begin == at && at > 0) {
      const Block before = block_at(order_, device, at - 1);
      if (before.end - before.begin > 1 && list_alone(before, more)) {
        return true;
      }
    }
    left_ -= all_ ? std::ssize(list) : 0;
    for (std::size_t other = 0; all_ && other < list.size() && left_ > 0; ++other) {
      const bool is_first = other == 0 || !list[other - 1].joined;
      const bool goes = list[at].joined ? is_first && other != block.begin : list[other].joined;
      const bool comes = list[at].joined && !list[other].joined;
      if ((goes && list_beside(device, at, other, more)) ||
          (comes && list_beside(device, other, at, more))) {
        return true;
      }
    }
    return false;
  }

  // The last pass of a block leaves it.
  bool list_alone(const Block& block, int more) {
    return try_list(
        block.device,
        [&](std::vector<Pass>& list) {
          if (!relocate(list, block.device, block.end - 1, block.begin)) {
            return false;
          }
          // Named first: others may move together with those it leaves.
          moves_.insert(moves_.begin(), {{block.device, block.begin, block.begin + 1}, false});
          return true;
        },
        more);
  }

  // A joined pass in front of a block, another one in a block after a joined one.
  bool list_beside(std::size_t device, std::size_t from, std::size_t other, int more) {
    return try_list(
        device,
        [&](std::vector<Pass>& list) {
          const bool joined = list[from].joined;
          texts_.push_back(place_text(device, list[from], "", joined, list[other]));
          return relocate(list, device, from, joined ? other : other + 1);
        },
        more);
  }

  bool leave_joined_out(std::size_t device, std::size_t at, int more) {
    return order_.passes[device][at].joined &&
           try_list(
               device,
               [&](std::vector<Pass>& list) {
                 texts_.push_back(
                     fmt::format("leave \"joined\" of {} out", pass_text(order_, list[at])));
                 list[at].joined = false;
                 return true;
               },
               more);
  }

  // Whether it is found after a change of a list, which leaves blocks that move as they are.
  template <typename Change>
  bool try_list(std::size_t device, Change change, int more) {
    std::vector<Pass>& list = order_.passes[device];
    left_ -= std::ssize(list) + order_.num_virtual_stages;  // copied, and named
    const std::vector<Pass> list_before = list;
    const std::vector<Move> moves_before = moves_;
    const std::vector<std::string> texts_before = texts_;
    const bool changed = change(list) && !list.back().joined;
    const bool whole = changed && std::all_of(moves_.begin(), moves_.end(), [&](const Move& move) {
                         return move.block == block_at(order_, move.block.device, move.block.begin);
                       });
    if (whole && find(more)) {
      return true;
    }
    list = list_before;
    moves_ = moves_before;
    texts_ = texts_before;
    return false;
  }

  // To stand before what is at `to`; not out of a block that moves.
  bool relocate(std::vector<Pass>& list, std::size_t device, std::size_t from, std::size_t to) {
    for (Move& move : moves_) {
      Block& block = move.block;
      if (block.device != device) {
        continue;
      }
      if (block.begin <= from && from < block.end) {
        return false;
      }
      const std::size_t left = from < block.begin ? 1 : 0;
      const std::size_t come = to <= block.begin ? 1 : 0;
      block = {device, block.begin + come - left, block.end + come - left};
    }
    const auto begin = list.begin();
    const auto at = [&](std::size_t k) { return begin + static_cast<std::ptrdiff_t>(k); };
    if (from < to) {
      std::rotate(at(from), at(from + 1), at(to));
    } else {
      std::rotate(at(to), at(from), at(from + 1));
    }
    return true;
  }

  std::string place_text(std::size_t device, const Pass& pass, const char* with, bool before,
                         const Pass& other) const {
    return fmt::format("on device {} list {}{} {} {}", device, pass_text(order_, pass), with,
                       before ? "before" : "after", pass_text(order_, other));
  }

  // Of a move, beside a block that does not move after it.
  std::string text_of(std::size_t k) const {
    const Block& block = moves_[k].block;
    const auto moves_after = [&](const Block& other) {
      return std::any_of(moves_.begin() + static_cast<std::ptrdiff_t>(k) + 1, moves_.end(),
                         [&](const Move& move) { return move.block == other; });
    };
    const std::vector<Block>& ran = ran_[block.device];
    const auto at = std::find(ran.begin(), ran.end(), block);
    const auto next = std::find_if_not(at + 1, ran.end(), moves_after);
    const auto before = std::find_if_not(std::make_reverse_iterator(at), ran.rend(), moves_after);
    const bool is_after = next == ran.end() || (moves_[k].later && before != ran.rend());
    const std::vector<Pass>& list = order_.passes[block.device];
    const char* with = block.end - block.begin > 1 ? " with all that it is joined with" : "";
    return place_text(block.device, list[block.begin], with, !is_after,
                      list[is_after ? before->end - 1 : next->begin]);
  }

  PipelineOrder order_;
  bool all_;
  std::int64_t left_ = kPassesTried;
  std::vector<std::string> texts_;       // of changes to order_
  std::vector<Move> moves_;              // after these
  std::vector<std::vector<Block>> ran_;  // by device
};

}  // namespace

std::string list_advice(const PipelineOrder& order) {
  FewestChanges some(order, false);
  const int enough = some.search(kMostChanges);
  const bool joins = std::any_of(order.passes.begin(), order.passes.end(), [](const auto& list) {
    return std::any_of(list.begin(), list.end(), [](const Pass& pass) { return pass.joined; });
  });
  // Passes can go beside many others: only where that may take fewer changes.
  FewestChanges all(order, true);
  if (joins && all.search(enough > 0 ? enough : kMostChanges) > 0) {
    return all.text();
  }
  return enough > 0 ? some.text() : kGeneral;
}

}  // namespace orrery::sim
