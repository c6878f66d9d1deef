// SPDX-License-Identifier: Apache-2.0
// Requests: generated lengths and arrivals, traces, and what malformed ones are told.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <string>

#include "base/error.hpp"
#include "base/random.hpp"
#include "plan/serving/serving.hpp"
#include "tests/unit/plan/serving_fixture.hpp"

namespace orrery::plan {
namespace {

using ::testing::HasSubstr;

std::string error_of(const std::string& members) {
  try {
    read_members(members);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::BadInput);
    return error.what();
  }
  return "no error";
}

TEST(Requests, ConstantLengthsAtOnce) {
  const auto requests =
      generate_requests(read_members(R"("count": 3, "prompt": 512, "output": 64)"));
  ASSERT_EQ(requests.size(), 3u);
  for (const Request& request : requests) {
    EXPECT_EQ(request, (Request{SimTime{}, 512, 64}));
  }
  EXPECT_EQ(longest_request(requests), 576);
}

// The sample mean of n draws lies within 5 standard errors of the truth.
TEST(Requests, LengthsAndArrivalsHaveTheirMeans) {
  const int count = 40'000;
  const auto requests =
      generate_requests(read_members(R"("count": 40000, "requests_per_second": 8, "seed": 3,
              "prompt": {"mean": 300, "std": 150}, "output": 20)"));
  double sum = 0;
  double squares = 0;
  for (const Request& request : requests) {
    sum += static_cast<double>(request.prompt);
    squares += std::pow(static_cast<double>(request.prompt) - 300, 2);
  }
  EXPECT_NEAR(sum / count, 300, 5 * 150 / std::sqrt(count));
  EXPECT_NEAR(std::sqrt(squares / count), 150, 8);
  const double last = to_seconds(requests.back().arrival).value();
  EXPECT_NEAR(last / count, 1.0 / 8, 5.0 / 8 / std::sqrt(count));
}

TEST(Requests, AreReproducibleAndLengthsDoNotDependOnTheRate) {
  const std::string lengths =
      R"("prompt": {"mean": 100, "std": 80, "max": 400}, "output": {"mean": 50, "std": 60})";
  const auto slow =
      generate_requests(read_members(R"("count": 500, "requests_per_second": 1, )" + lengths));
  const auto fast =
      generate_requests(read_members(R"("count": 500, "requests_per_second": 9, )" + lengths));
  const auto other = generate_requests(
      read_members(R"("count": 500, "requests_per_second": 1, "seed": 1, )" + lengths));
  EXPECT_EQ(slow, generate_requests(
                      read_members(R"("count": 500, "requests_per_second": 1, )" + lengths)));
  EXPECT_NE(slow, other);
  for (std::size_t index = 0; index < slow.size(); ++index) {
    EXPECT_EQ(slow[index].prompt, fast[index].prompt);
    EXPECT_EQ(slow[index].output, fast[index].output);
    EXPECT_LE(slow[index].prompt, 400);
    EXPECT_GE(slow[index].output, 1);
  }
}

TEST(Requests, RegularArrivals) {
  const auto requests = generate_requests(read_members(
      R"("count": 3, "arrivals": "regular", "requests_per_second": 4, "prompt": 1, "output": 1)"));
  EXPECT_EQ(requests[2].arrival, to_sim_time(Seconds(0.5)));
}

TEST(Requests, DocumentsReadBackEqual) {
  for (
      const std::string members :
      {R"("count": 7, "requests_per_second": 0.5, "seed": 9, "prompt": {"mean": 9.5, "std": 2},
           "output": {"mean": 3, "std": 1, "max": 10})",
       R"("requests": [{"arrival_s": 0.1, "prompt": 3, "output": 2}, {"arrival_s": 0.25, "prompt": 1, "output": 1}])"}) {
    const RequestSpec spec = read_members(members);
    const Json document = to_json(spec);
    EXPECT_EQ(read_requests(JsonReader(document, "again")), spec);
  }
}

TEST(Requests, SayWhatIsWrong) {
  EXPECT_THAT(error_of(R"("requests": [{"arrival_s": 2, "prompt": 3, "output": 2},
                                        {"arrival_s": 1, "prompt": 1, "output": 1}])"),
              HasSubstr("request 1 arrives at 1 s, before request 0 at 2 s"));
  EXPECT_THAT(error_of(R"("requests": [])"), HasSubstr("there are no requests"));
  EXPECT_THAT(error_of(R"("requests": [{"prompt": -5, "output": 2}])"), HasSubstr("/prompt"));
  EXPECT_THAT(error_of(R"("requests": [{"prompt": 5, "output": 0}])"), HasSubstr("/output"));
  EXPECT_THAT(error_of(R"("requests": [{"prompt": 5, "ouput": 2}])"), HasSubstr("output"));
  EXPECT_THAT(error_of(R"("count": 3, "prompt": 1, "output": 1, "sed": 4)"), HasSubstr("seed"));
  EXPECT_THAT(error_of(R"("count": 0, "prompt": 1, "output": 1)"), HasSubstr("/count"));
  EXPECT_THAT(error_of(R"("count": 3, "requests_per_second": 0, "prompt": 1, "output": 1)"),
              HasSubstr("no request would ever arrive"));
  EXPECT_THAT(error_of(R"("count": 3, "arrivals": "poisson", "prompt": 1, "output": 1)"),
              HasSubstr("requests_per_second"));
  EXPECT_THAT(error_of(R"("count": 3, "prompt": {"mean": 50, "std": 3, "max": 20}, "output": 1)"),
              HasSubstr("larger than \"max\""));
  EXPECT_THAT(error_of(R"("requests": [{"prompt": 5, "output": 2},
                                        {"arrival_s": 1, "prompt": 1, "output": 1}])"),
              HasSubstr("request 1 has an arrival_s, those before have none"));
  EXPECT_THAT(error_of(R"("requests": [{"arrival_s": 1, "prompt": 5, "output": 2},
                                        {"prompt": 1, "output": 1}])"),
              HasSubstr("request 1 has no arrival_s, those before have one"));
  EXPECT_THAT(error_of(R"("requests": [{"prompt": 5, "output": 2, "prefix_tokens": 3}])"),
              HasSubstr("prefix_tokens of no prefix"));
  EXPECT_THAT(error_of(R"("count": 3, "arrivals": "at-once", "requests_per_second": 2, "prompt": 1,
                           "output": 1)"),
              HasSubstr("requests that are there at once have no rate"));
}

