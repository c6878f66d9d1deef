// SPDX-License-Identifier: Apache-2.0
#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>

#include "base/error.hpp"
#include "base/interrupt.hpp"
#include "base/progress.hpp"
#include "base/quantity_text.hpp"
#include "base/text.hpp"
#include "calibrate/nccl/local_launch.hpp"
#include "calibrate/nccl/runner.hpp"
#include "calibrate/reading_builder.hpp"
#include "cli/command/command.hpp"
#include "cli/command/command_line.hpp"
#include "cli/command/common.hpp"
#include "cli/command/output_paths.hpp"
#include "topologies/cluster.hpp"

namespace orrery::cli {
namespace {

constexpr const char* kCalibrateNcclExamples = R"(
Alone it starts one process for each GPU of this host. Under mpirun, srun or torchrun each process
takes its rank from the launcher; --rendezvous says where they meet.

Examples:
  orrery calibrate nccl --dry-run --node dgx-1v       groups, sizes and expected duration
  orrery calibrate nccl --output nccl.json            all GPUs of this host
  srun --ntasks-per-node 8 orrery calibrate nccl --rendezvous node1:29500 --fabric "8x NDR400 IB"
  mpirun -np 16 orrery calibrate nccl --rendezvous file:/shared/meet --max-bytes "64 MiB")";

struct NcclCommandOptions {
  std::string output = "nccl-samples.json";
  bool dry_run = false;
  std::string nodes = "1";
  std::string gpus;
  std::string node;
  std::string fabric;
  std::string rendezvous;
  std::string timeout = "120 s";
  std::vector<std::string> collectives;
  std::string min_bytes = "1 KiB";
  std::string max_bytes = "1 GiB";
  bool no_interference = false;
  OutputOptions common;
};

calibrate::MeasureOptions measure_options(const NcclCommandOptions& options) {
  constexpr std::int64_t kMost = std::int64_t{1} << 36;
  calibrate::MeasureOptions measure;
  const auto size = [&](const std::string& text, const char* option) {
    const double bytes = parse_bytes(text, option).value();
    if (bytes < 1 || bytes > static_cast<double>(kMost)) {
      bad_input(option, "not between 1 B and 64 GiB");
    }
    return static_cast<std::int64_t>(bytes);
  };
  measure.min_bytes = size(options.min_bytes, "--min-bytes");
  measure.max_bytes = size(options.max_bytes, "--max-bytes");
  measure.interference = !options.no_interference;
  const std::vector<std::string> known = {"all-reduce", "all-gather", "reduce-scatter",
                                          "all-to-all", "broadcast",  "send-receive"};
  for (const std::string& name : options.collectives) {
    const sim::CommKind kind = calibrate::foreign_collective(name);
    if (kind == sim::CommKind::None) {
      bad_input("--collectives", fmt::format("unknown collective \"{}\"", printable(name)),
                nearest_hint(name, known));
    }
    measure.kinds.push_back(kind);
  }
  if (calibrate::sizes_between(measure.min_bytes, measure.max_bytes).empty()) {
    bad_input("--min-bytes", "no size is measured between it and --max-bytes",
              "sizes are 1 KiB, 4 KiB, 16 KiB, ...");
  }
  return measure;
}

// Numbers of NVLinks between GPUs, of node types whose GPUs are not all linked alike.
calibrate::LinkClasses links_of(const topologies::Node& node) {
  calibrate::LinkClasses links;
  if (node.scale_up.mesh.empty()) {
    return links;
  }
  const auto gpus = static_cast<std::size_t>(node.gpus);
  links.assign(gpus, std::vector<int>(gpus, 0));
  for (const auto& [a, b, count] : node.scale_up.mesh) {
    links[static_cast<std::size_t>(a)][static_cast<std::size_t>(b)] = count;
    links[static_cast<std::size_t>(b)][static_cast<std::size_t>(a)] = count;
  }
  return links;
}

int dry_run(const NcclCommandOptions& options) {
  const calibrate::MeasureOptions measure = measure_options(options);
  (void)parse_duration(options.timeout, "--timeout");  // as the run will
  calibrate::LinkClasses links;
  int gpus = 8;
  if (!options.node.empty()) {
    const topologies::Node node = topologies::load_cluster(options.node + ":1").node;
    links = links_of(node);
    gpus = node.gpus;
  }
  if (!options.gpus.empty()) {
    const int most = options.node.empty() ? 1024 : gpus;
    gpus = static_cast<int>(parse_integer(options.gpus, "--gpus", 1, most));
    if (static_cast<std::size_t>(gpus) != links.size()) {
      links.clear();
    }
  }
  const auto nodes = static_cast<int>(parse_integer(options.nodes, "--nodes", 1, 4096));
  const calibrate::MeasurePlan plan =
      calibrate::plan_measurements(calibrate::regular_placement(nodes, gpus), links, measure);
  if (plan.series.empty()) {
    bad_input("calibrate nccl", "nothing to measure", "a send needs two ranks");
  }
  if (options.common.json) {
    print_json(calibrate::plan_json(plan, measure));
  } else {
    print(calibrate::plan_text(plan, measure));
  }
  return kOk;
}

// The position of this rank among those of its host.
int local_rank(calibrate::Team& team, const calibrate::RankIdentity& identity,
               const std::string& host) {
  if (identity.local_rank >= 0) {
    return identity.local_rank;
  }
  const std::vector<std::string> hosts = team.all_gather(host);
  return static_cast<int>(std::count(hosts.begin(), hosts.begin() + identity.rank, host));
}

std::string joined(const std::vector<std::string>& words) {
  return fmt::format("{}", fmt::join(words, " "));
}

int measure_as(const NcclCommandOptions& options, const calibrate::RankIdentity& identity,
               calibrate::Socket listener, int devices) {
  calibrate::TeamOptions team_options;
  team_options.address = options.rendezvous.empty() ? identity.address : options.rendezvous;
  team_options.join_timeout = parse_duration(options.timeout, "--timeout");
  team_options.listener = std::move(listener);
  calibrate::Team team(identity, std::move(team_options));
  const std::string host = calibrate::host_name();
  std::unique_ptr<calibrate::CollectiveDevice> device;
  try {
    device = calibrate::open_collective_device(local_rank(team, identity, host) % devices,
                                               [&] { team.check(); });
  } catch (const Error& error) {
    team.report_fault(fmt::format("rank {} ({}): {}", identity.rank, host, error.what()));
    throw;
  }
  Progress progress("measuring", options.common.quiet || identity.rank != 0);
  calibrate::RunOptions run{
      .measure = measure_options(options),
      .node = options.node,
      .fabric = options.fabric,
      .command = printable(joined(calibrate::own_arguments()), 2000),
      .progress = [&](double share, const std::string& note) { progress.update(share, note); }};
  calibrate::SampleFile file = calibrate::run_measurements(team, *device, host, run);
  progress.finish();
  if (identity.rank != 0) {
    return kOk;
  }
  file.header.date = fmt::format(
      "{:%Y-%m-%dT%H:%M:%SZ}",
      fmt::gmtime(std::chrono::system_clock::to_time_t(std::chrono::system_clock::now())));
  if (options.common.json) {
    print(calibrate::sample_text(file));
  }
  write_result(options.output, calibrate::sample_text(file), options.common);
  return kOk;
}

int run_nccl(const NcclCommandOptions& options) {
  if (options.dry_run) {
    return dry_run(options);
  }
  (void)measure_options(options);
  if (!options.node.empty()) {
    (void)topologies::load_cluster(options.node + ":1");
  }
  check_outputs({{"--output", options.output}, json_path(options.common)}, {});
  const calibrate::RankIdentity identity = calibrate::rank_identity(calibrate::process_environment);
  std::string why;
  const int devices = calibrate::collective_device_count(why);
  if (devices == 0) {
    throw Error(ErrorKind::DeviceMissing, "calibrate nccl", why,
                "--dry-run shows what would be measured");
  }
  install_interrupt_handler();
  if (!identity.launcher.empty()) {
    return measure_as(options, identity, {}, devices);
  }
  const int ranks = options.gpus.empty()
                        ? devices
                        : static_cast<int>(parse_integer(options.gpus, "--gpus", 1, devices));
  std::optional<calibrate::LocalLaunch> launch;
  calibrate::RankIdentity alone;
  alone.local_rank = 0;
  if (ranks > 1) {
    launch.emplace("/proc/self/exe", calibrate::own_arguments(), ranks);
    return measure_as(options, launch->identity(), launch->take_listener(), devices);
  }
  return measure_as(options, alone, {}, devices);
}

}  // namespace

