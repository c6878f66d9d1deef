// SPDX-License-Identifier: Apache-2.0
#include "sim/schedule.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

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
#include "cli/schedule_pictures.hpp"
#include "cli/schedule_plan.hpp"
#include "cli/schedule_sizes.hpp"
#include "cli/show/list_names.hpp"
#include "plan/schedule_traits.hpp"
#include "sim/orders/asynchronous.hpp"
#include "sim/orders/order_blocks.hpp"
#include "sim/orders/schedule_document.hpp"
#include "sim/pipeline/schedule_picture.hpp"
#include "sim/pipeline/share_costs.hpp"
#include "sim/schedule_changes.hpp"
#include "studies/schedule_costs.hpp"
#include "studies/schedule_run.hpp"

namespace orrery::cli {
namespace {

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

// The order and the name of a registered schedule, or of one written in a file.
Drawn order_of(const std::string& name, const sim::ScheduleParams& params) {
  Drawn drawn;
  if (is_document(name)) {
    const sim::ScheduleDocument document = read_document(name);
    drawn.order = sim::order_of(document, params);
    drawn.name = document.name;
    drawn.synchronous = sim::traits_of(document).synchronous;
    return drawn;
  }
  const sim::Schedule& schedule = sim::find_schedule(name, "schedule");
  const std::string broken = sim::refusal(schedule, params);
  if (!broken.empty()) {
    bad_input(fmt::format("schedule {}", schedule.name), broken);
  }
  drawn.order = schedule.order(params);
  drawn.name = schedule.name;
  drawn.synchronous = schedule.traits.synchronous;
  drawn.pushes_waves = schedule.traits.pushes_waves;
  const std::string wrong = sim::check_order(drawn.order, drawn.order.micro_batches);
  ORRERY_CHECK(wrong.empty(), "a registered schedule breaks its contract");
  return drawn;
}

// Placements of which the times of a table are to be those of the virtual stages: that of `order`,
// and for schedules that choose one the others, too.
std::vector<std::vector<std::uint16_t>> placements_of(const std::string& name,
                                                      const sim::PipelineOrder& order,
                                                      const sim::ScheduleParams& params) {
  std::vector<std::vector<std::uint16_t>> placements = {order.device_of};
  if (!is_document(name) && params.chunks > 1 &&
      sim::find_schedule(name, "schedule").chooses_placement) {
    placements = {sim::loop_placement(params), sim::zigzag_placement(params.stages, params.chunks)};
  }
  return placements;
}

// The lists of a schedule, which may plan with times: with those of its placement, or of several
// the shortest on the table.
sim::PipelineOrder planned_with_table(const std::string& name, const sim::PipelineOrder& first,
                                      const studies::CostTable& table,
                                      const sim::ScheduleParams& params) {
  std::optional<sim::PipelineOrder> best;
  double shortest = 0;
  const auto placements = placements_of(name, first, params);
  for (const std::vector<std::uint16_t>& placement : placements) {
    sim::PipelineOrder placed = first;
    placed.device_of = placement;
    sim::ScheduleParams own = params;
    studies::plan_with_table(placed, table, own);
    sim::PipelineOrder order = order_of(name, own).order;
    if (placements.size() == 1) {
      return order;
    }
    const auto [costs, scale] = studies::table_costs(order, table);
    const double makespan = to_seconds(sim::evaluate_pipeline(order, costs).makespan).value() /
                            static_cast<double>(scale);
    if (!best || makespan < shortest) {
      shortest = makespan;
      best = std::move(order);
    }
  }
  return *std::move(best);
}

Drawn run_one(const std::string& name, const ScheduleOptions& options, bool with_spans) {
  sim::ScheduleParams params = params_of(options);
  Drawn drawn = order_of(name, params);
  if (!options.costs.empty()) {
    const studies::CostTable table = studies::read_cost_table(options.costs);
    drawn.order = planned_with_table(name, drawn.order, table, params);
    const sim::ShareCosts given = studies::table_costs(drawn.order, table);
    drawn.run =
        studies::run_schedule(drawn.order, drawn.synchronous, given.costs, given.scale, with_spans);
  } else {
    const sim::PassTimes share = share_of(options);
    const sim::PassTimes planned = sim::planning_times(drawn.order, share);
    if (planned.send != share.send) {
      params.times = {planned};
      sim::in_lowest_terms(params.times);
      drawn.order = order_of(name, params).order;
    }
    drawn.run = studies::run_schedule(drawn.order, drawn.synchronous, share, with_spans);
  }
  if (drawn.pushes_waves) {
    int& staleness = drawn.run.measures.versions.staleness;
    staleness =
        sim::staleness_of_waves(staleness, params.replicas, params.micro_batches, params.warm_up);
  }
  return drawn;
}

// As the times of a run are given, also those of unit costs.
std::string in_seconds(double time) { return fmt::format("{:.6g} s", time); }

std::string to_text(const studies::ScheduleMeasures& measures, bool synchronous,
                    const std::vector<std::string>& names, const ScheduleOptions& options) {
  const auto& lists = measures.lists;
  const bool alike = std::equal(lists.begin() + 1, lists.end(), lists.begin());
  const std::vector<std::int64_t>& bytes = measures.peak_activation_bytes;
  std::vector<TextTable::Column> columns = {
      {alike ? std::string(lists.front()) : fmt::format("{} or {}", lists.front(), lists.back())},
      {"idle", Align::Right},
      {"peak activations", Align::Right}};
  if (!bytes.empty()) {
    columns.push_back({"activation bytes", Align::Right});
  }
  TextTable table(columns);
  for (std::size_t stage = 0; stage < measures.idle.size(); ++stage) {
    std::vector<std::string> cells = {!names.empty() ? names[stage]
                                      : alike        ? fmt::format("{}", stage)
                                                     : fmt::format("{} {}", lists[stage], stage),
                                      in_seconds(measures.idle[stage]),
                                      fmt::format("{:.6g}", measures.peak_activations[stage])};
    if (!bytes.empty()) {
      cells.push_back(format_bytes(Bytes(static_cast<double>(bytes[stage]))));
    }
    table.add_row(std::move(cells));
  }
  std::string text = fmt::format("makespan {}, bubble {}{}\n", in_seconds(measures.makespan),
                                 percent(measures.bubble_fraction, 2), pieces_of(options));
  if (!synchronous) {
    const std::string steady = measures.steady_period > 0 ? in_seconds(measures.steady_period) +
                                                                " per micro-batch in steady state"
                                                          : "steady period not known";
    text += fmt::format("asynchronous: {}, staleness {}, {}\n", steady, measures.versions.staleness,
                        counted(measures.versions.versions, "weight version"));
  }
  if (synchronous && measures.iterations > 1) {
    text += fmt::format("{} iterations", measures.iterations);
    text += measures.iteration_period > 0 ? fmt::format(", each {} after the one before\n",
                                                        in_seconds(measures.iteration_period))
                                          : "\n";
  }
  return text + "\n" + table.text();
}

std::string title_of(const Drawn& drawn, const ScheduleOptions& options) {
  const std::string bubble = drawn.synchronous
                                 ? ", bubble " + percent(drawn.run.measures.bubble_fraction, 2)
                                 : ", asynchronous";
  return fmt::format("{}, {}{}{}", drawn.name, sizes_text(options), pieces_of(options), bubble);
}

// Above its rows in a comparison. Of several iterations neither the makespan nor its idle times are
// those of one.
std::string panel_title(const Drawn& drawn) {
  const studies::ScheduleMeasures& m = drawn.run.measures;
  std::string title = drawn.name + ": ";
  if (drawn.synchronous && m.iterations == 1) {
    title += fmt::format("makespan {}, bubble {}, ", in_seconds(m.makespan),
                         percent(m.bubble_fraction, 2));
  } else {
    title += drawn.synchronous ? fmt::format("{} iterations, ", m.iterations)
                               : "asynchronous, on an axis of its own, ";
  }
  return title + fmt::format("peak {:.6g} activations", largest_peak(m));
}

PictureFiles files_of(const ScheduleOptions& options) {
  PictureFiles files{options.svg, options.trace};
  set_width(options.width, files);
  return files;
}

PicturedRun pictured(const Drawn& drawn, std::string title) {
  return {.name = drawn.name,
          .order = &drawn.order,
          .result = &drawn.run.result,
          .title = std::move(title),
          .scale = drawn.run.scale,
          .synchronous = drawn.synchronous};
}

std::string comparison_table(const std::vector<Drawn>& all) {
  const bool sized = std::any_of(all.begin(), all.end(), [](const Drawn& drawn) {
    return !drawn.run.measures.peak_activation_bytes.empty();
  });
  std::vector<TextTable::Column> columns = {{"schedule"},
                                            {"makespan", Align::Right},
                                            {"bubble", Align::Right},
                                            {"peak activations", Align::Right}};
  if (sized) {
    columns.push_back({"activation bytes", Align::Right});
  }
  for (const char* title : {"transfers", "staleness", "versions", "steady period"}) {
    columns.push_back({title, Align::Right});
  }
  TextTable table(columns);
  for (const Drawn& drawn : all) {
    const studies::ScheduleMeasures& m = drawn.run.measures;
    // Of several iterations neither the makespan nor its idle times are those of one.
    const bool steady = !drawn.synchronous || m.iterations > 1;
    const double period = drawn.synchronous ? m.iteration_period * m.iterations *
                                                  drawn.order.slices / drawn.order.micro_batches
                                            : m.steady_period;
    std::vector<std::string> cells = {drawn.name + (drawn.synchronous ? "" : " (asynchronous)"),
                                      steady ? "-" : in_seconds(m.makespan),
                                      steady ? "-" : percent(m.bubble_fraction, 2),
                                      fmt::format("{:.6g}", largest_peak(m))};
    if (sized) {
      const std::vector<std::int64_t>& bytes = m.peak_activation_bytes;
      const auto most = bytes.empty() ? 0 : *std::max_element(bytes.begin(), bytes.end());
      cells.push_back(format_bytes(Bytes(static_cast<double>(most))));
    }
    cells.push_back(fmt::format("{}", m.transfers));
    cells.push_back(fmt::format("{}", m.versions.staleness));
    cells.push_back(fmt::format("{}", m.versions.versions));
    cells.push_back(steady && period > 0 ? in_seconds(period) : "-");
    table.add_row(std::move(cells));
  }
  return table.text();
}

bool runs_output_layer(const Drawn& drawn) {
  return std::any_of(drawn.order.chains.begin(), drawn.order.chains.end(),
                     [](const sim::Chain& chain) { return chain.role == sim::Role::Output; });
}

// Asynchronous schedules come last and apart: their time is not that of the same training.
int compare(const ScheduleOptions& options) {
  std::vector<std::string> inputs = options.compared;
  inputs.push_back(options.costs);
  check_outputs({{"--svg", options.svg}, {"--trace", options.trace}, json_path(options.output)},
                inputs);
  const PictureFiles files = files_of(options);
  std::vector<Drawn> all;
  std::vector<std::string> unbounded;
  for (const std::string& name : options.compared) {
    const ScheduleOptions own = compared_options(name, options);
    all.push_back(run_one(name, fewest_pieces(name, own), files.any()));
    if (own.cap != options.cap) {
      unbounded.push_back(all.back().name);
    }
  }
  std::stable_partition(all.begin(), all.end(), [](const Drawn& d) { return d.synchronous; });
  std::vector<PicturedRun> pictures;
  for (const Drawn& drawn : all) {
    pictures.push_back(pictured(drawn, panel_title(drawn)));
  }
  write_comparison(pictures, sizes_text(options), files, options.output);
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
  const bool notes = !all.back().synchronous;
  const auto outputs = std::count_if(all.begin(), all.end(), runs_output_layer);
  const bool unlike = outputs > 0 && outputs < std::ssize(all);
  print(comparison_table(all) + studies::kBubbleNote + (notes ? studies::kAsynchronousNote : "") +
        (unlike ? studies::kOutputLayerNote : "") + cap_note(unbounded));
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
          .cap = cap_of(options),
          .cap_name = kCapOption};
}

int run_on_plan(const ScheduleOptions& options) {
  if (options.compared.empty()) {
    return schedule_on_plan(options.plan_path, request_of(options.name, options), files_of(options),
                            options.output);
  }
  std::vector<studies::ScheduleRequest> requests;
  for (const std::string& name : options.compared) {
    requests.push_back(request_of(name, compared_options(name, options)));
  }
  return compare_on_plan(options.plan_path, std::move(requests), files_of(options), options.output);
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
  const PictureFiles files = files_of(options);
  const ScheduleOptions completed = fewest_pieces(options.name, options);
  const Drawn drawn = run_one(options.name, completed, !options.output.json || files.any());
  write_pictures(pictured(drawn, title_of(drawn, completed)), files, options.output);
  if (options.output.json) {
    print_json(to_json(drawn.run.measures, drawn.synchronous));
    return kOk;
  }
  const std::vector<std::string> names = list_names(drawn.name, drawn.order);
  std::string text;
  if (drawn.run.has_spans) {
    sim::PictureOptions picture = text_picture(files, options.output);
    picture.time_divisor = drawn.run.scale;
    picture.order = &drawn.order;
    picture.lists = names;
    text = sim::schedule_picture(drawn.run.result, picture) + "\n";
  }
  print(text + to_text(drawn.run.measures, drawn.synchronous, names, completed));
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
