// SPDX-License-Identifier: Apache-2.0
#include "search/serving_search.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <memory>

#include "base/error.hpp"
#include "base/interrupt.hpp"
#include "base/limits.hpp"
#include "base/math.hpp"
#include "base/quantity_text.hpp"
#include "base/text.hpp"

namespace orrery::search {
namespace {

using plan::Plan;
using plan::Prefill;
using plan::ServingModel;
using plan::ServingOptions;

constexpr std::array<std::int64_t, 5> kBudgets = {512, 1024, 2048, 4096, 8192};
constexpr std::array<std::int64_t, 2> kRequests = {256, 1024};
constexpr std::array<int, 2> kNanoBatches = {1, 2};

struct Candidate {
  Plan plan;
  Seconds bound;
};

std::vector<std::int64_t> values_of(const ServingSearch& search, const std::string& field,
                                    std::vector<std::int64_t> usual) {
  const auto fixed = search.fixed.find(field);
  if (fixed == search.fixed.end()) {
    return usual;
  }
  std::vector<std::int64_t> values;
  for (const std::string& value : fixed->second) {
    values.push_back(parse_integer(value, "--fix " + field, 0, limits::kMaxSequence));
  }
  return values;
}

// Shares between 0 and 1; one that is not fixed is none.
std::vector<double> shares_of(const ServingSearch& search, const std::string& field) {
  const auto fixed = search.fixed.find(field);
  std::vector<double> shares;
  if (fixed != search.fixed.end()) {
    for (const std::string& value : fixed->second) {
      shares.push_back(parse_number(value, "--fix " + field, 0, 1));
    }
  }
  return shares.empty() ? std::vector<double>{0} : shares;
}

std::vector<Prefill> prefills_of(const ServingSearch& search) {
  const auto fixed = search.fixed.find("prefill");
  if (fixed == search.fixed.end()) {
    return {Prefill::Chunked, Prefill::Separate};
  }
  std::vector<Prefill> prefills;
  for (const std::string& value : fixed->second) {
    prefills.push_back(value == "chunked" ? Prefill::Chunked : Prefill::Separate);
  }
  return prefills;
}

// Why a layout is not possible at all; empty: it is.
std::string broken(const Plan& plan) {
  try {
    plan::check_plan(plan, "serving plan");
    return {};
  } catch (const Error& error) {
    return error.what();
  }
}

// Experts in every rank of a replica, or spread over its ranks, those of a node, or all of a stage.
std::vector<std::int64_t> expert_degrees(const Plan& base, const ServingSearch& search,
                                         std::int64_t tp, std::int64_t dp) {
  const std::int64_t experts = base.network.spec.moe.experts;
  std::vector<std::int64_t> usual = {1};
  for (const std::int64_t ep : {tp, std::int64_t{base.cluster.node.gpus}, tp * dp}) {
    if (ep > usual.back() && ep <= tp * dp && experts % ep == 0 && ep % tp == 0 &&
        tp * dp % ep == 0) {
      usual.push_back(ep);
    }
  }
  return values_of(search, "ep", usual);
}

// Which replica gets a request: in turn, and where prompts begin alike by what replicas hold.
std::vector<plan::Routing> routings_of(const Plan& plan, const ServingSearch& search,
                                       bool has_prefixes) {
  if (plan.dp == 1) {
    return {plan::Routing::InTurn};
  }
  const auto fixed = search.fixed.find("routing");
  if (fixed == search.fixed.end()) {
    return has_prefixes ? std::vector{plan::Routing::InTurn, plan::Routing::Prefix}
                        : std::vector{plan::Routing::InTurn};
  }
  std::vector<plan::Routing> routings;
  for (const std::string& value : fixed->second) {
    routings.push_back(plan::routing_of(value));
  }
  return routings;
}

struct Degrees {
  std::int64_t tp;
  std::int64_t cp;
  std::int64_t ep;
  std::int64_t pp;
  std::int64_t dp;
};

void add_layout(const Plan& base, const Degrees& degrees, std::vector<Plan>& plans,
                std::string& reason) {
  Plan plan = base;
  plan.pp = static_cast<int>(degrees.pp);
  plan.dp = static_cast<int>(degrees.dp);
  plan.batch = degrees.dp;
  plan.stage_blocks = plan::even_stages(base.network, plan.pp);
  plan.blocks = {{static_cast<int>(base.network.chain.size()), {}}};
  plan::BlockPlan& layout = plan.blocks.front().layout;
  layout.tp = static_cast<int>(degrees.tp);
  layout.cp = static_cast<int>(degrees.cp);
  layout.ep = static_cast<int>(degrees.ep);
  layout.expert_tp = degrees.ep > 1 ? 1 : 0;
  const std::string problem = broken(plan);
  if (problem.empty()) {
    plans.push_back(std::move(plan));
  } else {
    reason = problem;
  }
}

// The layouts of tp x cp x pp x dp GPUs that the network allows.
std::vector<Plan> layouts(const Plan& base, const ServingSearch& search, std::string& reason) {
  const int gpus = base.cluster.num_gpus();
  const std::vector<std::int64_t> degrees = divisors(gpus);
  std::vector<Plan> plans;
  for (const std::int64_t tp : values_of(search, "tp", degrees)) {
    for (const std::int64_t pp : values_of(search, "pp", degrees)) {
      for (const std::int64_t cp : values_of(search, "cp", {1})) {
        const std::int64_t model = tp * pp * cp;
        if (tp < 1 || pp < 1 || cp < 1 || tp > gpus || pp > gpus || cp > gpus ||
            gpus % model != 0 || pp > base.network.spec.layers) {
          continue;
        }
        const std::vector<std::int64_t> replicas = values_of(search, "dp", {gpus / model});
        if (std::find(replicas.begin(), replicas.end(), gpus / model) == replicas.end()) {
          continue;
        }
        for (const std::int64_t ep : expert_degrees(base, search, tp, gpus / model)) {
          add_layout(base, {tp, cp, ep, pp, gpus / model}, plans, reason);
        }
      }
    }
  }
  return plans;
}

// What is fixed alone: pages, prefixes found in the cache, cache on the host.
std::vector<ServingOptions> caches(const Plan& base, const ServingSearch& search) {
  std::vector<ServingOptions> all;
  for (const std::int64_t block : values_of(search, "cache_block", {1})) {
    for (const double hits : shares_of(search, "prefix_hits")) {
      for (const double host : shares_of(search, "host_cache")) {
        all.push_back(base.serving->options);
        all.back().cache_block = block;
        all.back().prefix_hits = hits;
        all.back().host_cache = host;
      }
    }
  }
  return all;
}

std::vector<ServingOptions> option_space(const ServingOptions& base, const ServingSearch& search) {
  std::vector<ServingOptions> space;
  const auto longs = [](auto values) {
    return std::vector<std::int64_t>(values.begin(), values.end());
  };
  for (const Prefill prefill : prefills_of(search)) {
    for (const std::int64_t budget : values_of(search, "token_budget", longs(kBudgets))) {
      for (const std::int64_t most : values_of(search, "max_requests", longs(kRequests))) {
        for (const std::int64_t chunk : values_of(search, "chunk", {0})) {
          for (const std::int64_t nano : values_of(search, "nano_batches", longs(kNanoBatches))) {
            ServingOptions options = base;
            options.prefill = prefill;
            options.token_budget = budget;
            options.max_requests = most;
            options.chunk = chunk;
            options.nano_batches = static_cast<int>(nano);
            const bool decodes_fit = prefill == Prefill::Separate || most <= budget;
            const bool chunks_fit = prefill == Prefill::Chunked || chunk == 0;
            if (decodes_fit && chunks_fit && budget > 0 && most > 0 && nano > 0) {
              space.push_back(options);
            }
          }
        }
      }
    }
  }
  return space;
}

bool is_late(const plan::ServingSimulation& simulation, const ServingLimits& limits) {
  return (limits.first_token_p99 && simulation.first_token.p99 > *limits.first_token_p99) ||
         (limits.per_output_token_p99 &&
          simulation.per_output_token.p99 > *limits.per_output_token_p99);
}

// Higher throughput first; equal ones by the mean time of a request.
bool better(const plan::ServingSimulation& a, const plan::ServingSimulation& b) {
  if (a.makespan != b.makespan) {
    return a.makespan < b.makespan;
  }
  return a.latency.mean < b.latency.mean;
}

Plan with_options(const Plan& layout, const ServingOptions& options) {
  Plan plan = layout;
  plan.serving =
      std::make_shared<const plan::Serving>(plan::Serving{layout.serving->requests, options});
  return plan;
}

class Search {
 public:
  Search(const Plan& base, const ServingSearch& search,
         const std::function<void(const std::string&)>& progress)
      : base_(base),
        search_(search),
        progress_(progress),
        requests_(plan::generate_requests(base.serving->requests)),
        longest_(plan::longest_request(requests_)),
        has_prefixes_(std::any_of(requests_.begin(), requests_.end(),
                                  [](const auto& request) { return request.prefix >= 0; })) {}

