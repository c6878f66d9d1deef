// SPDX-License-Identifier: Apache-2.0
#include "calibrate/collective_log.hpp"

#include <array>

#include "base/text.hpp"

namespace orrery::calibrate {
namespace {

constexpr std::string_view kNote = "launch-mode: ";
constexpr std::array<LaunchMode, 4> kModes = {LaunchMode::Unknown, LaunchMode::ProcessPerGpu,
                                              LaunchMode::ThreadPerGpu, LaunchMode::OneProcess};

bool stated(std::string_view text) { return !text.empty() && !text.starts_with("not stated"); }

}  // namespace

std::string_view to_text(LaunchMode mode) {
  constexpr std::array<std::string_view, 4> kNames = {"unknown", "process-per-gpu",
                                                      "thread-per-gpu", "one-process"};
  return kNames[static_cast<std::size_t>(mode)];
}

LaunchMode launch_mode_of(std::string_view text) {
  const auto has = [&](std::string_view word) { return text.find(word) != std::string_view::npos; };
  if (has("thread per GPU")) {
    return LaunchMode::ThreadPerGpu;
  }
  if (has("GPU per process") || has("GCD per process")) {
    return LaunchMode::ProcessPerGpu;
  }
  if (has("GPUs in one process") || has("one process driving all GPUs")) {
    return LaunchMode::OneProcess;
  }
  return LaunchMode::Unknown;
}

LaunchMode launch_mode(const SampleHeader& header) {
  for (const std::string& note : header.notes) {
    for (const LaunchMode mode : kModes) {
      if (note.starts_with(kNote) && note.substr(kNote.size()) == to_text(mode)) {
        return mode;
      }
    }
  }
  return LaunchMode::Unknown;
}

void set_launch_mode(SampleHeader& header, LaunchMode mode) {
  if (mode != LaunchMode::Unknown) {
    header.notes.push_back(std::string(kNote).append(to_text(mode)));
  }
}

void add_run_facts(SampleHeader& header, std::string_view nccl_version, std::string_view launch) {
  if (stated(nccl_version)) {
    header.libraries.emplace_back("nccl", printable(nccl_version));
  }
  set_launch_mode(header, launch_mode_of(launch));
  if (stated(launch)) {
    header.notes.push_back("launch: " + printable(launch));
  }
}

}  // namespace orrery::calibrate
