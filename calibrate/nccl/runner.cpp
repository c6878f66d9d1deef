// SPDX-License-Identifier: Apache-2.0
#include "calibrate/nccl/runner.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/error.hpp"
#include "base/interrupt.hpp"
#include "base/limits.hpp"
#include "base/quantity_text.hpp"
#include "base/text.hpp"
#include "calibrate/collective_log.hpp"
#include "calibrate/gpu_names.hpp"
#include "calibrate/reading_builder.hpp"
#include "topologies/cluster.hpp"

namespace orrery::calibrate {
namespace {

constexpr int kWarmUps = 5;
constexpr int kEstimateIterations = 3;
constexpr double kOverlapWindow = 20e-3;
constexpr int kMaxOverlapLaunches = 2000;
constexpr double kUnsettledSpread = 0.1;  // quartiles further apart than this share of the median

std::string numbers_text(const std::vector<double>& numbers) {
  return fmt::format("{}", fmt::join(numbers, " "));
}

std::vector<double> parse_numbers(const std::string& text) {
  std::vector<double> numbers;
  for (const std::string_view word : split(text, ' ')) {
    if (!word.empty()) {
      numbers.push_back(
          parse_number(word, "a rank's times", -limits::kMaxQuantity, limits::kMaxQuantity));
    }
  }
  return numbers;
}

std::string links_text(const LinkClasses& links) {
  std::string text;
  for (const std::vector<int>& row : links) {
    text += fmt::format("{}{}", text.empty() ? "" : ";", fmt::join(row, " "));
  }
  return text;
}

LinkClasses parse_links(const std::string& text, int gpus) {
  LinkClasses links;
  for (const std::string_view row : split(text, ';')) {
    std::vector<int> classes;
    for (const double number : parse_numbers(std::string(row))) {
      classes.push_back(static_cast<int>(number));
    }
    links.push_back(std::move(classes));
  }
  const auto count = static_cast<std::size_t>(gpus);
  const bool square =
      links.size() == count &&
      std::all_of(links.begin(), links.end(), [&](const auto& row) { return row.size() == count; });
  return square ? links : LinkClasses{};
}

class Runner {
 public:
  Runner(Team& team, CollectiveDevice& device, const RunOptions& options)
      : team_(team), device_(device), options_(options) {}

  SampleFile run(const std::string& host) {
    hosts_ = team_.all_gather(host);
    const Placement placement = placement_of(hosts_);
    const LinkClasses links =
        parse_links(team_.broadcast(links_text(device_.links())), placement.ranks_per_node());
    const MeasurePlan plan = plan_measurements(placement, links, options_.measure);
    if (plan.series.empty()) {
      bad_input("calibrate nccl", "nothing to measure",
                "at least two ranks, and sizes of at least 1 KiB");
    }
    total_ = static_cast<double>(plan.num_points());
    device_.reserve(options_.measure.max_bytes);
    for (const MeasureSeries& series : plan.series) {
      run_series(series);
    }
    file_.header = header();
    return std::move(file_);
  }

 private:
  bool leads() const { return team_.rank() == 0; }

  // Without words about the network the node that carries the GPU as a rule, not the one whose logs
  // were published.
  std::string likely_node(const std::string& gpu) const {
    const std::string usual =
        gpu.empty() || !options_.fabric.empty() ? "" : topologies::load_gpu(gpu).usual_node;
    return usual.empty() ? node_of(gpu, options_.fabric) : usual;
  }

  SampleHeader header() {
    const DeviceFacts facts = device_.facts();
    SampleHeader header;
    header.device = facts.name;
    header.gpu = gpu_of(facts.name);
    header.node = options_.node.empty() ? likely_node(header.gpu) : options_.node;
    header.fabric = options_.fabric;
    header.driver = facts.driver;
    header.cuda = facts.cuda;
    header.libraries = {{"nccl", facts.nccl}};
    header.host = hosts_.front();
    header.command = options_.command;
    set_launch_mode(header, LaunchMode::ProcessPerGpu);
    for (std::size_t rank = 0; rank < hosts_.size();) {
      std::size_t end = rank;
      while (end < hosts_.size() && hosts_[end] == hosts_[rank]) {
        ++end;
      }
      header.notes.push_back(fmt::format("ranks {}-{} on {}", rank, end - 1, hosts_[rank]));
      rank = end;
    }
    return header;
  }

