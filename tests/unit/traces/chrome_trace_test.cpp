// SPDX-License-Identifier: Apache-2.0
#include "traces/chrome_trace.hpp"

#include <gtest/gtest.h>

#include "base/json.hpp"

namespace orrery::traces {
namespace {

Trace two_stages() {
  Trace trace;
  const std::uint32_t first = trace.add_process("stage 0");
  const std::uint32_t second = trace.add_process("stage 1");
  const std::uint32_t sender = trace.add_track(first, "compute");
  const std::uint32_t receiver = trace.add_track(second, "compute");
  trace.spans.push_back({sender, {0}, {1'500'001}, "F0", "forward", {{"micro_batch", 0}}});
  trace.spans.push_back({receiver, {2'000'000}, {3'000'000}, "F0", "forward", {}});
  trace.counters.push_back({first, {1}, "memory", {{"activations", 1024.0}, {"resident", 8.0}}});
  trace.arrows.push_back({0, 1, "activations"});
  return trace;
}

std::vector<const Json*> events(const Json& document, std::string_view phase) {
  std::vector<const Json*> found;
  for (const Json& event : document.find("traceEvents")->as_array()) {
    if (event.find("ph")->as_string() == phase) {
      found.push_back(&event);
    }
  }
  return found;
}

TEST(ChromeTrace, IsOneJsonObjectWithTraceEvents) {
  const Json document = parse_json(chrome_trace_text(two_stages()), "trace");
  ASSERT_NE(document.find("traceEvents"), nullptr);
  EXPECT_EQ(events(document, "X").size(), 2U);
  EXPECT_EQ(events(document, "C").size(), 1U);
  EXPECT_EQ(events(document, "M").size(), 8U);
}

TEST(ChromeTrace, TimesAreExactMicroseconds) {
  const std::string text = chrome_trace_text(two_stages());
  EXPECT_NE(text.find(R"("ts":0.000000,"dur":1.500001,)"), std::string::npos);
  EXPECT_NE(text.find(R"("ts":2.000000,"dur":1.000000,)"), std::string::npos);
}

TEST(ChromeTrace, LargestTimeKeepsItsDigits) {
  Trace trace = two_stages();
  trace.arrows.clear();
  trace.spans[1].end = SimTime::max();
  trace.spans[1].start = SimTime::max();
  EXPECT_NE(chrome_trace_text(trace).find("9223372036854.775807"), std::string::npos);
}

TEST(ChromeTrace, ArrowJoinsTheTracksOfBothSpans) {
  const Json document = parse_json(chrome_trace_text(two_stages()), "trace");
  const auto starts = events(document, "s");
  const auto ends = events(document, "f");
  ASSERT_EQ(starts.size(), 1U);
  ASSERT_EQ(ends.size(), 1U);
  EXPECT_EQ(*starts[0]->find("id"), *ends[0]->find("id"));
  EXPECT_EQ(starts[0]->find("tid")->as_integer(), 1);
  EXPECT_EQ(ends[0]->find("tid")->as_integer(), 2);
  EXPECT_EQ(ends[0]->find("bp")->as_string(), "e");
  EXPECT_EQ(ends[0]->find("ts")->as_number(), 2.0);
}

TEST(ChromeTrace, TracksAndProcessesAreNamed) {
  const Json document = parse_json(chrome_trace_text(two_stages()), "trace");
  bool named = false;
  for (const Json* event : events(document, "M")) {
    named = named || (event->find("name")->as_string() == "process_name" &&
                      event->find("args")->find("name")->as_string() == "stage 1");
  }
  EXPECT_TRUE(named);
}

TEST(ChromeTrace, HostileNamesAreEscaped) {
  Trace trace = two_stages();
  trace.spans[0].name = "a\"},{\n\\\x01";
  trace.processes[0] = "</script>\"";
  const Json document = parse_json(chrome_trace_text(trace), "trace");
  EXPECT_EQ(events(document, "X")[0]->find("name")->as_string(), "a\"},{\n\\\x01");
}

TEST(ChromeTrace, EmptyTraceIsValid) {
  const Json document = parse_json(chrome_trace_text(Trace{}), "trace");
  EXPECT_TRUE(document.find("traceEvents")->as_array().empty());
}

TEST(ChromeTraceDeathTest, ArrowWithoutSpanIsABug) {
  Trace trace = two_stages();
  trace.arrows.push_back({0, 7, "nowhere"});
  EXPECT_EXIT((void)chrome_trace_text(trace), testing::ExitedWithCode(1), "does not exist");
}

}  // namespace
}  // namespace orrery::traces
