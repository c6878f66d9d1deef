// SPDX-License-Identifier: Apache-2.0
#include "base/dtype.hpp"

#include <array>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "base/text.hpp"

namespace orrery {

namespace {
constexpr std::array<std::string_view, kNumDTypes> kNames = {"fp32", "tf32", "bf16",
                                                             "fp16", "fp8",  "nvfp4"};
}

std::string_view to_text(DType dtype) { return kNames[static_cast<std::size_t>(dtype)]; }

DType parse_dtype(std::string_view name, std::string_view where) {
  for (std::size_t index = 0; index < kNames.size(); ++index) {
    if (kNames[index] == name) {
      return static_cast<DType>(index);
    }
  }
  const std::vector<std::string> known(kNames.begin(), kNames.end());
  bad_input(where, "unknown precision \"" + printable(name) + "\"", nearest_hint(name, known));
}

}  // namespace orrery
