// SPDX-License-Identifier: Apache-2.0
// Expressions over results, verdicts, and what malformed headlines are told.
#include "studies/reproduction/headline.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "base/error.hpp"

namespace orrery::studies {
namespace {

using ::testing::HasSubstr;

double value_of(const std::string& expression) {
  static const Json kResults =
      parse_json(R"({"a": {"x": 6, "list": [1, 5, 3]}, "b": {"x": 1.5, "deep": [{"y": 7}]}})", "r");
  const Json document = parse_json(expression, "expression");
  return evaluate(JsonReader(document, "expression"), kResults);
}

std::string bad_input_message(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::BadInput);
    return error.what();
  }
  return "no error";
}

TEST(HeadlineExpression, ComputesOverResults) {
  EXPECT_EQ(value_of("2.5"), 2.5);
  EXPECT_EQ(value_of("\"a.x\""), 6);
  EXPECT_EQ(value_of("\"b.deep.0.y\""), 7);
  EXPECT_EQ(value_of(R"(["/", "a.x", "b.x"])"), 4);
  EXPECT_EQ(value_of(R"(["-", ["max", "a.list"], 2])"), 3);
  EXPECT_EQ(value_of(R"(["sum", "a.list", 1])"), 10);
  EXPECT_EQ(value_of(R"(["*", 2, 3, "b.x"])"), 9);
  EXPECT_EQ(value_of(R"(["mean", "a.list"])"), 3);
  EXPECT_EQ(value_of(R"(["min", "a.list", -1])"), -1);
}

TEST(HeadlineExpression, SaysWhatIsWrong) {
  const auto told = [](const std::string& text) {
    return bad_input_message([&] { value_of(text); });
  };
  EXPECT_THAT(told("\"a.z\""), HasSubstr("no result \"z\""));
  EXPECT_THAT(told("\"a.list.9\""), HasSubstr("no result \"9\""));
  EXPECT_THAT(told("\"a\""), HasSubstr("expected a number"));
  EXPECT_THAT(told(R"(["?", 1, 2])"), HasSubstr("mean"));
  EXPECT_THAT(told(R"(["/", 1, 2, 3])"), HasSubstr("two arguments"));
  EXPECT_THAT(told(R"(["/", 1, 0])"), HasSubstr("not finite"));
  EXPECT_THAT(told("[]"), HasSubstr("expected [\"op\""));
}

Json headline(const std::string& band, const std::string& more = "") {
  return parse_json(R"({"schema": "orrery-headline", "version": 1, "name": "test-gpipe",
      "system": "GPipe", "claim": "a claim", "source": "a paper, 2019", )" +
                        more + R"(
      "runs": {"r": {"schedule": "gpipe", "stages": 4, "micro_batches": 8}},
      "checks": [{"name": "test-gpipe-time", "published": 33, "band": )" +
                        band + R"(,
                  "simulated": "r.makespan"}]})",
                    "headline");
}

Reproduced result_of(const Json& document) {
  return reproduce(read_headline(document, "headline")).front();
}

// (m + p - 1)(F + B + W) = 33.
TEST(Headline, IsJudgedByItsBand) {
  EXPECT_EQ(result_of(headline("[33, 33]")).verdict, Verdict::Inside);
  EXPECT_EQ(result_of(headline("[33, null]")).simulated, 33);
  EXPECT_EQ(result_of(headline("[33.5, null]")).verdict, Verdict::Outside);
  EXPECT_EQ(result_of(headline("[null, 32]")).verdict, Verdict::Outside);
  const Reproduced open = result_of(headline("[33, 33]", R"("unjudged": "depth is missing",)"));
  EXPECT_EQ(open.verdict, Verdict::Unjudged);
  EXPECT_EQ(open.reason, "depth is missing");
}

// One check of a judged headline may stay open, and says itself what is missing.
TEST(Headline, ChecksMayStayUnjudged) {
  const Json document = headline("[33, 33]");
  Json open = document;
  Json check = document.find("checks")->as_array()[0];
  check.set("unjudged", "batch is missing");
  open.set("checks", Json::Array{document.find("checks")->as_array()[0], check});
  const std::vector<Reproduced> both = reproduce(read_headline(open, "headline"));
  EXPECT_EQ(both[0].verdict, Verdict::Inside);
  EXPECT_EQ(both[1].verdict, Verdict::Unjudged);
  EXPECT_EQ(both[1].reason, "batch is missing");
}

TEST(Headline, MalformedOnesAreRefused) {
  const auto told = [](Json document) { return bad_input_message([&] { result_of(document); }); };
  EXPECT_THAT(told(headline("[2, 1]")), HasSubstr("low end is above"));
  EXPECT_THAT(told(headline("[1]")), HasSubstr("[low, high]"));
  Json unknown = headline("[1, 2]");
  unknown.set("colour", "red");
  EXPECT_THAT(told(unknown), HasSubstr("colour"));
  Json run = headline("[1, 2]");
  run.find("runs")->find("r")->set("schedule", "gpype");
  EXPECT_THAT(told(run), HasSubstr("gpipe"));
  Json kind = headline("[1, 2]");
  kind.find("runs")->set("r", Json::object());
  EXPECT_THAT(told(kind), HasSubstr("\"schedule\", \"network\", \"planner\""));
  EXPECT_THAT(bad_input_message([] { load_headline("gpipe-amoebanett"); }),
              HasSubstr("gpipe-amoebanet"));
}

// A search on a real network and cluster.
TEST(Headline, RunsSearches) {
  const Json run = parse_json(R"({"network": "llama3-8b", "cluster": "hgx-h100:1", "batch": 8,
      "fix": "tp=8,pp=1,micro_batch=1,schedule=1f1b,zero=1,recompute=none"})",
                              "run");
  const Json result = run_of_headline(JsonReader(run, "run"));
  EXPECT_GT(result.find("iteration_time_s")->as_number(), 0.05);
  EXPECT_LT(result.find("iteration_time_s")->as_number(), 5);
}

}  // namespace
}  // namespace orrery::studies
