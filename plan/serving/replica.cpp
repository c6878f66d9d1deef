// SPDX-License-Identifier: Apache-2.0
#include "plan/serving/replica.hpp"

#include <algorithm>
#include <utility>

namespace orrery::plan {
namespace {

// Brings the requests up to date.
void settle(ActiveGroup& group) {
  if (group.steady.taken > 0) {
    for (Active& active : group.active) {
      active.held += group.steady.taken;
      active.generated += group.steady.taken;
    }
    group.steady.taken = 0;
  }
}

}  // namespace

ServingReplica::ServingReplica(const ServingOptions& options, int groups, std::int64_t kv_tokens,
                               SlidingLayers sliding)
    : options_(options),
      window_(sliding.window),
      groups_(static_cast<std::size_t>(groups)),
      cache_(options.cache_block, kv_tokens, sliding),
      prefixes_(cache_, options.cache_block) {
  run_.busy.resize(groups_.size());
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

void ServingReplica::complete(int group_index, SimTime now) {
  advance(now);
  Group& group = groups_[slot(group_index)];
  if (group.steady.in_flight) {
    return;
  }
  std::erase_if(group.active, [&](Active& active) {
    if (!active.sampled) {
      return false;
    }
    active.sampled = false;
    cache_.give_all(std::exchange(active.passing, 0));
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
  cache_.give_all(active.passing);
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
  std::int64_t passing = cache_.passing(own);
  if (!make_room(cache_.rounded(own + 1) + passing + prefixes_.more(request), request.prefix)) {
    return false;
  }
  if (alone) {
    return true;  // it fits, whatever was expected of it
  }
  const bool known = run_.requests[waiting.index].evictions > 0;
  scratch_.clear();
  // Its first token comes with this iteration; those of the others are counted already, or wait.
  scratch_.push_back({remaining(request, waiting.generated, known) - 1, own + 1 + cache_.slack()});
  std::int64_t bound = cache_.kept(scratch_.front().held + scratch_.front().iterations);
  for (Group& group : groups_) {
    settle(group);
    for (const Active& active : group.active) {
      const std::int64_t left =
          active.stopping ? 0 : remaining(request_of(active), active.generated, active.known);
      scratch_.push_back({left, active.held + cache_.slack()});
      bound += cache_.kept(scratch_.back().held + left);
      passing += active.passing;
    }
  }
  const std::int64_t live = prefixes_.live_with(request) + passing;
  return bound <= cache_.capacity() - live
             ? fits(bound + live)
             : fits(predicted_peak(scratch_, cache_.sliding()) + live);
}

// Whether the cache holds so many tokens.
bool ServingReplica::fits(std::int64_t tokens) {
  const bool holds_them = tokens <= cache_.capacity();
  run_.lacked_cache = run_.lacked_cache || !holds_them;
  run_.kv_wanted = std::max(run_.kv_wanted, tokens);
  return holds_them;
}

// Of so many more tokens; drops prefixes that nobody uses.
bool ServingReplica::make_room(std::int64_t tokens, std::int64_t keep) {
  return fits(cache_.reserved() + tokens) || prefixes_.make_room(tokens, keep);
}

// A group takes its share of the requests, so that no stage of a pipeline stays empty.
bool ServingReplica::has_room(const Group& group) {
  std::size_t total = waiting_.size();
  for (const Group& other : groups_) {
    total += other.size();
  }
  const std::size_t share = (total + groups_.size() - 1) / groups_.size();
  const bool may_run = static_cast<std::int64_t>(group.size()) < options_.max_requests;
  run_.lacked_requests = run_.lacked_requests || (!may_run && group.size() < share);
  return may_run && group.size() < share;
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
  active.passing = cache_.passing(active.held);
  cache_.take(active.held);
  cache_.take_all(active.passing);
  ++open_prompts_;
  return group.active.emplace_back(active);
}

void ServingReplica::evict_youngest(Group& group) {
  const Active& youngest = group.active.back();
  release(youngest);
  open_prompts_ -= youngest.prefilling() ? 1 : 0;
  if (!youngest.stopping) {
    run_.repeated +=
        (youngest.prefilling() ? youngest.done : youngest.context() - 1) - youngest.hits;
    waiting_.push_front({youngest.index, youngest.generated});
    comes(request_of(youngest), 1);
    ++run_.requests[youngest.index].evictions;
    ++run_.evictions;
  }
  group.active.pop_back();
}

std::int64_t ServingReplica::growth_of(const Group& group) const {
  std::int64_t tokens = 0;
  for (const Active& active : group.active) {
    tokens += active.prefilling() || active.stopping ? 0 : cache_.growth(active.held);
  }
  return tokens;
}

// One token of every running request; there must be room in the cache for all of them.
void ServingReplica::add_decodes(Group& group, Iteration& iteration) {
  while (!make_room(growth_of(group))) {
    evict_youngest(group);
  }
  for (Active& active : group.active) {
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
    --open_prompts_;
    sample(active, iteration);
  }
}

// Every stage computes the chunks in the order in which they were formed, so that each finds the
// keys and values of those before (vLLM, v1/core/sched/scheduler.py, _update_after_schedule;
// SGLang, advanced_features/pipeline_parallelism.md).
void ServingReplica::take_prompts(Group& group) {
  std::int64_t own = std::count_if(group.active.begin(), group.active.end(),
                                   [](const Active& active) { return active.prefilling(); });
  for (Group& other : groups_) {
    if (own == open_prompts_) {
      return;
    }
    for (std::size_t at = 0; &other != &group && at < other.active.size();) {
      if (!other.active[at].prefilling()) {
        ++at;
      } else if (static_cast<std::int64_t>(group.size()) >= options_.max_requests) {
        run_.lacked_requests = true;
        return;
      } else {
        const Active active = other.active[at];
        other.active.erase(other.active.begin() + static_cast<std::ptrdiff_t>(at));
        const auto later =
            std::find_if(group.active.rbegin(), group.active.rend(),
                         [&](const Active& one) { return one.index < active.index; });
        group.active.insert(later.base(), active);
        ++own;
      }
    }
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
  if (options_.overlap_chunks) {
    take_prompts(group);
  }
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
  Group& group = groups_[slot(group_index)];
  Iteration iteration;
  if (decode_steadily(group, iteration)) {
    return iteration;
  }
  settle(group);
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
  expect_steady(group);
  return iteration;
}

bool ServingReplica::may_admit(const Group& group) {
  const bool has_budget = options_.prefill == Prefill::Separate ||
                          static_cast<std::int64_t>(group.size()) < options_.token_budget;
  return !waiting_.empty() && has_budget && has_room(group);
}

}  // namespace orrery::plan
