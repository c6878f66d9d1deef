// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <tl/expected.hpp>
#include <utility>

#include "base/error.hpp"
#include "base/limits.hpp"
#include "base/parallel.hpp"
#include "base/text.hpp"
#include "base/words.hpp"
#include "calibrate/collective_row.hpp"
#include "calibrate/fit/collective_logs.hpp"
#include "calibrate/fit/own_collectives.hpp"
#include "calibrate/gpu_names.hpp"
#include "calibrate/reading_builder.hpp"
#include "costmodel/collective_model.hpp"
#include "studies/rows/row_cluster.hpp"
#include "studies/rows/table_cells.hpp"
#include "studies/validation/kernel_cells.hpp"
#include "studies/validation/log_facts.hpp"
#include "studies/validation/predictions.hpp"
#include "topologies/words.hpp"

namespace orrery::studies {
namespace {

using costmodel::CollectiveModel;
using costmodel::GroupShape;
using sim::CommKind;

constexpr std::int64_t kSmallMessage = 1024;

// Where a log was taken, by the last part of its name, when the GPU alone does not tell.
constexpr auto kNodesByFile = std::to_array<std::pair<std::string_view, std::string_view>>({
    {"p4d", "p4d"},
    {"p5", "p5"},
    {"a3mega", "a3-mega"},
    {"a3ultra", "a3-ultra"},
    {"gcp_a4", "a4"},
    {"dgx1", "dgx-1v"},
    {"dgx2", "dgx-2"},
    {"azure", "ndv4"},
});

// A reduction to one rank is the pipeline of a broadcast backwards; NCCL times them alike. How
// uneven the parts of an alltoallv are no table says.
CommKind kind_of(std::string_view collective) {
  const std::string name = calibrate::collective_name(collective);
  return name == "reduce"      ? CommKind::Broadcast
         : name == "alltoallv" ? CommKind::None
                               : calibrate::foreign_collective(collective);
}

// What all rows of one log share.
struct Setup {
  std::string log;   // as the cell says
  std::string file;  // without folder and ending
  std::string gpu;
  std::int64_t nodes = 1;
  std::int64_t gpus_per_node = 1;
  std::int64_t ranks = 1;
  bool operator==(const Setup&) const = default;
};

struct Run {
  Setup setup;
  std::size_t begin = 0;
  std::size_t end = 0;
};

struct System {
  topologies::Cluster cluster;
  CollectiveModel model;
  costmodel::Spreads spreads;
  GroupShape group;
  calibrate::LaunchMode launch = calibrate::LaunchMode::Unknown;
  std::string assumed;  // of the network; empty where the log states it
};

bool same_architecture(const topologies::Gpu& gpu, const std::string& name) {
  return gpu.architecture == topologies::load_gpu(name).architecture;
}

// The node that the log's name or network tells, else the usual one of the GPU.
std::string node_name(const Setup& setup, const std::string& gpu, const LogFacts& facts) {
  const std::string suffix = setup.file.substr(setup.file.find_last_of('-') + 1);
  for (const auto& [part, name] : kNodesByFile) {
    const std::string node(name);
    if (mentions(suffix, part) &&
        same_architecture(topologies::load_cluster(node + ":1").gpu, gpu)) {
      return node;
    }
  }
  for (const std::string& words : {setup.gpu, facts.interconnect}) {  // "A100-SXM4 (DGX A100)"
    const std::string node = topologies::find_node_in_words(words);
    if (!node.empty() && topologies::load_cluster(node + ":1").gpu.name == gpu) {
      return node;
    }
  }
  const std::string stated = calibrate::node_of(gpu, facts.interconnect);
  return stated.empty() ? usual_node(gpu) : stated;
}

tl::expected<System, std::string> system_of(const Setup& setup, const std::string& table) {
  if (mentions(setup.file, "ipoib")) {
    return tl::unexpected(std::string("TCP sockets are not modelled"));
  }
  const std::string gpu = stated_gpu(setup.gpu);
  if (gpu.empty()) {
    return tl::unexpected(fmt::format("unknown GPU \"{}\"", printable(setup.gpu, 80)));
  }
  // Fewer ranks than the nodes have GPUs use a part of each.
  const std::int64_t per_node = setup.ranks / setup.nodes;
  if (setup.ranks % setup.nodes != 0 || per_node > setup.gpus_per_node) {
    return tl::unexpected(fmt::format("{} ranks are not in equal parts on {} of {}", setup.ranks,
                                      counted(setup.nodes, "node"),
                                      counted(setup.gpus_per_node, "GPU")));
  }
  LogFacts facts = log_facts(table, setup.log);
  if (facts.interconnect.empty() && mentions(setup.file, "sharp")) {
    facts.interconnect = "SHARP";
  }
  auto found = calibrate::log_system({gpu, node_name(setup, gpu, facts), facts.interconnect,
                                      static_cast<int>(setup.nodes), static_cast<int>(per_node)});
  if (!found) {
    return tl::unexpected(found.error());
  }
  const auto profile = costmodel::load_profile("", found->cluster.gpu);
  const CollectiveModel model(found->cluster, profile, facts.nccl);
  const bool open = found->group.nodes > 1 && facts.interconnect.empty();
  return System{found->cluster,
                model,
                profile.spread,
                found->group,
                facts.launch,
                open ? fmt::format("network of {}", found->cluster.node.name) : std::string()};
}

Seconds time_of(const System& system, CommKind kind, Bytes bytes) {
  if (kind == CommKind::SendReceive) {
    return system.model.send_receive(bytes, system.group.nodes == 1, system.group.ranks_per_node);
  }
  return calibrate::with_launch(system.launch, system.group.ranks,
                                system.model.time(kind, bytes, system.group));
}

RowResult predict_row(const CsvTable& table, std::size_t index, const std::string& source,
                      const tl::expected<System, std::string>& system) {
  const Cells cells(table, index);
  constexpr std::int64_t kMost = std::int64_t{1} << 50;
  const std::int64_t bytes =  // nccl-tests prints rows of no bytes where asked to
      cells.count("bytes", kMost) == 0 ? 0 : cells.required_count("bytes", kMost);
  const std::string collective = cells.text("collective");
  RowResult result;
  result.id = fmt::format("{}:{}", stem(cells.text("file")), bytes);
  result.config_id = fmt::format("{}:{}", result.id, index);
  result.source = source;
  result.quantity = "collective_time_s";
  result.subject = fmt::format("{} of {} B", collective, bytes);
  result.small = bytes < kSmallMessage;
  const std::string open = unmeasured(cells, "time_us");
  const CommKind kind = kind_of(collective);
  if (!system) {
    result.skipped_because = system.error();
  } else if (!open.empty() || bytes == 0) {
    result.skipped_because = open.empty() ? "no bytes are moved" : open;
  } else if (kind == CommKind::None) {
    result.skipped_because =
        fmt::format("collective \"{}\" is not modelled", printable(collective, 40));
  } else if (system->group.ranks == 1) {
    result.skipped_because = "one rank alone is a copy on the device";
  } else {
    if (cells.has("busbw_GBps") && cells.number("busbw_GBps")) {
      calibrate::check_busbw(
          table, index, {.kind = kind, .ranks = system->group.ranks, .bytes = bytes}, "time_us");
    }
    const std::string_view extent = system->group.nodes == 1 ? "one-node" : "several-nodes";
    const bool exchange = kind == CommKind::AllToAll;
    result.kind = to_text(kind);
    result.groups = {fmt::format("{}-{}-{}", result.kind, system->cluster.node.name, extent),
                     fmt::format("{}-{}", exchange ? "all-to-all" : "collectives", extent)};
    if (exchange) {
      result.groups.emplace_back("all-to-all");
    }
    if (!system->assumed.empty()) {
      result.assumed.push_back(system->assumed);
    }
    const Seconds predicted = time_of(*system, kind, Bytes(static_cast<double>(bytes)));
    const Seconds measured = microseconds(cells, "time_us");
    if (const std::string why = calibrate::implausible_time(
            {kind, Bytes(static_cast<double>(bytes)), system->group.ranks}, measured, predicted);
        !why.empty()) {
      result.skipped_because = fmt::format("{}:{}: {}", table.name(), table.line(index), why);
      return result;
    }
    result.predicted = predicted.value();
    set_interval(predicted, system->spreads, plan::class_of(kind, system->group), result);
    result.measured = measured.value();
  }
  return result;
}

Setup setup_of(const CsvTable& table, std::size_t index) {
  const Cells cells(table, index);
  const std::int64_t nodes = cells.required_count("nodes", limits::kMaxNodesOfCluster);
  const std::int64_t per_node = cells.required_count("gpus_per_node", limits::kMaxDevices);
  const std::int64_t ranks = cells.count("ranks", limits::kMaxDevices).value_or(nodes * per_node);
  return {cells.text("file"), stem(cells.text("file")), cells.text("gpu"), nodes, per_node, ranks};
}

std::vector<Run> runs_of(const CsvTable& table) {
  std::vector<Run> runs;
  for (std::size_t index = 0; index < table.num_rows(); ++index) {
    Setup setup = setup_of(table, index);
    if (runs.empty() || !(runs.back().setup == setup)) {
      runs.push_back({std::move(setup), index, index});
    }
    runs.back().end = index + 1;
  }
  return runs;
}

}  // namespace

bool is_collective_table(const CsvTable& table) {
  return table.has_column("collective") && table.has_column("bytes") && table.has_column("time_us");
}

std::vector<RowResult> predict_collectives(const CsvTable& table, const std::string& source,
                                           int jobs) {
  const std::vector<Run> runs = runs_of(table);
  std::vector<RowResult> results(table.num_rows());
  parallel_for(runs.size(), jobs, [&](std::size_t index) {
    const Run& run = runs[index];
    const auto system = system_of(run.setup, table.name());
    for (std::size_t row = run.begin; row < run.end; ++row) {
      results[row] = predict_row(table, row, source, system);
    }
  });
  return results;
}

}  // namespace orrery::studies
