// SPDX-License-Identifier: Apache-2.0
// Collective sections of profiles from logs of nccl-tests: for each family of GPUs the five
// corrections of NCCL's formula a kind of fabric (five_factors.hpp), then the residuals of all
// collectives, layouts and NCCL versions of the family by kriging (kriging.hpp). GPUs of a family
// without logs of their own get what the family shares.
//
// The error is measured by leaving out whole logs: factors and residuals are fitted again without
// each, and predicted through the same profile and model that plans use.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/json.hpp"
#include "calibrate/fit/collective_logs.hpp"
#include "calibrate/fit/kriging.hpp"
#include "costmodel/profile.hpp"

namespace orrery::calibrate {

class FamilyFit {
 public:
  // `start` states the sections that logs say nothing of. All logs are of one family.
  FamilyFit(std::vector<const CollectiveLog*> logs, const costmodel::Profile& start,
            const ResidualPriors& prior);

  // Replaces the collective sections of the profile of a GPU of the family.
  void apply(costmodel::Profile& profile, const std::string& gpu) const;
  // Sections of a profile that logs spoke of: "intra_node", "collectives", ...
  std::vector<std::string> sections() const;
  const costmodel::Profile& base() const { return base_; }
  const std::vector<const CollectiveLog*>& logs() const { return logs_; }

 private:
  void fit_factors();
  Kriging fit_residuals(bool inside, const KrigingPrior& prior) const;
  void add_curves(bool inside, const std::string& gpu,
                  std::vector<costmodel::ResidualCurve>& curves) const;
  int number_of(const std::string& gpu) const;

  std::vector<const CollectiveLog*> logs_;
  costmodel::Profile base_;         // with the fitted factors and no residuals
  std::vector<Kriging> residuals_;  // inside nodes, between nodes
};

struct LogError {
  const CollectiveLog* log = nullptr;
  std::vector<double> fitted;    // |predicted / measured - 1| of each time
  std::vector<double> left_out;  // the same, the log not being part of the fit; may be empty
  // The same, a fifth of the times of every log not being part of it at a time: sizes between
  // measured ones of the same machine. In no order; may be empty.
  std::vector<double> times_left_out;
  // Of left_out, those inside the 80 % interval that the spread of the other logs gives, where
  // there are others.
  bool has_interval = false;
  int in_interval = 0;
};

// What a spread of a profile is of: the error group of logs of a family.
struct SpreadGroup {
  std::string family;
  std::string gpu;
  std::string logs;
};
// From the errors of the logs left out, as a profile states it; nothing where the family has none.
std::optional<double> spread_of_logs(std::span<const LogError> errors, const SpreadGroup& group,
                                     const CollectiveLog* without = nullptr);

std::vector<std::string> families_of(std::span<const CollectiveLog> logs);
// The profile that a family's fit starts from: of the GPU with the most logs.
costmodel::Profile start_profile(std::span<const CollectiveLog> logs, const std::string& family);
FamilyFit fit_family(std::span<const CollectiveLog> logs, const std::string& family,
                     const ResidualPriors& prior, const CollectiveLog* without = nullptr);

// `jobs` threads; in the order of the logs.
std::vector<LogError> log_errors(std::span<const CollectiveLog> logs, const ResidualPriors& prior,
                                 bool leave_out, int jobs);
// "all-to-all" (of one node), "all-to-all-several-nodes", "broadcast", "one-node", "several-nodes"
std::string error_group(const CollectiveLog& log);
// Of the logs of one family, by group.
std::vector<costmodel::CollectiveError> summed_up(std::span<const LogError> errors,
                                                  const std::string& family);
double quantile_of(std::vector<double> values, double share);  // of any order
// The standard deviation of normal errors of which four fifths are no larger than of `errors`.
double deviation_of_errors(std::vector<double> errors);

}  // namespace orrery::calibrate
