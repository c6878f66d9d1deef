// SPDX-License-Identifier: Apache-2.0
#include "plan/serving/simulate.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <utility>

#include "base/error.hpp"
#include "base/quantity_text.hpp"
#include "plan/heads.hpp"
#include "plan/serving/admission.hpp"
#include "plan/serving/routing.hpp"
#include "plan/stage/memory.hpp"

namespace orrery::plan {
namespace {

constexpr int kLargestTp = 64;         // that a hint suggests
constexpr Seconds kLongestLimit{1e6};  // a longer one is none: simulated time ends soon after

Percentiles percentiles(std::vector<double> values) {
  Percentiles result;
  if (values.empty()) {
    return result;
  }
  std::sort(values.begin(), values.end());
  double sum = 0;
  for (const double value : values) {
    sum += value;
  }
  const auto at = [&](double share) {
    const double rank = std::ceil(share * static_cast<double>(values.size()));
    return Seconds(values[static_cast<std::size_t>(std::max(1.0, rank)) - 1]);
  };
  result.mean = Seconds(sum / static_cast<double>(values.size()));
  result.p50 = at(0.5);
  result.p90 = at(0.9);
  result.p99 = at(0.99);
  result.count = static_cast<std::int64_t>(values.size());
  return result;
}

std::int64_t least_kv_tokens(const std::vector<ServingMemory>& memory) {
  std::int64_t tokens = memory.front().kv_tokens;
  for (const ServingMemory& stage : memory) {
    tokens = std::min(tokens, stage.kv_tokens);
  }
  return tokens;
}

std::int64_t longest_request(const std::vector<ServingMemory>& memory) {
  std::int64_t tokens = memory.front().longest_request;
  for (const ServingMemory& stage : memory) {
    tokens = std::min(tokens, stage.longest_request);
  }
  return tokens;
}

// Experts over more of the ranks that there are, if the cache then holds the longest request.
std::string wider_experts(const Plan& plan, std::int64_t longest) {
  const BlockPlan& layout = plan.blocks.front().layout;
  const int ranks = layout.tp * plan.dp;
  const std::int64_t experts = plan.network.spec.moe.experts;
  for (int ep = std::max(2, 2 * layout.ep); ep <= ranks && layout.cp == 1; ep *= 2) {
    if (experts % ep != 0 || ranks % ep != 0 || ep % layout.tp != 0) {
      continue;
    }
    Plan wider = plan;
    for (BlockRun& run : wider.blocks) {
      run.layout.ep = ep;
      run.layout.expert_tp = layout.tp > 1 ? 1 : layout.expert_tp;
    }
    if (longest_request(ServingModel(wider).memory()) >= longest) {
      return fmt::format("ep = {} would hold all of them", ep);
    }
  }
  return "";
}

// Whole prompts of an iteration have larger activations than parts of them.
bool holds_in_chunks(const Plan& plan, std::int64_t longest) {
  if (plan.serving->options.prefill == Prefill::Chunked) {
    return false;
  }
  Plan chunked = plan;
  Serving serving = *plan.serving;
  serving.options.prefill = Prefill::Chunked;
  chunked.serving = std::make_shared<const Serving>(std::move(serving));
  return longest_request(ServingModel(chunked).memory()) >= longest;
}

// Prompts in chunks, or the smallest larger ep, or tp, whose shards divide, with a cache that holds
// the longest request.
std::string nearest_change(const Plan& plan, std::int64_t longest, std::int64_t fitting) {
  if (fitting >= longest) {
    return "its nodes lack room, not its devices: more blocks on the device or on disk, or more "
           "nodes";
  }
  if (holds_in_chunks(plan, longest)) {
    return "prefill = chunked would hold all of them";
  }
  std::string text;
  if (fitting > 0) {
    text = fmt::format("requests of at most {} tokens fit", fitting);
  }
  if (const std::string experts = wider_experts(plan, longest); !experts.empty()) {
    return text.empty() ? experts : fmt::format("{}; {}", text, experts);
  }
  for (int tp = 2 * plan.blocks.front().layout.tp; tp <= kLargestTp; tp *= 2) {
    if (!cuts_evenly(plan.network.spec, tp, plan.blocks.front().layout.expert_tp == 1)) {
      continue;
    }
    Plan wider = plan;
    for (BlockRun& run : wider.blocks) {
      run.layout.tp = tp;
    }
    if (longest_request(ServingModel(wider).memory()) >= longest) {
      const int gpus = tp * plan.pp * plan.blocks.front().layout.cp;
      const std::string where =
          gpus > plan.cluster.num_gpus() ? fmt::format(" on {} GPUs or more", gpus) : std::string();
      return fmt::format("{}{}tp = {}{} would hold all of them", text, text.empty() ? "" : "; ", tp,
                         where);
    }
  }
  return text.empty() ? "use a GPU with more memory or more pipeline stages" : text;
}

// What the nodes hold of the parameters; devices are judged apart.
std::vector<StageMemory> beside_devices(const std::vector<ServingMemory>& memory) {
  std::vector<StageMemory> stages(memory.size());
  for (std::size_t stage = 0; stage < memory.size(); ++stage) {
    stages[stage].host = memory[stage].host_parameters;
    stages[stage].disk = memory[stage].disk_parameters;
  }
  return stages;
}

// Sums of what the replicas did.
struct Totals {
  std::vector<double> first_token;
  std::vector<double> per_token;
  std::vector<double> latency;
  SimTime makespan;
  std::int64_t computed = 0;
  double kv_waste_seconds = 0;
};

void add_run(const BatchRun& run, ServingSimulation& result, Totals& totals) {
  for (const ServedRequest& served : run.requests) {
    const auto since = [](SimTime start, SimTime end) { return to_seconds(end - start).value(); };
    const Request& request = served.request;
    result.prompt_tokens += request.prompt;
    result.output_tokens += request.output;
    totals.first_token.push_back(since(request.arrival, served.first_token));
    totals.latency.push_back(since(request.arrival, served.finished));
    if (request.output > 1) {
      totals.per_token.push_back(since(served.first_token, served.finished) /
                                 static_cast<double>(request.output - 1));
    }
  }
  totals.makespan = std::max(totals.makespan, run.makespan);
  totals.computed += run.prefilled + run.decoded;
  totals.kv_waste_seconds += run.kv_waste_seconds;
  result.kv_token_seconds += run.kv_token_seconds;
  result.kv_peak = std::max(result.kv_peak, run.kv_peak);
  result.iterations += run.iterations;
  result.evictions += run.evictions;
  result.repeated_tokens += run.repeated;
  result.found_tokens += run.found;
  for (const SimTime busy : run.busy) {
    result.busy += to_seconds(busy);
  }
}

void fill_cache(const Plan& plan, ServingSimulation& result) {
  const auto capacity = static_cast<double>(least_kv_tokens(result.memory));
  result.kv_peak_fraction = static_cast<double>(result.kv_peak) / capacity;
  // A cache that is as full all the time has its peak as mean, whatever the sum over time rounds
  // to.
  result.kv_mean_fraction =
      std::min(result.kv_token_seconds / (capacity * result.makespan.value() * plan.dp),
               result.kv_peak_fraction);
}

void finish(const Plan& plan, Totals totals, ServingSimulation& result) {
  result.makespan = to_seconds(totals.makespan);
  const double seconds = result.makespan.value();
  const double tokens = static_cast<double>(result.prompt_tokens + result.output_tokens);
  result.requests_per_second = static_cast<double>(result.requests) / seconds;
  result.tokens_per_second = tokens / seconds;
  result.output_tokens_per_second = static_cast<double>(result.output_tokens) / seconds;
  result.tokens_per_second_per_gpu = result.tokens_per_second / plan.num_gpus();
  result.first_token = percentiles(std::move(totals.first_token));
  result.per_output_token = percentiles(std::move(totals.per_token));
  result.latency = percentiles(std::move(totals.latency));
  result.kv_waste_fraction = totals.kv_waste_seconds / std::max(result.kv_token_seconds, 1e-30);
  fill_cache(plan, result);
  result.tokens_per_iteration =
      static_cast<double>(totals.computed) / static_cast<double>(result.iterations);
  const double parts = static_cast<double>(plan.dp) * plan.pp;
  result.busy = result.busy / parts;
  for (Seconds& part : result.parts) {
    part = part / parts;
  }
}

}  // namespace

ServingVerdict serving_fits(const std::vector<ServingMemory>& memory, std::int64_t longest,
                            const Plan& plan) {
  for (std::size_t stage = 0; stage < memory.size(); ++stage) {
    const ServingMemory& of = memory[stage];
    if (of.cache <= ByteCount()) {
      const ByteCount needed = plan.cluster.gpu.memory - plan.memory_reserve - of.cache;
      return {false,
              fmt::format("stage {} needs {} for parameters ({}), activations ({}) and the "
                          "runtime, but the {} has {} to give",
                          stage, format_bytes(needed.bytes()), format_bytes(of.parameters.bytes()),
                          format_bytes(of.workspace.bytes()), plan.cluster.gpu.name,
                          format_bytes((plan.cluster.gpu.memory - plan.memory_reserve).bytes()))};
    }
    if (of.longest_request < longest) {
      return {false,
              fmt::format("the KV cache of stage {} holds {} tokens, but the longest request "
                          "has {}",
                          stage, of.kv_tokens, longest)};
    }
  }
  const MemoryVerdict nodes = memory_verdict(plan, beside_devices(memory));
  return {nodes.fits, nodes.text};
}

// Requests in turn load the replicas as they are dealt; else, and where replicas compute in step,
// the fullest has at least the mean.
Seconds serving_bound(const Plan& plan, ServingModel& model, const std::vector<Request>& requests) {
  const bool dealt = plan.serving->options.routing == Routing::InTurn && model.replicas() == 1;
  const std::int64_t parts = dealt ? plan.dp : 1;
  std::vector<std::int64_t> tokens(static_cast<std::size_t>(parts));
  std::vector<std::int64_t> keys(tokens.size());
  for (std::size_t index = 0; index < requests.size(); ++index) {
    const Request& request = requests[index];
    const std::int64_t decodes = request.output - 1;
    const std::int64_t found =
        std::max(prefix_hits(plan.serving->options, request),
                 request.prefix < 0 ? 0 : std::min(request.shared, request.prompt - 1));
    tokens[index % tokens.size()] += request.prompt - found + decodes;
    keys[index % tokens.size()] += decodes * request.prompt + decodes * (decodes + 1) / 2;
  }
  std::int64_t most = 0;  // tokens of a request, each of an iteration of its own
  for (const Request& request : requests) {
    most = std::max(most, request.output);
  }
  Seconds bound = model.fetch_bound() * static_cast<double>(most);
  for (std::size_t part = 0; part < tokens.size(); ++part) {
    const std::int64_t among = dealt ? 1 : plan.dp;
    bound = std::max(bound, model.busy_bound(tokens[part] / among, keys[part] / among));
  }
  return bound;
}

std::optional<ServingRun> serving_run_like(const ServingRun& run, const Plan& plan,
                                           ServingModel& model) {
  std::vector<ServingMemory> memory = model.memory();
  if (!run.simulation || run.lacked_requests || run.lacked_cache ||
      run.kv_wanted > least_kv_tokens(memory)) {
    return std::nullopt;
  }
  ServingRun like = run;
  like.simulation->memory = std::move(memory);
  fill_cache(plan, *like.simulation);
  return like;
}

namespace {

struct Asked {
  Seconds limit{std::numeric_limits<double>::infinity()};
  std::function<bool()> stop{};
  ServedObserver observe{};
};

ServingRun run_serving(const Plan& plan, ServingModel& model, const std::vector<Request>& requests,
                       const Asked& asked) {
  ServingRun done;
  ServingSimulation result;
  result.requests = static_cast<std::int64_t>(requests.size());
  result.memory = model.memory();
  const std::int64_t longest = longest_request(requests);
  const std::int64_t kv_tokens = least_kv_tokens(result.memory);
  if (const ServingVerdict verdict = serving_fits(result.memory, longest, plan); !verdict.fits) {
    result.does_not_fit = verdict.text;
    result.nearest = nearest_change(plan, longest, longest_request(result.memory));
    done.simulation = std::move(result);
    return done;
  }
  BatchEngine engine;
  engine.stages = model.num_stages();
  engine.kv_tokens = kv_tokens;
  engine.sliding = model.sliding_layers();
  engine.replicas = model.replicas();
  engine.time_in_step = [&](int stage, std::span<const Iteration> iterations) {
    const IterationCost cost = model.cost(stage, iterations);
    for (std::size_t part = 0; part < kNumServingParts; ++part) {
      result.parts[part] += cost.parts[part] * static_cast<double>(engine.replicas);
    }
    return to_sim_time(cost.time);
  };
  engine.time = [&](int stage, const Iteration& iteration) {
    return engine.time_in_step(stage, std::span(&iteration, 1));
  };
  engine.transfer = [&](int stage, const Iteration& iteration) {
    return to_sim_time(model.transfer(stage, iteration));
  };
  if (asked.limit < kLongestLimit) {
    engine.give_up = to_sim_time(asked.limit) + SimTime{1};  // rounded
  }
  engine.stop = asked.stop;
  Totals totals;
  int replica = 0;
  for (const BatchRun& run : run_routed(requests, plan.serving->options, engine, plan.dp)) {
    if (run.gave_up) {
      return {};
    }
    done.lacked_requests = done.lacked_requests || run.lacked_requests;
    done.lacked_cache = done.lacked_cache || run.lacked_cache;
    done.kv_wanted = std::max(done.kv_wanted, run.kv_wanted);
    add_run(run, result, totals);  // without requests it may have been busy with the experts' part
    for (const ServedRequest& served : run.requests) {
      if (asked.observe) {
        asked.observe(replica, served);
      }
    }
    ++replica;
  }
  finish(plan, std::move(totals), result);
  const double peak = plan.cluster.gpu.peak_of(plan.precision).value();
  result.optimal_tokens_per_second_per_gpu =
      peak / (2.0 * static_cast<double>(models::num_active_parameters(plan.network)));
  done.simulation = std::move(result);
  return done;
}

}  // namespace

ServingSimulation simulate_serving(const Plan& plan, const ServedObserver& observe) {
  ORRERY_CHECK(plan.serving, "not a serving plan");
  ServingModel model(plan);
  const std::vector<Request> requests = generate_requests(plan.serving->requests);
  return *run_serving(plan, model, requests, {.observe = observe}).simulation;
}

ServingSimulation simulate_serving(const Plan& plan, ServingModel& model,
                                   const std::vector<Request>& requests) {
  return *run_serving(plan, model, requests, {}).simulation;
}

ServingRun simulate_serving_within(Seconds limit, const Plan& plan, ServingModel& model,
                                   const std::vector<Request>& requests,
                                   const std::function<bool()>& stop) {
  return run_serving(plan, model, requests, {.limit = limit, .stop = stop});
}

}  // namespace orrery::plan
