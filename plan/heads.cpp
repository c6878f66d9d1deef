// SPDX-License-Identifier: Apache-2.0
#include "plan/heads.hpp"

#include <numeric>

namespace orrery::plan {

bool splits_kv_heads(const models::NetworkSpec& spec, std::int64_t ranks) {
  return spec.kv_heads == 0 || spec.kv_heads % ranks == 0 || ranks % spec.kv_heads == 0;
}

bool cuts_evenly(const models::NetworkSpec& spec, std::int64_t ranks, bool whole_experts) {
  std::int64_t width = std::gcd(spec.heads, spec.ffn_hidden);  // gcd(x, 0) is x
  width = std::gcd(width, spec.adapters.rank);
  if (spec.moe.experts > 0) {
    width = std::gcd(width, spec.moe.shared_ffn_hidden);
    width = whole_experts ? width : std::gcd(width, spec.moe.ffn_hidden);
  }
  if (spec.encoder.layers > 0) {
    width = std::gcd(std::gcd(width, spec.encoder.heads), spec.encoder.hidden);
  }
  if (spec.cascade.layers > 0) {
    width = std::gcd(std::gcd(width, spec.cascade.heads), spec.cascade.hidden);
    width = std::gcd(width, spec.cascade.ffn_hidden);
  }
  return width % ranks == 0 && splits_kv_heads(spec, ranks);
}

bool exchanges_heads(const models::NetworkSpec& spec, std::int64_t ranks) {
  const bool of_encoder = spec.encoder.layers == 0 || spec.encoder.heads % ranks == 0;
  const bool of_cascade = spec.cascade.layers == 0 || spec.cascade.heads % ranks == 0;
  return spec.heads % ranks == 0 && splits_kv_heads(spec, ranks) && of_encoder && of_cascade;
}

}  // namespace orrery::plan
