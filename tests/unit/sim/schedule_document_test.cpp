// SPDX-License-Identifier: Apache-2.0
#include "sim/orders/schedule_document.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "base/error.hpp"
#include "sim/pipeline/pipeline.hpp"
#include "sim/pipeline/schedule_svg.hpp"
#include "sim/pipeline/share_costs.hpp"

namespace orrery::sim {
namespace {

using testing::AllOf;
using testing::HasSubstr;

std::string document_text(const std::string& members) {
  return R"({"schema": "orrery-schedule", "version": 1, "name": "mine", )" + members + "}";
}

PipelineOrder run(const std::string& members, const ScheduleParams& params) {
  const Json document = parse_json(document_text(members), "mine.json");
  return order_of(read_schedule_document(document, "mine.json"), params);
}

std::string error_of(const std::string& members, const ScheduleParams& params) {
  try {
    run(members, params);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::BadInput);
    return error.what();
  }
  return "no error";
}

PipelineResult evaluate(const PipelineOrder& order) {
  const PassTimes unit{SimTime{1}, SimTime{1}, SimTime{1}, SimTime{0}};
  return evaluate_pipeline(order, share_costs(order, unit).costs, {.record_spans = true});
}

void expect_same_lists(const char* name, const std::string& members, ScheduleParams params) {
  // Uneven and slow links: neither list may depend on times.
  for (const PassTimes& times :
       {PassTimes{}, PassTimes{SimTime{3}, SimTime{1}, SimTime{1}, SimTime{7}},
        PassTimes{SimTime{1}, SimTime{5}, SimTime{2}, SimTime{1}}}) {
    params.times = {times};
    const PipelineOrder expected = find_schedule(name, "test").order(params);
    const PipelineOrder described = run(members, params);
    EXPECT_EQ(described.device_of, expected.device_of);
    EXPECT_EQ(described.passes, expected.passes) << name << " p " << params.stages << " m "
                                                 << params.micro_batches << " v " << params.chunks;
  }
}

constexpr const char* kOneForwardOneBackward =
    R"("placement": "loop", "warm_up": {"forwards": 1, "per_later_device": 1})";

TEST(ScheduleDocument, DescriptionsGiveTheListsOfClassicalSchedules) {
  for (const int p : {1, 2, 3, 4, 8}) {
    for (const int m : {1, 2, 5, 8, 17}) {
      expect_same_lists("gpipe", R"("placement": "loop", "warm_up": "all")", {p, m, 1});
      expect_same_lists("1f1b", kOneForwardOneBackward, {p, m, 1});
      for (const int v : {1, 2, 3}) {
        expect_same_lists("breadth-first",
                          R"("placement": "loop", "traversal": "breadth", "warm_up": "all")",
                          {p, m, v});
        expect_same_lists("interleaved",
                          R"("placement": "loop", "traversal": "depth", "warm_up":
                             {"forwards": 1, "per_later_device": 2, "groups_per_later_chunk": 1})",
                          {p, m * p, v});
      }
    }
  }
}

constexpr const char* kZeroBubble =
    R"("placement": "loop", "split_backward": true, "warm_up": {"per_later_device": LATE},
       "weight_grads": {"per_earlier_device": LATE})";

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  std::size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  for (; at != std::string::npos; at = text.find(from, at + to.size())) {
    text.replace(at, from.size(), to);
  }
  return text;
}

TEST(ScheduleDocument, LateWeightGradientsGiveTheListsOfZeroBubbleSchedules) {
  for (const int p : {1, 2, 3, 4, 8}) {
    for (const int m : {1, 2, 5, 8, 17}) {
      expect_same_lists("zb-h1", replaced(kZeroBubble, "LATE", "1"), {p, m, 1});
      expect_same_lists("zb-h2", replaced(kZeroBubble, "LATE", "2"), {p, m, 1});
    }
  }
  EXPECT_THAT(error_of(R"("placement": "loop", "weight_grads": {"late": 1})", {}),
              AllOf(HasSubstr("weight_grads needs warm_up"), HasSubstr("add both")));
}

