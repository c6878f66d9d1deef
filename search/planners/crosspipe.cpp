// SPDX-License-Identifier: Apache-2.0
// CrossPipe's exact schedules: orders of forward, input-gradient and weight-gradient passes on
// every device, given the latency between each two stages and a cap on live activations, with the
// least longest stage span. Branch and bound over the next pass of some device, from the order of
// the greedy schedule on; passes of one kind stay in order of micro-batches, which costs nothing
// because micro-batches are alike.
#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "search/planner.hpp"
#include "sim/pipeline/pipeline.hpp"
#include "sim/schedule.hpp"

namespace orrery::search {
namespace {

constexpr std::int64_t kSteps = 20'000'000;
constexpr std::size_t kMostStages = 8;
enum Kind { kForward, kInputGrad, kWeightGrad, kKinds };

struct Problem {
  int stages = 1;
  int micro_batches = 1;
  std::array<int, kKinds> time = {1, 1, 1};
  std::vector<int> latency;  // between stage i and i + 1
  int cap = 1;               // live micro-batches of a stage, forward to weight gradient
  int work() const { return micro_batches * (time[0] + time[1] + time[2]); }
};

// What no order goes below: until the first gradient is back at a stage only as many forwards as
// the cap allows run there, and from the last forward until its gradient is back only the gradients
// of the others that are alive. With more micro-batches than the cap a weight gradient lies between
// the two, so that both idle times add up.
int least_span(const Problem& problem) {
  const auto [forward, input_grad, weight_grad] = problem.time;
  const int alive = std::min(problem.cap, problem.micro_batches);
  int longest = 0;
  int way = forward;  // from the start of a forward to that of its gradient
  for (std::size_t s = static_cast<std::size_t>(problem.stages); s-- > 0;) {
    const int head = std::max(0, way - alive * forward);
    const int tail = std::max(0, way - forward - (alive - 1) * (input_grad + weight_grad));
    const int idle = problem.micro_batches > problem.cap ? head + tail : std::max(head, tail);
    longest = std::max(longest, problem.work() + idle);
    way += s == 0 ? 0 : forward + input_grad + 2 * problem.latency[s - 1];
  }
  return longest;
}

// Orders by stage, of kinds, and their longest span.
struct Orders {
  int longest = std::numeric_limits<int>::max();
  std::vector<std::vector<int>> kinds;
};

// Those of the crosspipe schedule.
Orders greedy_orders(const Problem& problem) {
  sim::ScheduleParams params;
  params.stages = problem.stages;
  params.micro_batches = problem.micro_batches;
  params.cap = problem.cap;
  sim::PipelineCosts costs;
  for (std::size_t s = 0; s < static_cast<std::size_t>(problem.stages); ++s) {
    const SimTime send{s < problem.latency.size() ? problem.latency[s] : 0};
    params.times.push_back({SimTime{problem.time[kForward]}, SimTime{problem.time[kInputGrad]},
                            SimTime{problem.time[kWeightGrad]}, send});
    costs.forward.push_back(params.times.back().forward);
    costs.input_grad.push_back(params.times.back().input_grad);
    costs.weight_grad.push_back(params.times.back().weight_grad);
    costs.backward.push_back(params.times.back().backward());
    if (s < problem.latency.size()) {
      costs.send_forward.push_back(send);
    }
  }
  costs.send_backward = costs.send_forward;
  const sim::PipelineOrder order = sim::find_schedule("crosspipe", "").order(params);
  const sim::PipelineResult result = sim::evaluate_pipeline(order, costs);
  Orders orders{0, {}};
  for (std::size_t s = 0; s < result.devices.size(); ++s) {
    const SimTime span = result.devices[s].last_end - result.devices[s].first_start;
    orders.longest = std::max(orders.longest, static_cast<int>(span.ps));
    orders.kinds.emplace_back();
    for (const sim::Pass& pass : order.passes[s]) {
      orders.kinds.back().push_back(pass.kind == sim::PassKind::Forward     ? kForward
                                    : pass.kind == sim::PassKind::InputGrad ? kInputGrad
                                                                            : kWeightGrad);
    }
  }
  return orders;
}

struct Stage {
  std::array<int, kKinds> done = {0, 0, 0};
  std::array<std::vector<int>, kKinds> end;  // of each pass
  int free = 0;
  int first_start = -1;
  std::vector<int> order;  // kinds
  int busy_left = 0;
};

// Times of what a stage has not run yet, at the soonest.
struct Soonest {
  int forward = 0;       // start of the next one
  int last_forward = 0;  // end
  int gradient = 0;
  int last_gradient = 0;
};

class Search {
 public:
  Search(const Problem& problem, Orders known)
      : problem_(problem),
        stages_(stage_count()),
        least_(least_span(problem)),
        best_(std::move(known)) {
    for (Stage& stage : stages_) {
      stage.busy_left = problem.work();
    }
  }

