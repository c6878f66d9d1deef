// SPDX-License-Identifier: Apache-2.0
#include "traces/nccl_notes.hpp"

#include <fmt/format.h>

#include <array>
#include <utility>

#include "base/limits.hpp"
#include "base/quantity_text.hpp"
#include "base/text.hpp"

namespace orrery::traces {
namespace {

// "": nothing was said before, or no rows stand between.
std::string contradiction(const NcclLog& log, std::string_view what, std::string_view before,
                          std::string_view now) {
  return log.rows.empty() || before.empty()
             ? std::string()
             : fmt::format("{} {}, but {} of the rows before", what, now, before);
}

std::string set_text(std::string_view key, std::string value, std::string& known,
                     const NcclLog& log) {
  std::string other = value == known ? std::string() : contradiction(log, key, known, value);
  known = std::move(value);
  return other;
}

std::string read_note(std::string_view key, std::string value, const std::string& where,
                      NcclLog& log) {
  constexpr std::array<std::pair<std::string_view, std::string NcclLog::*>, 3> kTexts = {
      {{"gpu", &NcclLog::gpu},
       {"interconnect", &NcclLog::interconnect},
       {"launch", &NcclLog::launch}}};
  constexpr std::array<std::pair<std::string_view, int NcclLog::*>, 2> kCounts = {
      {{"nodes", &NcclLog::nodes}, {"gpus_per_node", &NcclLog::gpus_per_node}}};
  for (const auto& [name, member] : kTexts) {
    if (key == name) {
      return set_text(key, std::move(value), log.*member, log);
    }
  }
  for (const auto& [name, member] : kCounts) {
    if (key == name) {
      const auto count = static_cast<int>(parse_integer(value, where, 1, limits::kMaxDevices));
      const int before = std::exchange(log.*member, count);
      return before == 0 || before == count
                 ? std::string()
                 : contradiction(log, key, std::to_string(before), value);
    }
  }
  return key == "nccl" ? set_version(std::move(value), log) : std::string();
}

}  // namespace

std::string read_notes(std::string_view text, const std::string& where, NcclLog& log) {
  std::string other;
  while (!(text = trim(text)).empty()) {
    const std::string_view part = text.substr(0, text.find("  "));
    text.remove_prefix(part.size());
    const std::size_t colon = part.find(": ");
    if (colon != std::string_view::npos) {
      const std::string value = printable(trim(part.substr(colon + 2)));
      std::string of_note = read_note(part.substr(0, colon), value, where, log);
      other = other.empty() ? std::move(of_note) : other;
    }
  }
  return other;
}

std::string RankHosts::add(const NcclRank& place, const NcclLog& log) {
  const auto [known, is_new] = hosts_.emplace(place.rank, place.host);
  if (log.rows.empty()) {
    of_rows_ = hosts_.size();
    return "";
  }
  if (is_new && of_rows_ > 0) {
    return fmt::format("rank {}, but {} ranks of the rows before", place.rank, of_rows_);
  }
  const bool moved = known->second != place.host;
  return moved ? fmt::format("rank {} on {}, but on {} of the rows before", place.rank, place.host,
                             known->second)
               : std::string();
}

std::string set_version(std::string version, NcclLog& log) {
  std::string& known = log.nccl_version;
  const bool same = known.starts_with(version) || version.starts_with(known);
  std::string other = same ? std::string() : contradiction(log, "NCCL", known, version);
  known = std::move(version);
  return other;
}

}  // namespace orrery::traces