TEST(Requests, TracesMayBeTables) {
  const auto path = std::filesystem::temp_directory_path() / "orrery_requests_test.csv";
  const auto load = [&](const std::string& text) {
    std::ofstream(path) << text;
    return load_requests(path.string());
  };
  const auto requests = generate_requests(load("arrival_s,prompt,output\n0,10,2\n1.5,7,1\n"));
  ASSERT_EQ(requests.size(), 2u);
  EXPECT_EQ(requests[1], (Request{to_sim_time(Seconds(1.5)), 7, 1}));
  EXPECT_THROW(load("arrival_s,prompt,output\n1,10,2\n0.5,7,1\n"), Error);
  EXPECT_THROW(load("arrival_s,prompt,tokens\n1,10,2\n"), Error);
  EXPECT_THROW(load("arrival_s,prompt,output\n"), Error);
  const std::string prefixes = "prompt,output,prefix,prefix_tokens\n5,1,a,3\n5,1,,";
  EXPECT_EQ(load(prefixes + "\n").count, 2);
  EXPECT_THROW(load(prefixes + "3\n"), Error);
  EXPECT_THROW(load("prompt,output,prefix_tokens\n5,1,3\n"), Error);
  std::filesystem::remove(path);
}

// A trace that was cut out of a longer one starts with its first request.
TEST(Requests, TheClockStartsWithTheFirstOfATrace) {
  const RequestSpec spec =
      read_members(R"("requests": [{"arrival_s": 7200.5, "prompt": 5, "output": 2},
                                   {"arrival_s": 7202, "prompt": 6, "output": 2}])");
  const std::vector<Request> requests = generate_requests(spec);
  EXPECT_EQ(requests[0].arrival, SimTime{});
  EXPECT_EQ(requests[1].arrival, to_sim_time(Seconds(1.5)));
  EXPECT_EQ(spec.trace.front().arrival, to_sim_time(Seconds(7200.5)));
}

TEST(Requests, ArrivalsOfATraceAreReadBackAsTheyWere) {
  Random random(3);
  for (const double longest : {1e3, 1e4, 1e5, 1e6}) {
    RequestSpec spec;
    for (int index = 0; index < 1000; ++index) {
      spec.trace.push_back({to_sim_time(Seconds(longest * random.uniform())), 5, 2});
    }
    std::sort(spec.trace.begin(), spec.trace.end(),
              [](const Request& a, const Request& b) { return a.arrival < b.arrival; });
    spec.count = 1000;
    const Json document = to_json(spec);
    EXPECT_EQ(read_requests(JsonReader(document, "requests.json")).trace, spec.trace) << longest;
  }
}

}  // namespace
}  // namespace orrery::plan
