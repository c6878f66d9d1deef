// SPDX-License-Identifier: Apache-2.0
// One replica of a serving engine: its cache, the requests that wait and run, and which tokens the
// next iteration of a group computes (serving/batching.hpp says by which rules). Knows no time but
// what it is told: iterations are formed and completed by the engine that it belongs to.
// O(1) for an iteration in which all requests decode and none ends or waits to be admitted, unless
// layers free what is behind their window; else O(running requests). Deterministic.
#pragma once

#include <deque>
#include <map>
#include <vector>

#include "plan/serving/active.hpp"
#include "plan/serving/admission.hpp"
#include "plan/serving/batching.hpp"
#include "plan/serving/pages.hpp"
#include "plan/serving/prefixes.hpp"

namespace orrery::plan {

class ServingReplica {
 public:
  ServingReplica(const ServingOptions& options, int groups, std::int64_t kv_tokens,
                 SlidingLayers sliding);
  ServingReplica(ServingReplica&&) = delete;  // its prefixes stand in its cache

  // In order of arrival.
  void submit(const Request& request);
  void take_arrivals(SimTime now);
  SimTime next_arrival() const;  // of those that were not taken; SimTime::max() for none
  // Requests that were submitted and are not done.
  std::int64_t outstanding() const { return outstanding_; }
  bool is_running(int group) const { return !groups_[slot(group)].active.empty(); }
  // Whether the cache has this prefix, or a request with it waits here.
  bool holds(std::int64_t prefix) const;

  Iteration form(int group, SimTime now);
  void complete(int group, SimTime now);
  // Counts what the cache holds until `now`.
  void advance(SimTime now);

  std::int64_t held() const { return cache_.reserved(); }
  BatchRun& run() { return run_; }
  const BatchRun& run() const { return run_; }

 private:
  using Group = ActiveGroup;
  static std::size_t slot(int group) { return static_cast<std::size_t>(group); }
  const Request& request_of(const Active& active) const {
    return run_.requests[active.index].request;
  }
  void comes(const Request& request, std::int64_t change);
  void release(const Active& active);
  std::int64_t remaining(const Request& request, std::int64_t generated, bool known) const;
  bool admissible(const WaitingRequest& waiting);
  bool has_room(const Group& group);
  std::int64_t hits_of(const Request& request) const;
  Active& admit(Group& group, SimTime now);
  void evict_youngest(Group& group);
  std::int64_t growth_of(const Group& group) const;
  void add_decodes(Group& group, Iteration& iteration);
  void sample(Active& active, Iteration& iteration);
  void add_prompt(Active& active, std::int64_t tokens, Iteration& iteration);
  // The last token of a prompt waits for room for the token it brings.
  bool may_finish(const Active& active) { return make_room(cache_.growth(active.held)); }
  void fill_chunked(Group& group, Iteration& iteration, SimTime now);
  // Where chunks overlap, requests of other groups whose prompts have tokens left go on in this
  // one.
  void take_prompts(Group& group);
  void fill_separate(Group& group, Iteration& iteration, SimTime now);
  bool may_admit(const Group& group);
  bool make_room(std::int64_t tokens, std::int64_t keep = -1);
  bool fits(std::int64_t tokens);
  bool grow_steadily(const Group& group);
  bool decode_steadily(Group& group, Iteration& iteration);
  void expect_steady(Group& group) const;

  ServingOptions options_;
  std::int64_t window_;
  std::vector<Group> groups_;
  std::deque<WaitingRequest> waiting_;
  std::map<std::int64_t, std::int64_t> coming_;  // requests that wait or will, by prefix
  std::size_t next_ = 0;                         // request to arrive
  std::int64_t outstanding_ = 0;
  std::int64_t open_prompts_ = 0;  // admitted, with tokens left
  CachePages cache_;
  SharedPrefixes prefixes_;
  SimTime clock_;
  std::vector<RemainingLife> scratch_;
  BatchRun run_;
};

}  // namespace orrery::plan
