// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/error.hpp"
#include "base/quantity_text.hpp"
#include "base/text.hpp"
#include "models/positions.hpp"
#include "search/mixed/search.hpp"

namespace orrery::search {

namespace {

ByteCount reserve_of(const Problem& problem, const topologies::MixedCluster& cluster) {
  if (problem.memory_reserve.empty()) {
    return ByteCount();
  }
  const Bytes reserve = parse_bytes(problem.memory_reserve, "--memory-reserve");
  for (const topologies::Pool& pool : cluster.pools) {
    if (reserve >= pool.cluster.gpu.memory.bytes()) {
      bad_input("--memory-reserve",
                fmt::format("{} leaves nothing of the {} of {}", format_bytes(reserve),
                            format_bytes(pool.cluster.gpu.memory.bytes()), pool.cluster.gpu.name));
    }
  }
  return ByteCount(static_cast<std::int64_t>(reserve.value()));
}

bool names_pool(const std::string& setting, const topologies::MixedCluster& cluster) {
  return std::any_of(cluster.pools.begin(), cluster.pools.end(), [&](const topologies::Pool& one) {
    return setting.starts_with(one.name + ".");
  });
}

// "a10.nodes=2": a field of a cluster behind a name that no pool has, or one close to a pool's.
void check_pool_name(const std::string& setting, const topologies::MixedCluster& cluster) {
  std::vector<std::string> pools;
  for (const topologies::Pool& pool : cluster.pools) {
    pools.push_back(pool.name);
  }
  if (!split_overrides({setting}).cluster.empty()) {
    return;  // of every pool
  }
  const std::string_view path = trim(std::string_view(setting).substr(0, setting.find('=')));
  // Names of pools may have dots in them.
  for (std::size_t dot = path.find('.'); dot != std::string_view::npos;
       dot = path.find('.', dot + 1)) {
    const std::string_view name = path.substr(0, dot);
    const std::string rest(path.substr(dot + 1));
    const bool of_cluster = !rest.empty() && !split_overrides({rest + "=0"}).cluster.empty();
    const std::string nearest = nearest_name(name, pools);
    if (of_cluster || !nearest.empty()) {
      bad_input(
          "--set", fmt::format("no pool of {} is called \"{}\"", cluster.name, printable(name)),
          fmt::format("its pools are {}{}", fmt::join(pools, ", "),
                      nearest.empty() ? std::string()
                                      : fmt::format("; did you mean \"{}.{}\"?", nearest, rest)));
    }
  }
}

}  // namespace

plan::MixedPlan mixed_base_plan(const Problem& problem) {
  (void)split_overrides(problem.settings);  // none is set to two values
  std::vector<std::string> of_network;
  std::vector<std::string> of_pools;
  const topologies::MixedCluster named = topologies::load_mixed_cluster(problem.cluster);
  for (const std::string& setting : problem.settings) {
    const bool pool = names_pool(setting, named);
    if (!pool) {
      check_pool_name(setting, named);
    }
    (pool ? of_pools : of_network).push_back(setting);
  }
  const Overrides overrides = split_overrides(of_network);
  if (!overrides.cluster.empty()) {
    bad_input("--set", fmt::format("\"{}\": which pool?", overrides.cluster.front()),
              fmt::format("write \"{}.{}\"", named.pools.front().name, overrides.cluster.front()));
  }
  if (!problem.profile.empty()) {
    bad_input("--profile", "every pool of a mixed cluster has the profile of its own GPU");
  }
  auto machine = std::make_shared<plan::MixedMachine>();
  machine->cluster = topologies::load_mixed_cluster(problem.cluster, of_pools);
  plan::MixedPlan base;
  plan::Plan& shape = base.shape;
  shape.network = models::load_network(problem.network, overrides.network);
  shape.batch = problem.batch;
  shape.sequence = problem.sequence > 0 ? problem.sequence : shape.network.spec.sequence;
  models::check_positions(shape.network.spec, shape.sequence, "--seq");
  bool has_bf16 = true;
  for (const topologies::Pool& pool : machine->cluster.pools) {
    machine->profiles.push_back(costmodel::load_profile("", pool.cluster.gpu));
    has_bf16 = has_bf16 && default_precision(pool.cluster.gpu) == DType::Bf16;
  }
  shape.precision = !problem.precision.empty() ? parse_dtype(problem.precision, "--precision")
                    : has_bf16                 ? DType::Bf16
                                               : DType::Fp16;
  for (const topologies::Pool& pool : machine->cluster.pools) {
    if (pool.cluster.gpu.peak_of(shape.precision).value() <= 0) {
      bad_input("--precision",
                fmt::format("{} of pool \"{}\" has no {} units", pool.cluster.gpu.name, pool.name,
                            to_text(shape.precision)));
    }
  }
  shape.memory_reserve = reserve_of(problem, machine->cluster);
  shape.cluster = machine->cluster.pools.front().cluster;
  shape.profile = machine->profiles.front();
  base.machine = std::move(machine);
  return base;
}

}  // namespace orrery::search
