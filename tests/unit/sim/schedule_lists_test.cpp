// SPDX-License-Identifier: Apache-2.0
// Lists of schedule documents can state what registered schedules are: written as a document and
// read again, an order is the same.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "base/error.hpp"
#include "sim/orders/listed_order.hpp"
#include "sim/orders/schedule_document.hpp"
#include "sim/pipeline/pipeline.hpp"
#include "sim/pipeline/share_costs.hpp"
#include "sim/pipeline/versions.hpp"
#include "tests/unit/sim/listed_document.hpp"

namespace orrery::sim {
namespace {

using testing::AllOf;
using testing::HasSubstr;

PipelineOrder read(const std::string& text, ScheduleParams params) {
  return order_of(read_schedule_document(parse_json(text, "mine.json"), "mine.json"), params);
}

struct Case {
  const char* name;
  ScheduleParams params;
};

class ListsOf : public testing::TestWithParam<Case> {};

TEST_P(ListsOf, AreTheSchedule) {
  const auto& [name, params] = GetParam();
  const Schedule& schedule = find_schedule(name, "test");
  ASSERT_EQ(to_text(schedule.check(params)), "");
  const PipelineOrder order = schedule.order(params);
  const PipelineOrder listed = read(document_of(order), params);
  EXPECT_EQ(listed.num_virtual_stages, order.num_virtual_stages);
  EXPECT_EQ(listed.device_of, order.device_of);
  EXPECT_EQ(listed.passes, order.passes);
  EXPECT_EQ(listed.micro_batches, order.micro_batches);
  EXPECT_EQ(listed.extended, order.extended);
  EXPECT_EQ(listed.slices, order.slices);
  EXPECT_EQ(listed.iterations, order.iterations);
  EXPECT_EQ(listed.versions, order.versions);
  EXPECT_EQ(pieces_of(listed), pieces_of(order));
  const std::vector<Chain> chains = chains_of(order);
  const std::vector<Chain> read_chains = chains_of(listed);
  ASSERT_EQ(read_chains.size(), chains.size());
  for (std::size_t c = 0; c < chains.size(); ++c) {
    EXPECT_EQ(read_chains[c].first, chains[c].first);
    EXPECT_EQ(read_chains[c].stages, chains[c].stages);
    EXPECT_EQ(read_chains[c].units, chains[c].units);
    EXPECT_EQ(read_chains[c].first_unit, chains[c].first_unit);
  }
  const PassTimes share{SimTime{3}, SimTime{4}, SimTime{2}, SimTime{1}};
  EXPECT_EQ(evaluate_pipeline(listed, share_costs(listed, share).costs).makespan,
            evaluate_pipeline(order, share_costs(order, share).costs).makespan);
  EXPECT_EQ(worst_of(count_versions(listed)).staleness, worst_of(count_versions(order)).staleness);
}

INSTANTIATE_TEST_SUITE_P(
    Registered, ListsOf,
    testing::Values(Case{"1f1b", {4, 8}}, Case{"interleaved", {4, 8, 2}}, Case{"zb-h1", {4, 9}},
                    Case{"zb-v", {4, 8, 2}}, Case{"hanayo", {4, 8, 2}},
                    Case{"terapipe", {.stages = 3, .micro_batches = 4, .slices = 5}},
                    Case{"seq1f1b", {.stages = 4, .micro_batches = 3, .slices = 4}},
                    Case{"slimpipe", {.stages = 4, .micro_batches = 3, .chunks = 2, .slices = 8}},
                    Case{"chimera", {4, 8}}, Case{"chimera-doubling", {4, 16}},
                    Case{"bitpipe", {4, 8, 2}}, Case{"dualpipe", {4, 12}},
                    Case{"dualpipe-v", {4, 12, 2}}, Case{"combined-1f1b", {4, 8, 2}},
                    Case{"pipedream", {4, 4}}, Case{"pipedream-2bw", {4, 4}},
                    Case{"pipedream-vertical-sync", {4, 4}}, Case{"xpipe", {4, 4}}),
    [](const testing::TestParamInfo<Case>& listed) {
      std::string name(listed.param.name);
      std::replace(name.begin(), name.end(), '-', '_');
      return "schedule_" + name;
    });

// Three stages on two devices: one device has one less.
TEST(ListedStages, NeedNoMultipleOfTheDevices) {
  const std::string text = R"({"schema": "orrery-schedule", "version": 1, "name": "three",
    "passes": [[{"pass": "F", "stage": 0, "micro_batch": 0}, {"pass": "F", "stage": 2, "micro_batch": 0},
                {"pass": "BW", "stage": 2, "micro_batch": 0}, {"pass": "BW", "stage": 0, "micro_batch": 0}],
               [{"pass": "F", "stage": 1, "micro_batch": 0}, {"pass": "BW", "stage": 1, "micro_batch": 0}]]})";
  const ScheduleParams params{.stages = 2, .micro_batches = 1, .chunks = 2};
  const PipelineOrder order = read(text, params);
  EXPECT_EQ(order.num_virtual_stages, 3);
  EXPECT_THAT(order.device_of, testing::ElementsAre(0, 1, 0));
  const auto [costs, scale] = share_costs(order, {SimTime{2}, SimTime{2}, SimTime{2}, SimTime{0}});
  EXPECT_EQ(evaluate_pipeline(order, costs).makespan.ps, 3 * (2 + 4) * scale / 2);
  const ScheduleDocument document =
      read_schedule_document(parse_json(text, "mine.json"), "mine.json");
  EXPECT_EQ(to_text(check_document(document, params)),
            "3 stages are listed, and a plan has as many on each of 2 devices: list 4");
}

