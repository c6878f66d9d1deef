// SPDX-License-Identifier: Apache-2.0
// What a row of linkedin/Liger-Kernel's benchmark table (benchmark/data/all_benchmark_data.csv)
// timed: one swept size and the other sizes as a JSON object. Benchmarks of whole blocks (with
// matrix products) and of forward and backward together are none; where the table does not name the
// number format it is the default of PyTorch, fp32.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/json.hpp"
#include "calibrate/sample_shapes.hpp"

namespace orrery::calibrate {

struct LigerRow {
  std::string kernel;
  std::string implementation;
  std::string pass;
  std::string swept;  // name of the swept size
  std::int64_t size = 0;
  Json config;
};

// A streaming kernel, or nullopt.
std::optional<MemorySample> liger_kernel(const LigerRow& row);

// What a lookup reads of rows that other tokens have read before it, and of how much at a time: the
// cache serves it where that stays there.
struct RepeatedReads {
  std::int64_t bytes = 0;
  std::int64_t among = 0;
};
RepeatedReads repeated_reads(const LigerRow& row);

}  // namespace orrery::calibrate
