// SPDX-License-Identifier: Apache-2.0
#include "search/per_block/search.hpp"

namespace orrery::search {

Outcome search_space(const plan::Plan& base, const Options& options,
                     const std::function<void(const ProgressReport&)>& progress) {
  return options.space == SpaceKind::PerBlock ? search_per_block(base, options, progress).outcome
                                              : search(base, options, progress);
}

}  // namespace orrery::search
