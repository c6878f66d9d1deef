// SPDX-License-Identifier: Apache-2.0
// The kinds of runs of headlines, and values that runs take from each other.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "base/error.hpp"
#include "studies/reproduction/headline.hpp"
#include "studies/reproduction/headline_kinds.hpp"

namespace orrery::studies {
namespace {

using ::testing::HasSubstr;

Json filled(const std::string& text) {
  const Json results = parse_json(R"({"a": {"x": 0.25, "list": [1, 2]}})", "results");
  const Json run = parse_json(text, "run");
  return fill_values(JsonReader(run, "run"), results);
}

Json result(const std::string& text) {
  const Json run = parse_json(text, "run");
  return run_of_headline(JsonReader(run, "run"));
}

double number(const Json& json, std::string_view key) { return json.find(key)->as_number(); }

std::string told(const std::string& text, Json (*action)(const std::string&)) {
  try {
    action(text);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::BadInput);
    return error.what();
  }
  return "no error";
}

TEST(HeadlineValues, AreTakenFromResults) {
  EXPECT_EQ(filled(R"({"v": {"=": ["*", "a.x", 2]}})").find("v")->as_number(), 0.5);
  EXPECT_EQ(filled(R"({"v": {"=": "a.x", "unit": "ms"}})").find("v")->as_string(), "0.25 ms");
  EXPECT_EQ(filled(R"({"v": {"=": "a.list"}})").find("v")->as_array().size(), 2U);
  EXPECT_EQ(filled(R"([{"repeat": 2, "of": [7, {"repeat": 3, "of": [{"=": "a.x"}]}]}])"),
            parse_json("[7, 0.25, 0.25, 0.25, 7, 0.25, 0.25, 0.25]", "expected"));
  EXPECT_EQ(filled(R"({"data": "pipedream-vgg16"})").as_array().size(), 40U);
  EXPECT_EQ(filled(R"({"plain": ["a.x", true]})"), parse_json(R"({"plain": ["a.x", true]})", "e"));
}

TEST(HeadlineValues, SayWhatIsWrong) {
  EXPECT_THAT(told(R"({"=": "a.y"})", filled), HasSubstr("no result \"y\""));
  EXPECT_THAT(told(R"({"data": "../headlines"})", filled), HasSubstr("studies/data"));
  EXPECT_THAT(told(R"([{"repeat": 1000000, "of": [1, 2, 3]}])", filled), HasSubstr("1000000"));
  EXPECT_THAT(told(R"([{"repeat": 1, "off": []}])", filled), HasSubstr("of"));
}

// A list of equal stages is the share itself.
TEST(HeadlineRuns, StagesMayDiffer) {
  const Json equal = result(R"({"schedule": "1f1b", "stages": 4, "micro_batches": 8,
      "times": [{"forward": 1, "input_grad": 1, "weight_grad": 1}]})");
  EXPECT_EQ(number(equal, "makespan"), 33);
  const Json slow = result(R"({"schedule": "1f1b", "stages": 2, "micro_batches": 10,
      "times": [{"forward": 1, "backward": 2}, {"forward": 2, "backward": 4}]})");
  EXPECT_EQ(number(slow, "makespan"), 10 * 6 + 3);
  // One micro-batch twice as long as the others.
  const Json units = result(R"({"schedule": "1f1b", "stages": 1, "micro_batches": 3,
      "units": [1, 2, 1], "times": [{"forward": 1, "backward": 2, "activation": 5}]})");
  EXPECT_EQ(number(units, "makespan"), 12);
  EXPECT_EQ(units.find("peak_bytes")->as_array().front().as_number(), 5);
  EXPECT_THAT(told(R"({"schedule": "1f1b", "stages": 3, "micro_batches": 3,
      "times": [{"forward": 1}, {"forward": 2}]})",
                   result),
              HasSubstr("3 virtual stages"));
  EXPECT_THAT(told(R"({"schedule": "1f1b", "stages": 1, "micro_batches": 3, "units": [1],
      "times": [{"forward": 1}]})",
                   result),
              HasSubstr("3 factors"));
}

// Two stages, the second on two devices; the reduction of the second hides under the first one's
// last backward.
TEST(HeadlineRuns, ChainsRunAsPipelines) {
  const std::string layers = R"("layers": [
      {"forward": "1 s", "backward": "2 s", "output": "2 GB", "parameters": "1 GB",
       "activations": "3 GB"},
      {"forward": "2 s", "backward": "4 s", "parameters": "4 GB", "activations": "8 GB"}])";
  const Json pipeline = result("{" + layers + R"(, "micro_batches": 4, "bandwidth": "2 GB/s",
      "stages": [{"first": 0, "last": 1}, {"first": 1, "last": 2, "replicas": 2}]})");
  // 1F1B of two stages of 3 s each, and a round trip of 2 x 0.5 s for every two micro-batches.
  EXPECT_EQ(number(pipeline, "iteration_s"), 5 * 3 + 2);
  EXPECT_EQ(pipeline.find("memory_bytes")->as_array()[0].as_number(), 1e9 + 2 * 3e9);
  EXPECT_EQ(pipeline.find("memory_bytes")->as_array()[1].as_number(), 4e9 + 8e9 / 2);
  const Json data_parallel = result("{" + layers + R"(, "micro_batches": 4, "bandwidth": "2 GB/s",
      "stages": [{"first": 0, "last": 2, "replicas": 3}]})");
  EXPECT_NEAR(number(data_parallel, "iteration_s"), 4 * 9.0 / 3 + 4.0 / 3 * 5 / 2, 1e-9);
  const Json recomputed = result("{" + layers + R"(, "micro_batches": 1, "bandwidth": "2 GB/s",
      "order": "gpipe", "recompute": true, "stages": [{"first": 0, "last": 2}]})");
  EXPECT_EQ(number(recomputed, "iteration_s"), 12);
  EXPECT_THAT(told("{" + layers + R"(, "micro_batches": 1, "bandwidth": "2 GB/s",
      "stages": [{"first": 0, "last": 1}]})",
                   result),
              HasSubstr("all 2 layers"));
}

