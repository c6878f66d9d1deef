// SPDX-License-Identifier: Apache-2.0
// What a row measured, however it is spelt: "tokens/s/GPU" and "tokens_per_sec_per_gpu" are one.
#pragma once

#include <string>
#include <string_view>

namespace orrery::studies {

// Beside the names of docs/validation.md those of figures of a node ("tokens_per_s_per_node"), of
// all GPUs ("tflops"), of all or of each ("tflops_of_some", "tokens_per_s_of_some" of "tps" and
// "tokens_per_s_of_words" of "wps") and of a share of the peak rate ("peak_share"), which whoever
// knows the row turns into the former.
struct MetricName {
  std::string name;    // as it was written where it is none of those
  double scale = 1.0;  // of a value as stated, in the units of the name
  bool is_known = true;
  bool is_inverse = false;  // the value is a time for what the name counts: "s/sample"

  double converted(double value) const { return is_inverse ? 1 / (value * scale) : value * scale; }
};

MetricName metric_name(std::string_view text);

// A name that an unknown one may mean; else empty.
std::string likely_metric(std::string_view unknown);

}  // namespace orrery::studies
