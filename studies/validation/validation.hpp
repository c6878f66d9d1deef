// SPDX-License-Identifier: Apache-2.0
// Predicted against measured (docs/validation.md). An error is predicted / measured - 1.
// Quantiles over several rows weigh each by 1 / (configurations of its source), each configuration
// once: rows of one configuration share its weight. Rows with confidence full and the others are
// apart; so are collectives below 1 KiB, where the launch mode decides.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/json.hpp"

namespace orrery::studies {

struct RowResult {
  std::string id;
  std::string config_id;
  std::string source;
  std::vector<std::string> groups;  // collectives and kernels: what they have in common
  std::string subject;              // in words, for the table of the worst rows
  std::string quantity;             // "iteration_time_s", "allocated_memory_bytes", ...
  bool memory = false;
  bool full = true;
  bool small = false;  // a message below 1 KiB
  double predicted = 0;
  double measured = 0;
  std::optional<double> low;  // 80 % interval of the prediction
  std::optional<double> high;
  std::vector<std::string> assumed;  // what the row does not state, in words
  std::string skipped_because;       // empty: simulated
  // Training runs.
  std::string gpu;            // as the baseline tells GPUs apart
  double flops_per_gpu = 0;   // model FLOPs of what was timed; 0: no baseline
  std::string plan_group;     // equal for plans of one network on one cluster; empty: no ranking
  std::string network_group;  // equal for runs of one network on one type of GPU; empty: no ratios
  std::string plan;           // degrees and choices in words: tells the plans of a group apart
  std::string kind;           // colour of the scatter: schedule, collective, class of kernels
  bool simulated() const { return skipped_because.empty(); }
  double error() const { return predicted / measured - 1.0; }
};

// Of |error|; no values when nothing was simulated.
struct ErrorSummary {
  std::optional<double> median;
  std::optional<double> p90;
  std::optional<double> mean;
  std::optional<double> bias;        // median of the signed error
  std::optional<double> coverage80;  // share of times inside their interval, weighted as errors are
  std::size_t simulated = 0;
  std::size_t skipped = 0;
};

struct TimeAndMemory {
  ErrorSummary time;
  ErrorSummary memory;
};

// How well predictions put plans in order. A group are the plans of one network on one cluster.
struct Ranking {
  std::size_t groups = 0;  // with at least two plans; a tau needs three
  std::size_t plans = 0;
  std::optional<double> tau;         // mean over groups of Kendall's tau-b, sources weigh the same
  std::optional<double> tau_median;  // over groups
  std::optional<double> regret_median;  // measured time of the plan predicted best / measured best
  std::optional<double> regret_worst;   // - 1, over groups
};

// All that is said of a set of rows.
struct Judgement : TimeAndMemory {
  Ranking ranking;
  ErrorSummary ratio;     // of ratios between two runs of one network: their count in `simulated`
  ErrorSummary baseline;  // one constant FLOP/s per GPU type, fitted to these very rows
};

struct SourceSummary {
  Judgement full;
  Judgement partial;
};

struct Validation {
  Judgement overall;  // confidence full
  Judgement partial;
  std::map<std::string, SourceSummary> sources;
  std::map<std::string, ErrorSummary> groups;
  ErrorSummary small_messages;
  std::vector<RowResult> rows;           // in the order of the files
  std::vector<std::string> empty_files;  // with a header alone, beside others
};

struct ValidateOptions {
  int jobs = 0;              // 0: all cores
  std::size_t worst = 10;    // rows listed by the text report
  int interval_draws = 128;  // of the interval of a time, even; 0: no intervals
};

// Reads the files (training runs, collectives, GEMM and attention kernels, told apart by their
// columns), predicts every row and sums up. The result does not depend on the number of jobs.
Validation validate_files(const std::vector<std::string>& paths, const ValidateOptions& options);

Validation summarise(std::vector<RowResult> rows);
// Of any rows, weighed as those of the tables.
ErrorSummary summarise_errors(const std::vector<const RowResult*>& rows);
Json to_json(const Validation& validation);
std::string to_text(const Validation& validation, const ValidateOptions& options);
// What was assumed of how many rows of each source, and of which first; "" where nothing was.
std::string assumed_text(const std::vector<RowResult>& rows);
// The accuracy tables of docs/fidelity.md.
std::string to_markdown(const Validation& validation);

// A bar for each band of the signed error: how many rows of training runs and tables lie in it.
std::string error_plot(const std::vector<RowResult>& rows);

struct WeightedValue {
  double value = 0;
  double weight = 1;
};
// The smallest value with at least the share `q` of the weight at or below it; the mean of it and
// the next where the share is met exactly (the usual median). At least one value.
double weighted_quantile(std::vector<WeightedValue> values, double q);

}  // namespace orrery::studies
