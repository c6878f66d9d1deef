// SPDX-License-Identifier: Apache-2.0
#include "calibrate/fit/own_collectives.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "base/error.hpp"
#include "base/quantity_text.hpp"
#include "calibrate/fit/collective_sections.hpp"
#include "calibrate/fit/collectives.hpp"
#include "calibrate/fit/five_factors.hpp"
#include "calibrate/fit/folds.hpp"
#include "calibrate/statistics.hpp"
#include "costmodel/collective_model.hpp"

namespace orrery::calibrate {
namespace {

using costmodel::CollectiveModel;
using costmodel::CollectiveResiduals;
using costmodel::FabricClass;
using costmodel::kMaxLogResidual;
using costmodel::Profile;
using costmodel::ResidualCurve;
using costmodel::ResidualQuery;
using sim::CommKind;

// What a log asks of the factors once the residuals of the profile have had their say.
CollectiveLog without_residuals(const CollectiveLog& log, const CollectiveModel& model) {
  CollectiveLog plain = log;
  for (MeasuredTime& measured : plain.times) {
    const Seconds formula = model.formula(log.kind, measured.size, log.system.group).time;
    measured.time *= formula / model.time(log.kind, measured.size, log.system.group);
  }
  return plain;
}

// The pull of a fit keeps rates near its start; links of this machine may be several times slower
// than those of the profile, which the median of large sizes tells.
void move_rates(const std::vector<LogOfModel>& logs, costmodel::CollectiveParameters& parameters) {
  constexpr double kLarge = 16.0 * 1024 * 1024;
  std::vector<double> ratios;
  for (const LogOfModel& of : logs) {
    const CollectiveLog& log = *of.log;
    for (const MeasuredTime& measured : log.times) {
      if (measured.size.value() >= kLarge) {
        ratios.push_back(of.model->formula(log.kind, measured.size, log.system.group).time /
                         measured.time);
      }
    }
  }
  if (!ratios.empty()) {
    const double share = quantile_of(std::move(ratios), 0.5);
    parameters.bandwidth_factor *= share;
    parameters.in_switch_factor *= share;
  }
}

void move_factors(const std::vector<const CollectiveLog*>& logs, Profile& profile) {
  const Profile before = profile;
  for (const Section section : kSections) {
    const std::vector<const CollectiveLog*> fitted = logs_of_factors(logs, section);
    std::vector<CollectiveModel> models;
    std::vector<CollectiveLog> plain;
    for (const CollectiveLog* log : fitted) {
      models.emplace_back(log->system.cluster, before, log->nccl);
      plain.push_back(without_residuals(*log, models.back()));
    }
    std::vector<LogOfModel> pairs;
    for (std::size_t i = 0; i < plain.size(); ++i) {
      pairs.push_back({&plain[i], &models[i]});
    }
    if (!pairs.empty()) {
      costmodel::CollectiveParameters& parameters = parameters_of(profile, section);
      move_rates(pairs, parameters);
      parameters = rounded(fit_five_factors(pairs, parameters));
    }
  }
}

// What the factors and the residuals of the profile leave of the logs.
Kriging remainders(const std::vector<const CollectiveLog*>& logs, const Profile& profile,
                   bool inside) {
  std::vector<ResidualPoint> points;
  for (std::size_t i = 0; i < logs.size(); ++i) {
    const CollectiveLog& log = *logs[i];
    if (inside_node(log.fabric) != inside) {
      continue;
    }
    const CollectiveModel model(log.system.cluster, profile, log.nccl);
    ResidualPoint point = point_of(log);
    point.version = 0;
    point.log = static_cast<int>(i);
    for (const MeasuredTime& measured : log.times) {
      if (!launch_bound(log, measured.time)) {
        const Seconds time = model.time(log.kind, measured.size, log.system.group);
        point.log2_bytes = std::log2(measured.size.value());
        point.value =
            std::clamp(std::log(measured.time / time), -2 * kMaxLogResidual, 2 * kMaxLogResidual);
        points.push_back(point);
      }
    }
  }
  const ResidualPriors prior;
  return {std::move(points), inside ? prior.inside : prior.between};
}

// The curves of one network and collective: those that the profile has and those that logs call
// for.
struct CurveGrid {
  std::set<std::pair<int, int>> layouts;  // ranks per node, nodes
  int first = 64;                         // log2(bytes)
  int last = 0;

