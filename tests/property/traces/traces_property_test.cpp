// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include "base/error.hpp"
#include "traces/chrome_trace.hpp"
#include "traces/nccl_log.hpp"

namespace orrery::traces {
namespace {

TEST(TracesProperty, AnyTraceIsValidJsonWithEveryEvent) {
  EXPECT_TRUE(rc::check([] {
    Trace trace;
    trace.add_track(trace.add_process(*rc::gen::string<std::string>()), "t");
    const auto lengths = *rc::gen::container<std::vector<int>>(rc::gen::inRange(0, 1'000'000));
    SimTime now{*rc::gen::inRange<std::int64_t>(0, 1'000'000'000'000)};
    for (const int length : lengths) {
      trace.spans.push_back({0, now, now + SimTime{length}, "x", "y", {}});
      now += SimTime{length};
    }
    for (std::uint32_t span = 1; span < trace.spans.size(); ++span) {
      trace.arrows.push_back({span - 1, span, "a"});
    }
    // Names that are not UTF-8 are replaced or escaped by the JSON writer, never passed through.
    const std::string text = chrome_trace_text(trace);
    const Json document = parse_json(text, "trace");
    RC_ASSERT(document.find("traceEvents")->as_array().size() ==
              4 + trace.spans.size() + 2 * trace.arrows.size());
    RC_ASSERT(text == chrome_trace_text(trace));
  }));
}

TEST(TracesProperty, NcclRowsReadBack) {
  EXPECT_TRUE(rc::check([] {
    std::string text = "# size count type redop root time algbw busbw #wrong\n";
    const auto drawn =
        *rc::gen::container<std::set<std::int64_t>>(rc::gen::inRange<std::int64_t>(0, 1LL << 40));
    const std::vector<std::int64_t> sizes(drawn.begin(), drawn.end());  // upwards, as tests go
    for (const std::int64_t size : sizes) {
      text += fmt::format("{} {} float sum -1 {} 1.25 2.5 0\n", size, size / 4, size + 1);
    }
    const NcclLog log = parse_nccl_log(text, "log");
    RC_ASSERT(log.rows.size() == sizes.size());
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      RC_ASSERT(log.rows[i].size.value() == sizes[i]);
      RC_ASSERT(log.rows[i].out_of_place->time.value() == 1e-6 * static_cast<double>(sizes[i] + 1));
    }
  }));
}

TEST(TracesProperty, NcclReaderIsTotal) {
  EXPECT_TRUE(rc::check([] {
    const std::vector<std::string> pieces = {"#",
                                             " size count ",
                                             "time algbw busbw",
                                             "\n",
                                             "8 ",
                                             "-1",
                                             " float ",
                                             "(us)",
                                             "N/A",
                                             "-",
                                             "Rank",
                                             "0 ",
                                             "ranks: ",
                                             "\xff",
                                             "1: ",
                                             "# Out of bounds values : 1 FAILED\n",
                                             "8 2 float sum -1 5 0 0\n",
                                             "16 4 float sum -1 5 0 0\n"};
    std::string text =
        *rc::gen::element<std::string>("", "# size count type redop root time algbw busbw\n",
                                       "# nThread 1 nGpus 2 minBytes 8 maxBytes 64 step: "
                                       "2(factor)\n# bytes N type op time busbw\n");
    for (const std::size_t piece : *rc::gen::container<std::vector<std::size_t>>(
             rc::gen::inRange<std::size_t>(0, pieces.size()))) {
      text += pieces[piece];
    }
    try {
      (void)parse_nccl_log(text, "log", *rc::gen::element(NcclFaults::Throw, NcclFaults::Collect));
    } catch (const Error& error) {
      RC_ASSERT(error.kind() == ErrorKind::BadInput);
    }
  }));
}

}  // namespace
}  // namespace orrery::traces
