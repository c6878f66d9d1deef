// SPDX-License-Identifier: Apache-2.0
#include "studies/sweeps/picture_texts.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/quantity_text.hpp"
#include "base/svg.hpp"

namespace orrery::studies {

std::string hover_text(const Sweep& sweep, std::size_t index, const SweepPoint& point) {
  std::string text;
  for (std::size_t i = 0; i < sweep.fields.size(); ++i) {
    text += xml_text(fmt::format("{} {}", sweep.fields[i], sweep.points[index][i])) + "\n";
  }
  if (point.state != PointState::Found) {
    return text + xml_text(point.message);
  }
  return text + fmt::format("{} tokens/s, {}\n{}", format_count(point.tokens_per_s),
                            format_duration(Seconds(point.iteration_time_s)),
                            xml_text(point.layout));
}

std::string cell_label(const SweepPoint& point) {
  switch (point.state) {
    case PointState::Found:
      return format_count(point.tokens_per_s);
    case PointState::Infeasible:
      return "none fits";
    case PointState::Failed:
      return "failed";
    case PointState::Pending:
      break;
  }
  return "not searched";
}

std::string subject_of(const Sweep& sweep) {
  std::string said;
  for (const auto& [member, before] :
       {std::pair("network", ""), std::pair("cluster", "on "), std::pair("batch", "batch "),
        std::pair("sequence", "sequence ")}) {
    const Json* value = sweep.document.find(member);
    const bool swept =
        std::find(sweep.fields.begin(), sweep.fields.end(), member) != sweep.fields.end();
    if (value != nullptr && !swept && (value->is_string() || value->is_integer())) {
      const bool on = *before == 'o';
      said += said.empty() ? "" : on ? " " : ", ";
      said += (said.empty() && on ? "" : before) +
              (value->is_string() ? value->as_string() : value->dump());
    }
  }
  return said;
}

}  // namespace orrery::studies
