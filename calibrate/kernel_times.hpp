// SPDX-License-Identifier: Apache-2.0
// Many launches of equal work, as profilers record them, gathered into one sample for each shape
// and one named duration for each other kernel. At most 4,096 times of each are kept (evenly
// thinned), so that memory depends on the number of different shapes alone.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "calibrate/reading_builder.hpp"

namespace orrery::calibrate {

// A text that is equal for equal shapes of the kinds profilers know (GEMM, attention, copies,
// collectives).
std::string shape_key(const Shape& shape);

class KernelTimes {
 public:
  explicit KernelTimes(ReadingBuilder& builder) : builder_(builder) {}

  void add(const Shape& shape, double seconds);
  void add_named(const std::string& name, double seconds);
  // Hands everything to the builder, samples under this header.
  void finish(const SampleHeader& header);

 private:
  struct Times {
    std::vector<double> kept;
    std::int64_t count = 0;
    std::int64_t stride = 1;  // every stride-th is kept
    double total = 0;
    void add(double seconds);
  };

  ReadingBuilder& builder_;
  std::vector<std::pair<Shape, Times>> shapes_;  // in the order met
  std::map<std::string, std::size_t> index_;     // by key
  std::map<std::string, Times> names_;
};

}  // namespace orrery::calibrate