// GPipe with recomputation: (m + p - 1)(F + R + B), one activation at a time beside the boundaries.
TEST(ScheduleDocument, RecomputationRunsEveryForwardTwice) {
  for (const int p : {1, 2, 4}) {
    for (const int m : {1, 4, 9}) {
      const PipelineOrder order =
          run(R"("placement": "loop", "warm_up": "all", "recompute": true)", {p, m, 1});
      EXPECT_EQ(check_order(order, m), "");
      const PassTimes unit{SimTime{1}, SimTime{1}, SimTime{1}, SimTime{0}};
      PipelineCosts costs = share_costs(order, unit).costs;
      costs.activation.assign(costs.forward.size(), ByteCount(100));
      costs.boundary.assign(costs.forward.size(), ByteCount(1));
      const PipelineResult result = evaluate_pipeline(order, costs, {.record_spans = true});
      EXPECT_LE(result.makespan.ps, (m + p - 1) * 4);
      EXPECT_GE(result.makespan.ps, (m - 1) * 4 + (p - 1) * 3 + 4);  // recomputed while it waits
      for (const DeviceUse& use : result.devices) {
        EXPECT_EQ(use.peak_chunks, 1);
        EXPECT_EQ(use.peak_activation.value(), m + 100);
        EXPECT_EQ(use.busy.ps, 4 * m);
      }
      EXPECT_THAT(schedule_svg(order, result, "mine", 1.0), HasSubstr("recompute"));
      const Timeline timeline = ::orrery::sim::run(expand_pipeline(order, costs));
      EXPECT_EQ(timeline.makespan, result.makespan);
      EXPECT_EQ(timeline.peaks[0].bytes, result.devices[0].peak_activation);
    }
  }
}

// A split backward that recomputes frees all but the weight gradient's part after its input
// gradient, on the engine as in the sweep.
TEST(ScheduleDocument, RecomputedActivationsLeaveInTwoParts) {
  const PipelineOrder order = run(
      R"("placement": "loop", "split_backward": true, "recompute": true, "warm_up":
         {"per_later_device": 1}, "weight_grads": {"per_earlier_device": 1})",
      {.stages = 3, .micro_batches = 6});
  const PassTimes unit{SimTime{1}, SimTime{1}, SimTime{1}, SimTime{0}};
  PipelineCosts costs = share_costs(order, unit).costs;
  costs.activation.assign(3, ByteCount(100));
  costs.weight_grad_activation.assign(3, ByteCount(30));
  costs.boundary.assign(3, ByteCount(7));
  const PipelineResult result = evaluate_pipeline(order, costs);
  const Timeline timeline = ::orrery::sim::run(expand_pipeline(order, costs));
  for (std::size_t d = 0; d < 3; ++d) {
    EXPECT_EQ(timeline.peaks[d].bytes, result.devices[d].peak_activation) << d;
  }
  // The last device waits with weight gradients of two micro-batches beside a whole activation.
  EXPECT_EQ(result.devices[2].peak_activation, ByteCount(7 + 100 + 2 * 30));
}

// Invented: a V with a split backward, gradients first, weight gradients in gaps, under a cap.
TEST(ScheduleDocument, AnInventedRuleRunsWithinItsCap) {
  constexpr const char* kRule = R"("placement": "v", "priority": ["B", "F", "W"],
      "traversal": "depth", "group": 2, "split_backward": true, "cap": 3)";
  const PipelineOrder order = run(kRule, {.stages = 4, .micro_batches = 12, .chunks = 2});
  EXPECT_EQ(check_order(order, 12), "");
  EXPECT_THAT(order.device_of, testing::ElementsAre(0, 1, 2, 3, 3, 2, 1, 0));
  const PipelineResult result = evaluate(order);
  for (const DeviceUse& use : result.devices) {
    EXPECT_LE(use.peak_chunks, 3 * 2);
    EXPECT_EQ(use.busy.ps, 12 * 2 * 3);
  }
  EXPECT_GE(result.makespan.ps, 12 * 2 * 3);
  // A tighter cap costs time; the parameter replaces the document's own.
  const PipelineOrder tight =
      run(kRule, {.stages = 4, .micro_batches = 12, .chunks = 2, .cap = 1.0});
  EXPECT_GT(evaluate(tight).makespan, result.makespan);
  EXPECT_THAT(schedule_svg(order, result, "mine", 1.0), HasSubstr("<svg"));
}

