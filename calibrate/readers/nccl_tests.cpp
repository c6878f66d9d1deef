// SPDX-License-Identifier: Apache-2.0
// Output of nccl-tests and rccl-tests (traces/nccl_log.hpp) as samples. A log with wrong results, a
// failed run, times of nothing or of the host, or of unknown ranks is refused; with --partial the
// sound rows are used.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>
#include <string_view>

#include "base/quantity_text.hpp"
#include "base/text.hpp"
#include "calibrate/collective_log.hpp"
#include "calibrate/collective_row.hpp"
#include "calibrate/gpu_names.hpp"
#include "calibrate/reading_builder.hpp"
#include "traces/nccl_log.hpp"

namespace orrery::calibrate {
namespace {

bool recognises(const FileHead& head) {
  const auto has = [&](std::string_view word) { return head.text.find(word) != std::string::npos; };
  return has("algbw") && has("busbw") && has("#");
}

constexpr std::string_view kMixed =
    "two runs wrote into this file, it was edited, or its list of ranks was cut";

struct Places {
  std::int64_t ranks = 0;
  std::int64_t nodes = 1;
  std::int64_t groups = 1;  // at once, of as many ranks each
  LaunchMode mode = LaunchMode::Unknown;
};

// Older versions do not print which collective they time. The name of the file tells, where it
// holds that of one collective alone.
std::string collective_in_name(const std::string& path) {
  const std::string file = to_lower(std::filesystem::path(path).filename().string());
  std::string found;
  for (const std::string_view name :
       {"all_reduce", "allreduce", "all_gather", "allgather", "reduce_scatter", "reducescatter",
        "alltoall", "all_to_all", "sendrecv", "broadcast"}) {
    if (file.find(name) != std::string::npos) {
      if (!found.empty()) {
        return "";
      }
      found = name;
    }
  }
  return found;
}

// Where every rank is listed (publications shorten the list) and nodes have unequal numbers of
// them, which; else empty.
std::string uneven_nodes(const traces::NcclLog& log) {
  std::map<int, std::string> hosts;  // once each: a test that runs again lists them again
  std::map<std::string, int> ranks;
  for (const traces::NcclRank& place : log.places) {
    if (hosts.emplace(place.rank, place.host).second) {
      ++ranks[place.host];
    }
  }
  if (hosts.empty() || static_cast<int>(hosts.size()) != log.ranks) {
    return "";
  }
  const auto& [first, count] = *ranks.begin();
  const auto other = std::find_if(ranks.begin(), ranks.end(),
                                  [&](const auto& host) { return host.second != count; });
  return other == ranks.end() ? std::string()
                              : fmt::format("{} ranks on {}, but {} on {}", count, first,
                                            other->second, other->first);
}

// A rank on another GPU than the first one; null where all are alike. One GPU may print several
// names.
const traces::NcclRank* other_gpu(const traces::NcclLog& log) {
  const auto name = [](const std::string& device) {
    const std::string gpu = gpu_of(device);
    return gpu.empty() ? device : gpu;
  };
  const auto other =
      std::find_if(log.places.begin(), log.places.end(), [&](const traces::NcclRank& place) {
        return !place.device.empty() && place.device != log.device &&
               name(place.device) != name(log.device);
      });
  return other == log.places.end() ? nullptr : &*other;
}

// Where ranks were split (NCCL_TESTS_SPLIT), the times are of groups that run at once.
void split_places(const traces::NcclLog& log, Places& places, ReadingBuilder& builder) {
  std::map<int, std::set<int>> ranks;  // once each: a test that runs again lists them again
  std::map<int, std::set<std::string>> hosts;
  std::size_t listed = 0;
  for (const traces::NcclRank& place : log.places) {
    listed += ranks[place.group].insert(place.rank).second ? 1 : 0;
    hosts[place.group].insert(place.host);
  }
  if (ranks.size() < 2) {
    return;
  }
  const std::size_t own = ranks.begin()->second.size();
  const std::size_t nodes = hosts.begin()->second.size();
  const bool equal = std::all_of(ranks.begin(), ranks.end(), [&](const auto& group) {
    return group.second.size() == own && hosts[group.first].size() == nodes;
  });
  if (!equal || listed != static_cast<std::size_t>(log.ranks)) {
    builder.fault(builder.path(), "the ranks are split into unequal groups",
                  "times of equal groups are read");
    places.ranks = 0;
    return;
  }
  places.groups = static_cast<std::int64_t>(ranks.size());
  places.ranks = static_cast<std::int64_t>(own);
  places.nodes = static_cast<std::int64_t>(nodes);
}

// Nodes are the hosts of the ranks; the processes and threads tell the launch mode.
Places places_of(const traces::NcclLog& log, ReadingBuilder& builder) {
  Places places{.ranks = log.ranks, .nodes = std::max(log.nodes, 1)};
  std::set<std::string> hosts;
  std::set<std::pair<std::string, std::int64_t>> processes;
  for (const traces::NcclRank& place : log.places) {
    hosts.insert(place.host);
    processes.insert({place.host, place.pid});
  }
  if (!processes.empty() && log.nodes == 0) {
    places.nodes = static_cast<std::int64_t>(hosts.size());
    const auto count = static_cast<std::int64_t>(processes.size());
    places.mode = count == places.ranks                 ? LaunchMode::ProcessPerGpu
                  : log.threads * count == places.ranks ? LaunchMode::ThreadPerGpu
                                                        : LaunchMode::OneProcess;
  } else if (log.ranks == 0 && log.threads > 0) {
    places.ranks = std::int64_t{log.threads} * log.gpus_per_thread;
    places.mode = log.threads > 1 ? LaunchMode::ThreadPerGpu : LaunchMode::OneProcess;
  }
  split_places(log, places, builder);
  if (places.ranks < 1 || places.ranks % places.nodes != 0) {
    builder.fault(builder.path(), fmt::format("{} ranks on {} nodes", places.ranks, places.nodes),
                  "the lines \"# Rank ...\" or the line \"# nThread ...\" tell the ranks");
    places.ranks = 0;
  }
  if (const std::string uneven = uneven_nodes(log); !uneven.empty()) {
    builder.fault(builder.path(), uneven, "times of nodes with equally many ranks are fitted");
    places.ranks = 0;
  }
  if (const traces::NcclRank* other = other_gpu(log)) {
    builder.fault(builder.where(other->line),
                  fmt::format("rank {} is on a {}, but the first one on a {}", other->rank,
                              other->device, log.device),
                  "times of GPUs of one kind are fitted");
    places.ranks = 0;
  }
  return places;
}

SampleHeader header_of(const traces::NcclLog& log, const Places& places) {
  SampleHeader header;
  header.device = log.device.empty() ? log.gpu : log.device;
  header.gpu = gpu_of(header.device);
  if (header.gpu.empty()) {
    header.gpu = gpu_of(log.gpu);
  }
  header.fabric = log.interconnect;
  if (header.fabric.empty() && places.nodes > 1 && log.network == "Socket") {
    header.fabric = "TCP sockets";
  }
  header.node = node_of(header.gpu, header.fabric);
  add_run_facts(header, log.nccl_version, log.launch);
  header.notes.insert(header.notes.end(), log.forced.begin(), log.forced.end());
  if (launch_mode(header) == LaunchMode::Unknown) {
    set_launch_mode(header, places.mode);
  }
  return header;
}

void report_faults(const traces::NcclLog& log, ReadingBuilder& builder) {
  for (const traces::NcclFailure& failure : log.failures) {
    builder.fault(builder.where(failure.line), "the run failed: " + failure.text,
                  "--partial uses the rows that are sound");
  }
  for (const std::string& problem : log.problems) {
    builder.remark(problem);
  }
}

// A test that a log holds twice is more often two logs in one file than a run that was repeated.
void report_repeats(const traces::NcclLog& log, ReadingBuilder& builder) {
  std::map<std::string, int> first;
  for (const traces::NcclTable& table : log.tables) {
    const auto [known, is_new] = first.emplace(table.collective, table.line);
    if (!is_new) {
      builder.remark(fmt::format("{}: a second table of {} behind that of line {}: both are used",
                                 builder.where(table.line),
                                 table.collective.empty() ? "one test" : table.collective,
                                 known->second));
    }
  }
}

class RowReader {
 public:
  RowReader(const traces::NcclLog& log, ReadingBuilder& builder)
      : builder_(builder),
        named_(collective_in_name(builder.path())),
        places_(places_of(log, builder)),
        header_(header_of(log, places_)) {
    if (header_.device.empty()) {
      header_.device = builder.device();
      header_.gpu = gpu_of(header_.device);
      header_.node = node_of(header_.gpu, header_.fabric);
    }
    if (header_.device.empty()) {
      header_.device = "unknown";
    }
  }

