// SPDX-License-Identifier: Apache-2.0
// CrossPipe's exact schedules: orders of forward, input-gradient and weight-gradient passes on
// every device, given the latency between each two stages and a cap on live activations, with the
// least longest stage span. Branch and bound over the next pass of some device; passes of one kind
// stay in order of micro-batches, which costs nothing because micro-batches are alike.
#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "search/planner.hpp"

namespace orrery::search {
namespace {

constexpr std::int64_t kSteps = 20'000'000;
enum Kind { kForward, kInputGrad, kWeightGrad, kKinds };

struct Problem {
  int stages = 1;
  int micro_batches = 1;
  std::array<int, kKinds> time = {1, 1, 1};
  std::vector<int> latency;  // between stage i and i + 1
  int cap = 1;               // live micro-batches of a stage, forward to weight gradient
};

struct Stage {
  std::array<int, kKinds> done = {0, 0, 0};
  std::array<std::vector<int>, kKinds> end;  // of each pass
  int free = 0;
  int first_start = -1;
  std::vector<int> order;  // kinds
  int busy_left = 0;
};

class Search {
 public:
  explicit Search(const Problem& problem) : problem_(problem), stages_(stage_count()) {
    const int work = problem.micro_batches * (problem.time[0] + problem.time[1] + problem.time[2]);
    for (Stage& stage : stages_) {
      stage.busy_left = work;
    }
  }

  int run() {
    extend(-1, 0);
    return best_;
  }
  bool proven() const { return steps_ < kSteps; }
  const std::vector<std::vector<int>>& orders() const { return best_orders_; }

 private:
  std::size_t stage_count() const { return static_cast<std::size_t>(problem_.stages); }

  // Earliest start of the next pass of a kind, or -1 when an input or memory is missing.
  int ready(std::size_t s, int kind) const {
    const Stage& stage = stages_[s];
    const int k = stage.done[static_cast<std::size_t>(kind)];
    if (k == problem_.micro_batches) {
      return -1;
    }
    int input = 0;
    if (kind == kForward) {
      if (stage.done[kForward] - stage.done[kWeightGrad] >= problem_.cap) {
        return -1;
      }
      if (s > 0) {
        input = arrival(stages_[s - 1].end[kForward], k, problem_.latency[s - 1]);
      }
    } else if (kind == kInputGrad) {
      if (k >= stage.done[kForward]) {
        return -1;
      }
      if (s + 1 < stages_.size()) {
        input = arrival(stages_[s + 1].end[kInputGrad], k, problem_.latency[s]);
      }
    } else if (k >= stage.done[kInputGrad]) {
      return -1;
    }
    return input < 0 ? -1 : std::max(stage.free, input);
  }
  static int arrival(const std::vector<int>& ends, int k, int latency) {
    return k < static_cast<int>(ends.size()) ? ends[static_cast<std::size_t>(k)] + latency : -1;
  }

  // Longest span that is still possible: what a stage has begun plus the work it has left.
  int bound() const {
    int longest = 0;
    for (const Stage& stage : stages_) {
      const int begun = stage.first_start < 0 ? 0 : stage.free - stage.first_start;
      longest = std::max(longest, begun + stage.busy_left);
    }
    return longest;
  }

  // Appends passes in order of start (then stage), so that every set of orders is met once: the
  // times follow from the orders, each pass starting as soon as it can.
  void extend(int last_start, std::size_t last_stage) {
    if (++steps_ > kSteps || bound() >= best_) {
      return;
    }
    bool any = false;
    for (std::size_t s = 0; s < stages_.size(); ++s) {
      for (const int kind : {kInputGrad, kForward, kWeightGrad}) {
        const int start = ready(s, kind);
        any = any || start >= 0;
        const bool later = start > last_start || (start == last_start && s > last_stage);
        if (start >= 0 && later) {
          apply(s, kind, start);
        }
      }
    }
    if (!any) {
      finish();
    }
  }

