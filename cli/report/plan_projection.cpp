// SPDX-License-Identifier: Apache-2.0
#include "cli/report/plan_projection.hpp"

#include <fmt/format.h>

#include "base/quantity_text.hpp"
#include "base/table.hpp"
#include "cli/command/common.hpp"

namespace orrery::cli {

std::string projection_text(const std::vector<search::Projection>& projections) {
  TextTable table({{"ranks", Align::Right},
                   {"search", Align::Right},
                   {"speed-up", Align::Right},
                   {"efficiency", Align::Right}});
  for (const search::Projection& projection : projections) {
    table.add_row({fmt::format("{}", projection.ranks), format_duration(projection.time),
                   fmt::format("{:.2f}", projection.speed_up), percent(projection.efficiency)});
  }
  return "\nThis search on more ranks of one thread each, simulated from what its nodes took:\n" +
         table.text();
}

Json projection_json(const std::vector<search::Projection>& projections) {
  Json rows = Json::array();
  for (const search::Projection& projection : projections) {
    rows.push(Json::Object{{"ranks", projection.ranks},
                           {"time_s", projection.time.value()},
                           {"speed_up", projection.speed_up},
                           {"efficiency", projection.efficiency}});
  }
  return rows;
}

}  // namespace orrery::cli
