// SPDX-License-Identifier: Apache-2.0
// Tables of measured kernels and collectives beside the source tree (../shared), and error
// statistics |predicted / measured - 1| over them. Tests that use them skip when they are absent.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <string>
#include <vector>

#include "base/csv.hpp"
#include "base/quantity_text.hpp"
#include "tests/folders.hpp"

namespace orrery::testing {

// Code in this namespace and around it says testing:: for Googletest's, too.
using namespace ::testing;

inline std::string shared_path(const std::string& relative) {
  return (orrery::shared_folder() / relative).string();
}

inline bool has_shared() { return std::filesystem::exists(shared_path("kernels/index.csv")); }

inline double number(const CsvTable& table, std::size_t row, std::string_view column) {
  return parse_number(table.cell(row, column), table.where(row, column), -1e18, 1e18);
}

class Errors {
 public:
  void add(double predicted, double measured) {
    values_.push_back(std::abs(predicted / measured - 1));
  }
  std::size_t size() const { return values_.size(); }
  double median() const { return quantile(0.5); }
  double quantile(double share) const {
    if (values_.empty()) {
      return 1e9;
    }
    std::vector<double> sorted = values_;
    std::sort(sorted.begin(), sorted.end());
    return sorted[static_cast<std::size_t>(share * static_cast<double>(sorted.size() - 1))];
  }

 private:
  std::vector<double> values_;
};

}  // namespace orrery::testing
