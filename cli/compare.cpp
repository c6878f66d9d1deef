// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>

#include "base/error.hpp"
#include "base/quantity_text.hpp"
#include "base/table.hpp"
#include "cli/command/command.hpp"
#include "cli/command/command_line.hpp"
#include "cli/command/common.hpp"
#include "cli/report/cost.hpp"
#include "cli/report/report.hpp"
#include "cli/report/time_table.hpp"
#include "plan/document/plan_text.hpp"

namespace orrery::cli {
namespace {

constexpr const char* kCompareExamples = R"(
Differences are against the first plan.

Examples:
  orrery compare a.json b.json
  orrery compare before.json after.json --json)";

struct CompareOptions {
  std::vector<std::string> plans;
  OutputOptions output;
};

struct Compared {
  std::string path;
  plan::Plan plan;
  plan::Simulation simulation;
};

Seconds share_of(const Compared& compared, const std::string& key) {
  for (const TimeShare& share : time_shares(compared.simulation)) {
    if (share.key == key) {
      return share.time;
    }
  }
  return Seconds();
}

// The parts of any of the plans, in the order they first appear.
std::vector<TimeShare> all_shares(const std::vector<Compared>& plans) {
  std::vector<TimeShare> shares;
  for (const Compared& compared : plans) {
    for (const TimeShare& share : time_shares(compared.simulation)) {
      const bool known = std::any_of(shares.begin(), shares.end(), [&](const TimeShare& other) {
        return other.key == share.key;
      });
      if (!known) {
        shares.push_back(share);
      }
    }
  }
  return shares;
}

// Times of asynchronous and synchronous plans are not those of the same training, nor are those of
// two asynchronous schedules or stalenesses: none is set against the other's.
bool trains_alike(const Compared& compared, const Compared& first) {
  const plan::Simulation& one = compared.simulation;
  const plan::Simulation& other = first.simulation;
  return one.synchronous == other.synchronous &&
         (one.synchronous ||
          (compared.plan.schedule == first.plan.schedule && one.staleness == other.staleness));
}

// "1.23 s (-0.2 s)"
std::string against_first(Seconds value, Seconds first, bool is_compared) {
  const std::string text = format_duration(value);
  const Seconds difference = value - first;
  if (!is_compared || is_rounding(difference)) {
    return text;
  }
  return fmt::format("{} ({}{})", text, difference.value() > 0 ? "+" : "",
                     format_duration(difference));
}

class Table {
 public:
  explicit Table(const std::vector<Compared>& plans) : plans_(plans) {
    for (std::size_t i = 0; i < plans.size(); ++i) {
      columns_.push_back({fmt::format("plan {}", i + 1), Align::Right});
    }
  }

  template <typename CellOf>
  void add(const std::string& title, CellOf cell_of) {
    std::vector<std::string> row = {title};
    for (const Compared& compared : plans_) {
      row.push_back(cell_of(compared));
    }
    rows_.push_back(std::move(row));
  }
  template <typename TimeOf>
  void add_time(const std::string& title, TimeOf time_of) {
    const Seconds first = time_of(plans_.front());
    add(title, [&](const Compared& compared) {
      return against_first(time_of(compared), first, trains_alike(compared, plans_.front()));
    });
  }
  void add_rule() { rows_.emplace_back(); }

  std::string text() const {
    TextTable table(columns_);
    for (const std::vector<std::string>& row : rows_) {
      if (row.empty()) {
        table.add_rule();
      } else {
        table.add_row(row);
      }
    }
    return table.text();
  }