  void apply(std::size_t s, int kind, int start) {
    Stage& stage = stages_[s];
    const auto k = static_cast<std::size_t>(kind);
    const int free = stage.free;
    const int first = stage.first_start;
    stage.first_start = first < 0 ? start : first;
    stage.free = start + problem_.time[k];
    stage.busy_left -= problem_.time[k];
    stage.end[k].push_back(stage.free);
    stage.order.push_back(kind);
    ++stage.done[k];
    extend(start, s);
    --stage.done[k];
    stage.order.pop_back();
    stage.end[k].pop_back();
    stage.busy_left += problem_.time[k];
    stage.free = free;
    stage.first_start = first;
  }

  void finish() {
    int longest = 0;
    for (const Stage& stage : stages_) {
      for (const int done : stage.done) {
        if (done < problem_.micro_batches) {
          return;  // the cap is too small to go on
        }
      }
      longest = std::max(longest, stage.free - stage.first_start);
    }
    if (longest < best_) {
      best_ = longest;
      best_orders_.clear();
      for (const Stage& stage : stages_) {
        best_orders_.push_back(stage.order);
      }
    }
  }

  const Problem& problem_;
  std::vector<Stage> stages_;
  int best_ = std::numeric_limits<int>::max();
  std::vector<std::vector<int>> best_orders_;
  std::int64_t steps_ = 0;
};

Json orders_json(const std::vector<std::vector<int>>& orders) {
  constexpr std::string_view kLetters = "FBW";
  Json list = Json::array();
  for (const std::vector<int>& order : orders) {
    std::string text;
    for (const int kind : order) {
      text += kLetters[static_cast<std::size_t>(kind)];
    }
    list.push(std::move(text));
  }
  return list;
}

Json plan(ObjectReader& reader) {
  Problem problem;
  const JsonReader size = reader.required("stages");
  problem.stages = static_cast<int>(size.integer(1, 8));
  problem.micro_batches = static_cast<int>(reader.required("micro_batches").integer(1, 16));
  if (problem.stages * problem.micro_batches > 32) {
    size.fail("expected at most 32 stages x micro-batches",
              "use the crosspipe schedule, which decides greedily");
  }
  problem.time = {static_cast<int>(reader.integer_or("forward", 1, 1, 10'000)),
                  static_cast<int>(reader.integer_or("input_grad", 1, 1, 10'000)),
                  static_cast<int>(reader.integer_or("weight_grad", 1, 1, 10'000))};
  problem.cap = static_cast<int>(reader.integer_or("memory", problem.stages, 1, 1024));
  problem.latency.assign(static_cast<std::size_t>(problem.stages - 1), 0);
  if (const auto latency = reader.optional("latency")) {
    const std::vector<JsonReader> entries = latency->array(problem.stages - 1);
    if (entries.size() != problem.latency.size()) {
      latency->fail("expected one latency between each two neighbouring stages");
    }
    for (std::size_t i = 0; i < entries.size(); ++i) {
      problem.latency[i] = static_cast<int>(entries[i].integer(0, 10'000));
    }
  }
  Search search(problem);
  const int span = search.run();
  const int busy = problem.micro_batches * (problem.time[0] + problem.time[1] + problem.time[2]);
  if (search.orders().empty()) {
    return infeasible("no order was found within the steps of the search");
  }
  Json answer = Json::object();
  answer.set("longest_span", span);
  answer.set("idle", span - busy);
  answer.set("orders", orders_json(search.orders()));
  answer.set("proven", search.proven());
  return answer;
}

}  // namespace

extern const Planner planner_crosspipe = {
    .name = "crosspipe",
    .description = "exact order of split passes under latency and a memory cap (small pipelines)",
    .source = "Chen et al., CrossPipe, USENIX ATC 2025 (arXiv 2507.00217), section 4",
    .example = R"({"schema": "orrery-problem", "version": 1,
  "stages": 2, "micro_batches": 3, "memory": 2, "latency": [1]})",
    .plan = plan,
};

}  // namespace orrery::search
