// SPDX-License-Identifier: Apache-2.0
#include "studies/sweeps/picture_texts.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
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

namespace {

bool sweeps(const Sweep& sweep, std::string_view field) {
  return std::find(sweep.fields.begin(), sweep.fields.end(), field) != sweep.fields.end();
}

// "hgx-h100" of "hgx-h100:8".
std::string without_count(const std::string& cluster) {
  const std::size_t colon = cluster.rfind(':');
  const bool counts = colon != std::string::npos && colon + 1 < cluster.size() &&
                      cluster.find_first_not_of("0123456789", colon + 1) == std::string::npos;
  return counts ? cluster.substr(0, colon) : cluster;
}

}  // namespace

std::string subject_of(const Sweep& sweep) {
  std::string said;
  for (const auto& [member, before] :
       {std::pair("network", ""), std::pair("cluster", "on "), std::pair("batch", "batch "),
        std::pair("sequence", "sequence ")}) {
    const Json* value = sweep.document.find(member);
    if (value != nullptr && !sweeps(sweep, member) && (value->is_string() || value->is_integer())) {
      const bool on = *before == 'o';
      const std::string text = value->is_string() ? value->as_string() : value->dump();
      said += said.empty() ? "" : on ? " " : ", ";
      said += (said.empty() && on ? "" : before) +
              (on && sweeps(sweep, "nodes") ? without_count(text) : text);
    }
  }
  return said;
}

}  // namespace orrery::studies
