// SPDX-License-Identifier: Apache-2.0
// What a row measured, however it is spelt: "tokens/s/GPU" and "tokens_per_sec_per_gpu" are one.
#pragma once

#include <string>
#include <string_view>

namespace orrery::studies {

struct MetricName {
  std::string name;    // as in docs/validation.md; as it was written where it is none of those
  double scale = 1.0;  // of a value as stated, in the units of the name
  bool is_known = true;
};

MetricName metric_name(std::string_view text);

// A name that an unknown one may mean; else empty.
std::string likely_metric(std::string_view unknown);

}  // namespace orrery::studies