  ServingOutcome run() {
    std::string reason;
    const std::vector<Plan> all = layouts(base_, search_, reason);
    for (const ServingOptions& cache : caches(base_, search_)) {
      const std::vector<ServingOptions> space = option_space(cache, search_);
      for (const Plan& layout : all) {
        for (const plan::Routing routing : routings_of(layout, search_, has_prefixes_)) {
          for (ServingOptions options : space) {
            options.routing = routing;
            add(with_options(layout, options));
          }
        }
      }
    }
    if (outcome_.plans > 0 && outcome_.infeasible == outcome_.plans) {
      const plan::ServingSimulation nothing = plan::simulate_serving(*closest_);
      outcome_.closest = *nothing.does_not_fit;
      outcome_.nearest = nothing.nearest;
    }
    if (outcome_.plans == 0) {
      if (!reason.empty()) {
        throw Error(ErrorKind::BadInput, {}, reason);
      }
      bad_input("--fix", "no serving plan has these values",
                "tp x pp must divide the number of GPUs");
    }
    std::stable_sort(candidates_.begin(), candidates_.end(),
                     [](const Candidate& a, const Candidate& b) { return a.bound < b.bound; });
    for (const Candidate& candidate : candidates_) {
      if (interrupted()) {
        break;
      }
      try_plan(candidate);
    }
    return std::move(outcome_);
  }

