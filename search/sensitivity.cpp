// SPDX-License-Identifier: Apache-2.0
#include "search/sensitivity.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <utility>

#include "base/interrupt.hpp"

namespace orrery::search {
namespace {

struct Parameter {
  std::string name;
  std::string path;  // as --set names it; of peak rates the one that the plan computes with
  std::vector<std::string> settings;  // empty: the host's time in the profile
};

std::string set_to(std::string_view path, double value, std::string_view unit) {
  return fmt::format("{}={:.17g}{}{}", path, value, unit.empty() ? "" : " ", unit);
}

// Whether tensors of the plan, or of others of its space, are on the host or its disk.
bool leaves_gpu(const plan::Plan& plan, const Constraints& constraints) {
  return constraints.allows_offload() ||
         std::any_of(plan.blocks.begin(), plan.blocks.end(),
                     [](const plan::BlockRun& run) { return run.layout.offload.any(); });
}

// Every parameter better by `factor`, as --set says it; those of the host where it holds tensors.
std::vector<Parameter> parameters_of(const plan::Plan& base, double factor, bool on_host) {
  const topologies::Cluster& cluster = base.cluster;
  const topologies::Gpu& gpu = cluster.gpu;
  const topologies::Node& node = cluster.node;
  std::vector<Parameter> parameters = {
      {"peak rate", fmt::format("gpu.peak.{}", to_text(base.precision)), {}}};
  for (std::size_t i = 0; i < kNumDTypes; ++i) {
    if (gpu.peak[i].value() > 0) {
      parameters.back().settings.push_back(
          set_to(fmt::format("gpu.peak.{}", to_text(static_cast<DType>(i))),
                 gpu.peak[i].value() * factor / 1e12, "TFLOP/s"));
    }
  }
  const auto add = [&](const char* name, const char* path, double value, double scale,
                       const char* unit) {
    if (value > 0) {
      parameters.push_back({name, path, {set_to(path, value * scale, unit)}});
    }
  };
  const bool several = cluster.num_nodes > 1;
  const bool limits_power = base.profile.power.picojoules_per_flop > 0;
  add("power limit", "gpu.power_watts", limits_power ? gpu.power_watts : 0, factor, "");
  add("HBM bandwidth", "gpu.hbm_bandwidth", gpu.hbm_bandwidth.value(), factor / 1e9, "GB/s");
  const double memory = std::floor(gpu.memory.bytes().value() * factor);
  add("memory", "gpu.memory", memory, 1, "B");
  add("scale-up bandwidth", "node.scale_up.bandwidth_per_gpu",
      node.scale_up.bandwidth_per_gpu.value(), factor / 1e9, "GB/s");
  add("scale-up latency", "node.scale_up.latency", node.scale_up.latency.value(), 1e6 / factor,
      "us");
  add("NIC bandwidth", "node.scale_out.nic_bandwidth",
      several ? node.scale_out.nic_bandwidth.value() : 0, factor / 1e9, "GB/s");
  add("network latency", "node.scale_out.latency", several ? node.scale_out.latency.value() : 0,
      1e6 / factor, "us");
  const auto add_ratio = [&](const char* name, const char* path, double ratio) {
    if (several && ratio > 1) {  // never below 1: as much capacity above as below
      parameters.push_back({name, path, {set_to(path, std::max(1.0, ratio / factor), "")}});
    }
  };
  add_ratio("oversubscription", "fabric.oversubscription", cluster.fabric.oversubscription);
  add_ratio("core oversubscription", "fabric.core_oversubscription",
            cluster.fabric.core_oversubscription);
  add("host link", "node.host.link_per_gpu", node.host_link_per_gpu.value(), factor / 1e9, "GB/s");
  add("host memory bandwidth", "node.host.memory_bandwidth",
      on_host ? node.host_memory_bandwidth.value() : 0, factor / 1e9, "GB/s");
  add("disk bandwidth", "node.host.disk_bandwidth", on_host ? node.disk_bandwidth.value() : 0,
      factor / 1e9, "GB/s");
  parameters.push_back({"host rate", "", {}});
  return parameters;
}

plan::Plan better_base(const Problem& problem, const Parameter& parameter, const plan::Plan& base,
                       double factor) {
  plan::Plan better = base_plan(with_settings(problem, parameter.settings));
  better.execution = base.execution;
  if (parameter.settings.empty()) {
    better.profile.kernel_launch = better.profile.kernel_launch / factor;
    better.execution.host_per_block = better.execution.host_per_block / factor;
  }
  return better;
}

// The plan as it was is one of those, also where the search ends before it finds it.
void search_again(const plan::Plan& base, const Options& options, plan::Plan same,
                  Sensitivity& result) {
  Outcome again = search_space(base, options);
  const bool better = again.best && again.best->simulation.iteration_time <= result.same_plan;
  result.replanned = better ? again.best->simulation.iteration_time : result.same_plan;
  result.plan = better ? std::move(again.best->plan) : std::move(same);
  result.gap_fraction = std::max(0.0, 1.0 - again.lower_bound / result.replanned);
}

}  // namespace

std::vector<Sensitivity> find_sensitivity(const Problem& problem, const plan::Plan& base,
                                          const Options& options, const Found& best, double share,
                                          const std::function<void(std::size_t)>& done) {
  std::vector<Sensitivity> results;
  Options how = options;
  how.top = 0;
  how.spare = 0;
  how.interval_draws = 0;
  const auto start = std::chrono::steady_clock::now();
  const bool limited = options.time_limit.value() > 0;
  const std::vector<Parameter> parameters =
      parameters_of(base, 1 + share, leaves_gpu(best.plan, options.constraints));
  for (const Parameter& parameter : parameters) {
    if (interrupted()) {
      break;
    }
    const plan::Plan better = better_base(problem, parameter, base, 1 + share);
    plan::Plan same = best.plan;
    same.cluster = better.cluster;
    same.profile = better.profile;
    same.execution = better.execution;
    Sensitivity result;
    result.parameter = parameter.name;
    result.path = parameter.path;
    result.same_plan = plan::simulate(same).iteration_time;
    if (limited) {
      const Seconds passed(
          std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
      how.time_limit =
          (options.time_limit - passed) / static_cast<double>(parameters.size() - results.size());
    }
    result.searched = !limited || how.time_limit.value() > 0;
    if (result.searched) {
      search_again(better, how, std::move(same), result);
    }
    results.push_back(std::move(result));
    if (done) {
      done(results.size());
    }
  }
  return results;
}

}  // namespace orrery::search
