// SPDX-License-Identifier: Apache-2.0
// Serving plans: costs and cache of an iteration against closed forms, documents, percentiles, and
// plans that do not fit.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <limits>

#include "base/error.hpp"
#include "tests/unit/plan/serving_fixture.hpp"

namespace orrery::plan {
namespace {

using ::testing::HasSubstr;

Plan served_plan(const std::string& network, const std::string& cluster, int tp, int pp = 1) {
  BlockPlan layout;
  layout.tp = tp;
  Plan plan = replicas_of(network, cluster, layout, pp, DType::Fp16);
  serve(plan, some_requests(40));
  return plan;
}

Plan with(const Plan& plan, const std::function<void(Serving&)>& change) {
  Plan changed = plan;
  Serving serving = *plan.serving;
  change(serving);
  serve(changed, serving);
  return changed;
}

// Llama-2-70B caches 2 x 80 x 8 x 128 x 2 bytes a token (NanoFlow, section 3), an eighth on each of
// eight GPUs.
TEST(ServingMemory, CountsTheCacheAndTheParameters) {
  const Plan plan = served_plan("llama2-70b", "dgx-a100:1", 8);
  const std::vector<ServingMemory> memory = ServingModel(plan).memory();
  ASSERT_EQ(memory.size(), 1u);
  EXPECT_EQ(memory[0].kv_per_token.value(), 327'680 / 8);
  const double parameters = static_cast<double>(models::num_parameters(plan.network)) * 2 / 8;
  EXPECT_NEAR(memory[0].parameters.bytes().value(), parameters, 0.002 * parameters);
  const ByteCount sum = memory[0].parameters + memory[0].workspace + memory[0].communication +
                        memory[0].context + memory[0].cache;
  EXPECT_EQ(sum, plan.cluster.gpu.memory);
  EXPECT_EQ(memory[0].kv_tokens, memory[0].cache.value() / 40'960);
}

TEST(ServingMemory, StagesShareTheCache) {
  const auto whole = ServingModel(served_plan("llama3-8b", "hgx-h100:1", 1)).memory();
  const auto halves = ServingModel(served_plan("llama3-8b", "hgx-h100:1", 1, 2)).memory();
  ASSERT_EQ(halves.size(), 2u);
  EXPECT_EQ(halves[0].kv_per_token + halves[1].kv_per_token, whole[0].kv_per_token);
  EXPECT_EQ(halves[0].parameters + halves[1].parameters, whole[0].parameters);
}

// KV heads that tp exceeds are held by several ranks.
TEST(ServingMemory, GroupedHeadsAreReplicatedBeyondTheirNumber) {
  const auto eight = ServingModel(served_plan("llama3-8b", "hgx-h100:2", 8)).memory();
  const auto sixteen = ServingModel(served_plan("llama3-8b", "hgx-h100:2", 16)).memory();
  EXPECT_EQ(eight[0].kv_per_token, sixteen[0].kv_per_token);
}

// A latent cache holds 512 + 64 elements a layer on every rank (DeepSeek-V2).
TEST(ServingMemory, LatentAttentionCachesItsLatents) {
  const Plan plan = served_plan("deepseek-v2-lite", "hgx-h100:1", 8);
  EXPECT_EQ(ServingModel(plan).memory()[0].kv_per_token.value(),
            plan.network.spec.layers * (512 + 64) * 2);
}

// Decode attention is bound by the bytes of the cache it reads.
TEST(ServingCost, DecodeAttentionReadsTheCache) {
  const Plan plan = served_plan("llama2-70b", "dgx-a100:1", 8);
  ServingModel model(plan);
  const Seconds one = model.cost(0, decoding(256, 1000)).of(ServingPart::Decode);
  const Seconds two = model.cost(0, decoding(256, 2000)).of(ServingPart::Decode);
  const double more = 256.0 * 1000 * 327'680 / 8;
  const double bandwidth = plan.cluster.gpu.hbm_bandwidth.value();
  const double share =
      plan.profile.memory.fraction[static_cast<std::size_t>(costmodel::MemoryKernel::Copy)];
  EXPECT_NEAR((two - one).value(), more / (bandwidth * share), 1e-9);
  EXPECT_EQ(model.cost(0, decoding(256, 1000)).of(ServingPart::Prompt).value(), 0);
}

// Few tokens: reading the weights takes most of the time, whatever the number of requests.
TEST(ServingCost, SmallIterationsAreBoundByTheWeights) {
  const Plan plan = served_plan("llama2-70b", "dgx-a100:1", 8);
  ServingModel model(plan);
  const double least = static_cast<double>(models::num_parameters(plan.network)) * 2 / 8 /
                       plan.cluster.gpu.hbm_bandwidth.value();
  const Seconds one = model.cost(0, decoding(1, 100)).of(ServingPart::Gemm);
  const Seconds sixteen = model.cost(0, decoding(16, 100)).of(ServingPart::Gemm);
  EXPECT_GT(one.value(), 0.95 * least);
  EXPECT_LT(one.value(), 1.7 * least);
  EXPECT_LT(sixteen.value(), 1.3 * one.value());
}

// Two all-reduces a layer, one behind the embedding, and the gather of the sampled logits.
TEST(ServingCost, TensorParallelismSendsWhatTheRulesDerive) {
  const Plan plan = served_plan("llama2-70b", "dgx-a100:1", 8);
  ServingModel model(plan);
  const costmodel::CollectiveModel collectives(plan.cluster, plan.profile);
  const costmodel::GroupShape group = costmodel::make_group(8, 1, 8);
  const Iteration iteration = decoding(128, 500);
  const Seconds reduce = collectives.time(sim::CommKind::AllReduce, Bytes(128.0 * 8192 * 2), group);
  const Seconds gather =
      collectives.time(sim::CommKind::AllGather, Bytes(128.0 * 32000 * 2), group);
  EXPECT_NEAR(model.cost(0, iteration).of(ServingPart::Network).value(),
              (reduce * 161.0 + gather).value(), 1e-9);
}

// Chunks of a prompt do the work of the whole prompt: the pairs add up.
TEST(ServingCost, ChunksOfAPromptAddUp) {
  const Plan plan = served_plan("llama3-8b", "hgx-h100:1", 1);
  ServingModel model(plan);
  const auto prompt = [&](std::int64_t done, std::int64_t tokens) {
    Iteration iteration;
    iteration.prompts = {{done, tokens}};
    return model.cost(0, iteration).of(ServingPart::Prompt).value();
  };
  const double whole = prompt(0, 16'384);
  const double chunks =
      prompt(0, 4096) + prompt(4096, 4096) + prompt(8192, 4096) + prompt(12'288, 4096);
  EXPECT_GT(chunks, 0.9 * whole);
  EXPECT_LT(chunks, 1.6 * whole);
}

TEST(ServingCost, NanoBatchesPayInGemmsAndGainByOverlap) {
  const Plan plan = served_plan("llama2-70b", "dgx-a100:1", 8);
  const Plan nano = with(plan, [](Serving& serving) { serving.options.nano_batches = 2; });
  Iteration iteration = decoding(1024, 800);
  iteration.prompts = {{0, 512}, {0, 512}};
  const IterationCost in_turn = ServingModel(plan).cost(0, iteration);
  const IterationCost shared = ServingModel(nano).cost(0, iteration);
  EXPECT_GE(shared.of(ServingPart::Gemm), in_turn.of(ServingPart::Gemm));
  EXPECT_GE(shared.time, shared.of(ServingPart::Gemm) + shared.of(ServingPart::Other));
  EXPECT_LT(shared.time, in_turn.time);
  // Fewer than two nano-batches of 128 tokens: nothing to overlap.
  EXPECT_EQ(ServingModel(nano).cost(0, decoding(255, 800)).time,
            ServingModel(plan).cost(0, decoding(255, 800)).time);
}

TEST(ServingSimulation, PlanDocumentsReproduceTheResult) {
  Plan plan = served_plan("llama3-8b", "hgx-h100:1", 2, 2);
  plan = with(plan, [](Serving& serving) {
    serving.requests.arrivals = Arrivals::Poisson;
    serving.requests.requests_per_second = 30;
    serving.requests.seed = 5;
    serving.options.chunk = 128;
  });
  check_plan(plan, "test");
  const Plan again = read_plan(to_json(plan), "plan");
  ASSERT_TRUE(again.serving);
  EXPECT_EQ(*again.serving, *plan.serving);
  EXPECT_EQ(to_json(simulate_serving(again)).dump(), to_json(simulate_serving(plan)).dump());
}

// What the observer sees is what is counted: nearest-rank percentiles, and Little's law: requests
// in the system over time, counted event by event, are arrivals a second times mean latency.
TEST(ServingSimulation, PercentilesAreThoseOfTheRequests) {
  Plan plan = served_plan("llama3-8b", "hgx-h100:1", 2);
  plan = with(plan, [](Serving& serving) {
    serving.requests.arrivals = Arrivals::Poisson;
    serving.requests.requests_per_second = 50;
  });
  std::vector<double> latencies;
  std::vector<std::pair<SimTime, int>> events;
  std::array<std::int64_t, 4> of_replica{};
  const ServingSimulation simulation =
      simulate_serving(plan, [&](int replica, const ServedRequest& served) {
        EXPECT_LE(served.request.arrival, served.admitted);
        EXPECT_LT(served.admitted, served.first_token);
        EXPECT_LE(served.first_token, served.finished);
        latencies.push_back(to_seconds(served.finished - served.request.arrival).value());
        events.emplace_back(served.request.arrival, 1);
        events.emplace_back(served.finished, -1);
        ++of_replica.at(static_cast<std::size_t>(replica));
      });
  ASSERT_EQ(static_cast<std::int64_t>(latencies.size()), simulation.requests);
  EXPECT_THAT(of_replica, ::testing::Each(simulation.requests / 4));  // in turn
  std::sort(events.begin(), events.end());
  double request_seconds = 0;
  int inside = 0;
  SimTime last;
  for (const auto& [time, change] : events) {
    request_seconds += inside * to_seconds(time - last).value();
    inside += change;
    last = time;
  }
  EXPECT_EQ(to_seconds(last), simulation.makespan);
  EXPECT_NEAR(request_seconds / simulation.makespan.value(),
              simulation.requests_per_second * simulation.latency.mean.value(), 1e-9);
  std::sort(latencies.begin(), latencies.end());
  const auto nearest_rank = [&](double share) {
    const double rank = std::ceil(share * static_cast<double>(latencies.size()));
    return Seconds(latencies[static_cast<std::size_t>(rank) - 1]);
  };
  EXPECT_EQ(simulation.latency.p50, nearest_rank(0.5));
  EXPECT_EQ(simulation.latency.p90, nearest_rank(0.9));
  EXPECT_EQ(simulation.latency.p99, nearest_rank(0.99));
}

// Whichever replica is then under way.
TEST(ServingSimulation, StopsWithoutHalfAResult) {
  for (const Routing routing : {Routing::InTurn, Routing::LeastLoaded}) {
    const Plan plan = with(served_plan("llama3-8b", "hgx-h100:1", 2), [&](Serving& serving) {
      serving.options.routing = routing;
      serving.requests.count = 400;
      serving.requests.arrivals = Arrivals::Poisson;
      serving.requests.requests_per_second = 50;
    });
    ServingModel model(plan);
    const std::vector<Request> requests = generate_requests(plan.serving->requests);
    int asked = 0;
    const auto stopped_after = [&](int times) {
      asked = 0;
      return simulate_serving_within(Seconds(1e9), plan, model, requests,
                                     [&asked, times] { return ++asked > times; });
    };
    const ServingRun whole = stopped_after(std::numeric_limits<int>::max());
    ASSERT_TRUE(whole.simulation);
    EXPECT_EQ(to_json(*whole.simulation).dump(), to_json(simulate_serving(plan)).dump());
    ASSERT_GT(asked, plan.dp);
    for (const int times : {0, asked / 2, asked - 1}) {
      EXPECT_FALSE(stopped_after(times).simulation) << times;
      EXPECT_LE(asked, times + plan.dp);  // each replica once more
    }
  }
}

TEST(ServingSimulation, CountsTokensAndOrdersPercentiles) {
  const Plan plan = served_plan("llama3-8b", "hgx-h100:1", 2);
  const ServingSimulation simulation = simulate_serving(plan);
  std::int64_t prompts = 0;
  std::int64_t outputs = 0;
  for (const Request& request : generate_requests(plan.serving->requests)) {
    prompts += request.prompt;
    outputs += request.output;
  }
  EXPECT_EQ(simulation.prompt_tokens, prompts);
  EXPECT_EQ(simulation.output_tokens, outputs);
  const double tokens = static_cast<double>(prompts + outputs);
  EXPECT_DOUBLE_EQ(simulation.tokens_per_second_per_gpu, tokens / simulation.makespan.value() / 8);
  for (const Percentiles& values :
       {simulation.first_token, simulation.per_output_token, simulation.latency}) {
    EXPECT_LE(values.p50, values.p90);
    EXPECT_LE(values.p90, values.p99);
    EXPECT_GT(values.mean.value(), 0);
  }
  EXPECT_LT(simulation.tokens_per_second_per_gpu, simulation.optimal_tokens_per_second_per_gpu);
  EXPECT_LE(simulation.kv_peak_fraction, 1);
}

// There is no time between the tokens of requests that have one.
TEST(ServingSimulation, OneTokenHasNoTimePerToken) {
  Plan plan = replicas_of("llama3-8b", "hgx-h100:1", {}, 1, DType::Bf16);
  Serving serving = some_requests(8);
  serving.requests.output = {1};
  serve(plan, serving);
  const ServingSimulation simulation = simulate_serving(plan);
  ASSERT_FALSE(simulation.does_not_fit);
  EXPECT_EQ(simulation.per_output_token.count, 0);
  EXPECT_EQ(simulation.latency.count, 8);
  const Json document = to_json(simulation);
  EXPECT_TRUE(document.find("time_per_output_token_s")->is_null());
  EXPECT_FALSE(document.find("request_latency_s")->is_null());
}

// One scheduler for all stages of a replica.
TEST(ServingCost, TheHostStartsAnIterationOnce) {
  Plan plan = replicas_of("llama3-8b", "hgx-h100:1", {}, 4, DType::Bf16);
  Serving serving = some_requests(8);
  serve(plan, serving);
  ServingModel free(plan);
  serving.options.host_per_iteration = Seconds(0.25);
  serve(plan, serving);
  ServingModel hosted(plan);
  const std::vector<Iteration> one = {decoding(8, 500)};
  Seconds host;
  for (int stage = 0; stage < 4; ++stage) {
    host += hosted.cost(stage, one).time - free.cost(stage, one).time;
  }
  EXPECT_NEAR(host.value(), 0.25, 1e-9);
}

TEST(ServingSimulation, ReplicasAreIndependent) {
  const auto constant = [](Serving& serving) {
    serving.requests.prompt = {200, 0, 0};
    serving.requests.output = {30, 0, 0};
    serving.requests.count = 64;
  };
  const auto twice = [](Serving& serving) { serving.requests.count = 128; };
  const Plan one = with(served_plan("llama3-8b", "hgx-h100:1", 8), constant);
  const Plan two = with(with(served_plan("llama3-8b", "hgx-h100:2", 8), constant), twice);
  EXPECT_EQ(simulate_serving(one).makespan, simulate_serving(two).makespan);
}

TEST(ServingSimulation, NeverFasterThanItsBound) {
  for (const int tp : {1, 4, 8}) {
    for (const int nano : {1, 2}) {
      const Plan plan = with(served_plan("mixtral-8x7b", "hgx-h100:1", tp == 1 ? 2 : tp),
                             [&](Serving& serving) { serving.options.nano_batches = nano; });
      ServingModel model(plan);
      const std::vector<Request> requests = generate_requests(plan.serving->requests);
      const Seconds bound = serving_bound(plan, model, requests);
      EXPECT_GT(bound.value(), 0);
      EXPECT_LE(bound, simulate_serving(plan, model, requests).makespan);
    }
  }
}

// A run in which no request waited for max_requests is that of a plan with more of them, but for
// the share of the cache that is left beside larger logits.
TEST(ServingSimulation, MoreRequestsThanAreEverThereChangeNothing) {
  const auto up_to = [](std::int64_t requests) {
    return with(served_plan("llama3-8b", "hgx-h100:1", 2), [&](Serving& serving) {
      serving.options.token_budget = 2048;
      serving.options.max_requests = requests;
    });
  };
  const auto run_of = [](const Plan& plan, ServingModel& model) {
    return simulate_serving_within(Seconds(1e9), plan, model,
                                   generate_requests(plan.serving->requests));
  };
  const Plan more = up_to(2048);
  ServingModel model(more);
  const Plan enough = up_to(40);
  ServingModel enough_model(enough);
  const auto same = serving_run_like(run_of(enough, enough_model), more, model);
  ASSERT_TRUE(same && same->simulation);
  EXPECT_NE(model.memory().front().kv_tokens, enough_model.memory().front().kv_tokens);
  EXPECT_EQ(to_json(*same->simulation).dump(), to_json(simulate_serving(more)).dump());
  const Plan few = up_to(2);
  ServingModel few_model(few);
  EXPECT_FALSE(serving_run_like(run_of(few, few_model), more, model));
}

// Another thread's model has the same costs.
TEST(ServingSimulation, IsTheSameOnAnotherThread) {
  const Plan plan = served_plan("llama3-8b", "hgx-h100:1", 2);
  const ServingModel first(plan);
  ServingModel other = first.on_another_thread();
  const std::vector<Request> requests = generate_requests(plan.serving->requests);
  EXPECT_EQ(to_json(simulate_serving(plan, other, requests)).dump(),
            to_json(simulate_serving(plan)).dump());
}

TEST(ServingSimulation, SaysWhatDoesNotFitAndWhatWould) {
  const ServingSimulation one = simulate_serving(served_plan("llama2-70b", "dgx-a100:1", 1));
  ASSERT_TRUE(one.does_not_fit);
  EXPECT_THAT(*one.does_not_fit, HasSubstr("stage 0 needs"));
  EXPECT_EQ(one.nearest, "tp = 2 would hold all of them");
  const Plan long_requests = with(served_plan("llama2-70b", "dgx-a100:1", 2), [](Serving& serving) {
    serving.requests.prompt = {400'000, 0, 0};
  });
  const ServingSimulation two = simulate_serving(long_requests);
  ASSERT_TRUE(two.does_not_fit);
  EXPECT_THAT(*two.does_not_fit, HasSubstr("but the longest request has 400"));
  EXPECT_THAT(two.nearest, HasSubstr("tokens fit; tp = 4 would hold all of them"));
  const Plan whole = with(served_plan("llama2-70b", "dgx-a100:1", 8), [](Serving& serving) {
    serving.requests.prompt = {1'000'000, 0, 0};
    serving.options.prefill = Prefill::Separate;
  });
  EXPECT_EQ(simulate_serving(whole).nearest, "prefill = chunked would hold all of them");
}

TEST(ServingPlan, ChecksWhatServingCannotDo) {
  const auto error_of = [](Plan plan) {
    try {
      check_plan(plan, "plan");
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("no error");
  };
  Plan plan = served_plan("llama3-8b", "hgx-h100:1", 2);
  EXPECT_EQ(error_of(plan), "no error");
  Plan zero = plan;
  zero.blocks.front().layout.zero_stage = 3;
  EXPECT_THAT(error_of(zero), HasSubstr("zero_stage = 0"));
  EXPECT_THAT(error_of(with(plan, [](Serving& serving) { serving.options.token_budget = 16; })),
              HasSubstr("max_requests = 256 exceeds token_budget = 16"));
  EXPECT_THAT(error_of(served_plan("bert-large", "hgx-h100:1", 2)),
              HasSubstr("does not generate text"));
  Plan odd = plan;
  odd.blocks.front().layout.tp = 4;
  EXPECT_THAT(error_of(odd), HasSubstr("tp x cp x dp x pp"));
}

}  // namespace
}  // namespace orrery::plan
