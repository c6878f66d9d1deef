// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>

#include "base/error.hpp"
#include "base/interrupt.hpp"
#include "base/limits.hpp"
#include "base/progress.hpp"
#include "base/quantity_text.hpp"
#include "cli/command/command.hpp"
#include "cli/command/command_line.hpp"
#include "cli/command/common.hpp"
#include "cli/command/idle_note.hpp"
#include "cli/command/output_paths.hpp"
#include "cli/command/suggestion_note.hpp"
#include "cli/plan/doubt.hpp"
#include "cli/plan/fixed_check.hpp"
#include "cli/plan/like.hpp"
#include "cli/plan/mixed.hpp"
#include "cli/plan/options.hpp"
#include "cli/plan/packed.hpp"
#include "cli/plan/pareto.hpp"
#include "cli/plan/scale.hpp"
#include "cli/plan/searched.hpp"
#include "cli/plan/serve.hpp"
#include "cli/plan/trace.hpp"
#include "cli/report/per_block_report.hpp"
#include "cli/report/plan_projection.hpp"
#include "cli/report/plan_report.hpp"
#include "cli/report/recommender_report.hpp"
#include "cli/report/report.hpp"
#include "search/problem.hpp"
#include "search/space/empty_space.hpp"
#include "search/tree/search.hpp"