  // Joins the group of this rank; every communicator's first rank makes its id.
  bool join(const GroupPlan& group) {
    const int colour = group.colour_of(team_.rank());
    const bool first = colour >= 0 && group.rank_in_group(team_.rank()) == 0;
    const std::vector<std::string> ids = team_.all_gather(first ? device_.new_group_id() : "");
    if (colour >= 0) {
      const std::vector<int>& members = group.communicators[static_cast<std::size_t>(colour)];
      device_.join(ids[static_cast<std::size_t>(members.front())],
                   group.rank_in_group(team_.rank()), group.ranks());
    }
    return colour >= 0;
  }

  void run_series(const MeasureSeries& series) {
    takes_part_ = join(series.group);
    for (const GemmSample& gemm : series.beside) {
      const std::vector<double> alone = slowest(time_gemm(gemm));
      add(gemm, alone, "cublas");
      gemm_seconds_ = timing_of(alone).median.value();
      for (const sim::CommKind kind : series.kinds) {
        run_sizes(series, kind, &gemm);
      }
    }
    if (series.beside.empty()) {
      for (const sim::CommKind kind : series.kinds) {
        run_sizes(series, kind, nullptr);
      }
    }
    if (takes_part_) {
      device_.leave();
    }
    team_.barrier();
  }

  void run_sizes(const MeasureSeries& series, sim::CommKind kind, const GemmSample* gemm) {
    bool within_budget = true;
    for (const std::int64_t bytes : series.sizes) {
      report(series, kind, bytes, gemm != nullptr);
      if (within_budget) {
        const double estimate = estimate_point(kind, bytes);
        if (gemm == nullptr) {
          run_point(series.group, kind, bytes, estimate);
        } else {
          run_overlap(series.group, kind, bytes, estimate, *gemm);
        }
        within_budget = estimate * kWarmUps < options_.measure.point_budget.value();
      }
      ++done_;
    }
  }

  void report(const MeasureSeries& series, sim::CommKind kind, std::int64_t bytes, bool beside) {
    if (interrupted()) {
      throw Error(ErrorKind::InputOutput, "calibrate nccl", "interrupted");
    }
    if (leads() && options_.progress) {
      options_.progress(done_ / total_,
                        fmt::format("{}: {} of {}{}", series.group.name, sim::to_text(kind),
                                    format_bytes(Bytes(static_cast<double>(bytes))),
                                    beside ? " beside a GEMM" : ""));
    }
  }

  // Of each batch the slowest rank's time; the same on every rank.
  std::vector<double> slowest(const std::vector<double>& mine) {
    std::vector<double> times;
    for (const std::string& text : team_.all_gather(numbers_text(mine))) {
      const std::vector<double> theirs = parse_numbers(text);
      times.resize(std::max(times.size(), theirs.size()));
      for (std::size_t batch = 0; batch < theirs.size(); ++batch) {
        times[batch] = std::max(times[batch], theirs[batch]);
      }
    }
    if (times.empty() || *std::min_element(times.begin(), times.end()) <= 0) {
      throw Error(ErrorKind::InputOutput, "calibrate nccl", "a GPU measured a time of zero");
    }
    return times;
  }

  double estimate_point(sim::CommKind kind, std::int64_t bytes) {
    std::vector<double> mine;
    if (takes_part_) {
      (void)device_.time_collective(kind, bytes, 1, kWarmUps);
      mine = device_.time_collective(kind, bytes, 1, kEstimateIterations);
    }
    return slowest(mine).front();
  }

