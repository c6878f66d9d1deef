// SPDX-License-Identifier: Apache-2.0
#include "plan/serving/replica.hpp"

#include <algorithm>

namespace orrery::plan {

ServingReplica::ServingReplica(const ServingOptions& options, int groups, std::int64_t kv_tokens,
                               std::int64_t window)
    : options_(options),
      window_(window),
      active_(static_cast<std::size_t>(groups)),
      cache_(options.cache_block, kv_tokens),
      prefixes_(cache_, options.cache_block) {
  run_.busy.resize(active_.size());
}

void ServingReplica::submit(const Request& request) {
  run_.requests.push_back({request, {}, {}, {}, 0});
  ++outstanding_;
  comes(request, 1);
}

void ServingReplica::comes(const Request& request, std::int64_t change) {
  if (request.prefix >= 0 && (coming_[request.prefix] += change) == 0) {
    coming_.erase(request.prefix);
  }
}

void ServingReplica::take_arrivals(SimTime now) {
  for (; next_arrival() <= now && next_ < run_.requests.size(); ++next_) {
    waiting_.push_back({next_, 0});
  }
}

SimTime ServingReplica::next_arrival() const {
  return next_ < run_.requests.size() ? run_.requests[next_].request.arrival : SimTime::max();
}

bool ServingReplica::holds(std::int64_t prefix) const {
  return prefixes_.has(prefix) || coming_.contains(prefix);
}

void ServingReplica::advance(SimTime now) {
  if (now > clock_) {
    const double seconds = to_seconds(now - clock_).value();
    run_.kv_token_seconds += static_cast<double>(cache_.reserved()) * seconds;
    run_.kv_waste_seconds += static_cast<double>(cache_.waste()) * seconds;
    clock_ = now;
  }
}

void ServingReplica::complete(int group, SimTime now) {
  advance(now);
  std::erase_if(active_[slot(group)], [&](Active& active) {
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
      served.first_token = now;
    }
    if (active.generated < served.request.output) {
      return false;
    }
    served.finished = now;
    --outstanding_;
    run_.makespan = std::max(run_.makespan, now);
    active.stopping = options_.late_stop;
    if (!active.stopping) {
      release(active);
    }
    return !active.stopping;
  });
}

void ServingReplica::release(const Active& active) {
  cache_.give(active.held);
  if (active.shared > 0) {
    prefixes_.leave(request_of(active).prefix);
  }
}

std::int64_t ServingReplica::remaining(const Request& request, std::int64_t generated,
                                       bool known) const {
  if (known || options_.expected_output == 0) {
    return request.output - generated;
  }
  return std::max<std::int64_t>(1, options_.expected_output - generated);
}

bool ServingReplica::admissible(const WaitingRequest& waiting) {
  const Request& request = run_.requests[waiting.index].request;
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
  for (const Group& group : active_) {
    for (const Active& active : group) {
      const std::int64_t left =
          active.stopping ? 0 : remaining(request_of(active), active.generated, active.known);
      scratch_.push_back({left, active.held + cache_.slack()});
      bound += scratch_.back().held + left;
    }
  }
  const std::int64_t left = cache_.capacity() - prefixes_.live_with(request);
  return bound <= left || predicted_peak(scratch_) <= left;
}

// A group takes its share of the requests, so that no stage of a pipeline stays empty.
bool ServingReplica::has_room(const Group& group) const {
  std::size_t total = waiting_.size();
  for (const Group& other : active_) {
    total += other.size();
  }
  const std::size_t share = (total + active_.size() - 1) / active_.size();
  return group.size() < share && static_cast<std::int64_t>(group.size()) < options_.max_requests;
}

std::int64_t ServingReplica::hits_of(const Request& request) const {
  return std::max(prefix_hits(options_, request), prefixes_.hits(request));
}

Active& ServingReplica::admit(Group& group, SimTime now) {
  const WaitingRequest waiting = waiting_.front();
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
  comes(served.request, -1);
  active.held = active.prefill - active.shared;
  run_.found += active.hits;
  active.generated = waiting.generated;
  active.known = served.evictions > 0;
  cache_.take(active.held);
  return group.emplace_back(active);
}

void ServingReplica::evict_youngest(Group& group) {
  const Active& youngest = group.back();
  release(youngest);
  if (!youngest.stopping) {
    run_.repeated +=
        (youngest.prefilling() ? youngest.done : youngest.context() - 1) - youngest.hits;
    waiting_.push_front({youngest.index, youngest.generated});
    comes(request_of(youngest), 1);
    ++run_.requests[youngest.index].evictions;
    ++run_.evictions;
  }
  group.pop_back();
}

std::int64_t ServingReplica::growth_of(const Group& group) const {
  std::int64_t tokens = 0;
  for (const Active& active : group) {
    tokens += active.prefilling() || active.stopping ? 0 : cache_.growth(active.held);
  }
  return tokens;
}

// One token of every running request; there must be room in the cache for all of them.
void ServingReplica::add_decodes(Group& group, Iteration& iteration) {
  while (!prefixes_.make_room(growth_of(group))) {
    evict_youngest(group);
  }
  for (Active& active : group) {
    if (active.prefilling()) {
      continue;
    }
    ++iteration.decodes;
    const std::int64_t context = active.context();
    iteration.keys += context;
    iteration.windowed_keys += window_ > 0 ? std::min(context, window_) : context;
    run_.decoded += active.stopping ? 0 : 1;
    sample(active, iteration);
  }
}

void ServingReplica::sample(Active& active, Iteration& iteration) {
  active.sampled = true;
  ++iteration.sampled;
  if (!active.stopping) {
    ++active.generated;
    ++run_.generated;
    cache_.grow(active.held);
  }
}

void ServingReplica::add_prompt(Active& active, std::int64_t tokens, Iteration& iteration) {
  iteration.prompts.push_back({active.done, tokens});
  active.done += tokens;
  run_.prefilled += tokens;
  if (active.shared > 0 && active.done >= active.shared) {
    prefixes_.computed(request_of(active).prefix);
  }
  if (!active.prefilling()) {
    sample(active, iteration);
  }
}

void ServingReplica::fill_chunked(Group& group, Iteration& iteration, SimTime now) {
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
  for (Active& active : group) {
    if (active.prefilling()) {
      extend(active);
    }
  }
  while (budget > 0 && !waiting_.empty() && has_room(group) && admissible(waiting_.front())) {
    extend(admit(group, now));
  }
}

// Whole prompts, at least one; empty when none can be admitted.
void ServingReplica::fill_separate(Group& group, Iteration& iteration, SimTime now) {
  std::int64_t budget = options_.token_budget;
  while (!waiting_.empty() && has_room(group)) {
    const WaitingRequest& waiting = waiting_.front();
    const Request& request = run_.requests[waiting.index].request;
    const std::int64_t tokens = request.prompt + waiting.generated - hits_of(request);
    if ((tokens > budget && !iteration.prompts.empty()) || !admissible(waiting)) {
      return;
    }
    add_prompt(admit(group, now), tokens, iteration);
    budget -= tokens;
  }
}

Iteration ServingReplica::form(int group_index, SimTime now) {
  Group& group = active_[slot(group_index)];
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

}  // namespace orrery::plan
