// SPDX-License-Identifier: Apache-2.0
// The KV cache of a serving plan as pages, with prefixes that are found in it, over context ranks
// and partly on the host; experts over the tensor-parallel ranks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.hpp"
#include "plan/serving/admission.hpp"
#include "plan/serving/pages.hpp"
#include "plan/stage/offload_time.hpp"
#include "tests/unit/plan/serving_fixture.hpp"

namespace orrery::plan {
namespace {

using costmodel::MemoryKernel;
using ::testing::AllOf;
using ::testing::HasSubstr;

Plan cached_serving_plan(const std::string& network, const std::function<void(BlockPlan&)>& set,
                         const ServingOptions& options = {}, int replicas = 1) {
  BlockPlan layout;
  set(layout);
  const int pp = 8 / (layout.tp * layout.cp * replicas);
  Plan plan = replicas_of(network, "dgx-a100:1", layout, pp, DType::Bf16);
  plan.sequence = 4096;
  RequestSpec requests;
  requests.count = 64;
  requests.prompt = {.mean = 500};
  requests.output = {.mean = 33};
  plan.serving = std::make_shared<const Serving>(Serving{requests, options});
  check_plan(plan, "plan");
  return plan;
}

void tensor_parallel(BlockPlan& layout) { layout.tp = 8; }

TEST(ServingCache, PagesRoundUp) {
  CachePages pages(16, 100);
  EXPECT_EQ(pages.capacity(), 96);
  pages.take(17);
  EXPECT_EQ(pages.reserved(), 32);
  EXPECT_EQ(pages.waste(), 15);
  EXPECT_EQ(pages.growth(31), 0);
  EXPECT_EQ(pages.growth(32), 16);
  EXPECT_TRUE(pages.has_room(64));
  EXPECT_FALSE(pages.has_room(65));
  pages.give(17);
  EXPECT_EQ(pages.reserved() + pages.waste(), 0);
}

// Half of the layers see 100 tokens: of 200 more a request frees every second, one that grows takes
// a token in every second step. In pages of 16 a window reaches 112 tokens and a page more.
TEST(ServingCache, LayersFreeWhatIsBehindTheirWindow) {
  CachePages tokens(1, 1000, {100, 0.5});
  EXPECT_EQ(tokens.rounded(100), 100);
  EXPECT_EQ(tokens.rounded(300), 200);
  EXPECT_EQ(tokens.growth(300) + tokens.growth(301), 1);
  EXPECT_EQ(tokens.longest(), 100 + 2 * 900);
  tokens.take(300);
  std::int64_t held = 300;
  for (int step = 0; step < 50; ++step) {
    tokens.grow(held);
  }
  EXPECT_EQ(tokens.reserved(), tokens.rounded(350));
  EXPECT_EQ(tokens.waste(), 0);
  tokens.give(350);
  EXPECT_EQ(tokens.reserved() + tokens.waste(), 0);
  const CachePages pages(16, 1000, {100, 0.5});
  EXPECT_EQ(pages.rounded(128), 128);
  EXPECT_EQ(pages.rounded(129), 144 - 8);
  EXPECT_LE(pages.rounded(pages.longest()), 992);
  EXPECT_GT(pages.rounded(pages.longest() + 16), 992);
  const CachePages all(1, 1000, {100, 1.0});
  EXPECT_EQ(all.rounded(100'000), 100);
  EXPECT_EQ(all.growth(100), 0);
}

// A prompt of 300 tokens in chunks of 80 holds these beside its window until the last is computed.
TEST(ServingCache, WindowsHoldTheChunkThatIsComputed) {
  const CachePages pages(1, 1000, {100, 1.0, 80});
  EXPECT_EQ(pages.passing(100), 0);
  EXPECT_EQ(pages.passing(130), 30);
  EXPECT_EQ(pages.passing(300), 80);
  EXPECT_EQ(CachePages(1, 179, {100, 1.0, 80}).longest(), 179);
  EXPECT_GT(CachePages(1, 181, {100, 1.0, 80}).longest(), 1'000'000);
  const CachePages half(16, 1000, {100, 0.5, 80});
  EXPECT_EQ(half.passing(1000), 40);
  EXPECT_LE(half.rounded(half.longest()) + half.passing(half.longest()), 992);
  EXPECT_GT(half.rounded(half.longest() + 16) + half.passing(half.longest() + 16), 992);
  const std::vector<Request> requests = {{SimTime{}, 300, 10}};
  ServingOptions options;
  options.token_budget = 80;
  options.max_requests = 8;
  BatchEngine engine = unit_engine(1000);
  engine.sliding = {100, 1.0, 80};
  std::vector<std::int64_t> held;
  run_batches(
      requests, options, engine,
      [&](const Iteration&, SimTime, SimTime, std::int64_t tokens) { held.push_back(tokens); });
  ASSERT_EQ(held.size(), 4 + 9);
  EXPECT_EQ(held[3], 180);
  EXPECT_EQ(held[4], 100);
}

// One request of 17 + 14 tokens: two pages of 16 from the first token to the last.
TEST(ServingCache, WasteIsTheRestOfTheLastPage) {
  const std::vector<Request> requests = {{SimTime{}, 17, 14}};
  ServingOptions options;
  options.cache_block = 16;
  const BatchRun run = run_batches(requests, options, unit_engine(64));
  EXPECT_EQ(run.kv_peak, 32);
  const double seconds = 1000e-12;
  // Held after the prompt's iteration is formed: 18 tokens, one more in each of 13 others.
  double waste = 0;
  for (int tokens = 18; tokens < 18 + 14; ++tokens) {
    waste += seconds * (32 - tokens);
  }
  EXPECT_NEAR(run.kv_token_seconds, 14 * 32 * seconds, 1e-18);
  EXPECT_NEAR(run.kv_waste_seconds, waste, 1e-18);
  EXPECT_EQ(run_batches(requests, {}, unit_engine(64)).kv_waste_seconds, 0);
}

// Of a cache that is as full all the time.
TEST(ServingCache, IsInTheMeanNoFullerThanAtItsPeak) {
  Plan plan = cached_serving_plan("mixtral-8x7b", tensor_parallel);
  for (std::int64_t prompt = 100; prompt < 140; ++prompt) {
    Serving serving = some_requests(1);
    serving.requests.prompt = {static_cast<double>(prompt), 0, prompt};
    serving.requests.output = {1, 0, 1};
    serve(plan, serving);
    const ServingSimulation simulation = simulate_serving(plan);
    EXPECT_LE(simulation.kv_mean_fraction, simulation.kv_peak_fraction) << prompt;
    EXPECT_NEAR(simulation.kv_mean_fraction, simulation.kv_peak_fraction, 1e-12);
  }
}

// Twelve requests that need 32 tokens each: with pages of 32 as many run as without.
TEST(ServingCache, NeverOverflowsInPages) {
  const std::vector<Request> requests(12, {SimTime{}, 20, 12});
  for (const std::int64_t block : {1, 8, 32, 64}) {
    ServingOptions options;
    options.cache_block = block;
    std::int64_t most = 0;
    const BatchRun run = run_batches(requests, options, unit_engine(200),
                                     [&](const Iteration&, SimTime, SimTime, std::int64_t held) {
                                       most = std::max(most, held);
                                       EXPECT_EQ(held % block, 0);
                                     });
    EXPECT_LE(most, 200);
    EXPECT_EQ(run.generated, 12 * 12);
  }
}

TEST(ServingCache, FoundPrefixesAreNotComputed) {
  const std::vector<Request> requests(5, {SimTime{}, 100, 3});
  ServingOptions options;
  options.prefix_hits = 0.75;
  const BatchRun run = run_batches(requests, options, unit_engine(10'000));
  EXPECT_EQ(run.prefilled, 5 * 25);
  options.prefix_hits = 1.0;
  EXPECT_EQ(prefix_hits(options, requests.front()), 99);
  EXPECT_EQ(run_batches(requests, options, unit_engine(10'000)).prefilled, 5);
}

TEST(ServingCache, PrefixesSpeedUpTheFirstToken) {
  const ServingSimulation whole =
      simulate_serving(cached_serving_plan("llama2-70b", tensor_parallel));
  ServingOptions options;
  options.prefix_hits = 0.5;
  const ServingSimulation found =
      simulate_serving(cached_serving_plan("llama2-70b", tensor_parallel, options));
  EXPECT_LT(found.first_token.mean, whole.first_token.mean);
  EXPECT_EQ(found.prompt_tokens, whole.prompt_tokens);
}

// Half on the host, double buffers of two of 80 layers: 1 / (1 - 0.5 (1 - 2/80)) as many tokens;
// no iteration is faster than its copies.
TEST(ServingCache, TheHostHoldsItsShare) {
  ServingOptions options;
  Plan plan = cached_serving_plan("llama2-70b", tensor_parallel, options);
  ServingModel on_device(plan);
  options.host_cache = 0.5;
  plan.serving = std::make_shared<const Serving>(Serving{plan.serving->requests, options});
  ServingModel model(plan);
  const ServingMemory before = on_device.memory().front();
  const ServingMemory after = model.memory().front();
  EXPECT_NEAR(static_cast<double>(after.kv_per_token.value()),
              static_cast<double>(before.kv_per_token.value()) * (1 - 0.5 * (1 - 2.0 / 80)), 1);
  EXPECT_GT(after.kv_tokens,
            static_cast<std::int64_t>(1.9 * static_cast<double>(before.kv_tokens)));
  Iteration iteration;
  iteration.decodes = iteration.sampled = 256;
  iteration.keys = 256 * 2000;
  const double bytes = 0.5 * 256 * 2000 * static_cast<double>(before.kv_per_token.value());
  const double link = tier_graph(plan.cluster, plan.profile).channels.front().bandwidth.value();
  EXPECT_NEAR(model.cost(0, iteration).time.value(), bytes / link, 1e-3 * bytes / link);
  EXPECT_LT(on_device.cost(0, iteration).time, model.cost(0, iteration).time);
}

// Two context ranks hold half of the tokens each; decoding many long requests gets faster.
TEST(ServingCache, ContextRanksSplitTheCache) {
  Plan wide = cached_serving_plan(
      "llama3-8b", [](BlockPlan& layout) { layout.tp = 4; }, {}, 2);
  Plan split = cached_serving_plan("llama3-8b", [](BlockPlan& layout) {
    layout.tp = 4;
    layout.cp = 2;
  });
  ServingModel alone(wide);
  ServingModel together(split);
  const ServingMemory one = alone.memory().front();
  const ServingMemory two = together.memory().front();
  EXPECT_EQ(two.parameters, one.parameters);
  EXPECT_NEAR(static_cast<double>(two.kv_per_token.value()),
              0.5 * static_cast<double>(one.kv_per_token.value()), 1);
  Iteration iteration;
  iteration.decodes = iteration.sampled = 128;
  iteration.keys = iteration.windowed_keys = 128 * 30'000;
  const IterationCost a = alone.cost(0, iteration);
  const IterationCost b = together.cost(0, iteration);
  EXPECT_NEAR(b.of(ServingPart::Decode) / a.of(ServingPart::Decode), 0.5, 0.02);
  EXPECT_EQ(b.of(ServingPart::Gemm), a.of(ServingPart::Gemm));
  EXPECT_GT(b.of(ServingPart::Network), a.of(ServingPart::Network));
}

Plan serving_with(Plan plan, const std::function<void(ServingOptions&)>& set) {
  ServingOptions options = plan.serving->options;
  set(options);
  plan.serving = std::make_shared<const Serving>(Serving{plan.serving->requests, options});
  return plan;
}

void in_eight_bits(ServingOptions& options) { options.fp8_cache = true; }

// Half the bytes a token, read by decodes in half the time beside queries and results; new keys and
// values are cast instead of copied.
TEST(ServingCache, EightBitsHalveWhatIsHeldAndRead) {
  const Plan plan = cached_serving_plan("llama3-8b", tensor_parallel);
  ServingModel wide(plan);
  ServingModel narrow(serving_with(plan, in_eight_bits));
  const ServingMemory before = wide.memory().front();
  const ServingMemory after = narrow.memory().front();
  EXPECT_EQ(2 * after.kv_per_token.value(), before.kv_per_token.value());
  EXPECT_EQ(after.kv_tokens, before.cache.value() / after.kv_per_token.value());
  const costmodel::DeviceModel device(plan.cluster.gpu, plan.profile);
  const auto moved = [&](double bytes, MemoryKernel kernel) {
    return device.memory_bound(Bytes(bytes), kernel).value();
  };
  const Iteration decodes = decoding(256, 20'000);
  const double saved = 256 * 20'000 * 128;  // one KV head of 128 a rank: two bytes less of both
  const IterationCost a = wide.cost(0, decodes);
  const IterationCost b = narrow.cost(0, decodes);
  const double faster =
      32 * (moved(4 * saved, MemoryKernel::Copy) - moved(2 * saved, MemoryKernel::Copy));
  EXPECT_NEAR((a.of(ServingPart::Decode) - b.of(ServingPart::Decode)).value(), faster,
              1e-6 * faster);
  Iteration prompt;
  prompt.prompts = {{0, 4000}};
  const double elements = 4000 * 2 * 128;
  const double change =
      32 * (moved(3 * elements, MemoryKernel::Cast) - moved(4 * elements, MemoryKernel::Copy));
  const IterationCost c = wide.cost(0, prompt);
  const IterationCost d = narrow.cost(0, prompt);
  EXPECT_NE(change, 0);
  EXPECT_NEAR((d.of(ServingPart::Other) - c.of(ServingPart::Other)).value(), change,
              1e-6 * std::abs(change));
  EXPECT_EQ(d.of(ServingPart::Prompt), c.of(ServingPart::Prompt));
}

// Products of widened latents bound decoding, unless attention computes in fp8, too.
TEST(ServingCache, EightBitsAreWidenedOrMultiplied) {
  Plan plan = replicas_of("deepseek-v2", "hgx-h100:1", {}, 1, DType::Bf16);  // all heads a rank
  plan.profile.attention.fp8_forward_rate = 1.5;
  plan.profile.attention.fp8_head_dim_exponent = 0;
  serve(plan, some_requests(8));
  const auto decode = [&] {
    return ServingModel(plan).cost(0, decoding(512, 20'000)).of(ServingPart::Decode);
  };
  const Seconds wide = decode();
  const Plan narrow = serving_with(plan, in_eight_bits);
  plan.execution.fp8_attention = true;
  EXPECT_EQ(decode(), wide);  // of 16-bit latents
  plan = narrow;
  EXPECT_EQ(decode(), wide);  // widened: as many products
  plan.execution.fp8_attention = true;
  EXPECT_LT(decode(), 0.7 * wide);
}

TEST(ServingCache, EightBitsCrossTheLinkToTheHost) {
  const Plan plan = serving_with(cached_serving_plan("llama2-70b", tensor_parallel),
                                 [](ServingOptions& options) { options.host_cache = 0.5; });
  const Iteration iteration = decoding(256, 2000);
  EXPECT_NEAR(ServingModel(serving_with(plan, in_eight_bits)).cost(0, iteration).time /
                  ServingModel(plan).cost(0, iteration).time,
              0.5, 1e-3);
}

TEST(ServingCache, ExpertsSpreadOverTensorRanks) {
  const Plan plan = cached_serving_plan("mixtral-8x7b", [](BlockPlan& layout) {
    layout.tp = layout.ep = 8;
    layout.expert_tp = 1;
  });
  const Plan cut = cached_serving_plan("mixtral-8x7b", tensor_parallel);
  EXPECT_EQ(ServingModel(plan).memory().front().parameters,
            ServingModel(cut).memory().front().parameters);
  EXPECT_GT(simulate_serving(plan).tokens_per_second, 0);
}

std::string problem(const std::function<void(Plan&)>& change) {
  Plan plan = cached_serving_plan("mixtral-8x7b", tensor_parallel);
  change(plan);
  return problem(plan);
}

TEST(ServingCache, BadInput) {
  EXPECT_THAT(problem([](Plan& plan) { plan.blocks.front().layout.ep = 8; }),
              HasSubstr("dp = 1 is not divisible by ep = 8"));
  EXPECT_THAT(
      problem([](Plan& plan) {
        ServingOptions options;
        options.host_cache = 0.5;
        plan.serving = std::make_shared<const Serving>(Serving{plan.serving->requests, options});
        plan.cluster.node.host_memory = ByteCount();
      }),
      HasSubstr("has no host memory"));
  EXPECT_THAT(problem([](Plan& plan) { plan.blocks.front().layout.zero_stage = 1; }),
              HasSubstr("zero_stage = 0"));
  EXPECT_THAT(problem([](Plan& plan) {
                plan = serving_with(plan, in_eight_bits);
                plan.execution.fp8_attention = true;
              }),
              AllOf(HasSubstr("tensor \"kv_cache\""), HasSubstr("no products in fp8")));
}

TEST(ServingCache, PlansKeepTheirCache) {
  ServingOptions options;
  options.cache_block = 16;
  options.prefix_hits = 0.25;
  options.host_cache = 0.5;
  options.fp8_cache = options.overlap_chunks = true;
  const Plan plan = cached_serving_plan("llama2-70b", tensor_parallel, options);
  EXPECT_EQ(read_plan(to_json(plan), "again").serving->options, options);
}

}  // namespace
}  // namespace orrery::plan
