// SPDX-License-Identifier: Apache-2.0
#include "studies/sweeps/member_errors.hpp"

#include <array>
#include <string_view>
#include <utility>

namespace orrery::studies {
namespace {

constexpr std::array<std::pair<std::string_view, std::string_view>, 10> kMembers = {
    {{"--seq", "sequence"},
     {"--memory-reserve", "memory_reserve"},
     {"--batch", "batch"},
     {"--precision", "precision"},
     {"--profile", "profile"},
     {"--set", "set"},
     {"--fix", "fix"},
     {"--forbid", "forbid"},
     {"--allow", "allow"},
     {"--schedule", "schedule"}}};

std::string with_members(std::string text) {
  for (const auto& [option, member] : kMembers) {
    for (std::size_t at = text.find(option); at != std::string::npos; at = text.find(option, at)) {
      text.replace(at, option.size(), member);
    }
  }
  return text;
}

}  // namespace

std::string member_message(const Error& error) { return with_members(error.what()); }

std::string without_option(const Error& error) {
  const std::string_view text = error.what();
  const bool cites_option = error.where().starts_with("--");
  return with_members(std::string(cites_option ? text.substr(error.where().size() + 2) : text));
}

}  // namespace orrery::studies
