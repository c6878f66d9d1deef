// SPDX-License-Identifier: Apache-2.0
#include "sim/pipeline/schedule_picture.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "sim/pipeline/list_name.hpp"
#include "sim/pipeline/schedule_svg.hpp"
#include "sim/pipeline/share_costs.hpp"

namespace orrery::sim {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

constexpr std::int64_t kSecond = 1'000'000'000'000;

PipelineResult run_of(const PipelineOrder& order, std::int64_t forward, std::int64_t grad) {
  const auto stages = static_cast<std::size_t>(order.num_virtual_stages);
  PipelineCosts costs;
  costs.forward.assign(stages, {forward});
  costs.input_grad.assign(stages, {grad});
  costs.weight_grad.assign(stages, {grad});
  costs.backward.assign(stages, {2 * grad});
  costs.send_forward.assign(stages - 1, {});
  costs.send_backward.assign(stages - 1, {});
  return evaluate_pipeline(order, costs, {.record_spans = true});
}

PipelineResult run_of(const char* name, const ScheduleParams& params) {
  return run_of(find_schedule(name, "test").order(params), kSecond, kSecond);
}

TEST(SchedulePicture, OneForwardOneBackward) {
  EXPECT_EQ(schedule_picture(run_of("1f1b", {3, 4, 1, 0})),
            "stage 0 |012....a-3b-.c-.d-|\n"
            "stage 1 |.01..a-2b-3c-.d-..|\n"
            "stage 2 |..0a-1b-2c-3d-....|\n"
            "0-9 forward  a-j backward  . idle  column 1 s\n");
}

TEST(SchedulePicture, SplitBackward) {
  PipelineOrder order;
  order.num_virtual_stages = 1;
  order.micro_batches = 11;
  order.device_of = {0};
  order.passes.resize(1);
  for (const PassKind kind : {PassKind::Forward, PassKind::InputGrad, PassKind::WeightGrad}) {
    append_all(order.passes[0], kind, 0, 11);
  }
  EXPECT_THAT(schedule_picture(run_of(order, kSecond, kSecond)),
              HasSubstr("|01234567890abcdefghijaABCDEFGHIJA|"));
  // Wide enough, passes show their whole number.
  EXPECT_THAT(schedule_picture(run_of(order, kSecond, 2 * kSecond)), HasSubstr("i-j-baA-B-"));
}

TEST(SchedulePicture, IsScaledToTheWidth) {
  const PipelineResult result = run_of("gpipe", {4, 100, 1, 0});
  for (const int width : {1, 7, 40, 1000}) {
    const std::string picture = schedule_picture(result, {.width = width});
    const std::size_t from = picture.find('|');
    const std::size_t to = picture.find('|', from + 1);
    EXPECT_LE(to - from - 1, static_cast<std::size_t>(width));
    EXPECT_GE(to - from - 1, static_cast<std::size_t>(std::min(width, 309) / 2));
  }
}

// Of terminals, with the names of the rows.
TEST(SchedulePicture, WholeLinesAreNoWiderThanAsked) {
  const PipelineResult result = run_of("gpipe", {12, 100, 1, 0});
  std::vector<std::string> lists(12, "name");
  lists.back() = "a longer name";
  for (const int width : {40, 41, 80}) {
    for (const std::vector<std::string>& names : {std::vector<std::string>(), lists}) {
      const std::string picture =
          schedule_picture(result, {.width = width, .whole_lines = true, .lists = names});
      const std::size_t line = picture.find('\n');
      EXPECT_LE(line, static_cast<std::size_t>(width));
      EXPECT_GT(line, static_cast<std::size_t>(width / 2));
      EXPECT_EQ(picture[line - 1], '|');
    }
  }
}

TEST(SchedulePicture, ColorsOnlyWhenAsked) {
  const PipelineResult result = run_of("interleaved", {2, 2, 2, 0});
  EXPECT_THAT(schedule_picture(result), Not(HasSubstr("\x1b")));
  const std::string colored = schedule_picture(result, {.color = true});
  EXPECT_THAT(colored, HasSubstr("\x1b[30;44m0\x1b[0m"));   // forward of chunk 0
  EXPECT_THAT(colored, HasSubstr("\x1b[30;104m0\x1b[0m"));  // of chunk 1
  EXPECT_THAT(colored, HasSubstr("\x1b[30;42ma-\x1b[0m"));  // backward
}

TEST(SchedulePicture, ZeroTimesAreLegal) {
  const PipelineOrder order = find_schedule("gpipe", "test").order({2, 2, 1, 0});
  EXPECT_THAT(schedule_picture(run_of(order, 0, 0)), HasSubstr("stage 1 ||"));
}

// Workers of NestPipe have six streams each, a pipeline with copies streams beside its stages, one
// with parameter servers those.
TEST(SchedulePicture, NamesStreams) {
  const PipelineOrder nest = find_schedule("nestpipe", "test").order({2, 2, 1, 0});
  for (std::size_t list = 0; list < nest.passes.size(); ++list) {
    EXPECT_EQ(list_name(nest, list), "stream");
  }
  const PipelineOrder copies = find_schedule("pipeoffload", "test").order({8, 8, 1, 0});
  ASSERT_GT(copies.passes.size(), 8U);
  EXPECT_EQ(list_name(copies, 0), "stage");
  EXPECT_EQ(list_name(copies, 8), "stream");
  for (const char* name : {"hetpipe", "zou-ps-ring"}) {
    const PipelineOrder served = find_schedule(name, "test").order({2, 2, 1, 0});
    ASSERT_EQ(served.passes.size(), 3U) << name;
    EXPECT_EQ(list_name(served, 1), "stage") << name;
    EXPECT_EQ(list_name(served, 2), "server") << name;
  }
  const PipelineResult result = evaluate_pipeline(
      nest, share_costs(nest, {{1}, {1}, {1}, {0}}).costs, {.record_spans = true});
  const std::string picture = schedule_picture(result, {.order = &nest});
  EXPECT_THAT(picture, HasSubstr("stream  0 |"));
  EXPECT_THAT(picture, Not(HasSubstr("stage")));
}

// On a share's times of 2 each.
struct Run {
  Run(const char* name, const ScheduleParams& params)
      : order(find_schedule(name, "test").order(params)),
        result(evaluate_pipeline(order, share_costs(order, {{2}, {2}, {2}, {0}}).costs,
                                 {.record_spans = true})) {}
  PipelineOrder order;
  PipelineResult result;
};

std::string picture_of(const char* name, const ScheduleParams& params) {
  const Run run(name, params);
  return schedule_picture(run.result, {.order = &run.order});
}

std::string svg_of(const char* name, const ScheduleParams& params) {
  const Run run(name, params);
  return schedule_svg(run.order, run.result, name, 1);
}

std::string panel_of(const char* name, const ScheduleParams& params) {
  const Run run(name, params);
  return schedules_svg({{.order = &run.order, .result = &run.result, .title = name}}, "one");
}

// Passes beside the layers' have letters of their own, and only those that are drawn are explained.
TEST(SchedulePicture, OtherPassesHaveLetters) {
  const std::string shared = picture_of("vocab-1", {2, 3, 1, 0});
  EXPECT_THAT(shared, HasSubstr("s output layer  t output layer's backward  . idle"));
  EXPECT_THAT(shared, HasSubstr("|0-1-st02-st1..st2"));
  EXPECT_THAT(picture_of("pipedream", {2, 3, 1, 0}), HasSubstr("a-j backward  . idle"));
  EXPECT_THAT(picture_of("hetpipe", {2, 3, 1, 0}), HasSubstr("a-j backward  v service  . idle"));
  EXPECT_THAT(picture_of("zb-h1", {2, 3, 1, 0}),
              HasSubstr("a-j backward  A-J weight-grad  . idle"));
  EXPECT_THAT(picture_of("diffusionpipe", {2, 3, 1, 0}), HasSubstr("x frozen  . idle"));
  EXPECT_THAT(picture_of("1f1b", {2, 3, 1, 0}), HasSubstr("a-j backward  . idle"));
}

// They weigh nothing on unit costs.
TEST(SchedulePicture, InputLayersAreDrawnWhereTheyTakeTime) {
  const PipelineOrder order = find_schedule("vocab-1", "test").order({2, 3, 1, 0});
  PipelineCosts costs = share_costs(order, {{2}, {2}, {2}, {0}}).costs;
  for (const std::size_t stage : {4U, 5U}) {
    costs.forward[stage] = costs.forward.front();
    costs.backward[stage] = costs.forward.front();
  }
  const PipelineResult result = evaluate_pipeline(order, costs, {.record_spans = true});
  EXPECT_THAT(schedule_picture(result, {.order = &order}),
              AllOf(HasSubstr("stage 0 |l0l10-l21-"), HasSubstr("stage 1 |l0l1l20-"),
                    HasSubstr("l input layer  m input layer's backward")));
  EXPECT_THAT(schedule_svg(order, result, "vocab-1", 1), HasSubstr(">input layer<"));
}

TEST(ScheduleSvg, NamesWhatIsBesideTheLayers) {
  EXPECT_THAT(svg_of("diffusionpipe", {2, 3, 1, 0}),
              AllOf(HasSubstr(">frozen layers<"), Not(HasSubstr("further chunks"))));
  EXPECT_THAT(svg_of("nestpipe", {2, 2, 1, 0}), HasSubstr(">service<"));
  EXPECT_THAT(svg_of("v-half", {2, 4, 2, 0}), HasSubstr("further chunks"));
}

// Two devices of the first stage feed the one of the second, which holds a copy of it for each.
TEST(ScheduleSvg, DevicesOfReplicatedStagesSayTheirs) {
  const std::string svg =
      svg_of("pipedream", {.stages = 2, .micro_batches = 4, .replicas_of = {2, 1}});
  EXPECT_THAT(svg, AllOf(HasSubstr(">stage 0, device 0<"), HasSubstr(">stage 0, device 1<"),
                         HasSubstr(">stage 1, device 2<")));
  EXPECT_THAT(svg, AllOf(Not(HasSubstr("further chunks")), Not(HasSubstr("virtual stage")),
                         Not(HasSubstr("#3f8fc0")), HasSubstr(", stage 1, ")));
}

TEST(ScheduleSvg, RowsHaveTheNamesTheyAreGiven) {
  const struct Run run("nestpipe", {1, 2, 1, 0});
  const std::string svg = schedule_svg(run.order, run.result, "nest", 1,
                                       {"first & longest of all", "b", "c", "d", "e", "f"});
  EXPECT_THAT(svg, AllOf(HasSubstr(">first &amp; longest of all<"), HasSubstr(">f<"),
                         Not(HasSubstr("stream"))));
  EXPECT_THAT(svg, HasSubstr("<title>first &amp; longest of all 5, virtual stage 2"));
  EXPECT_THAT(svg, HasSubstr("numbers: micro-batches; updates and services count on their own"));
}

TEST(ScheduleSvg, NumbersSlices) {
  const std::string sliced = svg_of("seq1f1b", {.stages = 2, .micro_batches = 2, .slices = 3});
  EXPECT_THAT(sliced, HasSubstr("slice 2 of micro-batch 1"));
  EXPECT_THAT(sliced, HasSubstr("numbers: slices of micro-batches"));
}

// Most passes have room for their numbers; where a picture would be too wide none is widened.
TEST(ScheduleSvg, IsAsWideAsNumbersNeed) {
  EXPECT_THAT(svg_of("1f1b", {2, 3, 1, 0}), HasSubstr("width=\"1210\""));
  const std::string many = svg_of("interleaved", {4, 16, 4, 0});
  EXPECT_THAT(many, Not(HasSubstr("width=\"1210\"")));
  EXPECT_THAT(many, HasSubstr(">15</text>"));
  const std::string narrow = svg_of("1f1b", {4, 200, 1, 0});
  EXPECT_THAT(narrow, AllOf(HasSubstr("width=\"1210\""), Not(HasSubstr(">15</text>"))));
}

TEST(ScheduleSvg, ExplainsNumbersWhereTheyAreDrawn) {
  EXPECT_THAT(svg_of("1f1b", {2, 3, 1, 0}), HasSubstr("numbers: micro-batches"));
  EXPECT_THAT(svg_of("1f1b", {4, 200, 1, 0}), Not(HasSubstr("numbers:")));
  EXPECT_THAT(svg_of("interleaved", {4, 200, 2, 0}),
              AllOf(HasSubstr(">dark: further chunks of a device<"), Not(HasSubstr("numbers:"))));
  EXPECT_THAT(panel_of("1f1b", {4, 200, 1, 0}), Not(HasSubstr("numbers:")));
  EXPECT_THAT(panel_of("1f1b", {2, 3, 1, 0}), HasSubstr("numbers: micro-batches"));
}

// The second direction has the second half of the micro-batches.
TEST(SchedulePicture, DirectionsCountOn) {
  const std::string picture = picture_of("chimera", {2, 2, 1, 0});
  EXPECT_THAT(picture, HasSubstr("stage 0 |0"));
  EXPECT_THAT(picture, HasSubstr("stage 1 |1"));
}

// Synchronous runs share an axis, so that one of half the time ends halfway; asynchronous ones have
// their own.
TEST(SchedulesSvg, SynchronousRunsShareAnAxis) {
  const PassTimes unit{SimTime{1}, SimTime{1}, SimTime{1}, SimTime{0}};
  std::vector<PipelineOrder> orders;
  for (const auto& [name, micro_batches] :
       {std::pair("gpipe", 4), std::pair("gpipe", 8), std::pair("pipedream", 8)}) {
    orders.push_back(find_schedule(name, "test").order({.micro_batches = micro_batches}));
  }
  std::vector<PipelineResult> results;
  std::vector<SchedulePanel> panels;
  for (const PipelineOrder& order : orders) {
    results.push_back(
        evaluate_pipeline(order, share_costs(order, unit).costs, {.record_spans = true}));
  }
  for (std::size_t k = 0; k < orders.size(); ++k) {
    panels.push_back({&orders[k], &results[k], k == 0 ? "short" : "long", 1.0, k < 2});
  }
  const std::string svg = schedules_svg(panels, "both & more");
  EXPECT_THAT(svg, testing::HasSubstr("both &amp; more"));
  EXPECT_THAT(svg, testing::HasSubstr(">short</text>"));
  std::vector<double> rows;  // their backgrounds: the whole run
  const std::string mark = "fill=\"#f0f0f0\"";
  for (std::size_t at = svg.find(mark); at != std::string::npos; at = svg.find(mark, at + 1)) {
    const std::size_t begin = svg.rfind("<rect", at);
    const std::size_t width = svg.find("width=\"", begin) + 7;
    rows.push_back(std::stod(svg.substr(width)));
  }
  ASSERT_EQ(rows.size(), 4U);  // and the legend's
  EXPECT_DOUBLE_EQ(rows[0] * 2, rows[1]);
  EXPECT_DOUBLE_EQ(rows[1], rows[2]);
}

}  // namespace
}  // namespace orrery::sim
