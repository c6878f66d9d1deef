// SPDX-License-Identifier: Apache-2.0
#include "cli/schedule_plan.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/error.hpp"
#include "base/files.hpp"
#include "base/quantity_text.hpp"
#include "cli/command/command.hpp"
#include "cli/command/common.hpp"
#include "cli/command/output_paths.hpp"
#include "cli/report/report.hpp"
#include "cli/schedule_recommender.hpp"
#include "cli/schedule_sizes.hpp"
#include "plan/document/plan_text.hpp"
#include "plan/recommender/recommender.hpp"

namespace orrery::cli {

namespace {

PicturedRun pictured(const studies::PlanScheduleRun& run, std::string title) {
  return {.name = run.plan.schedule,
          .order = &run.simulation.order,
          .result = &run.simulation.pipeline,
          .title = std::move(title),
          .synchronous = run.simulation.synchronous};
}

std::string panel_title(const studies::PlanScheduleRun& run) {
  const std::string measures =
      run.simulation.synchronous
          ? fmt::format("iteration {}, passes {}, bubble {}",
                        format_duration(run.simulation.iteration_time),
                        format_duration(to_seconds(run.simulation.pipeline.makespan)),
                        percent(run.measures.bubble_fraction, 2))
          : std::string("asynchronous, on an axis of its own");
  return fmt::format("{}: {}", run.plan.schedule, measures);
}

// The pace of a plan is no faster than its busiest device, which what is read off a short run is.
studies::PlanScheduleRun run_in_file(const std::string& plan_path,
                                     const studies::ScheduledPlan& plan) {
  studies::PlanScheduleRun run =
      in_file(plan_path, [&] { return studies::run_plan_schedule(plan); });
  if (!run.simulation.synchronous) {
    run.measures.steady_period = run.simulation.steady_period.value();
  }
  add_replayed_verdict(run.plan, plan::replay_memory(run.plan, {}, 0), run.simulation);
  return run;
}

// The names of those that take no cap where others do.
std::vector<std::string> unbounded_of(const std::vector<studies::ScheduleRequest>& requests,
                                      const std::vector<studies::PlanScheduleRun>& runs) {
  std::vector<std::string> names;
  bool capped = false;
  for (std::size_t k = 0; k < requests.size(); ++k) {
    capped = capped || requests[k].cap > 0;
    if (requests[k].cap == 0.0) {
      names.push_back(runs[k].plan.schedule);
    }
  }
  return capped ? names : std::vector<std::string>();
}

}  // namespace

int schedule_on_plan(const std::string& plan_path, const studies::ScheduleRequest& request,
                     const PictureFiles& files, const OutputOptions& output) {
  check_outputs({{"--svg", files.svg}, {"--trace", files.trace}, json_path(output)},
                {plan_path, request.name});
  const PlanDocument document = load_plan_document(plan_path);
  if (plan::is_recommender(document.json)) {
    return schedule_on_recommender(document, request, files, output);
  }
  const studies::ScheduledPlan plan =
      studies::with_schedule(plan::read_plan(document.json, document.where), request);
  const studies::PlanScheduleRun run = run_in_file(plan_path, plan);
  write_pictures(
      pictured(run, fmt::format("{}, {}", subject_text(run.plan), plan::layout_text(run.plan))),
      files, output);
  if (output.json) {
    print_json(to_json(run));
  } else {
    sim::PictureOptions picture = text_picture(files, output);
    picture.order = &run.simulation.order;
    print(subject_text(run.plan) + "\n" + plan::layout_text(run.plan) + "\n\n" +
          sim::schedule_picture(run.simulation.pipeline, picture) + "\n" + to_text(run));
  }
  if (run.simulation.does_not_fit) {
    note(fmt::format("orrery: this plan does not fit: {}", *run.simulation.does_not_fit));
    return kInfeasible;
  }
  return kOk;
}

int compare_on_plan(const std::string& plan_path, std::vector<studies::ScheduleRequest> requests,
                    const PictureFiles& files, const OutputOptions& output) {
  std::vector<std::string> inputs = {plan_path};
  for (const studies::ScheduleRequest& request : requests) {
    inputs.push_back(request.name);
  }
  check_outputs({{"--svg", files.svg}, {"--trace", files.trace}, json_path(output)}, inputs);
  const PlanDocument document = load_plan_document(plan_path);
  if (plan::is_recommender(document.json)) {
    if (files.any()) {
      bad_input(files.svg.empty() ? "--trace" : "--svg",
                "a recommendation network runs one schedule, so that there is no other to draw",
                "name nestpipe instead of --compare");
    }
    return compare_on_recommender(document, requests, output);
  }
  const plan::Plan plan = plan::read_plan(document.json, document.where);
  std::vector<studies::PlanScheduleRun> runs;
  for (const studies::ScheduleRequest& request : requests) {
    runs.push_back(run_in_file(plan_path, studies::with_schedule(plan, request)));
  }
  const std::vector<std::string> unbounded = unbounded_of(requests, runs);
  std::stable_partition(runs.begin(), runs.end(), [](const studies::PlanScheduleRun& run) {
    return run.simulation.synchronous;
  });
  std::vector<PicturedRun> pictures;
  for (const studies::PlanScheduleRun& run : runs) {
    pictures.push_back(pictured(run, panel_title(run)));
  }
  write_comparison(pictures, subject_text(plan), files, output);
  if (output.json) {
    Json schedules = Json::array();
    for (const studies::PlanScheduleRun& run : runs) {
      schedules.push(to_json(run));
    }
    print_json(Json::Object{{"schedules", std::move(schedules)}});
    return kOk;
  }
  print(subject_text(plan) + "\n" + plan::layout_text(plan) + "\n\n" + comparison_text(runs) +
        cap_note(unbounded));
  return kOk;
}

}  // namespace orrery::cli
