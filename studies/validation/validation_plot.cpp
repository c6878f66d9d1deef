// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <string_view>

#include "studies/validation/validation.hpp"

namespace orrery::studies {
namespace {

struct Band {
  double end;  // first error beyond it
  std::string_view name;
};

constexpr std::array<Band, 10> kBands = {{{-0.5, "below -50 %"},
                                          {-0.3, "-50 to -30 %"},
                                          {-0.2, "-30 to -20 %"},
                                          {-0.1, "-20 to -10 %"},
                                          {0.0, "-10 to 0 %"},
                                          {0.1, "0 to 10 %"},
                                          {0.2, "10 to 20 %"},
                                          {0.3, "20 to 30 %"},
                                          {0.5, "30 to 50 %"},
                                          {std::numeric_limits<double>::infinity(), "above 50 %"}}};
constexpr std::size_t kBarWidth = 60;

}  // namespace

std::string error_plot(const std::vector<RowResult>& rows) {
  std::array<std::size_t, kBands.size()> counts{};
  for (const RowResult& row : rows) {
    if (row.simulated() && !row.small) {
      const auto band = std::find_if(kBands.begin(), kBands.end() - 1,
                                     [&](const Band& b) { return row.error() < b.end; });
      ++counts[static_cast<std::size_t>(band - kBands.begin())];
    }
  }
  const std::size_t most = *std::max_element(counts.begin(), counts.end());
  if (most == 0) {
    return {};
  }
  const std::size_t digits = fmt::formatted_size("{}", most);
  std::string text = "\nerror (predicted / measured - 1), rows\n";
  for (std::size_t band = 0; band < kBands.size(); ++band) {
    const std::size_t bar = (counts[band] * kBarWidth + most - 1) / most;
    text +=
        fmt::format("{:>12}  {:>{}} {:#<{}}\n", kBands[band].name, counts[band], digits, "", bar);
  }
  return text;
}

}  // namespace orrery::studies