void add_calibrate_nccl(const Command& app, Action& chosen) {
  auto options = std::make_shared<NcclCommandOptions>();
  const Command command =
      app.add_subcommand("nccl", "time NCCL's collectives on the groups of plans");
  command.footer(kCalibrateNcclExamples);
  command.add_option("-o,--output", options->output, "sample file to write (nccl-samples.json)");
  command.add_flag("--dry-run", options->dry_run, "only say what would be measured");
  command.add_option("--nodes", options->nodes, "nodes of a dry run (1)");
  command.add_option("--gpus", options->gpus, "GPUs of each node (all)");
  command.add_option("--node", options->node, "node type, a name of `orrery list nodes`");
  command.add_option("--fabric", options->fabric, "the network between nodes, in words");
  command.add_option("--rendezvous", options->rendezvous,
                     "HOST:PORT of rank 0, or file:PATH on shared storage");
  command.add_option("--timeout", options->timeout, "for all ranks to come (120 s)");
  command.add_option("--collectives", options->collectives, "only these, e.g. all-reduce")
      .delimiter(',');
  command.add_option("--min-bytes", options->min_bytes, "smallest size (1 KiB)");
  command.add_option("--max-bytes", options->max_bytes, "largest size (1 GiB)");
  command.add_flag("--no-interference", options->no_interference, "no collectives beside a GEMM");
  add_output_options(command, options->common);
  command.callback([options, &chosen] { chosen = [options] { return run_nccl(*options); }; });
}

}  // namespace orrery::cli