// Invented: the second micro-batch goes first, and only the last device splits its backward.
constexpr const char* kLists = R"("passes": [
  [{"pass": "F", "stage": 0, "micro_batch": 1}, {"pass": "F", "stage": 0, "micro_batch": 0},
   {"pass": "BW", "stage": 0, "micro_batch": 1}, {"pass": "BW", "stage": 0, "micro_batch": 0}],
  [{"pass": "F", "stage": 1, "micro_batch": 1}, {"pass": "B", "stage": 1, "micro_batch": 1},
   {"pass": "F", "stage": 1, "micro_batch": 0}, {"pass": "B", "stage": 1, "micro_batch": 0},
   {"pass": "W", "stage": 1, "micro_batch": 1}, {"pass": "W", "stage": 1, "micro_batch": 0}]])";

TEST(ScheduleDocument, InventedListsRunAsWritten) {
  const PipelineOrder order = run(kLists, {.stages = 2, .micro_batches = 2});
  EXPECT_EQ(check_order(order, 2), "");
  EXPECT_EQ(order.passes[0].front(), Pass(PassKind::Forward, 0, 1));
  const PipelineResult result = evaluate(order);
  // Device 0: F F at 0..2, gradient of the first at 3 for 2, of the second at 5 for 2.
  EXPECT_EQ(result.makespan.ps, 7);
  EXPECT_EQ(result.devices[1].last_end.ps, 7);
  EXPECT_THAT(schedule_svg(order, result, "mine", 1.0), HasSubstr("<svg"));
}

TEST(ScheduleDocument, MissingAndDoubledPassesAreNamed) {
  const ScheduleParams params{.stages = 2, .micro_batches = 2};
  EXPECT_THAT(
      error_of(replaced(kLists, R"(, {"pass": "W", "stage": 1, "micro_batch": 0})", ""), params),
      AllOf(HasSubstr("mine.json: /passes: missing pass: W of stage 1, micro-batch 0"),
            HasSubstr("list of device 1")));
  EXPECT_THAT(
      error_of(replaced(kLists, R"({"pass": "F", "stage": 1, "micro_batch": 1}, )", ""), params),
      HasSubstr("missing pass: F of stage 1, micro-batch 1"));
  EXPECT_THAT(error_of(replaced(kLists, R"("pass": "W", "stage": 1, "micro_batch": 0)",
                                R"("pass": "W", "stage": 1, "micro_batch": 1)"),
                       params),
              HasSubstr("/passes/1/5: doubled pass: W of stage 1, micro-batch 1"));
  EXPECT_THAT(error_of(R"("passes": [[], []])", params),
              HasSubstr("mine.json: /passes: no list has a pass"));
  EXPECT_THAT(error_of(R"("passes": [[{"pass": "F", "stage": 0, "micro_batch": 0},
                                      {"pass": "BW", "stage": 0, "micro_batch": 0}], []])",
                       {.stages = 2, .micro_batches = 1}),
              HasSubstr("device 1 lists no pass: give it this stage, or leave its list out"));
}

