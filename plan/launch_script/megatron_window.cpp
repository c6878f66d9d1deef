// SPDX-License-Identifier: Apache-2.0
#include "plan/launch_script/megatron_window.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.hpp"
#include "base/limits.hpp"
#include "base/quantity_text.hpp"
#include "plan/launch_script/megatron_patterns.hpp"

namespace orrery::plan {
namespace {

constexpr std::string_view kSize = "--window-size";
constexpr std::string_view kSkip = "--window-attn-skip-freq";

// "128,0" or "(128, 0)": tokens before and behind; -1 stands for all.
std::int64_t read_size(std::string text, const std::string& where) {
  std::erase_if(text, [](char c) { return c == '(' || c == ')' || c == ' '; });
  const std::size_t comma = text.find(',');
  const std::string behind = comma == text.npos ? "0" : text.substr(comma + 1);
  if (behind != "0") {
    bad_input(where, "a window that looks ahead is not modelled", "N,0");
  }
  const std::string before = text.substr(0, comma);
  return before == "-1" ? 0 : parse_integer(before, where, 1, limits::kMaxSequence);
}

// The n of "every n-th layer sees everything"; 0 where none does.
std::int64_t interval_of(const std::vector<int>& windowed, const std::string& where) {
  const auto first = std::find(windowed.begin(), windowed.end(), 0);
  if (first == windowed.end()) {
    return 0;
  }
  const std::int64_t interval = first - windowed.begin() + 1;
  for (std::size_t layer = 0; layer < windowed.size(); ++layer) {
    const bool full = (static_cast<std::int64_t>(layer) + 1) % interval == 0;
    if (full != (windowed[layer] == 0)) {
      bad_input(where, "layers without a window are modelled at every n-th place only",
                "an integer n");
    }
  }
  return interval;
}

std::int64_t read_interval(const std::string& text, std::int64_t layers, const std::string& where) {
  const bool number = text.find_first_not_of("0123456789") == text.npos;
  if (number) {
    return parse_integer(text, where, 1, limits::kMaxLayers);
  }
  return interval_of(parse_layer_pattern(text, layers, where), where);
}

}  // namespace

void write_megatron_window(const models::NetworkSpec& spec, FlagList& flags) {
  if (spec.sliding_window == 0) {
    return;
  }
  flags.emplace_back(kSize, fmt::format("{},0", spec.sliding_window));
  if (spec.global_attention_interval > 0) {
    flags.emplace_back(kSkip, fmt::format("{}", spec.global_attention_interval));
  }
}

void read_megatron_window(MegatronArguments& arguments, models::NetworkSpec& spec) {
  const auto size = arguments.text(kSize);
  const auto skip = arguments.text(kSkip);
  if (!size) {
    return;
  }
  const std::int64_t interval =
      skip ? read_interval(*skip, spec.layers, arguments.where(kSkip)) : 0;
  spec.sliding_window = interval == 1 ? 0 : read_size(*size, arguments.where(kSize));
  spec.global_attention_interval = spec.sliding_window > 0 ? interval : 0;
}

}  // namespace orrery::plan
