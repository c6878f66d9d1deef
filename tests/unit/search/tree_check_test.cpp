// SPDX-License-Identifier: Apache-2.0
// Whatever workers say of the nodes of a search passes; what could crash it or count a plan twice
// does not.
#include "search/tree/tree_check.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <limits>

#include "base/error.hpp"
#include "tests/unit/search/small_search.hpp"

namespace orrery::search {
namespace {

using testing::HasSubstr;

class TreeCheckTest : public testing::Test {
 protected:
  TreeCheckTest()
      : base_(base_plan({small_spec(8), "dgx-a100:1", {"node.gpus=4"}, 16, 512})),
        space_(base_, constraints_),
        groups_(space_.groups()) {
    std::uint64_t plans = 0;
    for (const Group& group : groups_) {
      first_order_.push_back(plans);
      plans += static_cast<std::uint64_t>(space_.num_members(group));
    }
    known_.cutoff = Seconds(std::numeric_limits<double>::infinity());
  }

  Node group(std::uint32_t index) const {
    Node node;
    node.group = index;
    node.level = Level::Group;
    node.order = first_order_[index];
    return node;
  }

  // The first nodes of each level, from the last group on, with what comes of them.
  void visit(const Node& node, const std::function<void(const Node&, const Outcomes&)>& seen) {
    const Outcomes outcomes = node.is_plan() ? worker_.judge(node) : worker_.expand(node, known_);
    seen(node, outcomes);
    if (!outcomes.children.empty()) {
      visit(outcomes.children.front(), seen);
    }
  }

  std::string problem(Task task, const Node& asked, const Outcomes& outcomes) {
    try {
      TreeCheck(tree_).answer(in_, task, asked, outcomes);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  }
  std::string problem(Task task, const Node& asked) {
    try {
      TreeCheck(tree_).question(in_, task, asked);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  }

  plan::Plan base_;
  Constraints constraints_;
  Space space_;
  std::vector<Group> groups_;
  std::vector<std::uint64_t> first_order_;
  Tree tree_{space_, groups_, first_order_};
  Worker worker_{space_, groups_, first_order_};
  Known known_;
  ByteReader in_{"", "rank 1"};
};

TEST_F(TreeCheckTest, WhatWorkersSayPasses) {
  int plans = 0;
  for (std::uint32_t index = 0; index < groups_.size(); ++index) {
    Outcomes bound;
    bound.time = worker_.bound(groups_[index]);
    EXPECT_EQ(problem(Task::Bound, group(index), bound), "");
    visit(group(index), [&](const Node& node, const Outcomes& outcomes) {
      EXPECT_EQ(problem(Task::Visit, node), "");
      EXPECT_EQ(problem(Task::Visit, node, outcomes), "");
      if (node.level != Level::Group) {
        const Outcomes refused = worker_.refused(node, "too long");
        EXPECT_FALSE(refused.misfits.empty());
        EXPECT_EQ(problem(Task::Visit, node, refused), "");
      }
      if (node.is_plan()) {
        ++plans;
        EXPECT_EQ(problem(Task::TryOut, node), "");
        EXPECT_EQ(problem(Task::TryOut, node, worker_.try_out(node)), "");
        EXPECT_EQ(problem(Task::Interval, node, worker_.interval(node, 2, {})), "");
      }
    });
  }
  EXPECT_GT(plans, 3);
}

TEST_F(TreeCheckTest, NodesOfOtherSpacesDoNot) {
  visit(group(0), [&](const Node& node, const Outcomes&) {
    const auto changed = [&](auto change) {
      Node other = node;
      change(other);
      return problem(Task::Visit, other);
    };
    const auto strange = HasSubstr("rank 1: holds a node that is not of this space");
    EXPECT_THAT(changed([&](Node& other) { other.group = 1'000'000; }), strange);
    EXPECT_THAT(changed([](Node& other) { ++other.order; }), strange);
    EXPECT_THAT(changed([](Node& other) {
                  other.bound = Seconds(std::numeric_limits<double>::quiet_NaN());
                }),
                strange);
    if (node.level != Level::Group) {
      EXPECT_THAT(changed([](Node& other) { other.layout = 60'000; }), strange);
      EXPECT_THAT(changed([](Node& other) { other.family = 60'000; }), strange);
      EXPECT_THAT(changed([](Node& other) { other.schedule = 60'000; }), strange);
      EXPECT_THAT(changed([](Node& other) { other.zeros = 0xff; }), strange);
      EXPECT_THAT(problem(Task::Bound, node), HasSubstr("cannot be asked"));
    }
    if (!node.is_plan()) {
      EXPECT_THAT(problem(Task::Interval, node), HasSubstr("cannot be asked"));
    }
  });
}

TEST_F(TreeCheckTest, AnswersThatCannotBeDoNot) {
  visit(group(0), [&](const Node& node, const Outcomes& outcomes) {
    const auto changed = [&](auto change) {
      Outcomes other = outcomes;
      change(other);
      return problem(Task::Visit, node, other);
    };
    EXPECT_THAT(changed([](Outcomes& other) { other.overflow.text.assign(5000, 'x'); }),
                HasSubstr("too much length"));
    const auto misfit = [&](auto change) {
      return changed([&](Outcomes& other) {
        other.overflow.misfit = node;
        change(*other.overflow.misfit);
      });
    };
    EXPECT_THAT(misfit([](Node& other) { other.group = 1'000'000; }), HasSubstr("of this space"));
    EXPECT_THAT(misfit([](Node&) {}), HasSubstr(node.is_plan() ? "" : "no plan"));
    if (node.is_plan()) {
      EXPECT_THAT(changed([](Outcomes& other) { other.time.reset(); }), HasSubstr("a time"));
      EXPECT_THAT(changed([](Outcomes& other) { other.time = Seconds(-1); }), HasSubstr("a time"));
      EXPECT_THAT(changed([&](Outcomes& other) { other.children.push_back(node); }),
                  HasSubstr("not asked"));
      return;
    }
    EXPECT_THAT(changed([](Outcomes& other) { other.time = Seconds(1); }), HasSubstr("a time"));
    EXPECT_THAT(changed([&](Outcomes& other) { other.children.front() = node; }),
                HasSubstr("does not follow"));
    EXPECT_THAT(changed([](Outcomes& other) { other.children.push_back(other.children.front()); }),
                HasSubstr("twice"));
    const auto below = HasSubstr("not below the node");
    const auto misfits = [&](Outcomes::Run run) {
      return changed([run](Outcomes& other) { other.misfits.push_back(run); });
    };
    EXPECT_THAT(misfits({node.order, 0, 1}), below);
    EXPECT_THAT(misfits({node.order, 1, 0}), below);
    EXPECT_THAT(misfits({node.order - 1, 1, 1}), below);
    EXPECT_THAT(misfits({node.order, 1'000'000'000, 1}), below);
    const auto most = std::numeric_limits<std::uint64_t>::max();
    EXPECT_THAT(misfits({node.order, most, most}), below);
    EXPECT_THAT(changed([&](Outcomes& other) {
                  for (int count = 0; count < 100'000; ++count) {
                    other.misfits.push_back({node.order, 1, 1});
                  }
                }),
                HasSubstr("counts more plans"));
  });
}

}  // namespace
}  // namespace orrery::search