namespace orrery::cli {
namespace {

constexpr const char* kPlanExamples = R"(
Fields of --fix and --forbid: tp, cp, ep, pp, dp, chunks, micro_batch, zero, recompute, schedule,
sequence_parallel, context, stages (even or balanced), and the execution flags of a plan document.

Examples:
  orrery plan llama3-70b hgx-h100:8 --batch 512
  orrery plan gpt3-175b dgx-a100:128 --batch 1536 --seq 2048 --top 10
  orrery plan llama2-70b hgx-h100:4 --batch 256 --fix tp=8,pp=4,recompute=full
  orrery plan llama3-70b hgx-h100:8 --batch 512 --schedule zb-v --schedule mine.json
  orrery plan llama3-8b hgx-h100:1 --batch 64 --forbid zero=3 --memory-reserve "4 GiB"
  orrery plan llama3-8b hgx-h100:1 --batch 64 --restrict ours.json --fix pp=2
  orrery plan gpt3-13b dgx-a100:4 --batch 256 --set gpu.hbm_bandwidth="6 TB/s" --json
  orrery plan llama2-70b hgx-h100:4 --batch 256 --like all
  orrery plan llama3-8b hgx-h100:1 --batch 64 --pareto memory --pareto-picture frontier.svg
  orrery plan llama3-8b hgx-h100:2 --batch 64 --robust --sensitivity
  orrery plan llama3-8b hgx-h100:1 --batch 64 --space per-block --time-limit 60
  orrery plan gpt-1t dgx-a100:384 --batch 3072 --checkpoint state
  orrery plan llama3-70b hgx-h100:4+dgx-a100:4 --batch 512
  orrery plan llama2-70b dgx-a100:1 --serve requests.json --max-output-token "100 ms"
  orrery plan llama3-8b hgx-h100:1 --serve trace.csv --fix tp=1,prefill=chunked
  orrery plan dlrm.json dgx-a100:2 --batch 16384)";

void write_files(const PlanOptions& options, const search::Found& best, const std::string& text) {
  if (!options.plan_path.empty()) {
    write_result(options.plan_path, plan::to_json(best.plan).dump() + "\n", options.output);
  }
  if (!options.trace_path.empty()) {
    write_plan_trace(options.trace_path, best.plan, TraceDetail::Auto, options.output);
  }
  if (!options.report_path.empty()) {
    const plan::Simulation detailed = plan::simulate(
        best.plan, {.record_spans = true, .interval_draws = plan::kIntervalDraws, .jobs = 0});
    write_result(options.report_path, text + "\n" + explanation(best.plan, detailed),
                 options.output);
  }
}

// --serve: a search of its own, without what only training has.
int run_serving(PlanOptions options) {
  if (!options.batch.empty() || !options.sequence.empty() || !options.forbid.empty() ||
      !options.schedules.empty()) {
    bad_input("--serve", "--batch, --seq, --schedule and --forbid belong to training",
              "the requests document has numbers and lengths of requests");
  }
  if (!options.trace_path.empty() || options.gap != "0") {
    bad_input("--serve", "--trace and --gap belong to training",
              "the search of serving plans simulates every plan that its bound leaves");
  }
  check_checkpoints_alone(options.scale, "--serve");
  search::ServingSearch how;
  keep_checkpoints(options.scale, how);
  how.top = static_cast<std::size_t>(parse_integer(options.top, "--top", 1, 1000));
  how.time_limit = parse_time_limit(options.time_limit);
  how.jobs = static_cast<int>(parse_integer(options.jobs, "--jobs", 0, limits::kMaxThreads));
  for (const std::string& text : options.fix) {
    search::fix_serving(text, how.fixed);
  }
  search::allow_serving(options.allow, how.fixed);
  options.batch = "1";
  return plan_serving(search::base_plan(problem_of(options)), options.serve, how,
                      {options.plan_path, options.report_path}, options.output);
}

int report_nothing(const Searched& searched, const plan::Plan& base, const search::Options& how,
                   const PlanOptions& options) {
  const search::Outcome& outcome = searched.outcome();
  search::NearestChanges changes;
  if (!interrupted() && options.lengths.empty()) {
    search::Outcome nothing = outcome;
    if (searched.per_block && searched.per_block->homogeneous_is_closed) {
      nothing.timed_out = false;  // later, among other plans
    }
    changes = search::nearest_changes(problem_of(options), base, how, nothing);
  }
  if (options.output.json) {
    Json document = nothing_json(outcome, changes);
    if (searched.per_block) {
      document.set("space", per_block_space_json(*searched.per_block));
    }
    if (!options.restrict_files.empty()) {
      document.set("restrictions", restrictions_json(how.constraints));
    }
    print_json(document);
  }
  const std::string text = searched.per_block ? per_block_nothing_text(*searched.per_block, base)
                                              : nothing_text(outcome, base);
  note("orrery: " + text + changes_text(changes));
  return interrupted() ? kInterrupted : kInfeasible;
}

// What else was asked for: as text after the table, and as members of the JSON object.
struct Extras {
  std::string text;
  Json::Object json;
  bool cut_short = false;
};

Extras extras_of(const PlanOptions& options, const plan::Plan& base, const search::Options& how,
                 const Searched& searched, const std::vector<const search::Baseline*>& baselines) {
  Extras extras;
  const Seconds best = searched.outcome().best->simulation.iteration_time;
  const auto begin = std::chrono::steady_clock::now();
  const std::vector<BaselineResult> compared =
      compare_baselines(baselines, base, how, searched.outcome().search_time);
  if (!compared.empty()) {
    extras.text += baselines_text(compared, best);
    extras.json.emplace_back("baselines", baselines_json(compared, best));
  }
  Progress progress("plan", options.output.quiet);
  const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - begin;
  search::Options rest = how;
  rest.time_limit = left_of(how.time_limit, Seconds(passed.count()));
  Doubts doubts = doubts_of(
      options.doubt, problem_of(options), base, rest, searched.outcome(),
      [&](const search::ProgressReport& report) { progress.update(-1, progress_text(report)); });
  progress.finish();
  extras.text += doubts.text;
  for (auto& [name, value] : doubts.json) {
    extras.json.emplace_back(name, std::move(value));
  }
  const std::vector<search::Projection>& projections = searched.spread.projections;
  if (!projections.empty()) {
    extras.text += projection_text(projections);
    extras.json.emplace_back("projection", projection_json(projections));
  }
  extras.cut_short = compared.size() < baselines.size() ||
                     (interrupted() && (options.doubt.robust || options.doubt.sensitivity));
  return extras;
}

// No plan is reported that does not hold when it is looked at apart from the search.
void check_answer(const search::Outcome& outcome, const search::Options& how) {
  const std::string wrong = search::verify(outcome, how.jobs);
  ORRERY_CHECK(wrong.empty(), wrong);
}

int report_found(const PlanOptions& options, const search::Options& how, const Searched& searched,
                 Extras extras) {
  const search::Outcome& outcome = searched.outcome();
  const search::Found& best = *outcome.best;
  check_answer(outcome, how);
  if (searched.apart) {
    check_answer(*searched.apart, how);
  }
  const search::Constraints& constraints = how.constraints;
  extras.json.emplace_back("suggestions",
                           constraints.is_fixed("deduplicated_dispatch")
                               ? Json::array()
                               : note_suggestions(best.plan, best.simulation, options.output));
  if (!options.restrict_files.empty()) {
    extras.json.emplace_back("restrictions", restrictions_json(constraints));
  }
  const std::string text = searched.text() + restrictions_text(constraints) + extras.text;
  // A proof that was complete before Ctrl-C stands.
  const bool cut_short = outcome.interrupted || (searched.apart && searched.apart->interrupted) ||
                         extras.cut_short || (interrupted() && !best.simulation.has_interval());
  if (options.output.json) {
    Json document = searched.json();
    document.set("interrupted", cut_short);
    for (auto& [name, value] : extras.json) {
      document.set(name, std::move(value));
    }
    print_json(document);
  } else {
    print(text);
  }
  if (!options.output.quiet) {
    note(fmt::format("searched for {}", format_duration(outcome.search_time)));
  }
  if (constraints.fixed_texts().empty()) {
    note_idle_settings(outcome.best->plan, options.output);
  } else {
    note_idle_fixes(outcome.best->plan, constraints, options.output);
  }
  write_files(options, *outcome.best, text);
  return cut_short ? kInterrupted : kOk;
}

void check_files(const PlanOptions& options) {
  check_outputs({{"--output", options.plan_path},
                 {"--trace", options.trace_path},
                 {"--report", options.report_path},
                 {"--pareto-picture", options.pareto.picture_path},
                 {"--checkpoint", options.scale.checkpoint},
                 json_path(options.output)},
                files_read(options));
}

// Of several schedules the search passes over those that no plan can have.
void note_schedules_left_out(const plan::Plan& base, const search::Options& how,
                             const OutputOptions& output) {
  if (output.quiet || how.space != search::SpaceKind::Homogeneous) {
    return;
  }
  for (const std::string& remark : search::schedules_without_plans(base, how.constraints)) {
    note("orrery: no plan of this search has schedule " + remark);
  }
}

int run_plan(PlanOptions options, search::Ranks* ranks) {
  check_together(options);
  if (topologies::names_mixed_cluster(options.cluster)) {
    if (ranks != nullptr) {
      topologies::refuse_mixed_cluster("MPI");
    }
    return plan_mixed(options);
  }
  if (options.plan_path.empty() && !options.output.json) {
    options.plan_path = "plan.json";
  }
  check_files(options);
  if (is_recommender_file(options.network)) {
    return plan_recommender(options);
  }
  if (!options.serve.requests.empty()) {
    return run_serving(std::move(options));
  }
  check_lengths(options);
  if (!options.lengths.empty()) {
    tell_lengths(read_lengths(options.lengths), options);
  }
  check_batch(options);
  const std::vector<const search::Baseline*> baselines =
      search::find_baselines(options.like, "--like");
  plan::Plan base = search::base_plan(problem_of(options));
  const search::Options how = search_options(options);
  note_all(foreign_profile(base), options.output);
  how.constraints.apply(base.execution);
  check_fixed(base, how.constraints, !options.lengths.empty());
  note_all(idle_constraints(base, how.constraints), options.output);
  const bool against = !options.pareto.against.empty();
  if (against) {
    check_checkpoints_alone(options.scale, "--pareto");
  } else if (how.space == search::SpaceKind::PerBlock) {
    check_no_projection(options.scale);
  }
  return asked(options, [&] {
    if (against) {
      return plan_pareto(options.pareto, options.scale, problem_of(options), base, how,
                         options.plan_path, options.output);
    }
    install_interrupt_handler();
    note_schedules_left_out(base, how, options.output);
    const Searched searched = search_asked(options, base, how, ranks);
    if (!searched.outcome().best) {
      return report_nothing(searched, base, how, options);
    }
    return report_found(options, how, searched, extras_of(options, base, how, searched, baselines));
  });
}

}  // namespace

