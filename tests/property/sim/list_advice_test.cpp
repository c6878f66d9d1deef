// SPDX-License-Identifier: Apache-2.0
// Lists of which some passes were moved until they no longer ran: the changes that are named make
// them run, and there are no more of them than needed.
#include "sim/orders/list_advice.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/random.hpp"
#include "sim/orders/document_lists.hpp"
#include "sim/pipeline/pipeline.hpp"
#include "sim/schedule.hpp"
#include "tests/property/drawing.hpp"

namespace orrery::sim {
namespace {

using PassList = std::vector<Pass>;

bool runs_through(const PipelineOrder& order) {
  return check_order(order, order.micro_batches).empty();
}

void move_pass(PassList& list, std::size_t from, std::size_t to) {
  const Pass pass = list[from];
  list.erase(list.begin() + static_cast<std::ptrdiff_t>(from));
  list.insert(list.begin() + static_cast<std::ptrdiff_t>(to), pass);
}

bool ends_joined(const PipelineOrder& order) {
  return std::any_of(order.passes.begin(), order.passes.end(),
                     [](const PassList& list) { return list.back().joined; });
}

// At least so often, and until the lists do not run; how often.
int move_passes(PipelineOrder& order, int least, Random& random) {
  const auto below = [&](std::size_t end) { return static_cast<std::size_t>(random.below(end)); };
  int made = 0;
  for (; made < least || ends_joined(order) || runs_through(order); ++made) {
    PassList& list = order.passes[below(order.passes.size())];
    move_pass(list, below(list.size()), below(list.size()));
  }
  return made;
}

std::string text_of(const PipelineOrder& order, const Pass& pass) {
  const std::vector<Chain> chains = chains_of(order);
  const auto of = std::find_if(chains.begin(), chains.end(), [&](const Chain& chain) {
    return pass.virtual_stage < chain.first + chain.stages;
  });
  const std::string direction =
      chains.size() > 1 ? fmt::format(" of direction {}", of - chains.begin()) : "";
  return fmt::format("{} of stage {}{}, micro-batch {}", pass_name(pass.kind),
                     pass.virtual_stage - of->first, direction,
                     of->first_unit + static_cast<int>(pass.micro_batch) * of->stride);
}

std::size_t find_pass(const PipelineOrder& order, const PassList& list, std::string_view text) {
  const auto at = std::find_if(list.begin(), list.end(),
                               [&](const Pass& pass) { return text == text_of(order, pass); });
  RC_ASSERT(at != list.end());
  return static_cast<std::size_t>(at - list.begin());
}

// The first pass of a block and those joined with it, to stand before what is at `to`.
void move_block(PassList& list, std::size_t from, std::size_t to) {
  std::size_t end = from;
  while (list[end++].joined) {
  }
  const PassList block(list.begin() + static_cast<std::ptrdiff_t>(from),
                       list.begin() + static_cast<std::ptrdiff_t>(end));
  RC_ASSERT(to <= from || to >= end);
  list.insert(list.begin() + static_cast<std::ptrdiff_t>(to), block.begin(), block.end());
  const std::size_t old = from + (to <= from ? block.size() : 0);
  list.erase(list.begin() + static_cast<std::ptrdiff_t>(old),
             list.begin() + static_cast<std::ptrdiff_t>(old + block.size()));
}

// "on device 0 list X before Y", "... after Y" or "leave "joined" of X out".
void make_move(PipelineOrder& order, const std::string& text) {
  constexpr std::string_view kDevice = "on device ";
  constexpr std::string_view kList = " list ";
  constexpr std::string_view kLeave = "leave \"joined\" of ";
  constexpr std::string_view kWith = " with all that it is joined with";
  if (text.starts_with(kLeave)) {
    const std::string pass = text.substr(kLeave.size(), text.rfind(" out") - kLeave.size());
    for (PassList& list : order.passes) {
      for (Pass& other : list) {
        other.joined = other.joined && text_of(order, other) != pass;
      }
    }
    return;
  }
  const std::string_view between = text.find(" before ") < text.size() ? " before " : " after ";
  const std::size_t list = text.find(kList) + kList.size();
  const std::size_t middle = text.find(between);
  RC_ASSERT(text.starts_with(kDevice));
  RC_ASSERT(middle < text.size());
  PassList& passes = order.passes.at(std::stoul(text.substr(kDevice.size())));
  const std::size_t with = std::min(text.find(kWith), middle);
  const std::size_t from = find_pass(order, passes, text.substr(list, with - list));
  const std::size_t other = find_pass(order, passes, text.substr(middle + between.size()));
  const std::size_t to = other + (between == " after " ? 1 : 0);
  if (with < middle) {
    move_block(passes, from, to);
  } else {
    move_pass(passes, from, to - (from < to ? 1 : 0));
  }
}

std::vector<std::string> moves_of(const std::string& advice) {
  constexpr std::string_view kThen = "; then ";
  std::vector<std::string> moves;
  for (std::size_t at = 0; at < advice.size();) {
    const std::size_t end = std::min(advice.find(kThen, at), advice.size());
    moves.push_back(advice.substr(at, end - at));
    at = end + kThen.size();
  }
  return moves;
}

TEST(ListAdvice, NamesNoMoreMovesThanWereMade) {
  EXPECT_TRUE(rc::check([] {
    Random random(*rc::gen::arbitrary<std::uint64_t>());
    const auto from_two = [&random](int end) {
      return 2 + static_cast<int>(random.below(static_cast<std::uint64_t>(end - 2)));
    };
    const Schedule& schedule = find_schedule(
        orrery::pick({"1f1b", "gpipe", "interleaved", "zb-h1", "zb-v", "v-half"}), "test");
    ScheduleParams params{2 * from_two(4), 4 * from_two(4), 1, 0};
    params.chunks = schedule.check(params).empty() ? 1 : 2;
    if (!schedule.check(params).empty()) {
      params.micro_batches = params.stages;
    }
    PipelineOrder order = schedule.order(params);
    const int made = move_passes(order, from_two(4) - 1, random);
    const std::string advice = list_advice(order);
    const std::vector<std::string> moves = moves_of(advice);
    for (const std::string& move : moves) {
      make_move(order, move);
    }
    RC_ASSERT(moves.size() <= static_cast<std::size_t>(made));
    RC_ASSERT(runs_through(order));
  }));
}

// One pass moved, where the lists have blocks of several, too.
TEST(ListAdvice, TakesPassesOutOfBlocks) {
  EXPECT_TRUE(rc::check([] {
    Random random(*rc::gen::arbitrary<std::uint64_t>());
    const Schedule& schedule = find_schedule(orrery::pick({"dualpipe", "combined-1f1b"}), "test");
    ScheduleParams params{4, 8, 1, 0};
    params.chunks = schedule.traits.uses_chunks ? 2 : 1;
    const PipelineOrder runs = schedule.order(params);
    PipelineOrder order = runs;
    while (move_passes(order, 1, random) > 1) {
      order = runs;
    }
    const std::vector<std::string> moves = moves_of(list_advice(order));
    RC_ASSERT(moves.size() == 1U);
    make_move(order, moves.front());
    RC_ASSERT(runs_through(order));
  }));
}

// Calls visit(PipelineOrder, whether a block of several passes moved) for all that one change makes
// of an order, until it is true.
template <typename Visit>
bool any_change(const PipelineOrder& order, Visit visit) {
  for (std::size_t d = 0; d < order.passes.size(); ++d) {
    const PassList& list = order.passes[d];
    const auto tried = [&](auto change, bool of_block = false) {
      PipelineOrder changed = order;
      change(changed.passes[d]);
      return !changed.passes[d].back().joined && visit(changed, of_block);
    };
    for (std::size_t from = 0; from < list.size(); ++from) {
      const bool first = from == 0 || !list[from - 1].joined;
      std::size_t end = from + 1;
      while (list[end - 1].joined) {
        ++end;
      }
      for (std::size_t to = 0; to <= list.size(); ++to) {
        const bool outside = first && end > from + 1 && (to < from || to > end);
        if ((to < list.size() && tried([&](PassList& of) { move_pass(of, from, to); })) ||
            (outside && (to == 0 || !list[to - 1].joined) &&
             tried([&](PassList& of) { move_block(of, from, to); }, true))) {
          return true;
        }
      }
      if (list[from].joined && tried([&](PassList& of) { of[from].joined = false; })) {
        return true;
      }
    }
  }
  return false;
}

// Tiny lists of which some passes are joined.
TEST(ListAdvice, NamesAsFewChangesAsNeeded) {
  EXPECT_TRUE(rc::check([] {
    Random random(static_cast<std::uint64_t>(*rc::gen::inRange(0, 30'000)));
    const Schedule& schedule = find_schedule(orrery::pick({"1f1b", "gpipe", "zb-h1"}), "test");
    PipelineOrder order = schedule.order({2, 2, 1, 0});
    order.extended = true;
    for (PassList& list : order.passes) {
      list[static_cast<std::size_t>(random.below(list.size() - 1))].joined = random.below(4) > 0;
    }
    RC_PRE(move_passes(order, 1, random) <= 3);
    const std::vector<std::string> changes = moves_of(list_advice(order));
    const auto one = [](const PipelineOrder& changed, bool) { return runs_through(changed); };
    // Blocks move as they are in the end.
    const auto two = [](const PipelineOrder& changed, bool block_moved) {
      return any_change(changed, [&](const PipelineOrder& again, bool moves_block) {
        return (moves_block || !block_moved) && runs_through(again);
      });
    };
    const bool one_is_enough = any_change(order, one);
    const bool two_are_enough = one_is_enough || any_change(order, two);
    RC_ASSERT((changes.size() <= 1) == one_is_enough);
    RC_ASSERT((changes.size() <= 2) == two_are_enough);
    for (const std::string& change : changes) {
      make_move(order, change);
    }
    RC_ASSERT(runs_through(order));
  }));
}

bool one_move_is_enough(const PipelineOrder& order) {
  for (std::size_t d = 0; d < order.passes.size(); ++d) {
    for (std::size_t from = 0; from < order.passes[d].size(); ++from) {
      for (std::size_t to = 0; to < order.passes[d].size(); ++to) {
        PipelineOrder tried = order;
        move_pass(tried.passes[d], from, to);
        if (runs_through(tried)) {
          return true;
        }
      }
    }
  }
  return false;
}

TEST(ListAdvice, NamesOneMoveWhereOneIsEnough) {
  EXPECT_TRUE(rc::check([] {
    Random random(*rc::gen::arbitrary<std::uint64_t>());
    const Schedule& schedule = find_schedule(orrery::pick({"1f1b", "gpipe", "zb-h1"}), "test");
    PipelineOrder order = schedule.order({3, 4, 1, 0});
    move_passes(order, 2, random);
    RC_ASSERT((moves_of(list_advice(order)).size() == 1) == one_move_is_enough(order));
  }));
}

}  // namespace
}  // namespace orrery::sim
