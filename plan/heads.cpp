// SPDX-License-Identifier: Apache-2.0
#include "plan/heads.hpp"

namespace orrery::plan {

bool splits_kv_heads(const models::NetworkSpec& spec, std::int64_t ranks) {
  return spec.kv_heads == 0 || spec.kv_heads % ranks == 0 || ranks % spec.kv_heads == 0;
}

bool exchanges_heads(const models::NetworkSpec& spec, std::int64_t ranks) {
  const bool of_encoder = spec.encoder.layers == 0 || spec.encoder.heads % ranks == 0;
  const bool of_cascade = spec.cascade.layers == 0 || spec.cascade.heads % ranks == 0;
  return spec.heads % ranks == 0 && splits_kv_heads(spec, ranks) && of_encoder && of_cascade;
}

}  // namespace orrery::plan
