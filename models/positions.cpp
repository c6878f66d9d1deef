// SPDX-License-Identifier: Apache-2.0
#include "models/positions.hpp"

#include <fmt/format.h>

#include "base/error.hpp"

namespace orrery::models {

std::int64_t position_rows(const NetworkSpec& spec) {
  if (spec.position != PositionKind::Learned) {
    return 0;
  }
  return spec.max_positions > 0 ? spec.max_positions : spec.sequence;
}

void check_positions(const NetworkSpec& spec, std::int64_t sequence, const std::string& where) {
  const std::int64_t rows = position_rows(spec);
  if (rows > 0 && sequence > rows) {
    bad_input(where,
              fmt::format("sequences have {} tokens, but {} has learned positions for {}", sequence,
                          spec.name, rows),
              fmt::format("at most {} tokens, or a network with a longer table: max_positions = {} "
                          "in its document (--set max_positions={})",
                          rows, sequence, sequence));
  }
}

}  // namespace orrery::models
