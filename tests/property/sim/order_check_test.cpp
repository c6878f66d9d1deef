// SPDX-License-Identifier: Apache-2.0
// Whether lists deadlock, as check_order says and as a plain rescan does: all that each next block
// waits for is asked for again whenever anything has run.
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/random.hpp"
#include "sim/pipeline/pass_inputs.hpp"
#include "sim/pipeline/pipeline.hpp"
#include "sim/schedule.hpp"
#include "tests/property/drawing.hpp"

namespace orrery::sim {
namespace {

class Rescan {
 public:
  explicit Rescan(const PipelineOrder& order)
      : order_(order), inputs_(order), next_(order.passes.size(), 0) {
    const auto stages = static_cast<std::size_t>(order.num_virtual_stages);
    done_.fill(std::vector<bool>(stages * static_cast<std::size_t>(order.micro_batches), false));
  }

  bool deadlocks() {
    while (run_any()) {
    }
    for (std::size_t d = 0; d < next_.size(); ++d) {
      if (next_[d] < order_.passes[d].size()) {
        return true;
      }
    }
    return false;
  }

 private:
  std::vector<bool>::reference done(Lane lane, std::size_t stage, std::size_t unit) {
    return done_[static_cast<std::size_t>(lane)]
                [stage * static_cast<std::size_t>(order_.micro_batches) + unit];
  }

  bool run_any() {
    for (std::size_t d = 0; d < next_.size(); ++d) {
      const std::vector<Pass>& list = order_.passes[d];
      std::size_t end = next_[d];
      bool ready = end < list.size();
      for (bool more = ready; more; ++end) {
        inputs_.for_each(list[end], [&](const PassInput& input) {
          ready = ready && done(input.lane, input.virtual_stage, input.unit);
        });
        more = list[end].joined;
      }
      for (; ready && next_[d] < end; ++next_[d]) {
        const Pass& pass = list[next_[d]];
        done(lane_of(pass.kind), pass.virtual_stage, pass.micro_batch) = true;
      }
      if (ready) {
        return true;
      }
    }
    return false;
  }

  const PipelineOrder& order_;
  PassInputs inputs_;
  std::vector<std::size_t> next_;  // by device
  std::array<std::vector<bool>, kNumLanes> done_;
};

TEST(OrderCheck, FindsTheDeadlocksOfAPlainRescan) {
  EXPECT_TRUE(rc::check([] {
    Random random(*rc::gen::arbitrary<std::uint64_t>());
    const auto below = [&](std::size_t end) { return static_cast<std::size_t>(random.below(end)); };
    const Schedule& schedule = find_schedule(
        orrery::pick({"1f1b", "zou-ps-ring", "vocab-1", "hetpipe", "dualpipe"}), "test");
    PipelineOrder order = schedule.order({4, 8, 1, 0});
    for (std::size_t swaps = below(4); swaps > 0; --swaps) {
      std::vector<Pass>& list = order.passes[below(order.passes.size())];
      Pass& one = list[below(list.size())];
      Pass& other = list[below(list.size())];
      std::swap(one, other);
      std::swap(one.joined, other.joined);
    }
    const std::string wrong = check_order(order, order.micro_batches);
    const bool deadlocks = wrong.starts_with("deadlock");
    RC_PRE(wrong.empty() || deadlocks);
    RC_ASSERT(Rescan(order).deadlocks() == deadlocks);
  }));
}

}  // namespace
}  // namespace orrery::sim
