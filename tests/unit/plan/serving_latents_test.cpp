// SPDX-License-Identifier: Apache-2.0
// Latent attention of prompts makes keys and values of all heads of the latents of earlier tokens;
// windows, logits and context ranks in what iterations cost and hold.
#include <gtest/gtest.h>

#include "plan/serving/cost_parts.hpp"
#include "plan/stage/offload_time.hpp"
#include "tests/unit/plan/serving_fixture.hpp"

namespace orrery::plan {
namespace {

Plan latent_plan(const ServingOptions& options, int tp = 8, int cp = 1) {
  models::NetworkSpec spec = models::load_network("deepseek-v3").spec;
  spec.layers = 8;
  BlockPlan layout;
  layout.tp = tp;
  layout.cp = cp;
  Plan plan = replicas_of("deepseek-v3", "hgx-h100:1", layout, 1, DType::Bf16);
  plan.network = models::build_network(spec, "test");
  plan.stage_blocks = even_stages(plan.network, 1);
  plan.blocks.front().count = static_cast<int>(plan.network.chain.size());
  Serving serving = some_requests(16);
  serving.options = options;
  serve(plan, serving);
  plan.sequence = 16384;
  return plan;
}

Iteration prompt(std::int64_t done, std::int64_t tokens) {
  Iteration iteration;
  iteration.prompts = {{done, tokens}};
  return iteration;
}

// All tokens of the prompt once each, however many came before: what is more are the products with
// the latents of earlier tokens, at peak rate at least.
TEST(ServingLatents, ChunksExpandWhatCameBefore) {
  const Plan plan = latent_plan({});
  ServingModel model(plan);
  const models::NetworkSpec& spec = plan.network.spec;
  const double layers = static_cast<double>(spec.layers);
  const double columns =
      static_cast<double>(spec.heads / 8 * (spec.mla.qk_nope_head_dim + spec.mla.v_head_dim));
  const double rate = plan.cluster.gpu.peak_of(DType::Bf16).value();
  const auto expansion = [&](double rows) {
    return 2 * rows * columns * static_cast<double>(spec.mla.kv_lora_rank) / rate;
  };
  const auto cost = [&](std::int64_t done) {
    return model.cost(0, prompt(done, 512)).of(ServingPart::Prompt).value() / layers;
  };
  const double before = 7680;
  // The attention itself over as many keys: 16 heads of 192 and 128.
  const double attended = 2 * 512 * before * 16 * (192 + 128) / rate;
  EXPECT_GT(cost(7680) - cost(0), expansion(before) + attended);
  EXPECT_LT(cost(7680) - cost(0), 4 * (expansion(before) + attended));
  // Twice as many rows, for as few queries that attention itself is nothing.
  const auto few = [&](std::int64_t done) {
    return model.cost(0, prompt(done, 1)).of(ServingPart::Prompt).value() / layers;
  };
  EXPECT_GT(few(16000) - few(8000), expansion(8000));
  EXPECT_LT(few(16000) - few(8000), 6 * expansion(8000));
}

// As much as the block's own product takes for as many tokens, and the copies.
TEST(ServingLatents, ProductsAreThoseOfNewTokens) {
  const Plan plan = latent_plan({});
  ServingModel model(plan);
  const int block = plan.network.chain[1];
  double own = 0;
  for (const Step& step : serving_steps(model.context(block, 8192))) {
    own += step.name == "kv_up" ? step.time.value() : 0.0;
  }
  ASSERT_GT(own, 0);
  const double layers = static_cast<double>(plan.network.spec.layers);
  const auto prompts = [&](std::int64_t done) {
    return model.cost(0, prompt(done, 1)).of(ServingPart::Prompt).value() / layers;
  };
  const double more = prompts(8192) - prompts(0);
  EXPECT_GT(more, own);
  EXPECT_LT(more, 3 * own);
}

// Eight of the longest requests, latents of 576, and 16 heads of 128 + 128 and of 192.
TEST(ServingLatents, TheirRoomIsNotTheCaches) {
  ServingOptions separate;
  separate.prefill = Prefill::Separate;
  ServingOptions found = separate;
  found.prefix_hits = 0.5;
  const auto memory = [](const ServingOptions& options, std::int64_t longest) {
    Plan plan = latent_plan(options);
    plan.sequence = longest;
    return ServingModel(plan).memory().front();
  };
  const double token = 2.0 * (576 + 16 * 256 + 16 * 192);
  for (const ServingOptions& options : {ServingOptions{}, found}) {
    const ServingMemory expanding = memory(options, 4096);
    EXPECT_GT(static_cast<double>(expanding.workspace.value()), 8 * 4096 * token);
  }
  EXPECT_LT(memory(found, 4096).kv_tokens, memory(separate, 4096).kv_tokens);
  // 65,536 tokens at most.
  EXPECT_EQ(memory({}, 8192).workspace, memory({}, 32768).workspace);
}

// Partial results of decoding are 512 latents of every head, those of prompts 128 values, and the
// sum of their scores in fp32.
TEST(ServingLatents, ContextRanksMergeLatentsOfDecodes) {
  const auto network = [](int cp, const Iteration& iteration) {
    Plan plan = latent_plan({}, 4, cp);
    return ServingModel(plan).cost(0, iteration).of(ServingPart::Network).value();
  };
  constexpr std::int64_t kTokens = 1024;
  const auto merging = [&](const Iteration& iteration) {
    return network(2, iteration) - network(1, iteration);
  };
  Iteration prompts = prompt(0, kTokens);
  prompts.sampled = kTokens;  // as many logits
  const double ratio = merging(decoding(kTokens, 2000)) / merging(prompts);
  EXPECT_GT(ratio, 2.5);
  EXPECT_LT(ratio, (512.0 * 2 + 4) / (128.0 * 2 + 4));
}

Plan windowed_plan(double host_cache, int cp = 1) {
  BlockPlan layout;
  layout.cp = cp;
  Plan plan = replicas_of("gpt-oss-20b", "hgx-h100:1", layout, 1, DType::Bf16);
  Serving serving = some_requests(16);
  serving.options.host_cache = host_cache;
  serve(plan, serving);
  return plan;
}

// Of layers with a window the keys in it come up from the host, of the others all.
TEST(ServingWindows, KeysBeyondTheWindowStayOnTheHost) {
  const Plan plan = windowed_plan(0.8);
  ServingModel model(plan);
  Iteration iteration = decoding(64, 16000);
  iteration.windowed_keys = 64 * 128;
  iteration.prompts = {{4000, 64}};
  const models::NetworkSpec& spec = plan.network.spec;
  int windowed = 0;
  for (const int block : plan.network.chain) {
    windowed += plan.network.blocks[static_cast<std::size_t>(block)].attention.window > 0 ? 1 : 0;
  }
  ASSERT_EQ(windowed, spec.layers / 2);
  const double keys =
      static_cast<double>(spec.layers - windowed) * (64 * 16000.0 + 4000) + windowed * 65 * 128.0;
  const double token = 2.0 * 2 * static_cast<double>(spec.kv_heads * spec.head_dim);
  const double link = tier_graph(plan.cluster, plan.profile).channels.front().bandwidth.value();
  EXPECT_NEAR(model.cost(0, iteration).time.value() / (0.8 * keys * token / link), 1, 1e-3);
}

// Mistral-7B sees 4,096 tokens: forty requests of four times as many hold a quarter of their
// tokens, and a chunk while a prompt is computed. Of Gemma-3's layers five of six see 1,024.
TEST(ServingWindows, CachesKeepWhatTheySee) {
  BlockPlan layout;
  Plan plan = replicas_of("mistral-7b", "hgx-h100:1", layout, 1, DType::Bf16);
  plan.dp = 1;
  Serving serving = some_requests(40);
  serving.requests.prompt = {16'384};
  serving.requests.output = {1000};
  serving.options.token_budget = 1024;
  serve(plan, serving);
  ServingModel model(plan);
  EXPECT_EQ(model.sliding_layers().window, 4096);
  EXPECT_EQ(model.sliding_layers().share, 1.0);
  EXPECT_EQ(model.sliding_layers().chunk, 1024);
  ASSERT_LT(model.memory().front().kv_tokens, 40 * 16'384);
  const std::int64_t peak = simulate_serving(plan).kv_peak;
  EXPECT_GE(peak, 40 * 4096 + 1024);
  EXPECT_LE(peak, 40 * 4096 + 2 * 1024);  // one prompt ends, the next begins
  const Plan gemma = replicas_of("gemma3-27b", "hgx-h100:1", layout, 1, DType::Bf16);
  Plan served = gemma;
  serve(served, serving);
  const SlidingLayers sliding = ServingModel(served).sliding_layers();
  EXPECT_EQ(sliding.window, 1024);
  EXPECT_NEAR(sliding.share, 52.0 / 62, 1e-12);
  serving.options.host_cache = 0.5;
  serve(served, serving);
  EXPECT_EQ(ServingModel(served).sliding_layers().share, 0);
}

// Requests of any length fit where all layers have windows, but not whole prompts nor prefixes
// that others use.
TEST(ServingWindows, WholePromptsAndPrefixesBoundRequests) {
  Plan plan = replicas_of("mistral-7b", "hgx-h100:1", BlockPlan(), 1, DType::Bf16);
  Serving serving = some_requests(4);
  serving.requests.prompt = {1'000'000};
  const auto fits = [&] {
    serve(plan, serving);
    return !simulate_serving(plan).does_not_fit.has_value();
  };
  EXPECT_TRUE(fits());
  serving.options.prefill = Prefill::Separate;
  EXPECT_FALSE(fits());
  serving.options.prefill = Prefill::Chunked;
  serving.requests.prompt = {100};
  serving.requests.prefixes = {1, 1'000'000};
  EXPECT_FALSE(fits());
}

// Two context ranks share the keys of a prompt: each sees half of every query's, not of the square.
TEST(ServingWindows, ContextRanksShareThePairsOfPrompts) {
  const Plan alone = windowed_plan(0);
  const Plan together = windowed_plan(0, 2);
  for (const std::int64_t done : {0, 8192}) {
    const double one =
        ServingModel(alone).cost(0, prompt(done, 8192)).of(ServingPart::Prompt).value();
    const double two =
        ServingModel(together).cost(0, prompt(done, 8192)).of(ServingPart::Prompt).value();
    EXPECT_GT(two / one, 0.45) << done;
    EXPECT_LT(two / one, 0.62) << done;
  }
}

// Logits that every rank gathers lie beside its own part of them.
TEST(ServingWorkspace, HoldsGatheredLogits) {
  Plan plan = replicas_of("llama3-8b", "hgx-h100:1", {.tp = 8}, 1, DType::Bf16);
  Serving serving = some_requests(16);
  serving.options.token_budget = serving.options.max_requests = 4096;
  serve(plan, serving);
  const double logits = 2.0 * 4096 * 128256;
  const ServingMemory gathered = ServingModel(plan).memory().front();
  EXPECT_NEAR(static_cast<double>(gathered.workspace.value()), logits * (1 + 1.0 / 8), 1);
}

}  // namespace
}  // namespace orrery::plan
