// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <utility>
#include <vector>

#include "base/parallel.hpp"
#include "base/quantile.hpp"
#include "calibrate/fit/collectives.hpp"
#include "calibrate/statistics.hpp"
#include "costmodel/collective_model.hpp"

namespace orrery::calibrate {
namespace {

using costmodel::CollectiveModel;
using costmodel::Profile;
using sim::CommKind;

// Predicted over measured, of each time.
std::vector<double> ratios_of(const CollectiveLog& log, const FamilyFit& fit, Profile profile) {
  fit.apply(profile, log.gpu);
  const CollectiveModel model(log.system.cluster, profile, log.nccl);
  std::vector<double> ratios;
  for (const MeasuredTime& measured : log.times) {
    const Seconds time = with_launch(log.launch, log.system.group.ranks,
                                     model.time(log.kind, measured.size, log.system.group));
    ratios.push_back(time / measured.time);
  }
  return ratios;
}

std::vector<double> errors_of(std::vector<double> ratios) {
  for (double& ratio : ratios) {
    ratio = std::abs(ratio - 1);
  }
  return ratios;
}

constexpr std::size_t kPointFolds = 5;

// A copy of the logs of a family with the times of one fold, or with all others.
std::vector<CollectiveLog> part_of(std::span<const CollectiveLog> logs, const std::string& family,
                                   std::size_t fold, bool inside) {
  std::vector<CollectiveLog> parts;
  for (const CollectiveLog& log : logs) {
    if (log.family != family) {
      continue;
    }
    CollectiveLog part = log;
    part.times.clear();
    for (std::size_t i = 0; i < log.times.size(); ++i) {
      if ((i % kPointFolds == fold) == inside) {
        part.times.push_back(log.times[i]);
      }
    }
    parts.push_back(std::move(part));
  }
  return parts;
}

void leave_out_times(std::span<const CollectiveLog> logs, const std::string& family,
                     const ResidualPriors& prior, const Profile& start,
                     std::vector<LogError>& errors) {
  for (std::size_t fold = 0; fold < kPointFolds; ++fold) {
    std::vector<CollectiveLog> kept = part_of(logs, family, fold, false);
    std::erase_if(kept, [](const CollectiveLog& log) { return log.times.empty(); });
    if (kept.empty()) {
      return;
    }
    const FamilyFit fit = fit_family(kept, family, prior);
    const std::vector<CollectiveLog> out = part_of(logs, family, fold, true);
    auto part = out.begin();
    for (LogError& error : errors) {
      if (error.log->family == family) {
        const std::vector<double> of = errors_of(ratios_of(*part++, fit, start));
        error.times_left_out.insert(error.times_left_out.end(), of.begin(), of.end());
      }
    }
  }
}

std::vector<const LogError*> errors_of_group(std::span<const LogError> errors,
                                             const std::string& group,
                                             const CollectiveLog* without) {
  std::vector<const LogError*> members;
  for (const LogError& error : errors) {
    if (error.log != without && error_group(*error.log) == group && !error.left_out.empty()) {
      members.push_back(&error);
    }
  }
  return members;
}

double deviation_of_logs(const std::vector<const LogError*>& errors) {
  std::vector<double> all;
  for (const LogError* error : errors) {
    all.insert(all.end(), error->left_out.begin(), error->left_out.end());
  }
  return deviation_of_errors(std::move(all));
}

// The logs of few machines do not say how machines differ: those of all families do. A choice: two
// logs have one difference.
constexpr std::size_t kFewLogs = 3;

// Exchanges between nodes count as other collectives there, and so do broadcasts.
std::string spread_group(const CollectiveLog& log) {
  return !inside_node(log.fabric)         ? "several-nodes"
         : log.kind == CommKind::AllToAll ? "all-to-all"
                                          : "one-node";
}

void count_in_interval(const std::vector<std::vector<double>>& ratios,
                       std::vector<LogError>& errors) {
  for (std::size_t i = 0; i < errors.size(); ++i) {
    const CollectiveLog& log = *errors[i].log;
    const std::optional<double> spread =
        spread_of_logs(errors, {log.family, log.gpu, spread_group(log)}, &log);
    if (spread) {
      errors[i].has_interval = true;
      errors[i].in_interval =
          static_cast<int>(std::count_if(ratios[i].begin(), ratios[i].end(), [&](double ratio) {
            return std::abs(std::log(ratio)) <= costmodel::kIn80Percent * *spread;
          }));
    }
  }
}

}  // namespace

std::optional<double> spread_of_logs(std::span<const LogError> errors, const SpreadGroup& group,
                                     const CollectiveLog* without) {
  const std::vector<const LogError*> all = errors_of_group(errors, group.logs, without);
  std::vector<const LogError*> members;
  std::copy_if(all.begin(), all.end(), std::back_inserter(members),
               [&](const LogError* error) { return error->log->family == group.family; });
  if (members.empty()) {
    return std::nullopt;
  }
  const double own = deviation_of_logs(members);
  const double deviation = members.size() < kFewLogs ? std::max(own, deviation_of_logs(all)) : own;
  const bool is_measured = std::any_of(members.begin(), members.end(), [&](const auto* error) {
    return error->log->gpu == group.gpu;
  });
  return rounded(deviation * (is_measured ? 1 : costmodel::kSpreadWidening), 1e3);
}

std::vector<LogError> log_errors(std::span<const CollectiveLog> logs, const ResidualPriors& prior,
                                 bool leave_out, int jobs) {
  std::map<std::string, FamilyFit> fits;
  std::map<std::string, Profile> starts;
  for (const std::string& family : families_of(logs)) {
    fits.emplace(family, fit_family(logs, family, prior));
    starts.emplace(family, start_profile(logs, family));
  }
  std::vector<LogError> errors(logs.size());
  std::vector<std::vector<double>> ratios(logs.size());  // of logs left out
  parallel_for(logs.size(), jobs, [&](std::size_t index) {
    const CollectiveLog& log = logs[index];
    errors[index].log = &log;
    const Profile& start = starts.at(log.family);
    errors[index].fitted = errors_of(ratios_of(log, fits.at(log.family), start));
    if (leave_out) {
      ratios[index] = ratios_of(log, fit_family(logs, log.family, prior, &log), start);
      errors[index].left_out = errors_of(ratios[index]);
    }
  });
  if (leave_out) {
    for (const auto& [family, start] : starts) {
      leave_out_times(logs, family, prior, start, errors);
    }
    count_in_interval(ratios, errors);
  }
  return errors;
}

std::string error_group(const CollectiveLog& log) {
  const bool inside = inside_node(log.fabric);
  if (log.kind == CommKind::AllToAll) {
    return inside ? "all-to-all" : "all-to-all-several-nodes";
  }
  if (log.kind == CommKind::Broadcast) {
    return "broadcast";
  }
  return inside ? "one-node" : "several-nodes";
}

double quantile_of(std::vector<double> values, double share) {
  std::sort(values.begin(), values.end());
  return quantile(values, share);
}

double deviation_of_errors(std::vector<double> errors) {
  return quantile_of(std::move(errors), 0.8) / costmodel::kIn80Percent;
}

std::vector<costmodel::CollectiveError> summed_up(std::span<const LogError> errors,
                                                  const std::string& family) {
  std::map<std::string, std::pair<int, std::vector<double>>> groups;
  for (const LogError& error : errors) {
    if ((family.empty() || error.log->family == family) && !error.left_out.empty()) {
      auto& [logs, all] = groups[error_group(*error.log)];
      ++logs;
      all.insert(all.end(), error.left_out.begin(), error.left_out.end());
    }
  }
  std::vector<costmodel::CollectiveError> result;
  for (const auto& [group, entry] : groups) {
    result.push_back({group, rounded(quantile_of(entry.second, 0.5), 1e4),
                      rounded(quantile_of(entry.second, 0.9), 1e4), entry.first,
                      static_cast<int>(entry.second.size())});
  }
  return result;
}

}  // namespace orrery::calibrate