// With transfers 1F1B that never flushes repeats itself every p micro-batches: a cycle takes their
// work and a round trip through all stages, 2 c (p - 1), whatever the number of iterations.
TEST(AsynchronousPeriod, CountsTransfersOnceACycle) {
  for (const auto& [p, m, iterations, latency] :
       {std::tuple{8, 12, 4, 3}, {8, 12, 3, 3}, {8, 36, 3, 3}, {4, 5, 7, 2}, {2, 5, 4, 1}}) {
    ScheduleParams params{.stages = p, .micro_batches = m};
    params.iterations = iterations;
    const PipelineOrder order = find_schedule("pipedream", "test").order(params);
    const auto [costs, scale] =
        share_costs(order, {SimTime{4}, SimTime{4}, SimTime{4}, SimTime{4 * latency}});
    const PipelineResult result =
        evaluate_pipeline(order, costs, {.steady_state = false, .record_spans = true});
    EXPECT_DOUBLE_EQ(steady_period(order, result) / static_cast<double>(scale),
                     12 + 8.0 * latency * (p - 1) / p)
        << p << " " << m << " " << iterations;
  }
}

// A million passes of a second each are 2.6 hours of pipeline.
TEST(LongRuns, AreNotTakenForLongerThanTheyCanBe) {
  const PipelineOrder order = find_schedule("1f1b", "test").order({1024, 2048});
  const SimTime second = to_sim_time(Seconds(1));
  const auto [costs, scale] = share_costs(order, {second, second, second, SimTime{0}});
  EXPECT_EQ(evaluate_pipeline(order, costs).makespan, second * (3 * (2048 + 1023)) * scale);
}

std::string described(const std::string& members) {
  return R"({"schema": "orrery-schedule", "version": 1, "name": "mine", )" + members + "}";
}

// Rules of sliced schedules, for any number of slices.
TEST(SlicedRules, DescribeTerapipeAndSeq1f1b) {
  for (const int p : {1, 2, 4}) {
    for (const int m : {1, 3, 6}) {
      for (const int n : {1, 2, 5}) {
        const ScheduleParams params{.stages = p, .micro_batches = m, .slices = n};
        const PipelineOrder tera = read(described(R"("placement": "loop", "warm_up": "all",
                              "gradients": "last-in-first-out")"),
                                        params);
        EXPECT_EQ(tera.passes, find_schedule("terapipe", "test").order(params).passes);
        EXPECT_EQ(tera.slices, n);
        const PipelineOrder seq =
            read(described(R"("placement": "loop", "warm_up": {"micro_batches": 1,
                         "per_later_device": 1})"),
                 params);
        EXPECT_EQ(seq.passes, find_schedule("seq1f1b", "test").order(params).passes);
      }
    }
  }
}

