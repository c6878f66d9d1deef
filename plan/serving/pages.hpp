// SPDX-License-Identifier: Apache-2.0
// The KV cache as pages of equally many tokens (vLLM, arXiv 2309.06180): what a request holds is
// rounded up to whole pages, and the rest of its last page is waste. One token a page: no waste.
// Layers with a sliding window, a share of what a token takes, keep the pages that their window
// reaches and free the others (vLLM v1/core/single_type_kv_cache_manager.py, SlidingWindowManager):
// those behind it before an iteration, those of the tokens that it computes only after it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>

#include "base/math.hpp"

namespace orrery::plan {

struct SlidingLayers {
  std::int64_t window = 0;  // tokens that these layers see
  double share = 0;         // of the cache's bytes that is theirs
  std::int64_t chunk = 0;   // most tokens of a prompt that an iteration computes
};

class CachePages {
 public:
  CachePages(std::int64_t tokens_per_page, std::int64_t capacity, SlidingLayers sliding = {})
      : page_(tokens_per_page),
        capacity_(capacity / tokens_per_page * tokens_per_page),
        window_(sliding.window),
        // A window ends anywhere in its first page.
        reach_(page_ == 1 ? window_ : whole(window_) + page_),
        share_(sliding.window > 0 ? sliding.share : 0),
        chunk_(whole(sliding.chunk)) {}

  // What is left of so many tokens.
  std::int64_t kept(std::int64_t tokens) const { return tokens - freed(tokens, reach_); }
  // What a request of so many tokens takes.
  std::int64_t rounded(std::int64_t tokens) const { return kept(whole(tokens)); }
  // What it takes beside that until its prompt is computed.
  std::int64_t passing(std::int64_t tokens) const {
    return freed(std::min(whole(tokens), reach_ + chunk_), reach_);
  }
  // What one more token of a request that holds so many takes: nothing, or at most a page.
  std::int64_t growth(std::int64_t held) const {
    const bool has_place = page_ > 1 && held % page_ != 0;
    return has_place ? 0 : kept(held + page_) - kept(held);
  }
  // The same without waste.
  std::int64_t needed_growth(std::int64_t held) const { return needed(held + 1) - needed(held); }
  // Most that rounding adds to a request.
  std::int64_t slack() const { return page_ - 1; }
  bool frees() const { return share_ > 0; }
  // In whole pages.
  SlidingLayers sliding() const { return {reach_, share_, chunk_}; }
  // Tokens of the longest request that it can hold.
  std::int64_t longest() const {
    const std::int64_t least = reach_ + chunk_;
    if (!frees() || capacity_ <= least) {
      return capacity_;
    }
    if (share_ >= 1) {
      return std::numeric_limits<std::int64_t>::max();
    }
    std::int64_t tokens = whole(
        least + static_cast<std::int64_t>(static_cast<double>(capacity_ - least) / (1 - share_)));
    while (rounded(tokens) + passing(tokens) > capacity_) {
      tokens -= page_;
    }
    return tokens;
  }

  bool has_room(std::int64_t more) const { return reserved_ + more <= capacity_; }
  void take(std::int64_t tokens) {
    reserved_ += rounded(tokens);
    tokens_ += needed(tokens);
  }
  void give(std::int64_t tokens) {
    reserved_ -= rounded(tokens);
    tokens_ -= needed(tokens);
  }
  void grow(std::int64_t& held) {
    reserved_ += growth(held);
    tokens_ += needed_growth(held);
    ++held;
  }
  // Whole pages, or parts of some, of which nothing is freed.
  void take_all(std::int64_t tokens) {
    reserved_ += tokens;
    tokens_ += tokens;
  }
  void give_all(std::int64_t tokens) { take_all(-tokens); }

  // Several requests one token each: the sums of their growth.
  void grow_all(std::int64_t needed_growth, std::int64_t growth) {
    reserved_ += growth;
    tokens_ += needed_growth;
  }
  std::int64_t per_page() const { return page_; }

  std::int64_t capacity() const { return capacity_; }
  std::int64_t reserved() const { return reserved_; }  // tokens of the pages in use
  std::int64_t waste() const { return reserved_ - tokens_; }

 private:
  std::int64_t whole(std::int64_t tokens) const { return ceil_div(tokens, page_) * page_; }
  std::int64_t freed(std::int64_t tokens, std::int64_t reach) const {
    return frees() && tokens > reach
               ? static_cast<std::int64_t>(share_ * static_cast<double>(tokens - reach))
               : 0;
  }
  std::int64_t needed(std::int64_t tokens) const { return tokens - freed(tokens, window_); }

  std::int64_t page_;
  std::int64_t capacity_;
  std::int64_t window_;
  std::int64_t reach_;  // tokens of the pages that a window reaches
  double share_;
  std::int64_t chunk_;  // whole pages
  std::int64_t reserved_ = 0;
  std::int64_t tokens_ = 0;
};

}  // namespace orrery::plan
