// SPDX-License-Identifier: Apache-2.0
// The logarithmic axis of a scatter: limits around the data, round ticks, labelled with their unit,
// memory in GiB.
#pragma once

#include <string>
#include <vector>

namespace orrery::studies {

struct Tick {
  double value = 0;
  std::string label;
};

class LogAxis {
 public:
  // Positive limits, low <= high; widened by a little, to at least a factor of two.
  LogAxis(double low, double high);
  double place(double value) const;  // 0 at the lower end, 1 at the upper; clamped
  double low() const { return low_; }
  double high() const { return high_; }
  std::vector<Tick> ticks(bool memory) const;

 private:
  double low_;
  double high_;
};

// "35 us", "1.2 s", "40 GiB".
std::string quantity_label(double value, bool memory);

}  // namespace orrery::studies
