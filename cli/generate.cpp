// SPDX-License-Identifier: Apache-2.0
// `orrery generate`: seeded workloads, with the figures that describe them. --json prints what was
// drawn, too.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <numeric>

#include "base/error.hpp"
#include "base/quantile.hpp"
#include "base/table.hpp"
#include "cli/command/command.hpp"
#include "cli/command/command_line.hpp"
#include "cli/command/common.hpp"
#include "cli/command/together.hpp"
#include "models/lengths.hpp"
#include "models/lookups.hpp"
#include "models/routing.hpp"

namespace orrery::cli {
namespace {

constexpr const char* kGenerateExamples = R"(
Examples:
  orrery generate lengths --count 10000 --median 600 --tail 0.02 --longest 32768 --pack 32768
  orrery generate routing --experts 16 --top-k 4 --ranks 32 --popularity 1.8 --fluctuation 0.25
  orrery generate indices --rows 54542 --slope 0.82 --count 51200 --json)";

constexpr std::int64_t kMostDrawn = 10'000'000;
constexpr double kMostTokens = 1e18;  // which are counted

struct GenerateOptions {
  std::uint64_t seed = 1;
  std::int64_t count = 1000;
  models::LengthModel lengths;
  std::int64_t capacity = 0;
  std::string packing = "first-fit-decreasing";
  models::RoutingModel routing{.ranks = 8, .tokens_per_rank = 65536};
  int steps = 20;
  std::int64_t rows = 1'000'000;
  double slope = 1.0;
  OutputOptions output;
};

Json to_array(const std::vector<std::int64_t>& values) {
  Json array = Json::array();
  for (const std::int64_t value : values) {
    array.push(value);
  }
  return array;
}

void check_range(std::string_view name, double value, double low, double high) {
  if (!(value >= low && value <= high)) {
    bad_input("generate",
              fmt::format("{} is {}; it must be between {} and {}", name, value, low, high));
  }
}

// Figures as text, or all of the document with --json.
int finish(const Json& figures, std::string_view drawn_key, Json drawn,
           const OutputOptions& output) {
  if (output.json) {
    Json document = figures;
    document.set(drawn_key, std::move(drawn));
    print_json(document);
    return kOk;
  }
  TextTable table({{"figure"}, {"value", Align::Right}});
  for (const auto& [name, value] : figures.as_object()) {
    const double number = value.as_number();
    table.add_row({name, number == std::floor(number) ? fmt::format("{:.0f}", number)
                                                      : fmt::format("{:.4g}", number)});
  }
  print(table.text());
  return kOk;
}

models::Packing packing_of(const std::string& name) {
  const std::map<std::string, models::Packing> names = {
      {"in-order", models::Packing::InOrder},
      {"first-fit", models::Packing::FirstFit},
      {"first-fit-decreasing", models::Packing::FirstFitDecreasing},
      {"best-fit-decreasing", models::Packing::BestFitDecreasing}};
  const auto found = names.find(name);
  if (found == names.end()) {
    bad_input("--packing", fmt::format("unknown packing \"{}\"", name),
              "in-order, first-fit, first-fit-decreasing or best-fit-decreasing");
  }
  return found->second;
}

int lengths(const GenerateOptions& options) {
  const models::LengthModel& model = options.lengths;
  check_range("--count", static_cast<double>(options.count), 1, static_cast<double>(kMostDrawn));
  check_range("--median", model.median, 1, 1e12);
  check_range("--spread", model.spread, 0, 20);
  check_range("--tail", model.tail, 0, 1);
  check_range("--tail-from", model.tail_from, 1, 1e12);
  check_range("--tail-index", model.tail_index, 0.01, 100);
  check_range("--longest", static_cast<double>(model.longest), 1, 1e12);
  check_range("--count times --longest",
              static_cast<double>(options.count) * static_cast<double>(model.longest), 1,
              kMostTokens);
  check_range("--pack", static_cast<double>(options.capacity), 0, 1e12);
  refuse_alone({{"--packing", options.packing != GenerateOptions().packing}},
               {"--pack", options.capacity > 0});
  const models::LengthModel usual;
  refuse_alone({{"--tail-from", model.tail_from != usual.tail_from},
                {"--tail-index", model.tail_index != usual.tail_index}},
               {"--tail", model.tail > 0});
  if (model.shortest < 1 || model.longest < model.shortest) {
    bad_input("generate", "--shortest must be at least 1 and at most --longest");
  }
  const auto drawn = models::draw_lengths(model, options.count, options.seed);
  std::vector<double> sorted(drawn.begin(), drawn.end());
  std::sort(sorted.begin(), sorted.end());
  const auto quantile = [&sorted](double share) {
    return static_cast<std::int64_t>(nearest_quantile(sorted, share));
  };
  const std::int64_t tokens = std::accumulate(drawn.begin(), drawn.end(), std::int64_t{0});
  Json figures =
      Json::Object{{"sequences", options.count},
                   {"tokens", tokens},
                   {"mean", static_cast<double>(tokens) / static_cast<double>(options.count)},
                   {"median", quantile(0.5)},
                   {"p90", quantile(0.9)},
                   {"p99", quantile(0.99)},
                   {"longest", quantile(1)}};
  Json document = Json::object();
  document.set("lengths", to_array(drawn));
  if (options.capacity > 0) {
    const auto rows = models::pack(drawn, options.capacity, packing_of(options.packing));
    const double filled = static_cast<double>(tokens) / (static_cast<double>(rows.size()) *
                                                         static_cast<double>(options.capacity));
    figures.set("rows", static_cast<std::int64_t>(rows.size()));
    figures.set("filled", filled);
    Json packed = Json::array();
    for (const std::vector<int>& row : rows) {
      packed.push(to_array({row.begin(), row.end()}));
    }
    document.set("rows", std::move(packed));
  }
  return finish(figures, "drawn", std::move(document), options.output);
}

int routing(const GenerateOptions& options) {
  const models::RoutingModel& model = options.routing;
  check_range("--experts", model.experts, 1, 65536);
  check_range("--ranks", model.ranks, 1, 65536);
  check_range("--steps", options.steps, 1, 100'000);
  check_range("--tokens", static_cast<double>(model.tokens_per_rank), 1, 1e12);
  check_range("--popularity", model.popularity, 0, 10);
  check_range("--fluctuation", model.fluctuation, 0, 10);
  check_range("--popularity-persistence", model.popularity_persistence, 0, 1);
  check_range("--persistence", model.fluctuation_persistence, 0, 1);
  check_range("drawn counts", 1.0 * model.experts * model.ranks * options.steps, 1,
              static_cast<double>(kMostDrawn));
  models::RoutingGenerator generator(model, options.seed);
  std::vector<std::vector<double>> loads;  // of the experts
  Json drawn = Json::array();
  for (int step = 0; step < options.steps; ++step) {
    const models::RoutedTokens tokens = generator.next();
    Json rows = Json::array();
    loads.emplace_back(static_cast<std::size_t>(model.experts));
    for (const std::vector<std::int64_t>& row : tokens) {
      rows.push(to_array(row));
      for (std::size_t expert = 0; expert < row.size(); ++expert) {
        loads.back()[expert] += static_cast<double>(row[expert]);
      }
    }
    drawn.push(std::move(rows));
  }
  const models::BalanceStatistics balance = models::balance_statistics(loads);
  const Json figures = Json::Object{{"steps", options.steps},
                                    {"experts", model.experts},
                                    {"max_over_mean", balance.max_over_mean},
                                    {"variation", balance.variation},
                                    {"autocorrelation", balance.autocorrelation}};
  return finish(figures, "tokens", std::move(drawn), options.output);
}

int indices(const GenerateOptions& options) {
  check_range("--rows", static_cast<double>(options.rows), 1, 1e8);
  check_range("--slope", options.slope, 0, 10);
  check_range("--count", static_cast<double>(options.count), 1, static_cast<double>(kMostDrawn));
  const models::ZipfRows table(options.rows, options.slope);
  const auto drawn = table.draw(options.count, options.seed);
  const Json figures = Json::Object{{"rows", options.rows},
                                    {"lookups", options.count},
                                    {"unique", models::count_unique(drawn)},
                                    {"unique_expected", table.expected_unique(options.count)},
                                    {"share_of_top_1_percent", table.share_of_top(0.01)},
                                    {"share_of_top_10_percent", table.share_of_top(0.1)}};
  return finish(figures, "indices", to_array(drawn), options.output);
}

}  // namespace

void add_generate(const Command& app, Action& chosen) {
  auto options = std::make_shared<GenerateOptions>();
  const Command command =
      app.add_subcommand("generate", "draw a workload: lengths, routing, indices");
  command.footer(kGenerateExamples);
  command.require_subcommand();
  const auto add = [&](const char* name, const char* text, int (*run)(const GenerateOptions&)) {
    const Command kind = command.add_subcommand(name, text);
    kind.add_option("--seed", options->seed, "the same seed draws the same (1)");
    add_output_options(kind, options->output);
    kind.callback([options, run, &chosen] { chosen = [options, run] { return run(*options); }; });
    return kind;
  };
  const Command of_lengths =
      add("lengths", "lengths of sequences, and rows packed with them", lengths);
  models::LengthModel& model = options->lengths;
  of_lengths.add_option("--count", options->count, "sequences (1000)");
  of_lengths.add_option("--median", model.median, "tokens (512)");
  of_lengths.add_option("--spread", model.spread, "standard deviation of ln(length) (1)");
  of_lengths.add_option("--tail", model.tail, "share of sequences with a Pareto tail (0)");
  of_lengths.add_option("--tail-from", model.tail_from, "shortest of them (8192)");
  of_lengths.add_option("--tail-index", model.tail_index, "exponent of the tail (1)");
  of_lengths.add_option("--shortest", model.shortest, "cut below (1)");
  of_lengths.add_option("--longest", model.longest, "cut above (1048576)");
  of_lengths.add_option("--pack", options->capacity,
                        "pack into rows of so many tokens (0: no packing)");
  of_lengths.add_option("--packing", options->packing,
                        "in-order, first-fit, first-fit-decreasing or best-fit-decreasing");
  const Command of_routing = add("routing", "tokens from ranks to experts, step by step", routing);
  models::RoutingModel& routes = options->routing;
  of_routing.add_option("--experts", routes.experts, "experts (8)");
  of_routing.add_option("--top-k", routes.top_k, "experts of a token (2)");
  of_routing.add_option("--ranks", routes.ranks, "ranks (8)");
  of_routing.add_option("--tokens", routes.tokens_per_rank, "copies of tokens a rank (65536)");
  of_routing.add_option("--steps", options->steps, "steps (20)");
  of_routing.add_option("--popularity", routes.popularity, "spread of ln(share) of experts (0.5)");
  of_routing.add_option("--popularity-persistence", routes.popularity_persistence,
                        "its correlation from step to step (1)");
  of_routing.add_option("--fluctuation", routes.fluctuation, "spread of the ranks' own part (0.1)");
  of_routing.add_option("--persistence", routes.fluctuation_persistence,
                        "its correlation from step to step (0)");
  of_routing.add_option("--domain", routes.domain, "ranks that share a data mix (1)");
  const Command of_indices = add("indices", "rows of an embedding table, by Zipf's law", indices);
  of_indices.add_option("--rows", options->rows, "rows of the table (1000000)");
  of_indices.add_option("--slope", options->slope, "exponent (1)");
  of_indices.add_option("--count", options->count, "lookups (1000)");
}

}  // namespace orrery::cli
