// SPDX-License-Identifier: Apache-2.0
#include "cli/schedule_recommender.hpp"

#include <fmt/format.h>

#include <utility>

#include "base/error.hpp"
#include "base/quantity_text.hpp"
#include "base/table.hpp"
#include "base/text.hpp"
#include "cli/command/command.hpp"
#include "cli/show/list_names.hpp"
#include "plan/recommender/pipeline.hpp"
#include "studies/schedule_run.hpp"

namespace orrery::cli {
namespace {

struct Nested {
  plan::Recommender network;
  plan::RecommenderCost cost;
  plan::NestedStep step;
  studies::ScheduleMeasures measures;
};

void check_request(const studies::ScheduleRequest& request, const std::string& where) {
  if (request.slices > 0 || request.chunks > 0 || request.cap > 0) {
    bad_input(where, "tables have neither slices nor chunks nor a cap of activations",
              "leave --slices, --chunks and --cap out");
  }
  const std::string& name = request.name;
  if (!name.empty() && name != plan::kNestedSchedule) {
    bad_input(
        where,
        fmt::format("a recommendation network does not run the schedule \"{}\"", printable(name)),
        fmt::format("\"{}\", or a plan of a network with layers", plan::kNestedSchedule));
  }
}

Nested run_nested(const PlanDocument& document) {
  Nested run;
  run.network = plan::read_recommender(document.json, document.where);
  if (!run.network.nested) {
    bad_input(document.where, "its parts run one after the other: no schedule is stated",
              fmt::format("\"schedule\": \"{}\", \"micro_batches\": 4", plan::kNestedSchedule));
  }
  run.cost = plan::simulate_recommender(run.network);
  run.step = plan::nested_step(run.network, run.cost);
  studies::ScheduleRun passes;
  passes.result = run.step.run;
  passes.has_spans = true;
  run.measures = studies::measure_schedule(run.step.order, true, passes);
  return run;
}

std::string title_of(const Nested& run) {
  return fmt::format("{} on {}, {} samples a step, {} in {} micro-batches", run.network.name,
                     run.network.cluster.name, run.network.batch, plan::kNestedSchedule,
                     run.network.micro_batches);
}

SimTime at(const std::vector<SimTime>& times, std::size_t stage) {
  return stage < times.size() ? times[stage] : SimTime{};
}

std::string streams_text(const Nested& run) {
  TextTable table({{"stream", Align::Right},
                   {"of"},
                   {"forward", Align::Right},
                   {"backward", Align::Right},
                   {"update", Align::Right},
                   {"idle", Align::Right}});
  const sim::PipelineCosts& passes = run.step.passes;
  for (std::size_t list = 0; list < run.step.order.passes.size(); ++list) {
    for (std::size_t s = 0; s < run.step.order.device_of.size(); ++s) {
      if (run.step.order.device_of[s] == list) {
        table.add_row({fmt::format("{}", list), std::string(plan::nested_stage_name(s)),
                       format_duration(to_seconds(passes.forward[s])),
                       format_duration(to_seconds(at(passes.backward, s))),
                       format_duration(to_seconds(at(passes.optimizer, s))),
                       format_duration(Seconds(run.measures.idle[list]))});
      }
    }
  }
  return table.text();
}

void write_run(const Nested& run, const PictureFiles& files, const OutputOptions& output) {
  write_pictures({.name = std::string(plan::kNestedSchedule),
                  .order = &run.step.order,
                  .result = &run.step.run,
                  .title = title_of(run)},
                 files, output);
}

Json run_json(const Nested& run) {
  Json::Object object{{"name", plan::kNestedSchedule},
                      {"synchronous", true},
                      {"micro_batches", run.network.micro_batches},
                      {"batches", run.step.order.iterations},
                      {"iteration_time_s", run.step.period.value()}};
  for (auto& member : studies::to_json(run.measures, true)) {
    object.push_back(std::move(member));
  }
  Json stages = Json::array();
  for (std::size_t s = 0; s < run.step.order.device_of.size(); ++s) {
    stages.push(Json::Object{{"of", std::string(plan::nested_stage_name(s))},
                             {"stream", static_cast<int>(run.step.order.device_of[s])},
                             {"forward_s", to_seconds(run.step.passes.forward[s]).value()},
                             {"backward_s", to_seconds(at(run.step.passes.backward, s)).value()},
                             {"update_s", to_seconds(at(run.step.passes.optimizer, s)).value()}});
  }
  object.emplace_back("fits", run.cost.fits);
  object.emplace_back("virtual_stages", std::move(stages));
  return object;
}

}  // namespace

int schedule_on_recommender(const PlanDocument& document, const studies::ScheduleRequest& request,
                            const PictureFiles& files, const OutputOptions& output) {
  check_request(request, document.where);
  const Nested run = in_file(document.where, [&] { return run_nested(document); });
  write_run(run, files, output);
  if (output.json) {
    print_json(run_json(run));
  } else {
    sim::PictureOptions picture = text_picture(files, output);
    picture.order = &run.step.order;
    picture.lists = list_names(std::string(plan::kNestedSchedule), run.step.order);
    print(fmt::format("{}\n\n{}\n{} batches, a step each {} in steady state\n\n{}", title_of(run),
                      sim::schedule_picture(run.step.run, picture), run.step.order.iterations,
                      format_duration(run.step.period), streams_text(run)));
  }
  return run.cost.fits ? kOk : kInfeasible;
}

int compare_on_recommender(const PlanDocument& document,
                           const std::vector<studies::ScheduleRequest>& requests,
                           const OutputOptions& output) {
  for (const studies::ScheduleRequest& request : requests) {
    check_request(request, document.where);
  }
  const Nested run = in_file(document.where, [&] { return run_nested(document); });
  const std::vector<std::pair<std::string, Seconds>> steps = {
      {std::string(plan::kNestedSchedule), run.step.period},
      {"indices sent ahead", run.cost.pipelined},
      {"one part after the other", run.cost.step}};
  if (output.json) {
    Json schedules = Json::array();
    for (const auto& [name, step] : steps) {
      schedules.push(Json::Object{{"name", name}, {"iteration_time_s", step.value()}});
    }
    print_json(Json::Object{{"schedules", std::move(schedules)}});
    return kOk;
  }
  TextTable table({{"schedule"}, {"step", Align::Right}, {"samples/s", Align::Right}});
  for (const auto& [name, step] : steps) {
    table.add_row({name, format_duration(step),
                   format_count(static_cast<double>(run.network.batch) / step.value())});
  }
  print(title_of(run) + "\n\n" + table.text());
  return kOk;
}

}  // namespace orrery::cli
