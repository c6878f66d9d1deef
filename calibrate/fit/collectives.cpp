// SPDX-License-Identifier: Apache-2.0
#include "calibrate/fit/collectives.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <utility>

#include "calibrate/fit/collective_sections.hpp"
#include "calibrate/fit/five_factors.hpp"

namespace orrery::calibrate {
namespace {

using costmodel::CollectiveModel;
using costmodel::CollectiveParameters;
using costmodel::FabricClass;
using costmodel::Profile;
using costmodel::ResidualCurve;
using sim::CommKind;

// Versions of fewer logs are not told apart from the newest.
constexpr int kLogsOfVersion = 3;

// Where fits start, the same whatever the profile held before: the usual factors of GPU generations
// (medians of fits to public logs).
constexpr double kBandwidthInside = 0.9;
// NCCL's list of speeds already holds what a network loses (48 of the 50 GB/s of a NIC).
constexpr double kBandwidthBetween = 1;

CollectiveParameters usual_factors(bool hopper, double bandwidth) {
  CollectiveParameters usual;
  usual.low_latency_factor = usual.simple_factor = hopper ? 1.05 : 1.4;
  usual.bandwidth_factor = bandwidth;
  usual.half_size = Bytes(2.0 * 1024 * 1024);
  return usual;
}

// The curves that the logs of one kind of fabric call for.
struct Grid {
  std::set<std::pair<int, int>> layouts;  // ranks per node, nodes
  std::set<CommKind> kinds;
  std::map<int, int> versions;  // logs of each
  int first = 64;               // log2(bytes)
  int last = 0;
};

std::vector<int> versions_of(const Grid& grid) {
  std::vector<int> versions;
  for (const auto& [version, logs] : grid.versions) {
    if (version > 0 && logs >= kLogsOfVersion) {
      versions.push_back(version);
    }
  }
  if (versions.empty()) {
    versions.push_back(0);
  }
  return versions;
}

// A layout or collective measured on one network is worth a curve on the others that resemble it
// (Kriging: fabrics), and verbs over InfiniBand tell what RoCE does, and the other way round.
void share_layouts(std::map<FabricClass, Grid>& grids) {
  if (grids.contains(FabricClass::InfiniBand) || grids.contains(FabricClass::Roce)) {
    grids[FabricClass::InfiniBand];
    grids[FabricClass::Roce];
  }
  Grid all;
  for (const auto& [fabric, grid] : grids) {
    if (fabric == FabricClass::Sharp) {
      continue;
    }
    all.layouts.insert(grid.layouts.begin(), grid.layouts.end());
    all.kinds.insert(grid.kinds.begin(), grid.kinds.end());
    all.first = std::min(all.first, grid.first);
    all.last = std::max(all.last, grid.last);
  }
  for (auto& [fabric, grid] : grids) {
    if (fabric != FabricClass::Sharp) {
      all.versions = grid.versions;
      grid = all;
    }
  }
}

std::map<FabricClass, Grid> grids_of(const std::vector<const CollectiveLog*>& logs, bool inside) {
  std::map<FabricClass, Grid> grids;
  for (const CollectiveLog* log : logs) {
    if (inside_node(log->fabric) != inside || log->times.empty()) {
      continue;
    }
    Grid& grid = grids[log->fabric];
    grid.layouts.emplace(log->system.group.ranks_per_node, log->system.group.nodes);
    if (stands_alone(log->kind)) {
      grid.kinds.insert(log->kind);
    } else {
      grid.kinds.insert({CommKind::AllReduce, CommKind::AllGather, CommKind::ReduceScatter});
    }
    ++grid.versions[inside ? log->nccl : 0];
    const double first = std::log2(log->times.front().size.value());
    const double last = std::log2(log->times.back().size.value());
    grid.first = std::min(grid.first, static_cast<int>(std::ceil(first - 1e-9)));
    grid.last = std::max(grid.last, static_cast<int>(std::floor(last + 1e-9)));
  }
  if (!inside) {
    share_layouts(grids);
  }
  return grids;
}

}  // namespace

FamilyFit::FamilyFit(std::vector<const CollectiveLog*> logs, const Profile& start,
                     const ResidualPriors& prior)
    : logs_(std::move(logs)), base_(start) {
  base_.collectives = {};
  const bool hopper = !logs_.empty() && logs_.front()->family.starts_with("hopper");
  base_.intra_node = usual_factors(hopper, kBandwidthInside);
  base_.inter_node = base_.inter_node_plugin = usual_factors(hopper, kBandwidthBetween);
  fit_factors();
  residuals_.push_back(fit_residuals(true, prior.inside));
  residuals_.push_back(fit_residuals(false, prior.between));
}

void FamilyFit::fit_factors() {
  for (const Section section : kSections) {
    const std::vector<const CollectiveLog*> fitted = logs_of_factors(logs_, section);
    if (fitted.size() < fewest_logs(section)) {
      continue;
    }
    std::vector<CollectiveModel> models;
    for (const CollectiveLog* log : fitted) {
      models.emplace_back(log->system.cluster, base_);
    }
    std::vector<LogOfModel> pairs;
    for (std::size_t i = 0; i < fitted.size(); ++i) {
      pairs.push_back({fitted[i], &models[i]});
    }
    CollectiveParameters& parameters = parameters_of(base_, section);
    parameters = rounded(fit_five_factors(pairs, parameters));
  }
}

// Unknown GPUs have a number that no log has.
int FamilyFit::number_of(const std::string& gpu) const {
  for (std::size_t i = 0; i < logs_.size(); ++i) {
    if (logs_[i]->gpu == gpu) {
      return static_cast<int>(i);
    }
  }
  return -1;
}

Kriging FamilyFit::fit_residuals(bool inside, const KrigingPrior& prior) const {
  std::vector<ResidualPoint> points;
  for (std::size_t i = 0; i < logs_.size(); ++i) {
    const CollectiveLog& log = *logs_[i];
    if (inside_node(log.fabric) != inside) {
      continue;
    }
    const CollectiveModel model(log.system.cluster, base_);
    ResidualPoint point = point_of(log);
    point.gpu = number_of(log.gpu);
    point.log = static_cast<int>(i);
    for (const MeasuredTime& measured : log.times) {
      if (launch_bound(log, measured.time)) {
        continue;
      }
      const Seconds formula = model.formula(log.kind, measured.size, log.system.group).time;
      point.log2_bytes = std::log2(measured.size.value());
      point.value = std::clamp(std::log(measured.time / formula), -costmodel::kMaxLogResidual,
                               costmodel::kMaxLogResidual);
      points.push_back(point);
    }
  }
  return {std::move(points), prior};
}

void FamilyFit::add_curves(bool inside, const std::string& gpu,
                           std::vector<ResidualCurve>& curves) const {
  const Kriging& residuals = residuals_[inside ? 0 : 1];
  for (const auto& [fabric, grid] : grids_of(logs_, inside)) {
    for (const CommKind kind : grid.kinds) {
      for (const int version : versions_of(grid)) {
        for (const auto& [ranks, nodes] : grid.layouts) {
          ResidualCurve curve{fabric, kind, version, ranks, nodes, grid.first, {}};
          ResidualPoint point;
          point.fabric = fabric;
          point.kind = kind;
          point.version = version;
          point.gpu = number_of(gpu);
          point.log = -1;
          point.log2_ranks = std::log2(ranks);
          point.log2_nodes = std::log2(nodes);
          for (int octave = grid.first; octave <= grid.last; ++octave) {
            point.log2_bytes = octave;
            const double value = std::clamp(residuals.at(point), -costmodel::kMaxLogResidual,
                                            costmodel::kMaxLogResidual);
            curve.permille.push_back(static_cast<std::int16_t>(std::lround(value * 1000)));
          }
          curves.push_back(std::move(curve));
        }
      }
    }
  }
}

void FamilyFit::apply(Profile& profile, const std::string& gpu) const {
  profile.intra_node = base_.intra_node;
  profile.inter_node = base_.inter_node;
  profile.inter_node_plugin = base_.inter_node_plugin;
  profile.all_to_all_intra = base_.all_to_all_intra;
  profile.all_to_all_inter = base_.all_to_all_inter;
  profile.collectives = base_.collectives;
  std::vector<ResidualCurve> curves;
  add_curves(true, gpu, curves);
  add_curves(false, gpu, curves);
  profile.collectives.residuals = costmodel::CollectiveResiduals(std::move(curves));
}

std::vector<std::string> FamilyFit::sections() const {
  std::set<std::string> sections = {"collectives"};
  for (const CollectiveLog* log : logs_) {
    if (log->kind == CommKind::AllToAll) {
      sections.insert(inside_node(log->fabric) ? "all_to_all_intra" : "all_to_all_inter");
    } else if (!stands_alone(log->kind) && !to_text(section_of(log->fabric)).empty()) {
      sections.emplace(to_text(section_of(log->fabric)));
    }
  }
  return {sections.begin(), sections.end()};
}

std::vector<std::string> families_of(std::span<const CollectiveLog> logs) {
  std::set<std::string> families;
  for (const CollectiveLog& log : logs) {
    families.insert(log.family);
  }
  return {families.begin(), families.end()};
}

Profile start_profile(std::span<const CollectiveLog> logs, const std::string& family) {
  std::map<std::string, std::pair<int, const CollectiveLog*>> counts;
  for (const CollectiveLog& log : logs) {
    if (log.family == family) {
      auto& [count, first] = counts[log.gpu];
      ++count;
      first = &log;
    }
  }
  const auto most = std::max_element(
      counts.begin(), counts.end(),
      [](const auto& a, const auto& b) { return a.second.first < b.second.first; });
  return costmodel::load_profile("", most->second.second->system.cluster.gpu);
}

FamilyFit fit_family(std::span<const CollectiveLog> logs, const std::string& family,
                     const ResidualPriors& prior, const CollectiveLog* without) {
  std::vector<const CollectiveLog*> chosen;
  for (const CollectiveLog& log : logs) {
    if (log.family == family && &log != without) {
      chosen.push_back(&log);
    }
  }
  return {std::move(chosen), start_profile(logs, family), prior};
}

}  // namespace orrery::calibrate