 private:
  void add(Plan plan) {
    ++outcome_.plans;
    ServingModel model = model_of(plan);
    const std::vector<plan::ServingMemory> memory = model.memory();
    const plan::ServingVerdict verdict = plan::serving_fits(memory, longest_, plan);
    if (!verdict.fits) {
      ++outcome_.infeasible;
      std::int64_t tokens = memory.front().cache.value();
      for (const plan::ServingMemory& stage : memory) {
        tokens = std::min(tokens, stage.cache.value());
      }
      if (!closest_ || tokens > closest_cache_) {
        closest_cache_ = tokens;
        closest_ = std::make_shared<const Plan>(plan);
      }
      return;
    }
    const Seconds bound = plan::serving_bound(plan, model);
    candidates_.push_back({std::move(plan), bound});
  }

  // Plans of one layout share the costs of their iterations.
  ServingModel model_of(const Plan& plan) {
    const plan::BlockPlan& layout = plan.blocks.front().layout;
    const std::array<int, 3> key = {layout.tp, layout.cp, layout.ep};
    const auto known = models_.find(key);
    const ServingModel& like = known != models_.end()
                                   ? known->second
                                   : models_.emplace(key, ServingModel(plan)).first->second;
    return {plan, like};
  }

  void try_plan(const Candidate& candidate) {
    std::vector<ServingFound>& found = outcome_.found;
    if (found.size() >= search_.top && candidate.bound >= found.back().simulation.makespan) {
      ++outcome_.pruned;
      return;
    }
    if (progress_) {
      progress_(fmt::format("{} of {} plans simulated", outcome_.simulated, candidates_.size()));
    }
    ++outcome_.simulated;
    ServingModel model = model_of(candidate.plan);
    ServingFound result{candidate.plan, plan::simulate_serving(candidate.plan, model)};
    if (is_late(result.simulation, search_.limits)) {
      ++outcome_.late;
      return;
    }
    const auto place = std::find_if(found.begin(), found.end(), [&](const ServingFound& other) {
      return better(result.simulation, other.simulation);
    });
    found.insert(place, std::move(result));
    if (found.size() > search_.top) {
      found.pop_back();
    }
  }

  const Plan& base_;
  const ServingSearch& search_;
  const std::function<void(const std::string&)>& progress_;
  std::vector<plan::Request> requests_;
  std::int64_t longest_;
  bool has_prefixes_;
  std::map<std::array<int, 3>, ServingModel> models_;  // by tp, cp, ep
  std::vector<Candidate> candidates_;
  std::shared_ptr<const Plan> closest_;
  std::int64_t closest_cache_ = 0;
  ServingOutcome outcome_;
};

}  // namespace

const std::vector<std::string>& serving_fields() {
  static const std::vector<std::string> fields = {
      "tp",           "pp", "dp", "token_budget", "max_requests", "prefill",    "chunk",
      "nano_batches", "cp", "ep", "cache_block",  "prefix_hits",  "host_cache", "routing"};
  return fields;
}

void fix_serving(std::string_view text, ServingSearch& search) {
  for (const std::string_view entry : split(text, ',')) {
    const std::size_t equals = entry.find('=');
    const std::string field(trim(entry.substr(0, equals)));
    const auto& fields = serving_fields();
    if (std::find(fields.begin(), fields.end(), field) == fields.end()) {
      bad_input("--fix", fmt::format("unknown field \"{}\" of a serving plan", printable(field)),
                nearest_hint(field, fields));
    }
    if (equals == std::string_view::npos) {
      bad_input("--fix", fmt::format("\"{}\" has no value", field), "write field=value");
    }
    const std::string value(trim(entry.substr(equals + 1)));
    if (field == "prefill") {
      if (value != "chunked" && value != "separate") {
        bad_input("--fix", fmt::format("unknown prefill \"{}\"", printable(value)),
                  "chunked or separate");
      }
    } else if (field == "routing") {
      plan::routing_of(value);
    } else if (field == "prefix_hits" || field == "host_cache") {
      parse_number(value, "--fix " + field, 0, field == "host_cache" ? 0.99 : 1.0);
    } else {
      parse_integer(value, "--fix " + field, field == "chunk" ? 0 : 1, limits::kMaxSequence);
    }
    search.fixed[field].push_back(value);
  }
}

ServingOutcome search_serving(const Plan& base, const ServingSearch& search,
                              const std::function<void(const std::string&)>& progress) {
  return Search(base, search, progress).run();
}

}  // namespace orrery::search