// Invented: only the first device recomputes.
TEST(ScheduleDocument, ListsMayRecompute) {
  const std::string lists =
      replaced(replaced(kLists, R"({"pass": "BW", "stage": 0, "micro_batch": 1})",
                        R"({"pass": "R", "stage": 0, "micro_batch": 1},
                           {"pass": "BW", "stage": 0, "micro_batch": 1})"),
               R"({"pass": "BW", "stage": 0, "micro_batch": 0})",
               R"({"pass": "R", "stage": 0, "micro_batch": 0},
                  {"pass": "BW", "stage": 0, "micro_batch": 0})");
  const ScheduleParams params{.stages = 2, .micro_batches = 2};
  const PipelineOrder order = run(lists, params);
  EXPECT_EQ(check_order(order, 2), "");
  const PipelineResult result = evaluate(order);
  EXPECT_EQ(result.devices[0].peak_chunks, 1);
  EXPECT_EQ(result.devices[1].peak_chunks, 2);
  EXPECT_EQ(result.devices[0].busy.ps, 2 * 4);
  EXPECT_THAT(
      error_of(replaced(lists, R"({"pass": "R", "stage": 0, "micro_batch": 0},)", ""), params),
      AllOf(HasSubstr("missing pass: R of stage 0, micro-batch 0"),
            HasSubstr("all its micro-batches or none")));
  EXPECT_THAT(error_of(replaced(lists, R"({"pass": "R", "stage": 0, "micro_batch": 0},)",
                                R"({"pass": "R", "stage": 0, "micro_batch": 1},)"),
                       params),
              HasSubstr("doubled pass: R of stage 0, micro-batch 1"));
}

TEST(ScheduleDocument, DeadlocksNameWhoWaitsForWhat) {
  constexpr const char* kCrossed = R"("passes": [
    [{"pass": "F", "stage": 0, "micro_batch": 0}, {"pass": "BW", "stage": 0, "micro_batch": 0},
     {"pass": "F", "stage": 0, "micro_batch": 1}, {"pass": "BW", "stage": 0, "micro_batch": 1}],
    [{"pass": "F", "stage": 1, "micro_batch": 1}, {"pass": "F", "stage": 1, "micro_batch": 0},
     {"pass": "BW", "stage": 1, "micro_batch": 0}, {"pass": "BW", "stage": 1, "micro_batch": 1}]])";
  EXPECT_THAT(error_of(kCrossed, {.stages = 2, .micro_batches = 2}),
              AllOf(HasSubstr("deadlock: device 0 waits for ever to start backward of virtual "
                              "stage 0, micro-batch 0, which needs the gradient of virtual stage "
                              "1, micro-batch 0, from device 1"),
                    HasSubstr("device 1 waits for ever to start forward of virtual stage 1, "
                              "micro-batch 1, which needs the forward of virtual stage 0")));
  constexpr const char* kEarly = R"("passes": [[{"pass": "BW", "stage": 0, "micro_batch": 0},
      {"pass": "F", "stage": 0, "micro_batch": 0}]])";
  EXPECT_THAT(error_of(kEarly, {}),
              AllOf(HasSubstr("is listed before what it needs: its forward"),
                    HasSubstr("(on device 0 list F of stage 0, micro-batch 0 before BW of "
                              "stage 0, micro-batch 0)")));
  EXPECT_THAT(error_of(R"("placement": "loop", "traversal": "depth", "warm_up": 1)",
                       {.stages = 2, .micro_batches = 4, .chunks = 2}),
              AllOf(HasSubstr("deadlock: device 0 waits after 1 forward for ever to start "
                              "backward of virtual stage 2, micro-batch 0, which needs the forward "
                              "of virtual stage 2 on device 0"),
                    HasSubstr("(set warm_up to 3)")));
}

