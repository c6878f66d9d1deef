// SPDX-License-Identifier: Apache-2.0
#include "studies/validation/log_facts.hpp"

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <optional>
#include <utility>

#include "base/csv.hpp"
#include "base/text.hpp"
#include "calibrate/fit/log_system.hpp"

namespace orrery::studies {
namespace {

namespace fs = std::filesystem;

constexpr int kMaxHeaderLines = 64;
constexpr std::size_t kMaxLine = 4096;

LogFacts facts_of(std::string_view interconnect, std::string_view nccl, std::string_view launch) {
  return {std::string(interconnect), calibrate::nccl_version(nccl),
          calibrate::launch_mode_of(launch)};
}

// "2292" in "aiconfig_nccl2292": version 2.29.2.
int version_in_name(std::string_view name) {
  constexpr std::string_view kWord = "nccl2";
  const std::size_t at = name.rfind(kWord);
  if (at == std::string_view::npos) {
    return 0;
  }
  const std::string_view digits = name.substr(at + kWord.size(), 2);
  return digits.size() == 2 ? calibrate::nccl_version("2." + std::string(digits)) : 0;
}

// Collections of logs that a name tells where neither the log nor an index lies beside the table:
// how their ranks were launched and on what network, by the command lines and pages they come from.
struct KnownSource {
  std::string_view part;  // of the name's last part
  std::string_view interconnect;
  calibrate::LaunchMode launch;
};
constexpr auto kKnownSources = std::to_array<KnownSource>({
    {"aiconfig", "", calibrate::LaunchMode::ThreadPerGpu},
    {"superbench", "", calibrate::LaunchMode::OneProcess},
    {"vtrain", "", calibrate::LaunchMode::OneProcess},
    {"thanos_g", "", calibrate::LaunchMode::OneProcess},
    {"dkh", "", calibrate::LaunchMode::OneProcess},
    {"dgx2", "", calibrate::LaunchMode::OneProcess},
    {"a100_43_44", "8x RoCE NICs", calibrate::LaunchMode::OneProcess},
    {"alpha_test", "NIC not stated", calibrate::LaunchMode::OneProcess},
    {"oci_b4", "16x 100Gb/s RoCE", calibrate::LaunchMode::ProcessPerGpu},
    {"oci", "RoCE", calibrate::LaunchMode::ProcessPerGpu},
    {"dranet", "RoCE", calibrate::LaunchMode::ProcessPerGpu},
    {"sharp", "SHARP", calibrate::LaunchMode::ProcessPerGpu},
});

void add_known_source(std::string_view log, LogFacts& facts) {
  const std::string_view last = log.substr(log.rfind('-') + 1);
  for (const KnownSource& source : kKnownSources) {
    if (last.find(source.part) != std::string_view::npos) {
      facts.interconnect =
          facts.interconnect.empty() ? std::string(source.interconnect) : facts.interconnect;
      facts.launch = facts.launch == calibrate::LaunchMode::Unknown ? source.launch : facts.launch;
      return;
    }
  }
}

// The value of "key: value" up to the next two blanks.
std::string_view value_after(std::string_view line, std::string_view key) {
  const std::size_t at = line.find(key);
  if (at == std::string_view::npos) {
    return {};
  }
  const std::string_view rest = line.substr(at + key.size());
  return trim(rest.substr(0, rest.find("  ")));
}

std::optional<LogFacts> from_header(const fs::path& path) {
  std::ifstream log(path);
  if (!log || !fs::is_regular_file(path)) {
    return std::nullopt;
  }
  std::string interconnect;
  std::string nccl;
  std::string launch;
  std::string line;
  for (int i = 0; i < kMaxHeaderLines && std::getline(log, line) && line.starts_with('#'); ++i) {
    line.resize(std::min(line.size(), kMaxLine));
    const std::array<std::pair<std::string_view, std::string*>, 3> values = {
        {{"interconnect:", &interconnect}, {"nccl:", &nccl}, {"launch:", &launch}}};
    for (const auto& [key, value] : values) {
      if (const std::string_view found = value_after(line, key); !found.empty()) {
        *value = std::string(found);
      }
    }
  }
  return facts_of(interconnect, nccl, launch);
}

std::optional<LogFacts> from_index(const fs::path& path, std::string_view log) {
  if (!fs::is_regular_file(path)) {
    return std::nullopt;
  }
  const CsvTable index = read_csv_file(path.string());
  for (const char* column : {"file", "interconnect", "nccl_version", "launch"}) {
    if (!index.has_column(column)) {
      return std::nullopt;
    }
  }
  for (std::size_t row = 0; row < index.num_rows(); ++row) {
    if (index.cell(row, "file") == log) {
      return facts_of(index.cell(row, "interconnect"), index.cell(row, "nccl_version"),
                      index.cell(row, "launch"));
    }
  }
  return std::nullopt;
}

}  // namespace

LogFacts log_facts(const std::string& table, std::string_view log) {
  LogFacts facts;
  // A name is no path: nothing outside the folder of the table is opened.
  const bool plain = log.find('/') == std::string_view::npos && !log.empty();
  if (plain && table != "-") {
    const fs::path folder = fs::path(table).parent_path();
    if (const auto header = from_header(folder / log)) {
      facts = *header;
    } else if (const auto listed = from_index(folder / "index.csv", log)) {
      facts = *listed;
    }
  }
  if (facts.nccl == 0) {
    facts.nccl = version_in_name(log);
  }
  add_known_source(log, facts);
  return facts;
}

}  // namespace orrery::studies