  const Orders& run() {
    extend(-1, 0);
    return best_;
  }
  bool proven() const { return steps_ < kSteps; }

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

  // When the next forward of each stage can start, and its last one end, at the soonest.
  void set_forwards() {
    const int time = problem_.time[kForward];
    for (std::size_t s = 0; s < stages_.size(); ++s) {
      const Stage& stage = stages_[s];
      const int left = problem_.micro_batches - stage.done[kForward];
      if (left == 0) {
        soonest_[s].last_forward = stage.end[kForward].back();
        continue;
      }
      int next = stage.free;
      int last = 0;
      if (s > 0) {
        const int latency = problem_.latency[s - 1];
        const int sent = arrival(stages_[s - 1].end[kForward], stage.done[kForward], latency);
        next = std::max(next, sent < 0 ? soonest_[s - 1].forward + time + latency : sent);
        last = soonest_[s - 1].last_forward + latency + time;
      }
      soonest_[s].forward = next;
      soonest_[s].last_forward = std::max(last, next + left * time);
    }
  }

  // The same of gradients, from the last stage on.
  void set_gradients() {
    const int time = problem_.time[kInputGrad];
    for (std::size_t s = stages_.size(); s-- > 0;) {
      const Stage& stage = stages_[s];
      const int done = stage.done[kInputGrad];
      const int left = problem_.micro_batches - done;
      if (left == 0) {
        soonest_[s].last_gradient = stage.end[kInputGrad].back();
        continue;
      }
      const bool waits = done == stage.done[kForward];
      int next = waits ? soonest_[s].forward + problem_.time[kForward] : stage.free;
      int last = soonest_[s].last_forward + time;
      if (s + 1 < stages_.size()) {
        const int latency = problem_.latency[s];
        const int sent = arrival(stages_[s + 1].end[kInputGrad], done, latency);
        next = std::max(next, sent < 0 ? soonest_[s + 1].gradient + time + latency : sent);
        last = std::max(last, soonest_[s + 1].last_gradient + latency + time);
      }
      soonest_[s].gradient = next;
      soonest_[s].last_gradient = std::max(last, next + left * time);
    }
  }

  // The soonest end of a stage: all it has left one after the other; or what cannot run before its
  // next gradient after that; or a weight gradient after the last gradient.
  int soonest_end(const Stage& stage, const Soonest& soonest) const {
    const int end = stage.free + stage.busy_left;
    const int gradients = stage.done[kInputGrad];
    if (gradients == problem_.micro_batches) {
      return end;
    }
    const int alive = stage.done[kForward] - gradients;
    const int forwards =
        std::min(problem_.micro_batches - stage.done[kForward], problem_.cap - alive);
    const int before = forwards * problem_.time[kForward] +
                       (gradients - stage.done[kWeightGrad]) * problem_.time[kWeightGrad];
    return std::max({end, soonest.gradient + stage.busy_left - before,
                     soonest.last_gradient + problem_.time[kWeightGrad]});
  }

  // Longest span that is still possible.
  int bound() {
    set_forwards();
    set_gradients();
    int longest = least_;
    for (std::size_t s = 0; s < stages_.size(); ++s) {
      if (stages_[s].first_start >= 0) {
        longest = std::max(longest, soonest_end(stages_[s], soonest_[s]) - stages_[s].first_start);
      }
    }
    return longest;
  }

  // Appends passes in order of start (then stage), so that every set of orders is met once: the
  // times follow from the orders, each pass starting as soon as it can.
  void extend(int last_start, std::size_t last_stage) {
    if (++steps_ > kSteps || bound() >= best_.longest) {
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
    if (longest < best_.longest) {
      best_ = {longest, {}};
      for (const Stage& stage : stages_) {
        best_.kinds.push_back(stage.order);
      }
    }
  }

  const Problem& problem_;
  std::vector<Stage> stages_;
  std::array<Soonest, kMostStages> soonest_;
  int least_;
  Orders best_;
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
  problem.stages = static_cast<int>(size.integer(1, kMostStages));
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
  reader.finish();
  Search search(problem, greedy_orders(problem));
  const Orders& best = search.run();
  Json answer = Json::object();
  answer.set("longest_span", best.longest);
  answer.set("idle", best.longest - problem.work());
  answer.set("orders", orders_json(best.kinds));
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