std::string error_of_lists(const std::string& text, const ScheduleParams& params) {
  try {
    (void)read(text, params);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::BadInput);
    return error.what();
  }
  return "no error";
}

std::string with_first(std::string text, const std::string& from, const std::string& to) {
  const std::size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

std::string error_of_change(const char* name, const ScheduleParams& params, const std::string& from,
                            const std::string& to) {
  return error_of_lists(
      with_first(document_of(find_schedule(name, "test").order(params)), from, to), params);
}

TEST(ScheduleLists, SlicesThatAreWrongAreNamed) {
  const ScheduleParams params{.stages = 2, .micro_batches = 2, .slices = 2};
  const auto wrong = [&](const std::string& from, const std::string& to) {
    return error_of_change("seq1f1b", params, from, to);
  };
  const std::string first =
      R"({"pass": "F", "direction": 0, "stage": 0, "micro_batch": 0, "slice": 0}, )";
  EXPECT_THAT(wrong(first, ""), HasSubstr("missing pass: F of stage 0, micro-batch 0, slice 0"));
  EXPECT_THAT(wrong(first, first + first),
              HasSubstr("/passes/0/1: doubled pass: F of stage 0, micro-batch 0, slice 0"));
  EXPECT_THAT(wrong(R"("slice": 0)", R"("slice": 2)"), HasSubstr("/passes/0/0/slice"));
  EXPECT_THAT(wrong(R"(, "slice": 0)", ""), HasSubstr("slice"));
  EXPECT_THAT(wrong(R"("slice": 0)", R"("slise": 0)"),
              AllOf(HasSubstr("slise"), HasSubstr("slice")));
  EXPECT_THAT(wrong(R"("slices": 2)", R"("slices": 1)"),
              AllOf(HasSubstr("not cut into slices"), HasSubstr(R"("slices": 2)")));
  // The first slice after the second: its keys and values are not there yet.
  const std::string second = with_first(first, R"("slice": 0)", R"("slice": 1)");
  EXPECT_THAT(wrong(first + second, second + first),
              AllOf(HasSubstr("virtual stage 0, micro-batch 0, slice 1"),
                    HasSubstr("listed before what it needs: its micro-batch's slice before")));
  EXPECT_THAT(error_of_lists(document_of(find_schedule("seq1f1b", "test").order(params)),
                             {.stages = 2, .micro_batches = 2}),
              HasSubstr("lists of 2 slices do not fit 1: set slices to 2"));
  EXPECT_THAT(error_of_lists(described(R"("placement": "loop")"), params),
              AllOf(HasSubstr("slices"), HasSubstr("warm_up")));
  EXPECT_THAT(
      error_of_lists(described(R"("placement": "loop", "gradients": "last-in-first-out",
                                    "warm_up": 2)"),
                     params),
      AllOf(HasSubstr("before what it needs: its forward"), HasSubstr("(set warm_up to 4)")));
}

TEST(ScheduleLists, DirectionsThatAreWrongAreNamed) {
  const ScheduleParams params{.stages = 2, .micro_batches = 4};
  const auto wrong = [&](const std::string& from, const std::string& to) {
    return error_of_change("chimera", params, from, to);
  };
  const std::string pass = R"("direction": 1, "stage": 0, "micro_batch": 2)";
  EXPECT_THAT(wrong(pass, R"("direction": 0, "stage": 0, "micro_batch": 2)"),
              HasSubstr("micro-batch 2 is in direction"));
  EXPECT_THAT(wrong(pass, R"("direction": 1, "stage": 0, "micro_batch": 3)"),
              HasSubstr("doubled pass: F of stage 0 of direction 1, micro-batch 3"));
  EXPECT_THAT(wrong(pass, R"("direction": 3, "stage": 0, "micro_batch": 4)"),
              HasSubstr("set micro-batches to 5"));
  EXPECT_THAT(wrong(pass, R"("direction": 1, "stage": 1, "micro_batch": 2)"),
              AllOf(HasSubstr("stage 1 of direction 1"), HasSubstr("device")));
  EXPECT_THAT(wrong(R"("direction")", R"("directon")"), HasSubstr("direction"));
}

// Device 0 and 1 in the other order: all schedules run but the one whose versions stage 0 says.
TEST(ScheduleLists, VersionsOfTheFirstStageNeedItOnTheFirstDevice) {
  const ScheduleParams params{.stages = 2, .micro_batches = 2, .iterations = 3};
  for (const char* name : {"pipedream", "pipedream-2bw", "pipedream-vertical-sync"}) {
    PipelineOrder order = find_schedule(name, "test").order(params);
    std::swap(order.passes[0], order.passes[1]);
    const std::string error = error_of_lists(document_of(order), params);
    if (order.versions == Versions::InputStage) {
      EXPECT_THAT(error, HasSubstr("list it on device 0"));
    } else {
      EXPECT_EQ(error, "no error");
      EXPECT_GE(worst_of(count_versions(read(document_of(order), params))).versions, 2);
    }
  }
  EXPECT_THAT(
      error_of_change("chimera", {2, 4}, R"("versions": "flush")", R"("versions": "stashed")"),
      HasSubstr("several directions run one iteration"));
}

TEST(ScheduleLists, WrongUpdatesAreNamed) {
  const ScheduleParams params{.stages = 2, .micro_batches = 2, .iterations = 3};
  const std::string update = R"({"pass": "U", "direction": 0, "stage": 0, "update": 1}, )";
  EXPECT_THAT(error_of_change("pipedream", params, update, ""),
              HasSubstr("missing pass: U of stage 0, update 1"));
  EXPECT_THAT(
      error_of_change("pipedream", params, R"("versions": "stashed")", R"("versions": "flush")"),
      HasSubstr("is listed after a forward that uses its parameters"));
  EXPECT_THAT(error_of_change("pipedream-2bw", params, R"("update": 0)", R"("micro_batch": 0)"),
              HasSubstr("update"));
  EXPECT_THAT(error_of_change("pipedream", params, R"("stashed")", R"("stached")"),
              HasSubstr("stashed"));
  EXPECT_THAT(error_of_change("1f1b", {2, 2}, R"("versions": "flush")", R"("versions": "stashed")"),
              HasSubstr("list passes U"));
}

// 1F1B of so many stages with edges.
std::string with_edges(const ScheduleParams& params, const std::string& edges) {
  std::string text = document_of(find_schedule("1f1b", "test").order(params));
  text.pop_back();
  return text + R"(, "edges": )" + edges + "}";
}

SimTime time_of(const PipelineOrder& order) {
  const PassTimes share{SimTime{3}, SimTime{4}, SimTime{2}, SimTime{1}};
  return evaluate_pipeline(order, share_costs(order, share).costs).makespan;
}

// Credits: so many micro-batches are between the first forward and the last stage's backward, whose
// message takes a transfer. One credit: the way there (3 passes and 2 transfers), the last backward
// and the message, micro-batch after micro-batch; the last gradient has the way back besides.
TEST(ListsWithEdges, WaitForThem) {
  const ScheduleParams params{.stages = 3, .micro_batches = 6};
  const auto limited = [&](int credits) {
    return read(with_edges(params, fmt::format(R"([{{"from": {{"pass": "BW", "stage": 2}},
                  "to": {{"pass": "F", "stage": 0}}, "shift": {}}}])",
                                               credits)),
                params);
  };
  const SimTime free = time_of(find_schedule("1f1b", "test").order(params));
  EXPECT_EQ(time_of(limited(1)).ps, 6 * (3 * 3 + 2 + 6 + 1) - 1 + 2 * (6 + 1));
  EXPECT_GE(time_of(limited(2)), free);
  EXPECT_LT(time_of(limited(2)), time_of(limited(1)));
  EXPECT_EQ(time_of(limited(3)), free);  // as many as 1F1B has in flight
}

