// SPDX-License-Identifier: Apache-2.0
#include "search/serving_candidates.hpp"

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "base/error.hpp"

namespace orrery::search {
namespace {

using plan::Plan;
using plan::ServingOptions;

std::array<int, 7> key_of(const Plan& plan) {
  const plan::BlockPlan& layout = plan.blocks.front().layout;
  const ServingOptions& options = plan.serving->options;
  return {layout.tp,
          layout.cp,
          layout.ep,
          layout.expert_tp,
          static_cast<int>(options.all_reduce),
          options.fp8_cache ? 1 : 0,
          plan.execution.overlap_shared_experts ? 1 : 0};
}

// By bound; last, those that there was no time to bound.
bool is_before(const ServingCandidate& a, const ServingCandidate& b) {
  const bool is_bounded = a.bound > Seconds();
  return is_bounded != (b.bound > Seconds()) ? is_bounded : a.bound < b.bound;
}

bool has_fewer_requests(const Plan& plan, const Plan& other) {
  ServingOptions options = plan.serving->options;
  options.max_requests = other.serving->options.max_requests;
  return plan.serving->options.max_requests < options.max_requests &&
         options == other.serving->options && plan.pp == other.pp && plan.dp == other.dp &&
         plan.blocks == other.blocks && plan.execution == other.execution;
}

void find_likes(std::vector<ServingCandidate>& candidates) {
  for (std::size_t index = 0; index < candidates.size(); ++index) {
    for (std::size_t earlier = 0; earlier < index; ++earlier) {
      if (has_fewer_requests(candidates[earlier].plan, candidates[index].plan)) {
        candidates[index].like = earlier;
      }
    }
  }
}

Plan with_options(const Plan& layout, const ServingOptions& options) {
  Plan plan = layout;
  plan.serving =
      std::make_shared<const plan::Serving>(plan::Serving{layout.serving->requests, options});
  return plan;
}

class Lister {
 public:
  Lister(const Plan& base, const ServingFixes& fixed, const std::vector<plan::Request>& requests,
         const ServingBounds& bounds, ServingModels& models)
      : base_(base),
        fixed_(fixed),
        requests_(requests),
        bounds_(bounds),
        models_(models),
        longest_(plan::longest_request(requests)),
        has_prefixes_(std::any_of(requests.begin(), requests.end(),
                                  [](const auto& request) { return request.prefix >= 0; })) {}

  ServingCandidates run() {
    std::string reason;
    const std::vector<Plan> all = serving_layouts(base_, fixed_, reason);
    const bool elsewhere = fixed_.contains("offload_parameters");
    add_all(elsewhere ? with_weights_elsewhere(all, fixed_, reason) : all, reason);
    if (!elsewhere && result_.infeasible == result_.plans) {  // no device holds its parameters
      std::string unused;
      result_.streams = true;
      add_all(with_weights_elsewhere(all, fixed_, unused), unused);
    }
    if (result_.plans > 0 && result_.infeasible == result_.plans) {
      const plan::ServingSimulation nothing = plan::simulate_serving(*closest_);
      result_.closest = *nothing.does_not_fit;
      result_.nearest = nothing.nearest;
    }
    if (result_.plans == 0) {
      if (!reason.empty()) {
        bad_input(all.empty() ? "" : "--fix", reason);
      }
      bad_input("--fix", "no serving plan has these values",
                "tp x pp x cp must divide the number of GPUs; dp is what they leave");
    }
    result_.bounds.resize(std::min(result_.bounds.size(), result_.list.size()));
    std::stable_sort(result_.list.begin(), result_.list.end(), is_before);
    find_likes(result_.list);
    return std::move(result_);
  }

 private:
  // `reason`: where no layout is possible, its own comes first.
  void add_all(const std::vector<Plan>& layouts, std::string& reason) {
    std::string unused;
    for (const ServingOptions& cache : serving_caches(base_.serving->options, fixed_)) {
      const std::vector<ServingOptions> space =
          serving_options(cache, fixed_, layouts.empty() ? unused : reason);
      for (const Plan& layout : layouts) {
        for (const plan::Routing routing : serving_routings(layout.dp, fixed_, has_prefixes_)) {
          for (const plan::AllReduce all_reduce : serving_all_reduces(layout, fixed_)) {
            for (ServingOptions options : space) {
              options.routing = routing;
              options.all_reduce = all_reduce;
              for (const bool overlap : serving_overlaps(layout, options.prefill, fixed_)) {
                options.overlap_chunks = overlap;
                add(with_options(layout, options));
              }
            }
          }
        }
      }
    }
  }

  void add(Plan plan) {
    ++result_.plans;
    plan::ServingModel model = models_.of(plan);
    const std::vector<plan::ServingMemory> memory = model.memory();
    const plan::ServingVerdict verdict = plan::serving_fits(memory, longest_, plan);
    if (!verdict.fits) {
      ++result_.infeasible;
      std::int64_t tokens = memory.front().cache.value();
      for (const plan::ServingMemory& stage : memory) {
        tokens = std::min(tokens, stage.cache.value());
      }
      if (!closest_ || (tokens > closest_cache_ && !result_.streams)) {
        closest_cache_ = tokens;
        closest_ = plan;
      }
      return;
    }
    const Seconds bound = next_bound(plan, model);
    result_.list.push_back({std::move(plan), bound});
  }

  Seconds next_bound(const Plan& plan, plan::ServingModel& model) {
    const std::size_t index = result_.list.size();
    std::vector<Seconds>& made = result_.bounds;
    if (index == 0) {
      made = bounds_.known();
      known_ = made.size();
    }
    if (index < known_) {
      return made[index];
    }
    result_.bounded = result_.bounded && bounds_.has_time();
    if (!result_.bounded) {
      return Seconds();
    }
    made.push_back(plan::serving_bound(plan, model, requests_));
    bounds_.made(made);
    return made.back();
  }

  const Plan& base_;
  const ServingFixes& fixed_;
  const std::vector<plan::Request>& requests_;
  const ServingBounds& bounds_;
  std::size_t known_ = 0;
  ServingModels& models_;
  std::int64_t longest_;
  bool has_prefixes_;
  std::optional<Plan> closest_;
  std::int64_t closest_cache_ = 0;
  ServingCandidates result_;
};

}  // namespace

plan::ServingModel ServingModels::of(const Plan& plan) {
  auto known = models_.find(key_of(plan));
  if (known == models_.end()) {
    known = models_.emplace(key_of(plan), plan::ServingModel(plan)).first;
  }
  return {plan, known->second};
}

plan::ServingModel ServingModels::of(const Plan& plan, const ServingModels& first) {
  auto known = models_.find(key_of(plan));
  if (known == models_.end()) {
    const plan::ServingModel& there = first.models_.at(key_of(plan));
    known = models_.emplace(key_of(plan), there.on_another_thread()).first;
  }
  return {plan, known->second};
}

ServingCandidates serving_candidates(const Plan& base, const ServingFixes& fixed,
                                     const std::vector<plan::Request>& requests,
                                     const ServingBounds& bounds, ServingModels& models) {
  return Lister(base, fixed, requests, bounds, models).run();
}

}  // namespace orrery::search