TEST(ScheduleDocument, ImpossiblePlacementsNameTheSmallestChange) {
  EXPECT_THAT(error_of(R"("placement": "v")", {.stages = 2, .micro_batches = 2}),
              AllOf(HasSubstr("impossible placement \"v\""), HasSubstr("set chunks to 2")));
  EXPECT_THAT(error_of(R"("placement": "zigzag")", {.stages = 2, .micro_batches = 2}),
              HasSubstr("set chunks to 2"));
  EXPECT_THAT(error_of(kLists, {.stages = 3, .micro_batches = 2}), HasSubstr("set stages to 2"));
  EXPECT_THAT(error_of(kLists, {.stages = 2, .micro_batches = 5}),
              HasSubstr("lists of 2 micro-batches do not fit 5: set micro-batches to 2"));
  EXPECT_THAT(error_of(kLists, {.stages = 2, .micro_batches = 2, .chunks = 2}),
              HasSubstr("lists of 2 stages on 2 devices have 1 model chunk per device, not 2: set "
                        "chunks to 1"));
  EXPECT_THAT(error_of(kLists, {.stages = 2, .micro_batches = 1}),
              HasSubstr("set micro-batches to 2"));
  EXPECT_THAT(error_of(kLists, {.stages = 2, .micro_batches = 2, .rollbacks = 1}),
              HasSubstr("updates are final here: set rollbacks to 0"));
  // Too large a number is not a larger schedule.
  EXPECT_THAT(error_of(replaced(kLists, R"("stage": 1, "micro_batch": 1)",
                                R"("stage": 1, "micro_batch": 3)"),
                       {.stages = 2, .micro_batches = 2}),
              HasSubstr("device 1 lists micro-batch 3, and no list has 2: number them 0 to 1"));
  EXPECT_THAT(
      error_of(replaced(kLists, R"({"pass": "F", "stage": 1)", R"({"pass": "F", "stage": 0)"),
               {.stages = 2, .micro_batches = 2}),
      HasSubstr("impossible placement: stage 0 is on device 0 and on device 1"));
  EXPECT_THAT(error_of(replaced(kLists, R"("stage": 1)", R"("stage": 7)"),
                       {.stages = 2, .micro_batches = 2}),
              HasSubstr("stage 7 does not exist"));
}

TEST(ScheduleDocument, NumbersBeyondThePassesAreNamedWhereTheyAre) {
  constexpr const char* kFar = R"("passes": [[{"pass": "F", "stage": 0, "micro_batch": 0},
      {"pass": "BW", "stage": 0, "micro_batch": 0}, {"pass": "F", "stage": 3, "micro_batch": 0}]])";
  EXPECT_THAT(error_of(kFar, {}),
              HasSubstr("mine.json: /passes/0/2/stage: 3 is too large for a "
                        "document of 3 passes (numbers begin at 0: at most 2)"));
  EXPECT_THAT(error_of(replaced(kFar, R"("stage": 3, "micro_batch": 0)",
                                R"("stage": 0, "micro_batch": 16000000)"),
                       {}),
              HasSubstr("mine.json: /passes/0/2/micro_batch: 16000000 is too large"));
}