  void read(const traces::NcclRow& row) {
    const std::string& name = row.collective.empty() ? named_ : row.collective;
    if (name.empty()) {
      report_unnamed(row);
      return;
    }
    const sim::CommKind kind = foreign_collective(name);
    if (kind == sim::CommKind::None || places_.ranks < 2 || row.size.value() == 0) {
      builder_.left_out(kind != sim::CommKind::None ? "row without data or peers"
                                                    : "collective \"" + name + "\"");
      return;
    }
    const CollectiveRow stated{kind, places_.ranks, row.size.value(), row.count, row.type};
    if (const std::string wrong = size_contradiction(stated); !wrong.empty()) {
      builder_.fault(builder_.where(row.line), wrong, kMixed);
      return;
    }
    read_timing(row, kind, row.out_of_place, false);
    read_timing(row, kind, row.in_place, true);
  }

 private:
  void report_unnamed(const traces::NcclRow& row) {
    if (!unnamed_) {
      builder_.fault(builder_.where(row.line),
                     "neither the log nor the name of the file tells which collective it times",
                     "call the file all_reduce-2x8.log or the like");
    }
    unnamed_ = true;
  }

  void read_timing(const traces::NcclRow& row, sim::CommKind kind,
                   const std::optional<traces::NcclTiming>& timing, bool in_place) {
    if (!timing) {
      return;
    }
    const std::string where = builder_.where(row.line);
    if (timing->wrong.value_or(0) > 0) {
      builder_.fault(where, fmt::format("{} wrong values in the result", *timing->wrong),
                     "a run that computes wrong results says nothing about times");
      return;
    }
    if (!check_time(builder_, where, timing->time.value())) {
      return;
    }
    const CollectiveRow stated{kind, places_.ranks, row.size.value(), row.count, row.type};
    if (const std::string wrong = rate_contradiction(stated, *timing); !wrong.empty()) {
      builder_.fault(where, wrong, kMixed);
      return;
    }
    builder_.add(header_,
                 {.shape = CollectiveSample{.kind = kind,
                                            .bytes = row.size.value(),
                                            .ranks = places_.ranks,
                                            .ranks_per_node = places_.ranks / places_.nodes,
                                            .nodes = places_.nodes,
                                            .in_place = in_place,
                                            .concurrent_groups = places_.groups},
                  .time = single_timing(timing->time),
                  .implementation = row.type,
                  .source = builder_.source(row.line),
                  .flags = {}});
  }

  ReadingBuilder& builder_;
  bool unnamed_ = false;
  std::string named_;
  Places places_;
  SampleHeader header_;
};

Reading read(const std::string& path, const ReadOptions& options) {
  ReadingBuilder builder(path, options);
  const traces::NcclLog log = traces::parse_nccl_log(
      builder.text(), path,
      options.partial ? traces::NcclFaults::Collect : traces::NcclFaults::Throw);
  report_faults(log, builder);
  report_repeats(log, builder);
  if (log.host_times) {
    builder.fault(path, "column \"cputime\": times of the host's calls, not of the collectives",
                  "run without -C 1");
    return builder.finish();
  }
  RowReader reader(log, builder);
  for (const traces::NcclRow& row : log.rows) {
    reader.read(row);
  }
  return builder.finish();
}

}  // namespace

extern const SampleReader reader_nccl_tests = {
    .name = "nccl-tests",
    .what = "output of nccl-tests and rccl-tests (text)",
    .recognises = recognises,
    .read = read,
};

}  // namespace orrery::calibrate
