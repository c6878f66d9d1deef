// SPDX-License-Identifier: Apache-2.0
// Options of `orrery plan` for long searches: checkpoints.
#pragma once

#include <string>

#include "search/search.hpp"

namespace CLI {
class App;
}

namespace orrery::cli {

struct ScaleOptions {
  std::string checkpoint;
  std::string checkpoint_every;
  std::string resume;
  bool any() const { return !(checkpoint + checkpoint_every + resume).empty(); }
};
void add_scale_options(CLI::App& command, ScaleOptions& options);
void apply_scale_options(const ScaleOptions& options, search::Options& how);

// "90" is seconds, "2 min" is said with its unit; empty: 0.
Seconds parse_time(const std::string& text, const char* option);

}  // namespace orrery::cli