  void add(int ranks, int nodes, int from, int to) {
    layouts.emplace(ranks, nodes);
    first = std::min(first, from);
    last = std::max(last, to);
  }
};

using CurveGrids = std::map<std::pair<FabricClass, CommKind>, CurveGrid>;

// Networks of one set of factors tell of each other, and so do collectives that do not stand alone.
CurveGrids grids_of(const std::vector<const CollectiveLog*>& logs,
                    const CollectiveResiduals& known) {
  CurveGrids grids;
  for (const CollectiveLog* log : logs) {
    const std::vector<CommKind> kinds =
        stands_alone(log->kind)
            ? std::vector{log->kind}
            : std::vector{CommKind::AllReduce, CommKind::AllGather, CommKind::ReduceScatter};
    const double first = std::log2(log->times.front().size.value());
    const double last = std::log2(log->times.back().size.value());
    for (const CommKind kind : kinds) {
      grids[{log->fabric, kind}].add(log->system.group.ranks_per_node, log->system.group.nodes,
                                     static_cast<int>(std::floor(first + 1e-9)),
                                     static_cast<int>(std::ceil(last - 1e-9)));
    }
  }
  for (const ResidualCurve& curve : known.curves()) {
    const auto same = [&](const CollectiveLog* log) {
      return section_of(log->fabric) == section_of(curve.fabric) &&
             (log->kind == curve.kind || (!stands_alone(log->kind) && !stands_alone(curve.kind)));
    };
    if (std::any_of(logs.begin(), logs.end(), same)) {
      grids[{curve.fabric, curve.kind}].add(
          curve.ranks_per_node, curve.nodes, curve.first,
          curve.first + static_cast<int>(curve.permille.size()) - 1);
    }
  }
  return grids;
}

// NCCL's version on this machine where the residuals tell versions apart.
int version_of(const std::vector<const CollectiveLog*>& logs, FabricClass fabric) {
  int newest = 0;
  for (const CollectiveLog* log : logs) {
    newest = inside_node(fabric) ? std::max(newest, log->nccl) : 0;
  }
  return newest;
}

void move_residuals(const std::vector<const CollectiveLog*>& logs, Profile& profile) {
  const CollectiveResiduals known = profile.collectives.residuals;
  const CurveGrids grids = grids_of(logs, known);
  std::vector<ResidualCurve> curves;
  for (const ResidualCurve& curve : known.curves()) {
    if (!grids.contains({curve.fabric, curve.kind})) {
      curves.push_back(curve);
    }
  }
  const Kriging inside = remainders(logs, profile, true);
  const Kriging between = remainders(logs, profile, false);
  for (const auto& [of, grid] : grids) {
    const auto& [fabric, kind] = of;
    const Kriging& kriging = inside_node(fabric) ? inside : between;
    const int version = version_of(logs, fabric);
    for (const auto& [ranks, nodes] : grid.layouts) {
      std::vector<double> values(static_cast<std::size_t>(grid.last - grid.first + 1));
      known.fill({fabric, kind, version, ranks, nodes}, grid.first, 1, values);
      ResidualPoint point{.fabric = fabric, .kind = kind, .log = -1};
      point.log2_ranks = std::log2(ranks);
      point.log2_nodes = std::log2(nodes);
      point.log2_bytes = grid.first;
      ResidualCurve curve{fabric, kind, version, ranks, nodes, grid.first, {}};
      for (const double value : values) {
        const double moved =
            std::clamp(value + kriging.at(point), -kMaxLogResidual, kMaxLogResidual);
        curve.permille.push_back(static_cast<std::int16_t>(std::lround(moved * 1000)));
        ++point.log2_bytes;
      }
      curves.push_back(std::move(curve));
    }
  }
  profile.collectives.residuals = CollectiveResiduals(std::move(curves));
}

Profile moved(std::span<const CollectiveLog> logs, const Profile& base) {
  std::vector<const CollectiveLog*> chosen;
  for (const CollectiveLog& log : logs) {
    if (!log.times.empty()) {
      chosen.push_back(&log);
    }
  }
  Profile profile = base;
  move_factors(chosen, profile);
  move_residuals(chosen, profile);
  return profile;
}

// Each log with the times of one fold, or with all others.
std::vector<CollectiveLog> part_of(std::span<const CollectiveLog> logs, std::size_t fold,
                                   bool inside) {
  std::vector<CollectiveLog> parts;
  for (const CollectiveLog& log : logs) {
    CollectiveLog part = log;
    part.times.clear();
    for (std::size_t i = 0; i < log.times.size(); ++i) {
      if ((i % kFolds == fold) == inside) {
        part.times.push_back(log.times[i]);
      }
    }
    parts.push_back(std::move(part));
  }
  return parts;
}

std::vector<LeftOut> left_out_times(std::span<const CollectiveLog> logs, const Profile& base) {
  std::vector<LeftOut> points;
  for (std::size_t fold = 0; fold < kFolds; ++fold) {
    const Profile profile = moved(part_of(logs, fold, false), base);
    for (const CollectiveLog& log : part_of(logs, fold, true)) {
      const CollectiveModel model(log.system.cluster, profile, log.nccl);
      for (const MeasuredTime& measured : log.times) {
        const Seconds time = with_launch(log.launch, log.system.group.ranks,
                                         model.time(log.kind, measured.size, log.system.group));
        points.push_back({error_group(log), measured.time.value(), time.value()});
      }
    }
  }
  return points;
}

// Rows of groups that were not measured stay.
void set_errors(std::span<const CollectiveLog> logs, const std::vector<LeftOut>& points,
                Profile& profile) {
  std::map<std::string, costmodel::CollectiveError> rows;
  for (const costmodel::CollectiveError& row : profile.collectives.left_out) {
    rows[row.group] = row;
  }
  std::map<std::string, std::vector<double>> errors;
  for (const LeftOut& point : points) {
    errors[point.kernel].push_back(std::abs(point.predicted / point.measured - 1));
  }
  for (const auto& [group, of] : errors) {
    const auto in_group = [&group](const CollectiveLog& log) { return error_group(log) == group; };
    rows[group] = {group, rounded(quantile_of(of, 0.5), 1e4), rounded(quantile_of(of, 0.9), 1e4),
                   static_cast<int>(std::count_if(logs.begin(), logs.end(), in_group)),
                   static_cast<int>(of.size())};
  }
  profile.collectives.left_out.clear();
  for (auto& [group, row] : rows) {
    profile.collectives.left_out.push_back(std::move(row));
  }
}

// Left-out times lie between sizes of groups that were measured: other groups are no better known
// than in the base, but no better than these either.
void widen_spreads(std::span<const CollectiveLog> logs, const std::vector<LeftOut>& points,
                   costmodel::Spreads& spreads) {
  std::map<std::string, std::vector<double>> errors;
  for (const LeftOut& point : points) {
    errors[point.kernel].push_back(std::abs(point.predicted / point.measured - 1));
  }
  const bool any_exchange = std::any_of(logs.begin(), logs.end(), [](const CollectiveLog& log) {
    return log.kind == CommKind::AllToAll && inside_node(log.fabric);
  });
  if (any_exchange && spreads.all_to_all == 0) {
    spreads.all_to_all = spreads.inter_node_collective;  // what it stands for
  }
  for (const CollectiveLog& log : logs) {
    double& spread = !inside_node(log.fabric)         ? spreads.inter_node_collective
                     : log.kind == CommKind::AllToAll ? spreads.all_to_all
                                                      : spreads.intra_node_collective;
    const double own = rounded(deviation_of_errors(errors[error_group(log)]), 1e3);
    spread = std::max(spread, own);
  }
}

}  // namespace

std::string implausible_time(const CollectiveSize& of, Seconds measured, Seconds expected) {
  // Units are a thousand apart; the slowest time of the public logs (four MI250X nodes with RCCL)
  // is 160 times that of its profile.
  constexpr double kMostApart = 300;
  return measured < expected * kMostApart && expected < measured * kMostApart
             ? ""
             : fmt::format(
                   "{} of {} in {:g} s, where some {:.2g} s are expected of {} ranks: in "
                   "another unit?",
                   sim::to_text(of.kind), format_bytes(of.size), measured.value(), expected.value(),
                   of.ranks);
}

std::vector<std::string> drop_impossible(std::vector<CollectiveLog>& logs, const Profile& base,
                                         bool partial) {
  std::vector<std::string> dropped;
  for (CollectiveLog& log : logs) {
    const CollectiveModel model(log.system.cluster, base, log.nccl);
    std::erase_if(log.times, [&](const MeasuredTime& measured) {
      const Seconds expected =
          with_launch(log.launch, log.system.group.ranks,
                      model.choose(log.kind, measured.size, log.system.group).time);
      const std::string why = implausible_time({log.kind, measured.size, log.system.group.ranks},
                                               measured.time, expected);
      if (why.empty()) {
        return false;
      }
      const Error error(ErrorKind::BadInput, measured.source.empty() ? log.name : measured.source,
                        why, "--partial leaves such times out");
      if (!partial) {
        throw error;
      }
      dropped.emplace_back(error.what());
      return true;
    });
  }
  std::erase_if(logs, [](const CollectiveLog& log) { return log.times.empty(); });
  return dropped;
}

OwnCollectives fit_own_collectives(std::span<const CollectiveLog> logs, const Profile& base) {
  OwnCollectives fit{moved(logs, base), left_out_times(logs, base)};
  set_errors(logs, fit.left_out, fit.profile);
  widen_spreads(logs, fit.left_out, fit.profile.spread);
  return fit;
}

std::vector<std::string> sections_of(std::span<const CollectiveLog> logs) {
  std::set<std::string> sections = {"collectives"};
  for (const CollectiveLog& log : logs) {
    const std::string_view name = stands_alone(log.kind) ? "" : to_text(section_of(log.fabric));
    if (!name.empty()) {
      sections.emplace(name);
    }
  }
  return {sections.begin(), sections.end()};
}

}  // namespace orrery::calibrate
