// SPDX-License-Identifier: Apache-2.0
#include "calibrate/fit/collective_profiles.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <set>
#include <utility>

#include "base/error.hpp"
#include "base/files.hpp"
#include "base/text.hpp"
#include "calibrate/fit/collective_sections.hpp"
#include "calibrate/gpu_names.hpp"
#include "calibrate/statistics.hpp"

namespace orrery::calibrate {
namespace {

using costmodel::Profile;

constexpr std::string_view kAfter = "send_receive";  // "collectives" follows it
constexpr std::string_view kDefault = "default-";

bool is_gpu(const std::string& name) {
  const std::vector<std::string> names = topologies::gpu_names();
  return std::find(names.begin(), names.end(), name) != names.end();
}

std::string without_ending(const std::string& name) {
  const std::size_t dot = name.rfind('.');
  return dot == std::string::npos ? name : name.substr(0, dot);
}

std::string joined(const std::set<std::string>& names) {
  return fmt::format("{}", fmt::join(names, ", "));
}

struct Told {
  std::set<std::string> logs;
  std::set<std::string> gpus;
  int own = 0;
};

// The logs that a section was fitted to.
std::vector<const CollectiveLog*> logs_of(const FamilyFit& fit, const std::string& section) {
  for (const Section factors : kSections) {
    if (to_text(factors) == section) {
      return logs_of_factors(fit.logs(), factors);
    }
  }
  std::vector<const CollectiveLog*> logs;
  std::copy_if(fit.logs().begin(), fit.logs().end(), std::back_inserter(logs),
               [&](const CollectiveLog* log) {
                 return section == "collectives" ||
                        (log->kind == sim::CommKind::AllToAll &&
                         inside_node(log->fabric) == (section == "all_to_all_intra"));
               });
  return logs;
}

Told told(const FamilyFit& fit, const std::string& section, const std::string& gpu) {
  Told result;
  for (const CollectiveLog* log : logs_of(fit, section)) {
    result.logs.insert(without_ending(log->name));
    result.gpus.insert(log->gpu);
    result.own += log->gpu == gpu ? 1 : 0;
  }
  return result;
}

std::string source_of(const FamilyFit& fit, const std::string& section, const std::string& gpu) {
  const Told logs = told(fit, section, gpu);
  const std::string whose = fmt::format("{} of nccl-tests ({}), {} of them of this GPU",
                                        counted(static_cast<std::int64_t>(logs.logs.size()), "log"),
                                        joined(logs.gpus), logs.own);
  if (section == "collectives") {
    return fmt::format("residuals by kriging over {}: {}", whose, joined(logs.logs));
  }
  if (section.starts_with("all_to_all")) {
    for (const costmodel::ProfileSource& source : fit.base().sources) {
      if (source.section == section) {
        return source.text;
      }
    }
  }
  return "five factors by robust least squares on " + whose;
}

}  // namespace

std::string family_of_profile(const std::string& name, std::span<const std::string> families) {
  const auto known = [&](const std::string& family) {
    return std::find(families.begin(), families.end(), family) != families.end();
  };
  if (is_gpu(name)) {
    const topologies::Gpu gpu = topologies::load_gpu(name);
    const std::string node = node_of(name, "");
    const std::string family =
        node.empty() ? gpu.architecture
                     : family_of(gpu, topologies::load_cluster(node + ":1").node.scale_up);
    return known(family) ? family : "";
  }
  if (!name.starts_with(kDefault)) {
    return "";
  }
  const std::string architecture = name.substr(kDefault.size());
  return known(architecture)             ? architecture
         : known(architecture + "-pcie") ? architecture + "-pcie"
                                         : "";
}

Json with_collectives(const Json& document, const std::string& where, const FamilyFit& fit,
                      std::span<const LogError> errors, const std::string& family) {
  Profile profile = costmodel::read_profile(document, where, {});
  const std::string gpu = is_gpu(profile.name) ? profile.name : "";
  fit.apply(profile, gpu);
  profile.collectives.left_out = summed_up(errors, family);
  costmodel::Spreads& spread = profile.spread;
  spread.intra_node_collective =
      spread_of_logs(errors, {family, gpu, "one-node"}).value_or(spread.intra_node_collective);
  spread.inter_node_collective =
      spread_of_logs(errors, {family, gpu, "several-nodes"}).value_or(spread.inter_node_collective);
  spread.all_to_all =
      spread_of_logs(errors, {family, gpu, "all-to-all"}).value_or(spread.all_to_all);
  const Json fitted = costmodel::to_json(profile);

  std::vector<std::string> sections = fit.sections();
  sections.emplace_back("spread");
  Json result = Json::object();
  for (const auto& [key, value] : document.as_object()) {
    const bool replaced = std::find(sections.begin(), sections.end(), key) != sections.end();
    if (key == "collectives") {
      continue;
    }
    result.set(key, replaced ? *fitted.find(key) : value);
    if (key == kAfter) {
      result.set("collectives", *fitted.find("collectives"));
    }
  }
  Json& sources = *result.find("sources");
  for (const std::string& section : sections) {
    if (section != "spread") {
      sources.set(section, source_of(fit, section, gpu));
    }
  }
  return result;
}

std::vector<std::string> update_profiles(const std::string& folder,
                                         std::span<const CollectiveLog> logs,
                                         std::span<const LogError> errors,
                                         const ResidualPriors& prior) {
  std::set<std::string> paths;
  std::error_code failed;
  for (const auto& entry : std::filesystem::directory_iterator(folder, failed)) {
    if (entry.path().extension() == ".json") {
      paths.insert(entry.path().string());
    }
  }
  if (failed || paths.empty()) {
    bad_input(folder, "no profiles in this folder", "name a folder such as costmodel/profiles");
  }
  const std::vector<std::string> families = families_of(logs);
  std::vector<std::string> written;
  for (const std::string& path : paths) {
    const std::string name = std::filesystem::path(path).stem().string();
    const std::string family = family_of_profile(name, families);
    if (family.empty()) {
      continue;
    }
    const FamilyFit fit = fit_family(logs, family, prior);
    const Json document = with_collectives(read_json_file(path), path, fit, errors, family);
    write_file_atomically(path, document.dump() + "\n");
    written.push_back(name);
  }
  if (written.empty()) {
    bad_input(folder, "no profile of a GPU of the logs",
              fmt::format("they are of {}", fmt::join(families, ", ")));
  }
  return written;
}

}  // namespace orrery::calibrate
