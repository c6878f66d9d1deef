// SPDX-License-Identifier: Apache-2.0
// Which profile a GPU has: a file, one of the box by its name or by the GPU's, or the defaults of
// its architecture.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/error.hpp"
#include "base/files.hpp"
#include "base/text.hpp"
#include "costmodel/profile.hpp"

namespace orrery::costmodel {

namespace {

constexpr std::string_view kFolder = "costmodel/profiles";

bool is_among(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// AMD's generations without a profile of their own have that of the nearest one. Blackwell of
// workstations and PCIe cards, compute capability 12, shares the multiprocessors and
// the attention kernels of Ada, not those of the chips with HBM.
std::string default_name(const topologies::Gpu& gpu) {
  constexpr double kOfWorkstations = 12;
  constexpr std::array<std::array<std::string_view, 2>, 2> kNearest = {
      {{"cdna", "default-cdna2"}, {"cdna4", "default-cdna3"}}};
  for (const auto& [architecture, nearest] : kNearest) {
    if (gpu.architecture == architecture) {
      return std::string(nearest);
    }
  }
  const bool other = gpu.architecture == "blackwell" && gpu.compute_capability >= kOfWorkstations;
  return "default-" + gpu.architecture + (other ? "-pcie" : "");
}

// The energy of a FLOP was taken from the GPU a profile is for, or, with the defaults of an
// architecture, stands for the GPU as its file describes it.
Profile with_reference_peak(Profile profile, const topologies::Gpu& gpu) {
  const std::vector<std::string> gpus = topologies::gpu_names();
  const std::string& real = is_among(gpus, profile.name) ? profile.name : gpu.name;
  const auto& given = profile.power.reference_peak;
  const bool stated =
      std::any_of(given.begin(), given.end(), [](FlopsPerSecond peak) { return peak.value() > 0; });
  if (!stated && is_among(gpus, real)) {
    profile.power.reference_peak = topologies::load_gpu(real).peak;
  }
  return profile;
}

// Chips of one architecture differ in the voltage that their limit leaves.
Profile with_own_energy(Profile profile, const topologies::Gpu& gpu) {
  if (gpu.picojoules_per_flop > 0) {
    profile.power.picojoules_per_flop = gpu.picojoules_per_flop;
  }
  return profile;
}

Profile load_file(const std::string& path, const topologies::Gpu& gpu) {
  return with_reference_peak(read_profile(read_json_file(path), path, gpu), gpu);
}

Profile load_named(const std::string& name, const topologies::Gpu& gpu) {
  return load_file(data_path(std::string(kFolder) + "/" + name + ".json"), gpu);
}

}  // namespace

std::vector<std::string> profile_names() { return data_names(kFolder); }

Profile load_profile(const std::string& text, const topologies::Gpu& gpu) {
  if (text.ends_with(".json") || text.find('/') != std::string::npos) {
    return load_file(text, gpu);
  }
  const std::vector<std::string> names = profile_names();
  const auto known = [&](const std::string& name) { return is_among(names, name); };
  if (text.empty()) {
    const std::string of_architecture = default_name(gpu);
    return known(gpu.name)
               ? load_named(gpu.name, gpu)
               : with_own_energy(
                     load_named(known(of_architecture) ? of_architecture : "default-generic", gpu),
                     gpu);
  }
  const std::string name = to_lower(text);
  if (!known(name)) {
    bad_input("profile", fmt::format("no profile is called \"{}\"", printable(text)),
              nearest_hint(name, names));
  }
  return load_named(name, gpu);
}

}  // namespace orrery::costmodel
