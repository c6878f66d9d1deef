// SPDX-License-Identifier: Apache-2.0
// Which points of a sweep its picture draws in which plot.
#pragma once

#include <string>
#include <vector>

#include "studies/sweeps/field_axis.hpp"
#include "studies/sweeps/sweep.hpp"

namespace orrery::studies {

class PicturePanels {
 public:
  PicturePanels(const Sweep& sweep, const std::vector<SweepPoint>& points);

  const FieldAxis& axis(std::size_t field) const { return axes_[field]; }
  // One, or one for each value of the third field where it has a dozen at most, listed ones.
  std::size_t size() const { return panels_.size(); }
  // Indices of the points that a panel draws: of one field, or of fields by their numbers, all; of
  // several points in a cell of two listed fields the fastest.
  const std::vector<std::size_t>& points(std::size_t panel) const { return panels_[panel]; }
  std::vector<std::size_t> all_points() const;
  // "gpu.memory 40 GB" where there are several.
  std::string title(std::size_t panel) const;
  // Whether a panel has a cell for each pair of values; else points lie where their numbers are.
  bool has_cells() const;
  // How the fields that a panel does not tell apart are shown, "" without such fields.
  std::string remark() const;

 private:
  bool is_split() const;
  std::vector<std::size_t> members(std::size_t panel) const;
  std::vector<std::size_t> fastest_by_cell(const std::vector<std::size_t>& members,
                                           const std::vector<SweepPoint>& points) const;

  const Sweep& sweep_;
  std::vector<FieldAxis> axes_;
  std::vector<std::vector<std::size_t>> panels_;
};

}  // namespace orrery::studies
