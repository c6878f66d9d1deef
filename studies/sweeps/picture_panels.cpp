// SPDX-License-Identifier: Apache-2.0
#include "studies/sweeps/picture_panels.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <map>
#include <utility>

#include "base/text.hpp"

namespace orrery::studies {
namespace {

constexpr std::size_t kMostPanels = 12;

}  // namespace

PicturePanels::PicturePanels(const Sweep& sweep, const std::vector<SweepPoint>& points)
    : sweep_(sweep) {
  for (std::size_t field = 0; field < sweep.fields.size(); ++field) {
    axes_.emplace_back(sweep, field);
  }
  const std::size_t count = is_split() ? axes_[2].values().size() : 1;
  for (std::size_t panel = 0; panel < count; ++panel) {
    panels_.push_back(has_cells() ? fastest_by_cell(members(panel), points) : members(panel));
  }
}

bool PicturePanels::has_cells() const {
  return axes_.size() > 1 && axes_[0].is_listed() && axes_[1].is_listed();
}

bool PicturePanels::is_split() const {
  return axes_.size() > 2 && axes_[2].is_listed() && axes_[2].values().size() <= kMostPanels;
}

std::vector<std::size_t> PicturePanels::members(std::size_t panel) const {
  std::vector<std::size_t> indices;
  for (std::size_t i = 0; i < sweep_.points.size(); ++i) {
    if (!is_split() || axes_[2].index(sweep_.points[i][2]) == panel) {
      indices.push_back(i);
    }
  }
  return indices;
}

std::vector<std::size_t> PicturePanels::fastest_by_cell(
    const std::vector<std::size_t>& members, const std::vector<SweepPoint>& points) const {
  std::map<std::pair<std::size_t, std::size_t>, std::size_t> best;
  for (const std::size_t i : members) {
    const std::vector<std::string>& values = sweep_.points[i];
    const std::pair cell(axes_[0].index(values[0]), axes_[1].index(values[1]));
    const auto [entry, added] = best.try_emplace(cell, i);
    if (!added && points[i].tokens_per_s > points[entry->second].tokens_per_s) {
      entry->second = i;
    }
  }
  std::vector<std::size_t> fastest;
  for (const auto& [cell, index] : best) {
    fastest.push_back(index);
  }
  return fastest;
}

std::vector<std::size_t> PicturePanels::all_points() const {
  std::vector<std::size_t> indices;
  for (const std::vector<std::size_t>& panel : panels_) {
    indices.insert(indices.end(), panel.begin(), panel.end());
  }
  return indices;
}

std::string PicturePanels::title(std::size_t panel) const {
  return is_split()
             ? printable(fmt::format("{} {}", sweep_.fields[2], axes_[2].values()[panel]), 80)
             : std::string();
}

std::string PicturePanels::remark() const {
  std::vector<std::string> others;
  for (std::size_t field = is_split() ? 3 : 2; field < axes_.size(); ++field) {
    if (axes_[field].values().size() > 1) {
      others.push_back(printable(sweep_.fields[field], 60));
    }
  }
  return others.empty() ? std::string()
                        : fmt::format(fmt::runtime(has_cells() ? "each cell the fastest over {}"
                                                               : "points of all values of {}"),
                                      fmt::join(others, ", "));
}

}  // namespace orrery::studies
