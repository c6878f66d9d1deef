// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <map>

#include "sim/engine/metrics.hpp"

namespace orrery::sim {
namespace {

struct VersionLife {
  SimTime written{0};  // its last writer ended
  SimTime last_read{0};
};

using Lives = std::map<std::int64_t, VersionLife>;  // of one object, by version

// Every version with the time it is there; the initial one from time 0.
std::vector<Lives> written_versions(const Program& program, const Timeline& timeline) {
  std::vector<Lives> objects(program.initial_versions().size());
  for (std::size_t object = 0; object < objects.size(); ++object) {
    objects[object][program.initial_versions()[object]] = {};
  }
  for (const VersionUse& write : program.version_writes()) {
    const SimTime end = timeline.end[write.node];
    if (end.ps >= 0) {
      VersionLife& life = objects[write.object][write.version];
      life.written = std::max(life.written, end);
    }
  }
  return objects;
}

// Newest version by time: (written, newest so far), both ascending.
std::vector<std::pair<SimTime, std::int64_t>> newest_by_time(const Lives& lives) {
  std::vector<std::pair<SimTime, std::int64_t>> steps;
  for (const auto& [version, life] : lives) {
    steps.emplace_back(life.written, version);
  }
  std::sort(steps.begin(), steps.end());
  for (std::size_t i = 1; i < steps.size(); ++i) {
    steps[i].second = std::max(steps[i].second, steps[i - 1].second);
  }
  return steps;
}

std::int64_t most_kept(const Lives& lives) {
  std::vector<std::pair<SimTime, int>> changes;  // releases sort before allocations
  for (auto life = lives.begin(); life != lives.end(); ++life) {
    const auto next = std::next(life);
    SimTime until = SimTime::max();
    if (next != lives.end()) {
      until = std::max({life->second.written, life->second.last_read, next->second.written});
    }
    changes.emplace_back(life->second.written, 1);
    changes.emplace_back(until, -1);
  }
  std::sort(changes.begin(), changes.end());
  std::int64_t kept = 0;
  std::int64_t most = 0;
  for (const auto& [time, change] : changes) {
    kept += change;
    most = std::max(most, kept);
  }
  return most;
}

}  // namespace

std::vector<VersionReport> version_reports(const Program& program, const Timeline& timeline) {
  std::vector<Lives> objects = written_versions(program, timeline);
  std::vector<std::vector<std::pair<SimTime, std::int64_t>>> newest;
  newest.reserve(objects.size());
  for (const Lives& lives : objects) {
    newest.push_back(newest_by_time(lives));
  }
  std::vector<VersionReport> reports(objects.size());
  for (const VersionUse& read : program.version_reads()) {
    const SimTime start = timeline.start[read.node];
    if (start.ps < 0) {
      continue;
    }
    const auto& steps = newest[read.object];
    const auto after =
        std::upper_bound(steps.begin(), steps.end(), start,
                         [](SimTime time, const auto& step) { return time < step.first; });
    const std::int64_t staleness = (after - 1)->second - read.version;
    VersionReport& report = reports[read.object];
    ++report.reads_by_staleness[staleness];
    report.max_staleness = std::max(report.max_staleness, staleness);
    VersionLife& life = objects[read.object][read.version];
    life.last_read = std::max(life.last_read, timeline.end[read.node]);
  }
  for (std::size_t object = 0; object < objects.size(); ++object) {
    reports[object].max_kept = most_kept(objects[object]);
  }
  return reports;
}

}  // namespace orrery::sim
