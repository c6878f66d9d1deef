// SPDX-License-Identifier: Apache-2.0
// The words of a metric's name by what they mean, without those that say nothing.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace orrery::studies {

// In order; a stroke is "per", and a model's FLOPs over the peak's are "mfu".
std::vector<std::string> metric_words(std::string_view text);

}  // namespace orrery::studies
