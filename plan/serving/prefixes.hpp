// SPDX-License-Identifier: Apache-2.0
// Prefixes of prompts in the KV cache, held once however many requests begin with them: whole pages
// only, found from the moment their tokens have been computed, kept while any request uses them and
// then until the room is needed, the longest unused first (automatic prefix caching of vLLM, arXiv
// 2309.06180 and docs.vllm.ai). While the first request still computes a prefix, others compute
// their own copy. Layers with a window keep all of a prefix. O(prefixes) to find the one to drop;
// deterministic.
#pragma once

#include <cstdint>
#include <map>

#include "plan/serving/pages.hpp"
#include "plan/serving/serving.hpp"

namespace orrery::plan {

class SharedPrefixes {
 public:
  SharedPrefixes(CachePages& cache, std::int64_t tokens_per_page)
      : cache_(cache), page_(tokens_per_page) {}

  // Tokens of a request that stand in pages of its prefix, if it takes part now.
  std::int64_t shared(const Request& request) const {
    const Entry* entry = find(request);
    const bool computing = entry != nullptr && !entry->computed;
    return computing ? 0 : whole_pages(request);
  }
  // Those that it need not compute; the last token of a prompt is computed.
  std::int64_t hits(const Request& request) const {
    const Entry* entry = find(request);
    const bool ready = entry != nullptr && entry->computed;
    return ready ? std::min(entry->tokens, request.prompt - 1) : 0;
  }
  // Room that the prefix itself takes when the request is admitted.
  std::int64_t more(const Request& request) const {
    return find(request) == nullptr ? whole_pages(request) : 0;
  }
  // Held by running requests, with this one among them.
  std::int64_t live_with(const Request& request) const {
    const Entry* entry = find(request);
    return live_ + (entry == nullptr || entry->users == 0 ? whole_pages(request) : 0);
  }
  std::int64_t idle() const { return idle_; }
  bool has(std::int64_t prefix) const { return entries_.contains(prefix); }

  // Call before the request is listed as running; returns shared(request).
  std::int64_t enter(const Request& request) {
    const std::int64_t tokens = shared(request);
    if (tokens == 0) {
      return 0;
    }
    const auto [entry, is_new] = entries_.try_emplace(request.prefix);
    if (is_new) {
      entry->second.tokens = tokens;
      cache_.take_all(tokens);
    } else if (entry->second.users == 0) {
      idle_ -= tokens;
    }
    live_ += entry->second.users == 0 ? tokens : 0;
    ++entry->second.users;
    return tokens;
  }
  void computed(std::int64_t prefix) { entries_.at(prefix).computed = true; }
  void leave(std::int64_t prefix) {
    const auto entry = entries_.find(prefix);
    if (--entry->second.users > 0) {
      return;
    }
    live_ -= entry->second.tokens;
    idle_ += entry->second.tokens;
    entry->second.last_use = ++clock_;
    if (!entry->second.computed) {
      drop(entry);
    }
  }

  // Drops unused prefixes but `keep` until there is room for so many more tokens.
  bool make_room(std::int64_t tokens, std::int64_t keep = -1) {
    while (!cache_.has_room(tokens)) {
      auto oldest = entries_.end();
      for (auto entry = entries_.begin(); entry != entries_.end(); ++entry) {
        const bool droppable = entry->second.users == 0 && entry->first != keep;
        if (droppable &&
            (oldest == entries_.end() || entry->second.last_use < oldest->second.last_use)) {
          oldest = entry;
        }
      }
      if (oldest == entries_.end()) {
        return false;
      }
      drop(oldest);
    }
    return true;
  }

 private:
  struct Entry {
    std::int64_t tokens = 0;
    std::int64_t users = 0;
    std::int64_t last_use = 0;
    bool computed = false;
  };
  using Entries = std::map<std::int64_t, Entry>;

  std::int64_t whole_pages(const Request& request) const {
    return request.prefix < 0 ? 0 : request.shared / page_ * page_;
  }
  const Entry* find(const Request& request) const {
    const auto entry = entries_.find(request.prefix);
    return entry == entries_.end() ? nullptr : &entry->second;
  }
  void drop(Entries::iterator entry) {
    cache_.give_all(entry->second.tokens);
    idle_ -= entry->second.tokens;
    entries_.erase(entry);
  }

  CachePages& cache_;
  std::int64_t page_;
  Entries entries_;
  std::int64_t live_ = 0;  // tokens of prefixes with users
  std::int64_t idle_ = 0;  // of those without
  std::int64_t clock_ = 0;
};

}  // namespace orrery::plan
