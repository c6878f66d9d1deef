// SPDX-License-Identifier: Apache-2.0
#include "search/problem.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>

#include "base/error.hpp"
#include "base/quantity_text.hpp"
#include "base/text.hpp"
#include "models/positions.hpp"

namespace orrery::search {

Overrides split_overrides(const std::vector<std::string>& settings) {
  constexpr std::array<std::string_view, 3> kClusterRoots = {"gpu.", "node.", "fabric."};
  Overrides overrides;
  std::map<std::string, std::string, std::less<>> values;  // of each path so far
  for (const std::string& setting : settings) {
    const std::size_t equals = setting.find('=');
    if (equals == std::string::npos || equals == 0) {
      bad_input("--set", fmt::format("\"{}\" has no value", printable(setting)),
                "write path=value, for example gpu.hbm_bandwidth=\"6 TB/s\"");
    }
    const std::string_view path = trim(std::string_view(setting).substr(0, equals));
    const std::string value = setting.substr(equals + 1);
    const auto known = values.try_emplace(std::string(path), value).first;
    if (known->second != value) {
      bad_input("--set", fmt::format("{} is set to both {} and {}", printable(path),
                                     printable(known->second), printable(value)));
    }
    const bool of_cluster =
        path == "nodes" || path == "gpu" || path == "node" || path == "fabric" ||
        std::any_of(kClusterRoots.begin(), kClusterRoots.end(),
                    [&](std::string_view root) { return path.starts_with(root); });
    (of_cluster ? overrides.cluster : overrides.network).push_back(setting);
  }
  return overrides;
}

namespace {

std::string_view path_of(std::string_view setting) {
  return trim(setting.substr(0, setting.find('=')));
}

}  // namespace

Problem with_settings(Problem problem, const std::vector<std::string>& settings) {
  for (const std::string& setting : settings) {
    std::erase_if(problem.settings,
                  [&](const std::string& other) { return path_of(other) == path_of(setting); });
  }
  problem.settings.insert(problem.settings.end(), settings.begin(), settings.end());
  return problem;
}

DType default_precision(const topologies::Gpu& gpu) {
  for (const DType dtype : {DType::Bf16, DType::Fp16}) {
    if (gpu.peak_of(dtype).value() > 0) {
      return dtype;
    }
  }
  return DType::Fp32;
}

plan::Plan base_plan(const Problem& problem) {
  const Overrides overrides = split_overrides(problem.settings);
  plan::Plan base;
  base.network = models::load_network(problem.network, overrides.network);
  base.cluster = topologies::load_cluster(problem.cluster, overrides.cluster);
  base.profile = costmodel::load_profile(problem.profile, base.cluster.gpu);
  base.batch = problem.batch;
  base.sequence = problem.sequence > 0 ? problem.sequence : base.network.spec.sequence;
  models::check_positions(base.network.spec, base.sequence,
                          problem.sequence_from.empty() ? "--seq" : problem.sequence_from);
  base.precision = problem.precision.empty() ? default_precision(base.cluster.gpu)
                                             : parse_dtype(problem.precision, "--precision");
  if (base.cluster.gpu.peak_of(base.precision).value() <= 0) {
    bad_input("--precision",
              fmt::format("{} has no {} units", base.cluster.gpu.name, to_text(base.precision)));
  }
  if (!problem.memory_reserve.empty()) {
    const Bytes reserve = parse_bytes(problem.memory_reserve, "--memory-reserve");
    if (reserve >= base.cluster.gpu.memory.bytes()) {
      bad_input("--memory-reserve",
                fmt::format("{} leaves nothing of the {} of {}", format_bytes(reserve),
                            format_bytes(base.cluster.gpu.memory.bytes()), base.cluster.gpu.name));
    }
    base.memory_reserve = ByteCount(static_cast<std::int64_t>(reserve.value()));
  }
  return base;
}

}  // namespace orrery::search