 private:
  const std::vector<Compared>& plans_;
  std::vector<TextTable::Column> columns_ = {{""}};
  std::vector<std::vector<std::string>> rows_;
};

std::string asynchronous_notes(const std::vector<Compared>& plans) {
  std::string notes;
  for (std::size_t i = 0; i < plans.size(); ++i) {
    const plan::Simulation& simulation = plans[i].simulation;
    if (!simulation.synchronous) {
      notes += fmt::format(
          "plan {} is asynchronous: gradients are up to {} update{} late, {} versions of the "
          "weights; not the same training as a synchronous schedule, another asynchronous one or "
          "another staleness\n",
          i + 1, simulation.staleness, simulation.staleness == 1 ? "" : "s",
          simulation.weight_versions);
    }
  }
  return notes;
}

// What training takes on each; dollars where a price is known.
void add_cost(const std::vector<Compared>& plans, Table& table) {
  const auto cost_of = [](const Compared& plan) {
    return cost_of_trillion_tokens(gpus_used(plan.plan), plan.simulation);
  };
  table.add("days per trillion tokens",
            [&](const Compared& plan) { return cost_number(cost_of(plan).days); });
  table.add("GPU-hours per trillion tokens",
            [&](const Compared& plan) { return cost_number(cost_of(plan).gpu_hours); });
  const bool priced = std::any_of(plans.begin(), plans.end(), [&](const Compared& plan) {
    return cost_of(plan).dollars.has_value();
  });
  if (priced) {
    table.add("USD per trillion tokens", [&](const Compared& plan) {
      const std::optional<double> dollars = cost_of(plan).dollars;
      return dollars ? cost_number(*dollars) : std::string("no price");
    });
  }
}

// What those that do not fit miss.
std::string misfits_text(const std::vector<Compared>& plans) {
  std::string text;
  for (std::size_t i = 0; i < plans.size(); ++i) {
    if (const auto& misfit = plans[i].simulation.does_not_fit) {
      text += fmt::format("plan {} does not fit: {}\n", i + 1, *misfit);
    }
  }
  return text;
}

std::string compare_text(const std::vector<Compared>& plans) {
  std::vector<const plan::Plan*> compared;
  for (const Compared& plan : plans) {
    compared.push_back(&plan.plan);
  }
  const std::vector<std::string> layouts = plan::layout_texts(compared);
  std::string text;
  for (std::size_t i = 0; i < plans.size(); ++i) {
    text += fmt::format("plan {}: {}\n  {}\n  {}\n", i + 1, plans[i].path,
                        subject_text(plans[i].plan), layouts[i]);
  }
  Table table(plans);
  table.add_time("iteration", [](const Compared& plan) { return plan.simulation.iteration_time; });
  for (const TimeShare& share : all_shares(plans)) {
    table.add_time("  " + share.name,
                   [&](const Compared& plan) { return share_of(plan, share.key); });
  }
  table.add_rule();
  table.add("tokens/s/GPU", [](const Compared& plan) {
    return fmt::format("{:.1f}", plan.simulation.tokens_per_second_per_gpu);
  });
  table.add("MFU", [](const Compared& plan) { return percent(plan.simulation.mfu_fraction); });
  table.add("HFU", [](const Compared& plan) { return percent(plan.simulation.hfu_fraction); });
  table.add("bubble of the stage that waits most",
            [](const Compared& plan) { return percent(plan.simulation.bubble_fraction); });
  table.add("peak memory", [](const Compared& plan) {
    return format_bytes(largest_memory(plan.simulation).bytes());
  });
  add_cost(plans, table);
  table.add("fits", [](const Compared& plan) {
    return std::string(plan.simulation.does_not_fit ? "no" : "yes");
  });
  return text + "\n" + table.text() + misfits_text(plans) + asynchronous_notes(plans);
}

Json compare_json(const std::vector<Compared>& plans) {
  const plan::Simulation& first = plans.front().simulation;
  Json array = Json::array();
  for (const Compared& compared : plans) {
    Json::Object entry = {{"path", compared.path}};
    Json::Object result = simulation_json(compared.plan, compared.simulation);
    if (trains_alike(compared, plans.front())) {
      Json differences = Json::object();
      differences.set("iteration_time_s",
                      (compared.simulation.iteration_time - first.iteration_time).value());
      for (const TimeShare& share : all_shares(plans)) {
        const Seconds difference =
            share_of(compared, share.key) - share_of(plans.front(), share.key);
        differences.set(share.key + "_s", difference.value());
      }
      entry.emplace_back("differences_to_first", std::move(differences));
    }
    entry.insert(entry.end(), result.begin(), result.end());
    array.push(std::move(entry));
  }
  return Json::Object{{"plans", std::move(array)}};
}

int run_compare(const CompareOptions& options) {
  if (options.plans.size() < 2) {
    bad_input("compare", "one plan has nothing to be compared with", "name two or more plans");
  }
  if (std::count(options.plans.begin(), options.plans.end(), "-") > 1) {
    bad_input("compare", "standard input is one plan, and - stands for it more than once",
              "write the others to files");
  }
  std::vector<Compared> plans;
  for (const std::string& path : options.plans) {
    plans.push_back({path, load_training_plan_of(path), {}});
    plans.back().simulation = in_file(path, [&] {
      return plan::simulate(
          plans.back().plan,
          {.record_spans = false, .interval_draws = plan::kIntervalDraws, .jobs = 0});
    });
    Compared& compared = plans.back();
    add_replayed_verdict(compared.plan, plan::replay_memory(compared.plan, {}, 0),
                         compared.simulation);
  }
  if (options.output.json) {
    print_json(compare_json(plans));
  } else {
    print(compare_text(plans));
  }
  return kOk;
}

}  // namespace

void add_compare(const Command& app, Action& chosen) {
  auto options = std::make_shared<CompareOptions>();
  const Command command =
      app.add_subcommand("compare", "plans side by side: where the time differs");
  command.footer(kCompareExamples);
  command.add_option("PLAN", options->plans, "plan documents").required();
  add_output_options(command, options->output);
  command.callback([options, &chosen] { chosen = [options] { return run_compare(*options); }; });
}

}  // namespace orrery::cli