TEST(ListsWithEdges, ThatCannotHoldAreNamed) {
  const ScheduleParams params{.stages = 2, .micro_batches = 2};
  const auto error_of = [&](const std::string& edges) -> std::string {
    try {
      (void)read(with_edges(params, edges), params);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_THAT(error_of(R"([{"from": {"pass": "W", "stage": 0}, "to": {"pass": "F", "stage": 1}}])"),
              AllOf(HasSubstr("/edges/0"), HasSubstr("no list has such a pass of stage 0"),
                    HasSubstr("only beside B")));
  EXPECT_THAT(
      error_of(R"([{"from": {"pass": "F", "stage": 2}, "to": {"pass": "F", "stage": 1}}])"),
      AllOf(HasSubstr("no list has such a pass of stage 2"), HasSubstr("the last stage is 1")));
  EXPECT_THAT(error_of(R"([{"from": {"pass": "F", "stage": 0, "direction": 1},
                            "to": {"pass": "F", "stage": 1}}])"),
              HasSubstr("the last direction is 0"));
  EXPECT_THAT(error_of(R"([{"from": {"pass": "R", "stage": 0}, "to": {"pass": "F", "stage": 1}}])"),
              HasSubstr(R"(list "R" of this stage)"));
  EXPECT_THAT(error_of(R"([{"from": {"pass": "U", "stage": 0}, "to": {"pass": "F", "stage": 1}}])"),
              HasSubstr("other numbers"));
  EXPECT_THAT(error_of(R"([{"from": {"pass": "BW", "stage": 0}, "to": {"pass": "F", "stage": 0},
                            "shift": 1}])"),
              HasSubstr("deadlock"));  // two are in flight
}

