// SPDX-License-Identifier: Apache-2.0
#include "plan/serving_batching.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <deque>

#include "base/error.hpp"
#include "base/limits.hpp"
#include "plan/serving_active.hpp"
#include "plan/serving_admission.hpp"
#include "plan/serving_pages.hpp"
#include "plan/serving_prefixes.hpp"

namespace orrery::plan {
namespace {

using Group = ActiveGroup;
using Waiting = WaitingRequest;

// Simulated time ends after 106 days; this is half of it.
constexpr SimTime kLongest{std::int64_t{1} << 62};

SimTime later(SimTime time, SimTime takes) {
  if (takes > kLongest || time > kLongest - takes) {
    bad_input("requests", "serving them takes more than 53 days", "serve fewer or shorter ones");
  }
  return time + takes;
}

class Batching {
 public:
  Batching(std::span<const Request> requests, const ServingOptions& options,
           const BatchEngine& engine, const IterationObserver& observe)
      : requests_(requests),
        options_(options),
        engine_(engine),
        observe_(observe),
        groups_(static_cast<std::size_t>(engine.stages)),
        free_(groups_.size()),
        cache_(options.cache_block, engine.kv_tokens),
        prefixes_(cache_, options.cache_block) {
    run_.busy.resize(groups_.size());
    for (const Request& request : requests) {
      run_.requests.push_back({request, {}, {}, {}, 0});
    }
  }

  BatchRun run() {
    while (unfinished()) {
      Group& group =
          *std::min_element(groups_.begin(), groups_.end(),
                            [](const Group& a, const Group& b) { return a.ready < b.ready; });
      const SimTime now = std::max(group.ready, free_.front());
      complete_until(now);
      take_arrivals(now);
      if (!unfinished()) {
        break;
      }
      const Iteration iteration = form(group, now);
      if (iteration.tokens() == 0) {
        wait(group, now);
        continue;
      }
      execute(group, iteration, now);
    }
    return std::move(run_);
  }

 private:
  bool unfinished() const {
    const auto is_running = [](const Active& active) { return !active.stopping; };
    return next_ < requests_.size() || !waiting_.empty() ||
           std::any_of(groups_.begin(), groups_.end(), [&](const Group& group) {
             return std::any_of(group.active.begin(), group.active.end(), is_running);
           });
  }

  void advance(SimTime now) {
    if (now > clock_) {
      const double seconds = to_seconds(now - clock_).value();
      run_.kv_token_seconds += static_cast<double>(cache_.reserved()) * seconds;
      run_.kv_waste_seconds += static_cast<double>(cache_.waste()) * seconds;
      clock_ = now;
    }
  }

  // Ends the iterations that are over, in order of time.
  void complete_until(SimTime now) {
    for (;;) {
      Group* first = nullptr;
      for (Group& group : groups_) {
        if (group.in_flight && group.ready <= now &&
            (first == nullptr || group.ready < first->ready)) {
          first = &group;
        }
      }
      if (first == nullptr) {
        advance(now);
        return;
      }
      complete(*first);
    }
  }

  void complete(Group& group) {
    advance(group.ready);
    group.in_flight = false;
    std::erase_if(group.active, [&](Active& active) {
      if (!active.sampled) {
        return false;
      }
      active.sampled = false;
      if (active.stopping) {
        release(active);
        return true;
      }
      ServedRequest& served = run_.requests[active.index];
      if (active.generated == 1) {
        served.first_token = group.ready;
      }
      if (active.generated < served.request.output) {
        return false;
      }
      served.finished = group.ready;
      run_.makespan = std::max(run_.makespan, group.ready);
      active.stopping = options_.late_stop;
      if (!active.stopping) {
        release(active);
      }
      return !active.stopping;
    });
  }

  void release(const Active& active) {
    cache_.give(active.held);
    if (active.shared > 0) {
      prefixes_.leave(requests_[active.index].prefix);
    }
  }

  void take_arrivals(SimTime now) {
    for (; next_ < requests_.size() && requests_[next_].arrival <= now; ++next_) {
      waiting_.push_back({next_, 0});
    }
  }

  std::int64_t remaining(const Request& request, std::int64_t generated, bool known) const {
    if (known || options_.expected_output == 0) {
      return request.output - generated;
    }
    return std::max<std::int64_t>(1, options_.expected_output - generated);
  }

