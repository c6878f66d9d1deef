// SPDX-License-Identifier: Apache-2.0
// The KV cache as pages of equally many tokens (vLLM, arXiv 2309.06180): what a request holds is
// rounded up to whole pages, and the rest of its last page is waste. One token a page: no waste.
#pragma once

#include <cstdint>

#include "base/math.hpp"

namespace orrery::plan {

class CachePages {
 public:
  CachePages(std::int64_t tokens_per_page, std::int64_t capacity)
      : page_(tokens_per_page), capacity_(capacity / tokens_per_page * tokens_per_page) {}

  std::int64_t rounded(std::int64_t tokens) const { return ceil_div(tokens, page_) * page_; }
  // What one more token of a request that holds so many takes: nothing, or a page.
  std::int64_t growth(std::int64_t held) const {
    return page_ == 1 || held % page_ == 0 ? page_ : 0;
  }
  // Most that rounding adds to a request.
  std::int64_t slack() const { return page_ - 1; }

  bool has_room(std::int64_t more) const { return reserved_ + more <= capacity_; }
  void take(std::int64_t tokens) {
    reserved_ += rounded(tokens);
    tokens_ += tokens;
  }
  void give(std::int64_t tokens) {
    reserved_ -= rounded(tokens);
    tokens_ -= tokens;
  }
  void grow(std::int64_t& held) {
    reserved_ += growth(held);
    ++tokens_;
    ++held;
  }

  // So many requests one token each, which takes so much more.
  void grow_all(std::int64_t requests, std::int64_t growth) {
    reserved_ += growth;
    tokens_ += requests;
  }
  std::int64_t per_page() const { return page_; }

  std::int64_t capacity() const { return capacity_; }
  std::int64_t reserved() const { return reserved_; }  // tokens of the pages in use
  std::int64_t waste() const { return reserved_ - tokens_; }

 private:
  std::int64_t page_;
  std::int64_t capacity_;
  std::int64_t reserved_ = 0;
  std::int64_t tokens_ = 0;
};

}  // namespace orrery::plan