// Of one micro-batch all passes follow one another: whatever needs a pass cannot be awaited by it.
TEST(ListsWithEdges, BackToWhatNeedsThemWantAShift) {
  const ScheduleParams params{.stages = 2, .micro_batches = 2};
  const std::vector<std::string> in_turn = {
      R"("pass": "F", "stage": 0)", R"("pass": "F", "stage": 1)", R"("pass": "B", "stage": 1)",
      R"("pass": "B", "stage": 0)", R"("pass": "W", "stage": 0)"};
  std::string lists = document_of(find_schedule("zb-h1", "test").order(params));
  lists.pop_back();
  for (std::size_t from = 0; from < in_turn.size(); ++from) {
    for (std::size_t to = 0; to < in_turn.size(); ++to) {
      const std::string text =
          lists + fmt::format(R"(, "edges": [{{"from": {{{}}}, "to": {{{}}}}}]}})", in_turn[from],
                              in_turn[to]);
      const std::string error = error_of_lists(text, params);
      if (from < to) {
        EXPECT_EQ(error, "no error") << text;
      } else {
        EXPECT_THAT(error, AllOf(HasSubstr("/edges/0"), HasSubstr(R"(give it a "shift")"))) << text;
      }
    }
  }
}

// A block starts when the inputs of all its passes are there: the one that lacks some is named.
TEST(ListsWithBlocks, ThatWaitForThemselvesAreNamed) {
  const ScheduleParams params{.stages = 2, .micro_batches = 1};
  std::string text = document_of(find_schedule("1f1b", "test").order(params));
  const std::string forward = R"("stage": 0, "micro_batch": 0})";
  const std::size_t end = text.find(forward) + forward.size() - 1;
  text.insert(end, R"(, "joined": true)");
  EXPECT_THAT(error_of_lists(text, params),
              AllOf(HasSubstr("joined with backward of virtual stage 0, micro-batch 0, which needs "
                              "the gradient of virtual stage 1"),
                    HasSubstr("from device 1; device 1 waits")));
}

}  // namespace
}  // namespace orrery::sim
