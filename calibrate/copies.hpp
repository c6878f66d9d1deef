// SPDX-License-Identifier: Apache-2.0
// Samples that come twice: a file named twice, its copy under another name, a table into which the
// rows of a log were collected. Counted twice they would weigh double in a fit.
#pragma once

#include <string>
#include <unordered_map>
#include <vector>

#include "calibrate/reader.hpp"

namespace orrery::calibrate {

class CopyFinder {
 public:
  // Takes out of a Reading the samples that earlier files gave and says so among its remarks. Two
  // measurements may agree by chance, so files must share half of the samples of the smaller one.
  void drop_copies(const std::string& path, Reading& reading);

 private:
  struct Earlier {
    std::string path;
    std::size_t samples = 0;
  };
  std::vector<Earlier> earlier_;
  std::unordered_map<std::string, std::size_t> first_;  // file that gave a sample, by its text
};

// The same in one document: samples that repeat others to the last member. How many there were.
std::size_t drop_repeated(SampleFile& file);

}  // namespace orrery::calibrate