  void run_point(const GroupPlan& group, sim::CommKind kind, std::int64_t bytes, double estimate) {
    const Repetitions repetitions = repetitions_for(Seconds(estimate));
    team_.barrier();
    const std::vector<double> times =
        slowest(takes_part_ ? device_.time_collective(kind, bytes, repetitions.batches,
                                                      repetitions.iterations)
                            : std::vector<double>{});
    add(shape(group, kind, bytes), times, "float");
  }

  std::vector<double> time_gemm(const GemmSample& gemm) {
    if (!takes_part_) {
      return {};
    }
    (void)device_.time_gemm(gemm, 1, kWarmUps);
    const double one = device_.time_gemm(gemm, 1, kEstimateIterations).front();
    const Repetitions repetitions = repetitions_for(Seconds(one));
    return device_.time_gemm(gemm, repetitions.batches, repetitions.iterations);
  }

  // Both streams are kept busy for a window of several operations of each.
  void run_overlap(const GroupPlan& group, sim::CommKind kind, std::int64_t bytes, double estimate,
                   const GemmSample& gemm) {
    const double window = std::max(kOverlapWindow, 4 * std::max(estimate, gemm_seconds_));
    const auto launches = [&](double one) {
      return static_cast<int>(std::min(std::ceil(window / one), double{kMaxOverlapLaunches}));
    };
    team_.barrier();
    OverlapTimes mine;
    if (takes_part_) {
      mine = device_.time_overlap(kind, bytes, launches(estimate), gemm, launches(gemm_seconds_));
    }
    CollectiveSample beside = shape(group, kind, bytes);
    beside.beside = gemm;
    add_if_any(beside, mine.collective, "float");
    beside.times_gemm = true;
    add_if_any(beside, mine.gemm, "cublas");
  }

  // The number of operations that met the other stream differs by rank: medians are compared.
  void add_if_any(const CollectiveSample& shape, const std::vector<double>& mine,
                  const std::string& implementation) {
    const std::string text =
        mine.empty() ? ""
                     : numbers_text({timing_of(mine).p25.value(), timing_of(mine).median.value(),
                                     timing_of(mine).p75.value()});
    std::vector<double> worst;
    for (const std::string& one : team_.all_gather(text)) {
      const std::vector<double> quartiles = parse_numbers(one);
      if (quartiles.size() == 3 && (worst.empty() || quartiles[1] > worst[1])) {
        worst = quartiles;
      }
    }
    if (leads() && !worst.empty() && worst[0] > 0) {
      Timing time{.median = Seconds(worst[1]), .p25 = Seconds(worst[0]), .p75 = Seconds(worst[2])};
      time.repetitions = std::max<std::int64_t>(static_cast<std::int64_t>(mine.size()), 1);
      file_.samples.push_back({shape, time, implementation, "", {}});
    }
  }

  CollectiveSample shape(const GroupPlan& group, sim::CommKind kind, std::int64_t bytes) const {
    return {.kind = kind,
            .bytes = bytes,
            .ranks = group.ranks(),
            .ranks_per_node = group.ranks_per_node,
            .nodes = group.nodes,
            .concurrent_groups = static_cast<std::int64_t>(group.communicators.size())};
  }

  void add(Shape shape, const std::vector<double>& times, const std::string& implementation) {
    if (!leads()) {
      return;
    }
    const Timing time = timing_of(times);
    SampleFlags flags;
    flags.unsettled = (time.p75 - time.p25).value() > kUnsettledSpread * time.median.value();
    file_.samples.push_back({std::move(shape), time, implementation, "", flags});
  }

  Team& team_;
  CollectiveDevice& device_;
  const RunOptions& options_;
  SampleFile file_;
  std::vector<std::string> hosts_;
  bool takes_part_ = false;
  double gemm_seconds_ = 0;
  double done_ = 0;
  double total_ = 1;
};

}  // namespace

SampleFile run_measurements(Team& team, CollectiveDevice& device, const std::string& host,
                            const RunOptions& options) {
  try {
    return Runner(team, device, options).run(host);
  } catch (const std::exception& error) {
    team.report_fault(fmt::format("rank {} ({}): {}", team.rank(), host, error.what()));
    throw;
  }
}

}  // namespace orrery::calibrate