TEST(ScheduleDocument, UnknownAndContradictoryMembersAreErrors) {
  const ScheduleParams params{.stages = 2, .micro_batches = 2};
  EXPECT_THAT(error_of(R"("placement": "loop", "warmup": 2)", params),
              AllOf(HasSubstr("unknown key \"warmup\""), HasSubstr("warm_up")));
  EXPECT_THAT(error_of(R"("placement": "loop", "passes": [[]])", params), HasSubstr("not both"));
  EXPECT_THAT(error_of(R"("traversal": "depth")", params), HasSubstr("is required"));
  EXPECT_THAT(error_of(R"("placemnt": "loop")", params),
              HasSubstr("\"placemnt\" is no key: did you mean \"placement\"?"));
  EXPECT_THAT(error_of(R"("passes": null)", params),
              HasSubstr("\"passes\" is null, which is no value"));
  for (const char* member : {"holds", "output", "frozen"}) {
    EXPECT_THAT(error_of(fmt::format(R"("placement": "loop", "{}": [])", member), params),
                AllOf(HasSubstr(fmt::format("\"{}\": ", member)), Not(HasSubstr("unknown key"))));
  }
  EXPECT_THAT(error_of(R"("placement": "loop", "group": 2)", params), HasSubstr("depth"));
  EXPECT_THAT(error_of(R"("placement": "loop", "priority": ["F", "F"])", params),
              HasSubstr("twice"));
  EXPECT_THAT(error_of(R"("placement": "loop", "priority": ["F", "W"])", params),
              HasSubstr("split_backward"));
  EXPECT_THAT(error_of(R"("placement": "loop", "warm_up": 2, "cap": 2)", params),
              HasSubstr("leave it or \"cap\" out"));
  EXPECT_THAT(error_of(R"("placement": "loop", "cap": 0.5)", params), HasSubstr("cap"));
  EXPECT_THAT(error_of(R"("placement": "loop")", {.micro_batches = 1000, .chunks = 10'000}),
              HasSubstr("takes too long"));
  const Json marked = parse_json(
      R"({"schema": "orrery-schedule", "version": 1, "name": "<b>", "passes": [[]]})", "mine.json");
  EXPECT_THROW(read_schedule_document(marked, "mine.json"), Error);
  EXPECT_THAT(error_of(kOneForwardOneBackward, {.stages = 0}), HasSubstr("at least 1"));
}

// One device may differ: its warm-up, its priorities or its cap.
TEST(ScheduleDocuments, DevicesMayHaveRulesOfTheirOwn) {
  const ScheduleParams params{.stages = 4, .micro_batches = 8};
  const std::string usual = kOneForwardOneBackward;
  // The first device holds as many micro-batches as the warm-up says, the others theirs.
  const PipelineOrder deep = run(usual + R"(, "overrides": [{"device": 0, "warm_up": 6}])", params);
  const PipelineResult result = evaluate(deep);
  EXPECT_EQ(result.devices[0].peak_chunks, 6);
  EXPECT_EQ(result.devices[1].peak_chunks, 3);
  EXPECT_EQ(run(usual + R"(, "overrides": [])", params).passes, run(usual, params).passes);
  // Of a greedy rule without a cap all forwards come first where they have priority.
  const std::string greedy = R"("placement": "loop", "priority": ["F", "B"], "cap": 8)";
  EXPECT_EQ(evaluate(run(greedy, params)).devices[3].peak_chunks, 8);
  const PipelineResult eager =
      evaluate(run(greedy + R"(, "overrides": [{"device": 3, "priority": ["B", "F"]}])", params));
  EXPECT_EQ(eager.devices[3].peak_chunks, 1);
  const PipelineResult capped =
      evaluate(run(greedy + R"(, "overrides": [{"device": 1, "cap": 2}])", params));
  EXPECT_EQ(capped.devices[1].peak_chunks, 2);
  EXPECT_GT(capped.devices[0].peak_chunks, 2);
}

TEST(ScheduleDocuments, BadOverridesAreNamed) {
  const ScheduleParams params{.stages = 4, .micro_batches = 8};
  const std::string usual = std::string(kOneForwardOneBackward) + R"(, "overrides": )";
  EXPECT_THAT(error_of(usual + R"([{"device": 4, "warm_up": 2}])", params),
              HasSubstr("set stages to 5"));
  EXPECT_THAT(
      error_of(usual + R"([{"device": 1, "warm_up": 4}, {"device": 1, "warm_up": 5}])", params),
      HasSubstr("already"));
  EXPECT_THAT(error_of(usual + R"([{"device": 1}])", params),
              HasSubstr("nothing is different on device 1"));
  EXPECT_THAT(error_of(usual + R"([{"device": 1, "cap": 2}])", params),
              HasSubstr("\"cap\" of the overrides"));
  EXPECT_THAT(error_of(usual + R"([{"device": 1, "warmup": 2}])", params), HasSubstr("warm_up"));
  EXPECT_THAT(error_of(usual + R"([{"device": 1, "warm_up": 1.5}])", params),
              HasSubstr("expected an integer, found 1.5"));
  EXPECT_THAT(
      error_of(R"("placement": "loop", "overrides": [{"device": 1, "warm_up": 2}])", params),
      HasSubstr("no \"warm_up\" to override"));
  EXPECT_THAT(error_of(usual + R"([{"device": 0, "warm_up": 1}])", params),
              HasSubstr("deadlock: device 0"));
}

// A registered name means the registered schedule, wherever it is read.
TEST(ScheduleDocuments, RegisteredNamesAreTaken) {
  const Json document = parse_json(
      R"({"schema": "orrery-schedule", "version": 1, "name": "gpipe", "placement": "loop"})",
      "mine.json");
  try {
    (void)read_schedule_document(document, "mine.json");
    FAIL() << "a document may not be called gpipe";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("/name"), HasSubstr("orrery list schedules"),
                                    HasSubstr("my-gpipe")));
  }
}

}  // namespace
}  // namespace orrery::sim