void add_plan(const Command& app, Action& chosen) {
  auto options = std::make_shared<PlanOptions>();
  const Command command =
      app.add_subcommand("plan", "search the fastest plan that fits, with proof");
  command.footer(kPlanExamples);
  command.add_option("NETWORK", options->network, "zoo name, JSON file or Hugging Face config.json")
      .required();
  command
      .add_option("CLUSTER", options->cluster,
                  "NODE:COUNT, several joined by +, cluster name, JSON file or NODE@topology.conf")
      .required();
  command.add_option("--batch", options->batch, "sequences per iteration");
  add_serve_options(command, options->serve);
  command.add_option("--seq", options->sequence, "tokens per sequence (default: the network's)");
  add_lengths_option(command, options->lengths);
  command.add_option(
      "--precision", options->precision,
      "bf16, fp16, fp8, nvfp4, tf32 or fp32 (default: bf16, fp16 on GPUs without it)");
  add_space_options(command, *options);
  command
      .add_option("--like", options->like,
                  "also what a limited search would choose: a name of `orrery list baselines`, or "
                  "all (repeatable)")
      .one_value_each();
  add_pareto_options(command, options->pareto);
  add_doubt_options(command, options->doubt);
  command.add_option("--memory-reserve", options->memory_reserve,
                     "memory to keep free on every GPU, e.g. \"4 GiB\"");
  command.add_option("--profile", options->profile, "cost profile: name or JSON file");
  add_end_options(command, *options);
  add_scale_options(command, options->scale);
  command.add_option("-j,--jobs", options->jobs, "threads (all cores)");
  command.add_option("-o,--output", options->plan_path, "plan document (plan.json)");
  command.add_option("--trace", options->trace_path, "Chrome trace of the best plan");
  command.add_option("--report", options->report_path, "explanation of the best plan as text");
  add_output_options(command, options->output);
  group_plan_options(command);
  command.callback([options, &chosen] {
    chosen = [options] {
      return run_with_ranks(
          options->scale, options->output,
          [&](search::Ranks* ranks) { return run_plan(*options, ranks); },
          [&](search::Ranks& ranks) { return follow(*options, ranks); });
    };
  });
}

}  // namespace orrery::cli