  bool admissible(const Waiting& waiting) {
    const Request& request = requests_[waiting.index];
    const std::int64_t prefill = request.prompt + waiting.generated;
    const std::int64_t own = prefill - prefixes_.shared(request);
    const bool alone = cache_.reserved() == prefixes_.idle();
    if (!prefixes_.make_room(cache_.rounded(own + 1) + prefixes_.more(request), request.prefix)) {
      return false;
    }
    if (alone) {
      return true;  // it fits, whatever was expected of it
    }
    const bool known = run_.requests[waiting.index].evictions > 0;
    scratch_.clear();
    scratch_.push_back({remaining(request, waiting.generated, known), own + cache_.slack()});
    std::int64_t bound = scratch_.front().held + scratch_.front().iterations;
    for (const Group& group : groups_) {
      for (const Active& active : group.active) {
        const std::int64_t left =
            active.stopping ? 0
                            : remaining(requests_[active.index], active.generated, active.known);
        scratch_.push_back({left, active.held + cache_.slack()});
        bound += scratch_.back().held + left;
      }
    }
    const std::int64_t left = cache_.capacity() - prefixes_.live_with(request);
    return bound <= left || predicted_peak(scratch_) <= left;
  }

  // A group takes its share of the requests, so that no stage of a pipeline stays empty.
  bool has_room(const Group& group) const {
    std::size_t total = waiting_.size();
    for (const Group& other : groups_) {
      total += other.active.size();
    }
    const std::size_t share = (total + groups_.size() - 1) / groups_.size();
    return group.active.size() < share &&
           static_cast<std::int64_t>(group.active.size()) < options_.max_requests;
  }

  std::int64_t hits_of(const Request& request) const {
    return std::max(prefix_hits(options_, request), prefixes_.hits(request));
  }

  Active& admit(Group& group, SimTime now) {
    const Waiting waiting = waiting_.front();
    waiting_.pop_front();
    ServedRequest& served = run_.requests[waiting.index];
    if (served.evictions == 0) {
      served.admitted = now;
    }
    Active active;
    active.index = waiting.index;
    active.prefill = served.request.prompt + waiting.generated;
    active.hits = active.done = hits_of(served.request);
    active.shared = prefixes_.enter(served.request);
    active.held = active.prefill - active.shared;
    run_.found += active.hits;
    active.generated = waiting.generated;
    active.known = served.evictions > 0;
    cache_.take(active.held);
    return group.active.emplace_back(active);
  }

  void evict_youngest(Group& group) {
    const Active& youngest = group.active.back();
    release(youngest);
    if (!youngest.stopping) {
      run_.repeated +=
          (youngest.prefilling() ? youngest.done : youngest.context() - 1) - youngest.hits;
      waiting_.push_front({youngest.index, youngest.generated});
      ++run_.requests[youngest.index].evictions;
      ++run_.evictions;
    }
    group.active.pop_back();
  }

  std::int64_t growth_of(const Group& group) const {
    std::int64_t tokens = 0;
    for (const Active& active : group.active) {
      tokens += active.prefilling() || active.stopping ? 0 : cache_.growth(active.held);
    }
    return tokens;
  }

  // One token of every running request; there must be room in the cache for all of them.
  void add_decodes(Group& group, Iteration& iteration) {
    while (!prefixes_.make_room(growth_of(group))) {
      evict_youngest(group);
    }
    for (Active& active : group.active) {
      if (active.prefilling()) {
        continue;
      }
      ++iteration.decodes;
      const std::int64_t context = active.context();
      iteration.keys += context;
      iteration.windowed_keys += engine_.window > 0 ? std::min(context, engine_.window) : context;
      run_.decoded += active.stopping ? 0 : 1;
      sample(active, iteration);
    }
  }

  void sample(Active& active, Iteration& iteration) {
    active.sampled = true;
    ++iteration.sampled;
    if (!active.stopping) {
      ++active.generated;
      ++run_.generated;
      cache_.grow(active.held);
    }
  }

  void add_prompt(Active& active, std::int64_t tokens, Iteration& iteration) {
    iteration.prompts.push_back({active.done, tokens});
    active.done += tokens;
    run_.prefilled += tokens;
    if (active.shared > 0 && active.done >= active.shared) {
      prefixes_.computed(requests_[active.index].prefix);
    }
    if (!active.prefilling()) {
      sample(active, iteration);
    }
  }

