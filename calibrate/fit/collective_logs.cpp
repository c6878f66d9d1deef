// SPDX-License-Identifier: Apache-2.0
#include "calibrate/fit/collective_logs.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "base/text.hpp"

namespace orrery::calibrate {
namespace {

using sim::CommKind;

// The GPUs of one process start in turn: up to some five times the floor logs of one process lie
// about 40 us above those of a thread a GPU, and say little about the kernels (A100 x 8,
// nccl-tests).
constexpr double kFloorMargin = 5;

struct Times {
  double log_sum = 0;
  int count = 0;
  std::string source;
};

struct Collected {
  CollectiveLog log;
  std::map<std::int64_t, Times> by_bytes;
};

std::string library_version(const SampleHeader& header, std::string_view name) {
  for (const auto& [library, version] : header.libraries) {
    if (library == name) {
      return version;
    }
  }
  return {};
}

// NCCL adds elements of one byte more slowly, and never in NVSwitches (ncclNvlsSupported,
// src/include/device.h): sums that no training asks for. What is only moved takes as long in any
// format.
bool adds_bytes(const Sample& sample, const CollectiveSample& shape) {
  const bool adds = shape.kind == CommKind::AllReduce || shape.kind == CommKind::ReduceScatter;
  const std::string type = to_lower(sample.implementation);
  const auto mentions = [&](const char* word) { return type.find(word) != std::string::npos; };
  return adds && (type == "int8" || type == "uint8" || type == "char" || mentions("e4m3") ||
                  mentions("e5m2"));
}

bool usable(const CollectiveSample& sample) {
  return !sample.in_place && !sample.beside && sample.bytes >= kSmallestFitted && sample.ranks >= 2;
}

// Times that say nothing of what plans ask for, by reason; empty where they do.
std::string why_left_out(const Sample& sample, const CollectiveSample& shape) {
  return shape.concurrent_groups > 1 ? "times of several groups at once"
         : adds_bytes(sample, shape) ? "sums of one byte an element, which NCCL adds more slowly"
                                     : "";
}

// One remark a reason, however many logs there are.
void tell_left_out(const std::map<std::string, std::set<std::string>>& logs_by_reason,
                   std::vector<std::string>& remarks) {
  for (const auto& [reason, logs] : logs_by_reason) {
    const std::string more = logs.size() == 1 ? "" : fmt::format(" and {} more", logs.size() - 1);
    remarks.push_back(fmt::format("left out: {}: {}{}", reason, *logs.begin(), more));
  }
}

CollectiveLog described(const SampleFile& file, const Sample& sample, const CollectiveSample& shape,
                        LogSystem system) {
  CollectiveLog log;
  log.name = sample.source.empty() ? file.header.device : sample.source;
  log.gpu = system.cluster.gpu.name;
  log.family = family_of(system.cluster.gpu, system.cluster.node.scale_up);
  log.fabric = system.group.nodes == 1 ? costmodel::fabric_class(system.cluster.node.scale_up)
                                       : costmodel::fabric_class(system.cluster.node.scale_out);
  log.kind = shape.kind;
  log.nccl = nccl_version(library_version(file.header, "nccl"));
  log.launch = launch_mode(file.header);
  log.system = std::move(system);
  return log;
}

// Networks that a log leaves open and algorithms that its environment forced say nothing of what
// NCCL does on a known network.
std::string why_not_fitted(const SampleHeader& header, const CollectiveSample& shape) {
  const auto mentions = [](const std::string& text, std::string_view phrase) {
    return to_lower(text).find(phrase) != std::string::npos;
  };
  if (shape.nodes > 1 && mentions(header.fabric, "nic not stated")) {
    return "the network is not stated";
  }
  const auto forces = [&](const std::string& text) {
    return mentions(text, "nccl_algo") || mentions(text, "nccl_proto");
  };
  const bool forced =
      forces(header.fabric) || std::any_of(header.notes.begin(), header.notes.end(), forces);
  return forced ? "NCCL's algorithm or protocol was forced" : "";
}

bool is_unnamed_network(const SampleHeader& header, const CollectiveLog& log) {
  return log.system.group.nodes > 1 && header.fabric.empty();
}

// "a.log:17" and "a.log:18" are lines of one log.
std::string log_name(const std::string& source) {
  const std::size_t colon = source.rfind(':');
  const bool line = colon != std::string::npos && colon + 1 < source.size() &&
                    source.find_first_not_of("0123456789", colon + 1) == std::string::npos;
  return line ? source.substr(0, colon) : source;
}

CollectiveLog finished(Collected&& collected) {
  CollectiveLog log = std::move(collected.log);
  for (const auto& [bytes, times] : collected.by_bytes) {
    log.times.push_back({Bytes(static_cast<double>(bytes)),
                         Seconds(std::exp(times.log_sum / times.count)), times.source});
  }
  return log;
}

}  // namespace

std::string family_of(const topologies::Gpu& gpu, const topologies::ScaleUp& links) {
  return gpu.architecture + (links.wiring == topologies::Wiring::Host ? "-pcie" : "");
}

Seconds with_launch(LaunchMode launch, int ranks, Seconds time) {
  return launch == LaunchMode::OneProcess ? std::max(time, kLaunchOfOneProcess * ranks) : time;
}

bool launch_bound(const CollectiveLog& log, Seconds time) {
  return log.launch == LaunchMode::OneProcess &&
         time < kFloorMargin * kLaunchOfOneProcess * log.system.group.ranks;
}

CollectiveLogs collect_logs(std::span<const SampleFile> files) {
  std::map<std::string, Collected> by_key;
  std::set<std::string> refused;
  std::set<std::string> unnamed;
  std::map<std::string, std::set<std::string>> left_out;
  CollectiveLogs result;
  for (const SampleFile& file : files) {
    for (const Sample& sample : file.samples) {
      const auto* shape = std::get_if<CollectiveSample>(&sample.shape);
      if (shape == nullptr || !usable(*shape)) {
        continue;
      }
      const std::string name = log_name(sample.source);
      if (const std::string why = why_left_out(sample, *shape); !why.empty()) {
        left_out[why].insert(name);
        continue;
      }
      const std::string key = fmt::format("{} {} {}x{}", name, sim::to_text(shape->kind),
                                          shape->nodes, shape->ranks_per_node);
      auto found = by_key.find(key);
      if (found == by_key.end()) {
        auto system =
            log_system({file.header.gpu.empty() ? file.header.device : file.header.gpu,
                        file.header.node, file.header.fabric, static_cast<int>(shape->nodes),
                        static_cast<int>(shape->ranks_per_node)});
        const std::string why =
            system ? why_not_fitted(file.header, *shape) : std::string(system.error());
        if (!why.empty()) {
          if (refused.insert(key).second) {
            result.remarks.push_back(fmt::format("{}: {}", name, why));
          }
          continue;
        }
        Collected fresh{described(file, sample, *shape, std::move(*system)), {}};
        fresh.log.name = name;
        if (is_unnamed_network(file.header, fresh.log) && unnamed.insert(name).second) {
          result.remarks.push_back(fmt::format("{}: the network is not stated: that of {} is taken",
                                               name, fresh.log.system.cluster.node.name));
        }
        found = by_key.emplace(key, std::move(fresh)).first;
      }
      Times& times = found->second.by_bytes[shape->bytes];
      times.source = times.count == 0 ? sample.source : times.source;
      times.log_sum += std::log(sample.time.median.value());
      ++times.count;
    }
  }
  tell_left_out(left_out, result.remarks);
  for (auto& [key, collected] : by_key) {
    CollectiveLog log = finished(std::move(collected));
    (log.kind == CommKind::SendReceive ? result.peers : result.logs).push_back(std::move(log));
  }
  return result;
}

}  // namespace orrery::calibrate