TEST(HeadlineRuns, BlocksAddUpToTheirPasses) {
  const Json blocks = result(R"({"blocks": "llama3-8b", "cluster": "hgx-h100:2", "tp": 8})");
  const Json& layer = *blocks.find("layer");
  double forward = 0;
  double backward = 0;
  for (const std::string part : {"before_attention_", "attention_", "after_attention_"}) {
    forward += number(layer, part + "forward_s");
    backward += number(layer, part + "backward_s");
    EXPECT_GT(number(layer, part + "forward_s"), 0);
    EXPECT_GT(number(layer, part + "backward_s"), 0);
  }
  EXPECT_NEAR(forward, number(layer, "forward_s"), 1e-9);
  EXPECT_NEAR(backward, number(layer, "backward_s"), 1e-9);
  EXPECT_GT(number(layer, "weight_grad_backward_s"), 0.1 * backward);
  EXPECT_GT(number(blocks, "send_between_s"), number(blocks, "send_inside_s"));
  EXPECT_EQ(number(blocks, "layers"), 32);
}

TEST(HeadlineRuns, LengthsFollowTheirQuantiles) {
  const std::string quantiles = R"("quantiles": [[0, 16], [0.5, 256], [1, 65536]])";
  const Json drawn = result("{" + quantiles + R"(, "count": 4000, "seed": 3})");
  int below = 0;
  for (const Json& length : drawn.find("lengths")->as_array()) {
    below += length.as_number() <= 256 ? 1 : 0;
  }
  EXPECT_NEAR(below, 2000, 100);
  EXPECT_GT(number(drawn, "longest"), 50'000);
  const Json shorter = result("{" + quantiles + R"(, "count": 500, "longest": 1000})");
  EXPECT_LE(number(shorter, "longest"), 1000);
  EXPECT_THAT(told(R"({"quantiles": [[0, 16], [0.5, 8], [1, 9]], "count": 1})", result),
              HasSubstr("must not fall"));
}

// Fp16 of Megatron-LM accumulates gradients in 16 bits; flags that are stated come after those of
// the framework.
TEST(HeadlineRuns, FrameworksSayWhatIsNotStated) {
  const std::string run =
      R"({"simulate": "gpt2-medium", "cluster": "dgx-a100:1", "batch": 8, "tp": 8)";
  const auto time = [&run](const std::string& rest) {
    return number(result(run + rest + "}"), "iteration_time_s");
  };
  const auto peak = [&run](const std::string& rest) {
    const Json of_run = result(run + rest + "}");
    return of_run.find("peak_memory_bytes")->as_array().front().as_number();
  };
  const std::string megatron = R"(, "framework": "Megatron-LM")";
  EXPECT_GT(time(megatron), time(""));
  EXPECT_LT(peak(megatron + R"(, "precision": "fp16")"), peak(megatron));
  EXPECT_GT(time(megatron + R"(, "execution": "overlap_tp=false")"), time(megatron));
  EXPECT_THAT(told(run + R"(, "framework": "Megatron-LN"})", result),
              HasSubstr("unknown framework \"Megatron-LN\""));
}

// Members that are merged into a plan document are checked before.
TEST(HeadlineRuns, LayoutsAndExecutionAreObjects) {
  const std::string layout = R"({"model": "gpt2", "cluster": "hgx-h100:1", "micro_batch": 1, )";
  const std::string document = R"({"document": "gpt2", "cluster": "hgx-h100:1", "batch": 8, )";
  const auto refused = [](const std::string& run) {
    return told(run, [](const std::string& text) { return result(text); });
  };
  EXPECT_THAT(refused(layout + R"("layout": "tp"})"), HasSubstr("/layout: expected an object"));
  EXPECT_THAT(refused(layout + R"("layout": {"tp": 2}, "execution": [1]})"),
              HasSubstr("/execution: expected an object"));
  EXPECT_THAT(refused(document + R"("layout": 1})"), HasSubstr("/layout: expected an object"));
  EXPECT_THAT(refused(document + R"("execution": ""})"), HasSubstr("execution"));
}

}  // namespace
}  // namespace orrery::studies