  // The last token of a prompt waits for room for the token it brings.
  bool may_finish(const Active& active) { return prefixes_.make_room(cache_.growth(active.held)); }

  void fill_chunked(Group& group, Iteration& iteration, SimTime now) {
    std::int64_t budget = options_.token_budget - iteration.decodes;
    const std::int64_t chunk = options_.chunk > 0 ? options_.chunk : options_.token_budget;
    const auto extend = [&](Active& active) {
      const std::int64_t left = active.prefill - active.done;
      std::int64_t tokens = std::min({left, budget, chunk});
      tokens -= tokens == left && !may_finish(active) ? 1 : 0;
      if (tokens > 0) {
        add_prompt(active, tokens, iteration);
        budget -= tokens;
      }
    };
    for (Active& active : group.active) {
      if (active.prefilling()) {
        extend(active);
      }
    }
    while (budget > 0 && !waiting_.empty() && has_room(group) && admissible(waiting_.front())) {
      extend(admit(group, now));
    }
  }

  // Whole prompts, at least one; empty when none can be admitted.
  void fill_separate(Group& group, Iteration& iteration, SimTime now) {
    std::int64_t budget = options_.token_budget;
    while (!waiting_.empty() && has_room(group)) {
      const Waiting& waiting = waiting_.front();
      const Request& request = requests_[waiting.index];
      const std::int64_t tokens = request.prompt + waiting.generated - hits_of(request);
      if ((tokens > budget && !iteration.prompts.empty()) || !admissible(waiting)) {
        return;
      }
      add_prompt(admit(group, now), tokens, iteration);
      budget -= tokens;
    }
  }

  Iteration form(Group& group, SimTime now) {
    Iteration iteration;
    if (options_.prefill == Prefill::Separate) {
      fill_separate(group, iteration, now);
      if (iteration.prompts.empty()) {
        add_decodes(group, iteration);
      }
    } else {
      add_decodes(group, iteration);
      fill_chunked(group, iteration, now);
    }
    run_.kv_peak = std::max(run_.kv_peak, cache_.reserved());
    return iteration;
  }

  void execute(Group& group, const Iteration& iteration, SimTime now) {
    SimTime time = now;
    for (int stage = 0; stage < engine_.stages; ++stage) {
      const auto slot = static_cast<std::size_t>(stage);
      const SimTime takes = engine_.time(stage, iteration);
      time = later(std::max(time, free_[slot]), takes);
      free_[slot] = time;
      run_.busy[slot] += takes;
      if (engine_.stages > 1) {
        time = later(time, engine_.transfer(stage, iteration));
      }
    }
    group.ready = time;
    group.in_flight = true;
    if (observe_) {
      observe_(iteration, now, time, cache_.reserved());
    }
    if (++run_.iterations > limits::kMaxPasses) {
      bad_input("requests", fmt::format("they take more than {} iterations", limits::kMaxPasses));
    }
  }

  // Nothing to do before a request arrives or another group acts.
  void wait(Group& group, SimTime now) {
    SimTime next = SimTime::max();
    if (next_ < requests_.size()) {
      next = requests_[next_].arrival;
    }
    for (const Group& other : groups_) {
      if (other.in_flight) {
        next = std::min(next, other.ready);
      } else if (&other != &group && !other.active.empty()) {
        next = std::min(next, std::max(other.ready, now) + SimTime{1});
      }
    }
    ORRERY_CHECK(next > now && next < SimTime::max(), "requests wait for nothing");
    group.ready = next;
  }

  std::span<const Request> requests_;
  const ServingOptions& options_;
  const BatchEngine& engine_;
  const IterationObserver& observe_;
  std::vector<Group> groups_;
  std::vector<SimTime> free_;  // per stage
  std::deque<Waiting> waiting_;
  std::size_t next_ = 0;  // request to arrive
  CachePages cache_;
  SharedPrefixes prefixes_;
  SimTime clock_;
  std::vector<RemainingLife> scratch_;
  BatchRun run_;
};

}  // namespace

BatchRun run_batches(std::span<const Request> requests, const ServingOptions& options,
                     const BatchEngine& engine, const IterationObserver& observe) {
  return Batching(requests, options, engine, observe).run();
}

}  // namespace orrery::plan
