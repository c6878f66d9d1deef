// SPDX-License-Identifier: Apache-2.0
#include "studies/plan_schedules.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>

#include "base/error.hpp"
#include "base/limits.hpp"
#include "base/quantity_text.hpp"
#include "base/table.hpp"
#include "base/text.hpp"
#include "plan/modules.hpp"
#include "plan/schedule_traits.hpp"
#include "plan/stage/plan_schedule.hpp"
#include "plan/stages.hpp"
#include "sim/orders/schedule_document.hpp"
#include "studies/asked_cap.hpp"

namespace orrery::studies {

namespace {

// Under a comparison in which some plan has other stages than the one it is made of.
constexpr const char* kStagesNote =
    "stages: even or balanced ones are cut anew for their schedule; an even plan stays even\n";

// Stages that the schedule can have, unless they are. Where there are none, those of one chain show
// what is wrong.
void set_chunks(int chunks, plan::ModuleCut before, plan::Plan& plan) {
  const plan::ModuleCut cut = plan::module_cut(plan);
  if (chunks == plan.chunks && cut == before) {
    return;
  }
  plan.chunks = chunks;
  plan.stage_blocks = plan::cut_stages(plan.network, plan.sequence, plan.pp, chunks, cut);
  if (plan.stage_blocks.empty()) {
    plan.stage_blocks = plan::even_stages(plan.network, plan.pp * chunks);
  }
}

// Those asked for, else the plan's; for a schedule that cuts sequences at least one slice a stage,
// unless packs say how each is cut.
void set_slices(const ScheduleRequest& request, plan::Plan& plan) {
  const bool cuts = plan::schedule_traits(plan).uses_slices;
  if (request.slices > 1 && !cuts) {
    bad_input("--slices", fmt::format("schedule {} does not cut sequences", plan.schedule),
              fmt::format("leave it out, or name {}",
                          plan::schedules_with(&sim::ScheduleTraits::uses_slices)));
  }
  if (request.slices > 0) {
    plan.slices = request.slices;
    plan.slice_tokens.clear();
  } else if (!cuts) {
    plan.slices = 1;
    plan.slice_tokens.clear();
  } else if (plan.schedule_document != nullptr) {
    if (const auto listed = sim::listed_sizes(*plan.schedule_document)) {
      plan.slices = listed->slices;
      plan.slice_tokens.clear();
    }
  } else if (plan.slices == 1 && plan.packs.empty()) {
    plan.slices = std::max(2, plan.pp);
    while (plan.slices < plan.sequence && plan.sequence % plan.slices != 0) {
      ++plan.slices;
    }
  }
}

// Chunks with which the schedule runs on usual sizes, so that what is wrong with the plan shows.
int usable_chunks(const plan::Plan& plan, int layers) {
  if (plan.schedule_document != nullptr) {
    return plan.chunks;
  }
  const sim::Schedule& schedule = sim::find_schedule(plan.schedule, "schedule");
  if (!schedule.traits.uses_chunks) {
    return 1;
  }
  for (const int chunks : {plan.chunks, 1, 2, 3, 4}) {
    if (chunks * std::int64_t{plan.pp} <= layers &&
        schedule.check({.stages = 4, .micro_batches = 8, .chunks = chunks}).empty()) {
      return chunks;
    }
  }
  return plan.chunks;
}

// The plan's own chunks, then few, then of a layer each. Where something else is wrong, the cap or
// the number of micro-batches, that is what is to be named.
void set_fitting_chunks(bool other_schedule, plan::ModuleCut before, plan::Plan& plan) {
  const int layers = plan::layers_of(plan.network);
  std::vector<int> counts = {plan.chunks, 1, 2, 3, 4, layers / plan.pp};
  if (other_schedule && plan.schedule_document == nullptr && plan.pp > 1 &&
      needs_chunks(sim::find_schedule(plan.schedule, "schedule"))) {
    std::stable_partition(counts.begin(), counts.end(), [](int chunks) { return chunks > 1; });
  }
  for (const bool as_it_is : {true, false}) {
    for (const int chunks : counts) {
      if (chunks < 1 || std::int64_t{chunks} * plan.pp > layers) {
        continue;
      }
      plan::Plan tried = plan;
      set_chunks(chunks, before, tried);
      if (!as_it_is) {
        tried.activation_cap = 0;
        tried.batch = plan.micro_batch * plan.dp * 8 * plan.pp;
      }
      if (plan::schedule_runs(tried)) {
        set_chunks(chunks, before, plan);
        return;
      }
    }
  }
  set_chunks(usable_chunks(plan, layers), before, plan);
}

void check_passes(const plan::Plan& plan) {
  const std::int64_t passes = 3 * plan.num_micro_batches() * plan.pp * plan.chunks * plan.slices;
  if (passes > limits::kMaxDrawnPasses) {
    bad_input("schedule", fmt::format("up to {} passes are too many to draw", passes),
              fmt::format("at most {}: use a larger micro-batch or a smaller batch",
                          limits::kMaxDrawnPasses));
  }
}

std::string percent_text(double fraction) { return fmt::format("{:.2f} %", 100.0 * fraction); }

ByteCount largest(const std::vector<plan::StageMemory>& memory) {
  ByteCount most;
  for (const plan::StageMemory& stage : memory) {
    most = std::max(most, stage.total());
  }
  return most;
}

// Times that only passes of their own have, by virtual stage.
struct OwnPass {
  std::string_view column;
  std::string_view member;
  std::vector<SimTime> sim::PipelineCosts::*times;
};
constexpr std::array kOwnPasses = {
    OwnPass{"recompute", "recompute_s", &sim::PipelineCosts::recompute},
    OwnPass{"update", "update_s", &sim::PipelineCosts::optimizer}};

bool splits(const PlanScheduleRun& run) { return !run.simulation.passes.input_grad.empty(); }

SimTime at(const std::vector<SimTime>& times, std::size_t index) {
  return index < times.size() ? times[index] : SimTime{};
}

// Whether the schedule chooses its order and placement itself, and with one or two chunks either.
bool tunes_chunks(const plan::Plan& plan) {
  if (plan.schedule_document != nullptr || plan.pp == 1 ||
      std::int64_t{2} * plan.pp > plan::layers_of(plan.network)) {
    return false;
  }
  return sim::find_schedule(plan.schedule, "schedule").chooses_placement;
}

// With the cut that a search would give the stages, where they are not those of the plan.
ScheduledPlan with_own_cut(const plan::Plan& plan, plan::Plan result, bool other_schedule) {
  plan::check_plan(result, "schedule");
  StageCut cut = StageCut::AsPlanned;
  if (result.pp > 1 && (other_schedule || result.chunks != plan.chunks)) {
    check_passes(result);
    cut = cut_for_schedule(plan, result);
    plan::check_plan(result, "schedule");
  }
  return {std::move(result), cut};
}

}  // namespace

ScheduledPlan with_schedule(const plan::Plan& plan, const ScheduleRequest& request) {
  plan::Plan result = plan;
  const plan::ModuleCut before = plan::module_cut(plan);
  if (request.name.ends_with(".json")) {
    result.schedule_document = std::make_shared<const sim::ScheduleDocument>(
        sim::read_schedule_document(read_json_file(request.name), request.name));
    result.schedule = result.schedule_document->name;
  } else if (!request.name.empty() && request.name != plan.schedule) {
    result.schedule_document.reset();
    result.schedule = sim::find_schedule(request.name, "schedule").name;
  }
  const bool other_schedule =
      result.schedule != plan.schedule || result.schedule_document != plan.schedule_document;
  if (request.cap > 0) {
    result.activation_cap = request.cap;
  }
  set_slices(request, result);
  if (!plan::schedule_traits(result).by_modules) {
    result.encoder_parts = 1;
  }
  if (request.chunks > 0) {
    set_chunks(request.chunks, before, result);
  } else {
    set_fitting_chunks(other_schedule, before, result);
  }
  check_asked_cap(result, request.cap, request.cap_name);
  if (request.chunks > 0 || !other_schedule || !tunes_chunks(result)) {
    return with_own_cut(plan, std::move(result), other_schedule);
  }
  std::optional<ScheduledPlan> best;
  std::pair<bool, Seconds> least;
  for (const int chunks : {1, 2}) {
    plan::Plan tried = result;
    set_chunks(chunks, before, tried);
    ScheduledPlan own = with_own_cut(plan, std::move(tried), other_schedule);
    if (const auto rank = rank_of(own.plan); !best || rank < least) {
      least = rank;
      best = std::move(own);
    }
  }
  return *std::move(best);
}

PlanScheduleRun run_plan_schedule(const ScheduledPlan& scheduled) {
  const plan::Plan& plan = scheduled.plan;
  check_passes(plan);
  PlanScheduleRun run{plan, scheduled.cut, plan::simulate(plan, {.record_spans = true}), {}};
  ScheduleRun pipeline;
  pipeline.result = run.simulation.pipeline;
  pipeline.has_spans = true;
  run.measures = measure_schedule(run.simulation.order, run.simulation.synchronous, pipeline);
  return run;
}

Json::Object to_json(const PlanScheduleRun& run) {
  const plan::Simulation& simulation = run.simulation;
  Json blocks = Json::array();
  for (const int count : run.plan.stage_blocks) {
    blocks.push(count);
  }
  Json::Object object{{"name", run.plan.schedule},
                      {"chunks", run.plan.chunks},
                      {"slices", run.plan.slices},
                      {"cut", std::string(to_text(run.cut))},
                      {"stages", std::move(blocks)},
                      {"synchronous", simulation.synchronous},
                      {"iteration_time_s", simulation.iteration_time.value()}};
  for (auto& member : to_json(run.measures, simulation.synchronous)) {
    object.push_back(std::move(member));
  }
  Json peaks = Json::array();
  for (const plan::StageMemory& memory : simulation.memory) {
    peaks.push(memory.total().value());
  }
  Json stages = Json::array();
  for (std::size_t s = 0; s < simulation.passes.forward.size(); ++s) {
    const sim::PipelineCosts& passes = simulation.passes;
    Json::Object stage{{"device", static_cast<int>(simulation.order.device_of[s])},
                       {"forward_s", to_seconds(passes.forward[s]).value()}};
    if (splits(run)) {
      stage.emplace_back("input_grad_s", to_seconds(at(passes.input_grad, s)).value());
      stage.emplace_back("weight_grad_s", to_seconds(at(passes.weight_grad, s)).value());
    }
    stage.emplace_back("backward_s", to_seconds(at(passes.backward, s)).value());
    for (const OwnPass& own : kOwnPasses) {
      if (!(passes.*own.times).empty()) {
        stage.emplace_back(own.member, to_seconds(at(passes.*own.times, s)).value());
      }
    }
    stage.emplace_back("send_s", to_seconds(at(passes.send_forward, s)).value());
    stages.push(std::move(stage));
  }
  object.emplace_back("transfers", run.measures.transfers);
  object.emplace_back("fits", !simulation.does_not_fit.has_value());
  object.emplace_back("peak_memory_bytes", std::move(peaks));
  object.emplace_back("virtual_stages", std::move(stages));
  return object;
}

namespace {

std::string stage_table(const PlanScheduleRun& run) {
  const plan::Simulation& simulation = run.simulation;
  std::vector<TextTable::Column> columns = {
      {"virtual stage"},
      {"device", Align::Right},
      {"forward", Align::Right},
      {splits(run) ? "input grad" : "backward", Align::Right}};
  if (splits(run)) {
    columns.push_back({"weight grad", Align::Right});
  }
  for (const OwnPass& own : kOwnPasses) {
    if (!(simulation.passes.*own.times).empty()) {
      columns.push_back({std::string(own.column), Align::Right});
    }
  }
  columns.push_back({"send", Align::Right});
  TextTable stages(columns);
  for (std::size_t s = 0; s < simulation.passes.forward.size(); ++s) {
    const sim::PipelineCosts& passes = simulation.passes;
    const auto time = [](SimTime t) { return format_duration(to_seconds(t)); };
    std::vector<std::string> row = {
        fmt::format("{}", s), fmt::format("{}", simulation.order.device_of[s]),
        time(passes.forward[s]),
        time(splits(run) ? at(passes.input_grad, s) : at(passes.backward, s))};
    if (splits(run)) {
      row.push_back(time(at(passes.weight_grad, s)));
    }
    for (const OwnPass& own : kOwnPasses) {
      if (!(passes.*own.times).empty()) {
        row.push_back(time(at(passes.*own.times, s)));
      }
    }
    row.push_back(time(at(passes.send_forward, s)));
    stages.add_row(row);
  }
  return stages.text();
}

std::string device_table(const PlanScheduleRun& run) {
  const plan::Simulation& simulation = run.simulation;
  TextTable devices({{"device"},
                     {"idle", Align::Right},
                     {"peak activations", Align::Right},
                     {"activation bytes", Align::Right},
                     {"peak memory", Align::Right}});
  for (std::size_t d = 0; d < simulation.memory.size(); ++d) {
    const plan::StageMemory& memory = simulation.memory[d];
    devices.add_row({fmt::format("{}", d), format_duration(Seconds(run.measures.idle[d])),
                     fmt::format("{:.6g}", run.measures.peak_activations[d]),
                     format_bytes((memory.activations + memory.ends).bytes()),
                     format_bytes(memory.total().bytes())});
  }
  return devices.text();
}

}  // namespace

std::string to_text(const PlanScheduleRun& run) {
  const plan::Simulation& simulation = run.simulation;
  std::string text = fmt::format(
      "{} {}, bubble {}, {}, {}{}\n",
      simulation.synchronous ? "iteration" : "asynchronous: iteration in steady state",
      format_duration(simulation.iteration_time), percent_text(simulation.bubble_fraction),
      counted(run.measures.transfers, "transfer"), format_bytes(largest(simulation.memory).bytes()),
      simulation.does_not_fit ? " (DOES NOT FIT)" : "");
  if (!simulation.synchronous) {
    text += fmt::format("{} per micro-batch, staleness {}, {}\n",
                        format_duration(simulation.steady_period), simulation.staleness,
                        counted(simulation.weight_versions, "weight version"));
  }
  text += run.cut == StageCut::AsPlanned
              ? ""
              : fmt::format("stages cut anew, {}: {} blocks\n", to_text(run.cut),
                            fmt::join(run.plan.stage_blocks, ", "));
  return text + "\n" + stage_table(run) + "\n" + device_table(run);
}

std::string comparison_text(const std::vector<PlanScheduleRun>& runs) {
  TextTable table({{"schedule"},
                   {"chunks", Align::Right},
                   {"slices", Align::Right},
                   {"stages"},
                   {"iteration", Align::Right},
                   {"bubble", Align::Right},
                   {"peak memory", Align::Right},
                   {"fits"},
                   {"transfers", Align::Right},
                   {"staleness", Align::Right},
                   {"versions", Align::Right},
                   {"steady period", Align::Right}});
  for (const PlanScheduleRun& run : runs) {
    const plan::Simulation& s = run.simulation;
    const bool steady = !s.synchronous;
    table.add_row({run.plan.schedule + (steady ? " (asynchronous)" : ""),
                   fmt::format("{}", run.plan.chunks), fmt::format("{}", run.plan.slices),
                   std::string(to_text(run.cut)), steady ? "-" : format_duration(s.iteration_time),
                   steady ? "-" : percent_text(s.bubble_fraction),
                   format_bytes(largest(s.memory).bytes()), s.does_not_fit ? "no" : "yes",
                   fmt::format("{}", run.measures.transfers), fmt::format("{}", s.staleness),
                   fmt::format("{}", s.weight_versions),
                   steady ? format_duration(s.steady_period) : "-"});
  }
  const bool notes = std::any_of(runs.begin(), runs.end(), [](const PlanScheduleRun& run) {
    return !run.simulation.synchronous;
  });
  const bool cut_anew = std::any_of(runs.begin(), runs.end(), [](const PlanScheduleRun& run) {
    return run.cut != StageCut::AsPlanned;
  });
  return table.text() + (cut_anew ? kStagesNote : "") + kBubbleNote +
         (notes ? kAsynchronousNote : "");
}

}  // namespace orrery::studies
