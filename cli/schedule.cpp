// SPDX-License-Identifier: Apache-2.0
#include "sim/schedule.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "base/error.hpp"
#include "base/files.hpp"
#include "base/json.hpp"
#include "base/limits.hpp"
#include "base/quantity_text.hpp"
#include "base/table.hpp"
#include "base/text.hpp"
#include "cli/command/command.hpp"
#include "cli/command/command_line.hpp"
#include "cli/command/common.hpp"
#include "cli/command/output_paths.hpp"
#include "cli/schedule_options.hpp"
#include "cli/schedule_plan.hpp"
#include "plan/schedule_traits.hpp"
#include "sim/orders/asynchronous.hpp"
#include "sim/orders/schedule_document.hpp"
#include "sim/pipeline/list_name.hpp"
#include "sim/pipeline/schedule_picture.hpp"
#include "sim/pipeline/schedule_svg.hpp"
#include "studies/schedule_costs.hpp"
#include "studies/schedule_run.hpp"
#include "traces/adapters.hpp"

namespace orrery::cli {
namespace {

// Largest cost: 1,000 s, so that also many times multiplied it stays in the range of times.
SimTime cost_option(const std::string& text, const char* name) {
  const Seconds cost = parse_time(text, name);
  if (!(cost.value() <= 1e3)) {
    bad_input(name, fmt::format("{} is out of range (0 to 1000 s)", printable(text)));
  }
  return to_sim_time(cost);
}

sim::PassTimes share_of(const ScheduleOptions& options) {
  return {.forward = cost_option(options.forward, "--forward"),
          .input_grad = cost_option(options.input_grad, "--input-grad"),
          .weight_grad = cost_option(options.weight_grad, "--weight-grad"),
          .send = cost_option(options.latency, "--latency"),
          .prediction = cost_option(options.prediction, "--prediction")};
}

// One schedule on the given costs.
struct Drawn {
  std::string name;
  bool synchronous = true;
  bool pushes_waves = false;
  sim::PipelineOrder order;
  studies::ScheduleRun run;
};

double largest_peak(const studies::ScheduleMeasures& measures) {
  return *std::max_element(measures.peak_activations.begin(), measures.peak_activations.end());
}

// "4", or by stage "15:1".
void set_replicas(const ScheduleOptions& options, sim::ScheduleParams& params) {
  if (options.replicas.find(':') == std::string::npos) {
    params.replicas = integer_option(options.replicas, "--replicas", limits::kMaxLayers);
    return;
  }
  for (const std::string_view count : split(options.replicas, ':')) {
    params.replicas_of.push_back(
        integer_option(std::string(count), "--replicas", limits::kMaxLayers));
  }
}

sim::ScheduleParams params_of(const ScheduleOptions& options) {
  sim::ScheduleParams params;
  params.stages = integer_option(options.stages, "--stages", limits::kMaxLayers);
  params.micro_batches = integer_option(options.micro_batches, "--microbatches", limits::kMaxBatch);
  params.chunks =
      options.chunks.empty() ? 1 : integer_option(options.chunks, "--chunks", limits::kMaxLayers);
  params.warm_up = static_cast<int>(parse_integer(options.warm_up, "--warm-up", 0, 64));
  params.slices =
      options.slices.empty() ? 1 : integer_option(options.slices, "--slices", limits::kMaxBatch);
  set_replicas(options, params);
  params.iterations =
      static_cast<int>(parse_integer(options.iterations, "--iterations", 0, limits::kMaxBatch));
  params.rollbacks =
      static_cast<int>(parse_integer(options.rollbacks, "--rollbacks", 0, limits::kMaxBatch));
  params.cap = cap_of(options);
  params.times = {share_of(options)};
  return params;
}

sim::ScheduleDocument read_document(const std::string& name) {
  return sim::read_schedule_document(read_json_file(name), name);
}

// The order and the name of a registered schedule, or of one written in a file.
Drawn order_of(const std::string& name, const sim::ScheduleParams& params) {
  Drawn drawn;
  if (is_document(name)) {
    const sim::ScheduleDocument document = read_document(name);
    drawn.order = sim::order_of(document, params);
    drawn.name = document.name;
    drawn.synchronous = sim::is_synchronous(document);
    return drawn;
  }
  const sim::Schedule& schedule = sim::find_schedule(name, "schedule");
  const std::string broken = schedule.check(params);
  if (!broken.empty()) {
    bad_input(fmt::format("schedule {}", schedule.name), broken);
  }
  drawn.order = schedule.order(params);
  drawn.name = schedule.name;
  drawn.synchronous = schedule.synchronous;
  drawn.pushes_waves = schedule.pushes_waves;
  const std::string wrong = sim::check_order(drawn.order, drawn.order.micro_batches);
  ORRERY_CHECK(wrong.empty(), "a registered schedule breaks its contract");
  return drawn;
}

Drawn run_one(const std::string& name, const ScheduleOptions& options, bool with_spans) {
  sim::ScheduleParams params = params_of(options);
  Drawn drawn = order_of(name, params);
  if (!options.costs.empty()) {
    const studies::CostTable table = studies::read_cost_table(options.costs);
    params.times = studies::table_times(drawn.order, table);
    drawn.order = order_of(name, params).order;  // schedules may plan with times
    const sim::ShareCosts given = studies::table_costs(drawn.order, table);
    drawn.run =
        studies::run_schedule(drawn.order, drawn.synchronous, given.costs, given.scale, with_spans);
  } else {
    drawn.run =
        studies::run_schedule(drawn.order, drawn.synchronous, share_of(options), with_spans);
  }
  if (drawn.pushes_waves) {
    int& staleness = drawn.run.measures.versions.staleness;
    staleness =
        sim::staleness_of_waves(staleness, params.replicas, params.micro_batches, params.warm_up);
  }
  return drawn;
}

// ", 2 chunks, 4 slices": what is more than one.
std::string pieces_of(const ScheduleOptions& options) {
  std::string pieces;
  for (const auto& [count, what] :
       {std::pair(options.chunks, "chunks"), std::pair(options.slices, "slices")}) {
    if (!count.empty() && count != "1") {
      pieces += fmt::format(", {} {}", count, what);
    }
  }
  return pieces;
}

std::string to_text(const studies::ScheduleMeasures& measures, const sim::PipelineOrder& order,
                    bool synchronous, const ScheduleOptions& options) {
  TextTable table({{std::string(sim::list_name(order, 0))},
                   {"idle", Align::Right},
                   {"peak activations", Align::Right}});
  for (std::size_t stage = 0; stage < measures.idle.size(); ++stage) {
    table.add_row({fmt::format("{}", stage), fmt::format("{:.6g}", measures.idle[stage]),
                   fmt::format("{:.6g}", measures.peak_activations[stage])});
  }
  std::string text = fmt::format("makespan {:.6g}, bubble {}{}\n", measures.makespan,
                                 percent(measures.bubble_fraction, 2), pieces_of(options));
  if (!synchronous) {
    const std::string steady =
        measures.steady_period > 0
            ? fmt::format("{:.6g} s per micro-batch in steady state", measures.steady_period)
            : "steady period not known";
    text += fmt::format("asynchronous: {}, staleness {}, {} weight versions\n", steady,
                        measures.versions.staleness, measures.versions.versions);
  }
  if (synchronous && measures.iterations > 1) {
    text += fmt::format("{} iterations", measures.iterations);
    text += measures.iteration_period > 0
                ? fmt::format(", each {:.6g} s after the one before\n", measures.iteration_period)
                : "\n";
  }
  return text + "\n" + table.text();
}

// The options with the numbers that lists in a file were written for; what was given stays.
ScheduleOptions with_listed_sizes(ScheduleOptions options) {
  const bool complete = !options.stages.empty() && !options.micro_batches.empty();
  if (is_document(options.name) && !complete) {
    if (const auto listed = sim::listed_sizes(read_document(options.name))) {
      const auto fill = [](std::string& option, int number) {
        option = option.empty() && number > 0 ? fmt::format("{}", number) : option;
      };
      fill(options.stages, listed->stages);
      fill(options.micro_batches, listed->micro_batches);
    }
  }
  return options;
}

// The options with the fewest chunks that the schedule takes and, where whole sequences do not run,
// a slice a stage; what was given stays.
ScheduleOptions fewest_pieces(const std::string& name, ScheduleOptions options) {
  if (is_document(name)) {
    const sim::ScheduleDocument document = read_document(name);
    const auto listed = sim::listed_sizes(document);
    if (options.chunks.empty()) {
      options.chunks = fmt::format("{}", sim::fewest_chunks(document));
    }
    if (options.slices.empty() && listed) {
      options.slices = fmt::format("{}", listed->slices);
    }
    return options;
  }
  const sim::Schedule& schedule = sim::find_schedule(name, "schedule");
  sim::ScheduleParams params = params_of(options);
  const bool slices_given = !options.slices.empty();
  const std::vector<int> slices = {params.slices, params.stages};
  for (std::size_t k = 0; k < (schedule.uses_slices && !slices_given ? 2 : 1); ++k) {
    params.slices = slices[k];
    for (const int chunks : {1, 2, 3, 4}) {
      params.chunks = options.chunks.empty() ? chunks : params.chunks;
      if (schedule.check(params).empty()) {
        options.chunks = fmt::format("{}", params.chunks);
        options.slices = fmt::format("{}", params.slices);
        return options;
      }
    }
  }
  // Something else is wrong: what that is shows with chunks with which it takes few passes.
  for (const int chunks : {2, 3, 4}) {
    if (options.chunks.empty() && !schedule.check({4, 8, 1, 0}).empty() &&
        schedule.check({4, 8, chunks, 0}).empty()) {
      options.chunks = fmt::format("{}", chunks);
    }
  }
  return options;
}

// In a comparison slices and chunks are meant for the schedules that have some.
ScheduleOptions compared_options(const std::string& name, ScheduleOptions options) {
  const bool document = is_document(name);
  if (document ? !sim::uses_slices(read_document(name))
               : !sim::find_schedule(name, "schedule").uses_slices) {
    options.slices.clear();
  }
  if (!document && !sim::find_schedule(name, "schedule").uses_chunks) {
    options.chunks.clear();
  }
  return options;
}

// Asynchronous schedules come last and apart: their time is not that of the same training.
int compare(const ScheduleOptions& options) {
  std::vector<Drawn> all;
  for (const std::string& name : options.compared) {
    all.push_back(run_one(name, fewest_pieces(name, compared_options(name, options)), false));
  }
  std::stable_partition(all.begin(), all.end(), [](const Drawn& d) { return d.synchronous; });
  if (options.output.json) {
    Json schedules = Json::array();
    for (const Drawn& drawn : all) {
      Json::Object object{{"name", drawn.name},
                          {"synchronous", drawn.synchronous},
                          {"transfers", drawn.run.measures.transfers}};
      for (auto& member : to_json(drawn.run.measures, drawn.synchronous)) {
        object.push_back(std::move(member));
      }
      schedules.push(std::move(object));
    }
    print_json(Json::Object{{"schedules", std::move(schedules)}});
    return kOk;
  }
  TextTable table({{"schedule"},
                   {"makespan", Align::Right},
                   {"bubble", Align::Right},
                   {"peak activations", Align::Right},
                   {"transfers", Align::Right},
                   {"staleness", Align::Right},
                   {"versions", Align::Right},
                   {"steady period", Align::Right}});
  for (const Drawn& drawn : all) {
    const studies::ScheduleMeasures& m = drawn.run.measures;
    // Of several iterations neither the makespan nor its idle times are those of one.
    const bool steady = !drawn.synchronous || m.iterations > 1;
    const double period = drawn.synchronous
                              ? m.iteration_period * m.iterations / drawn.order.micro_batches
                              : m.steady_period;
    table.add_row({drawn.name + (drawn.synchronous ? "" : " (asynchronous)"),
                   steady ? "-" : fmt::format("{:.6g}", m.makespan),
                   steady ? "-" : percent(m.bubble_fraction, 2),
                   fmt::format("{:.6g}", largest_peak(m)), fmt::format("{}", m.transfers),
                   fmt::format("{}", m.versions.staleness), fmt::format("{}", m.versions.versions),
                   steady && period > 0 ? fmt::format("{:.6g}", period) : "-"});
  }
  const bool notes = !all.back().synchronous;
  print(table.text() + studies::kBubbleNote + (notes ? studies::kAsynchronousNote : ""));
  return kOk;
}

studies::ScheduleRequest request_of(const std::string& name, const ScheduleOptions& options) {
  return {.name = name,
          .slices = options.slices.empty()
                        ? 0
                        : integer_option(options.slices, "--slices", limits::kMaxBatch),
          .chunks = options.chunks.empty()
                        ? 0
                        : integer_option(options.chunks, "--chunks", limits::kMaxLayers),
          .cap = cap_of(options)};
}

int run_on_plan(const ScheduleOptions& options) {
  if (options.compared.empty()) {
    return schedule_on_plan(
        options.plan_path, request_of(options.name, options),
        {options.svg, options.trace, integer_option(options.width, "--width", 10'000)},
        options.output);
  }
  std::vector<studies::ScheduleRequest> requests;
  for (const std::string& name : options.compared) {
    requests.push_back(request_of(name, compared_options(name, options)));
  }
  return compare_on_plan(options.plan_path, std::move(requests), options.output);
}

std::string title_of(const Drawn& drawn, const ScheduleOptions& options) {
  const std::string bubble = drawn.synchronous
                                 ? ", bubble " + percent(drawn.run.measures.bubble_fraction, 2)
                                 : ", asynchronous";
  return fmt::format("{}, {} stage{}, {} micro-batch{}{}{}", drawn.name, options.stages,
                     options.stages == "1" ? "" : "s", options.micro_batches,
                     options.micro_batches == "1" ? "" : "es", pieces_of(options), bubble);
}

int run_schedule(const ScheduleOptions& given) {
  check_schedule_options(given);
  if (!given.plan_path.empty()) {
    return run_on_plan(given);
  }
  const ScheduleOptions options = with_listed_sizes(given);
  if (options.stages.empty() || options.micro_batches.empty()) {
    bad_input("schedule", "--stages and --microbatches are required",
              "or a real plan: --plan plan.json");
  }
  if (!options.compared.empty()) {
    return compare(options);
  }
  if (options.name.empty()) {
    bad_input("schedule", "which one? give a NAME or --compare A B ...");
  }
  check_outputs({{"--svg", options.svg}, {"--trace", options.trace}, json_path(options.output)},
                {options.name, options.costs});
  const int width = integer_option(options.width, "--width", 10'000);
  const bool files = !options.svg.empty() || !options.trace.empty();
  const ScheduleOptions completed = fewest_pieces(options.name, options);
  const Drawn drawn = run_one(options.name, completed, !options.output.json || files);
  if (files && !drawn.run.has_spans) {
    bad_input("schedule", "too many passes for a picture or a trace");
  }
  const double divisor = static_cast<double>(drawn.run.scale);
  if (!options.svg.empty()) {
    write_result(
        options.svg,
        sim::schedule_svg(drawn.order, drawn.run.result, title_of(drawn, completed), divisor),
        options.output);
  }
  if (!options.trace.empty()) {
    traces::write_chrome_trace(traces::trace_of(drawn.order, drawn.run.result), options.trace);
    note_all({fmt::format("wrote {}", printable(options.trace))}, options.output);
  }
  if (options.output.json) {
    print_json(to_json(drawn.run.measures, drawn.synchronous));
    return kOk;
  }
  std::string text;
  if (drawn.run.has_spans) {
    sim::PictureOptions picture{.width = width, .color = wants_color(options.output)};
    picture.time_divisor = divisor;
    picture.order = &drawn.order;
    text = sim::schedule_picture(drawn.run.result, picture) + "\n";
  }
  print(text + to_text(drawn.run.measures, drawn.order, drawn.synchronous, completed));
  return kOk;
}

}  // namespace

void add_schedule(const Command& app, Action& chosen) {
  auto options = std::make_shared<ScheduleOptions>();
  const Command command = app.add_subcommand(
      "schedule", "run a pipeline schedule on unit costs or on a plan: picture, bubble, memory");
  add_schedule_options(command, *options);
  command.callback([options, &chosen] { chosen = [options] { return run_schedule(*options); }; });
}

}  // namespace orrery::cli
