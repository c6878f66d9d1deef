// SPDX-License-Identifier: Apache-2.0
// Operators whose variables are split over workers, and the tensors between them: the problem of
// Tofu's planner.
#pragma once

#include <string>
#include <vector>

#include "base/json_reader.hpp"

namespace orrery::search {

struct SplitDim {
  std::string var;
  double extent = 1;
  double parts = 1;  // that it is in after the steps so far
  // Whether every one of k more workers would have an index of it.
  bool splits(double k) const { return parts * k <= extent; }
};

struct SplitTensor {
  std::string name;
  double element_bytes = 2;
  std::vector<SplitDim> dims;
  int last_use = -1;
};

struct SplitOperator {
  std::string name;
  std::vector<int> inputs;
  int output = -1;
  std::vector<SplitDim> vars;
  std::vector<std::string> split;  // variable and factor of the steps so far
  std::vector<double> factors;
};

struct SplitGraph {
  std::vector<SplitTensor> tensors;
  std::vector<SplitOperator> operators;
  bool training = true;
};

// Operators in the order in which they run. Error where a name is missing or given twice.
SplitGraph read_split_graph(ObjectReader& problem);

}  // namespace orrery::search
