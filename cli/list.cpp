// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <span>

#include "base/error.hpp"
#include "base/quantity_text.hpp"
#include "base/table.hpp"
#include "base/text.hpp"
#include "cli/command/command.hpp"
#include "cli/command/command_line.hpp"
#include "cli/command/common.hpp"
#include "cli/command/wrapped_text.hpp"
#include "costmodel/profile.hpp"
#include "models/network.hpp"
#include "plan/exporter.hpp"
#include "plan/importer.hpp"
#include "search/baseline.hpp"
#include "search/planner.hpp"
#include "search/problem.hpp"
#include "sim/collective.hpp"
#include "sim/schedule.hpp"
#include "topologies/builder.hpp"
#include "topologies/cluster.hpp"

namespace orrery::cli {
namespace {

constexpr const char* kListExamples = R"(
Examples:
  orrery list networks
  orrery list schedules --json)";

struct Entry {
  std::string name;
  std::string description;
  std::string constraints = "";
  std::string source = "";
};
using Entries = std::vector<Entry>;

Entries networks() {
  Entries entries;
  for (const std::string& name : models::zoo_names()) {
    const models::Network network = models::load_network(name);
    const models::NetworkSpec& spec = network.spec;
    const std::string experts =
        spec.moe.experts > 0 ? fmt::format(", {} experts, top {}", spec.moe.experts, spec.moe.top_k)
                             : std::string();
    entries.push_back(
        {name,
         fmt::format("{} parameters, {} layers of {}{}, sequence {}",
                     format_count(static_cast<double>(models::num_parameters(network))),
                     spec.layers + spec.encoder_layers + spec.encoder.layers + spec.cascade.layers,
                     spec.hidden, experts, spec.sequence)});
  }
  return entries;
}

// The precision of plans, or the first with a known peak where that one has none.
DType shown_precision(const topologies::Gpu& gpu) {
  const DType usual = search::default_precision(gpu);
  for (const DType dtype : {usual, DType::Tf32, DType::Fp8}) {
    if (gpu.peak_of(dtype).value() > 0) {
      return dtype;
    }
  }
  return usual;
}

std::string gpu_text(const topologies::Gpu& gpu) {
  const DType precision = shown_precision(gpu);
  return fmt::format("{}, {}, {} {}", format_bytes(gpu.memory.bytes()),
                     format_bandwidth(gpu.hbm_bandwidth), format_flop_rate(gpu.peak_of(precision)),
                     to_text(precision));
}

Entries gpus() {
  Entries entries;
  for (const std::string& name : topologies::gpu_names()) {
    entries.push_back({name, gpu_text(topologies::load_gpu(name))});
  }
  return entries;
}

Entries nodes() {
  Entries entries;
  for (const std::string& name : topologies::node_names()) {
    const topologies::Cluster cluster = topologies::load_cluster(name + ":1");
    entries.push_back({name, fmt::format("{} x {}, {} {} per GPU, {} {} of {}", cluster.node.gpus,
                                         cluster.gpu.name,
                                         format_bandwidth(cluster.node.scale_up.bandwidth_per_gpu),
                                         cluster.node.scale_up.link, cluster.node.scale_out.nics,
                                         cluster.node.scale_out.nics == 1 ? "NIC" : "NICs",
                                         format_bandwidth(cluster.node.scale_out.nic_bandwidth))});
  }
  return entries;
}

Entries clusters() {
  Entries entries;
  for (const std::string& name : topologies::cluster_names()) {
    const topologies::Cluster cluster = topologies::load_cluster(name);
    entries.push_back(
        {name, fmt::format("{} x {} ({} GPUs), {}", cluster.num_nodes, cluster.node.name,
                           cluster.num_gpus(), cluster.fabric.builder)});
  }
  return entries;
}

Entries profiles() {
  Entries entries;
  for (const std::string& name : costmodel::profile_names()) {
    entries.push_back(
        {name, name.starts_with("default-") ? "every GPU of the architecture" : "one GPU"});
  }
  return entries;
}

Entries schedules() {
  Entries entries;
  for (const sim::Schedule* schedule : sim::schedule_table()) {
    entries.push_back({std::string(schedule->name), std::string(schedule->description),
                       std::string(schedule->constraints), std::string(schedule->source)});
  }
  return entries;
}

Entries topologies_entries() {
  Entries entries;
  for (const topologies::TopologyBuilder* builder : topologies::builder_table()) {
    const bool in_node = builder->kind == topologies::BuilderKind::Node;
    entries.push_back(
        {std::string(builder->name),
         fmt::format("{}: {}", in_node ? "in a node" : "between nodes", builder->summary)});
  }
  return entries;
}

// Tables whose entries have a name and a description.
template <typename T>
Entries described(std::span<const T* const> table) {
  Entries entries;
  for (const T* entry : table) {
    entries.push_back({std::string(entry->name), std::string(entry->description)});
  }
  return entries;
}

// Below an entry, cut between words so that the table fits a terminal.
void add_lines(TextTable& table, const std::string& text) {
  constexpr std::size_t kWidth = 80;
  for (std::string& line : wrapped(text, kWidth)) {
    table.add_row({"", std::move(line)});
  }
}

struct Catalogue {
  const char* name;
  Entries (*entries)();
};
constexpr Catalogue kCatalogues[] = {
    {"networks", networks},
    {"clusters", clusters},
    {"nodes", nodes},
    {"gpus", gpus},
    {"profiles", profiles},
    {"schedules", schedules},
    {"planners", [] { return described(search::planner_table()); }},
    {"baselines", [] { return described(search::baseline_table()); }},
    {"collectives", [] { return described(sim::collective_table()); }},
    {"topologies", topologies_entries},
    {"exporters", [] { return described(plan::exporter_table()); }},
    {"importers", [] { return described(plan::importer_table()); }},
};

std::string catalogue_names() {
  std::string names;
  for (const Catalogue& catalogue : kCatalogues) {
    names += (names.empty() ? "" : ", ") + std::string(catalogue.name);
  }
  return names;
}

struct ListOptions {
  std::string what;
  OutputOptions output;
};

int run_list(const ListOptions& options) {
  const auto* found =
      std::find_if(std::begin(kCatalogues), std::end(kCatalogues),
                   [&](const Catalogue& catalogue) { return catalogue.name == options.what; });
  if (found == std::end(kCatalogues)) {
    std::vector<std::string> names;
    for (const Catalogue& catalogue : kCatalogues) {
      names.emplace_back(catalogue.name);
    }
    bad_input("list", fmt::format("unknown list \"{}\"", printable(options.what)),
              nearest_hint(options.what, names));
  }
  const Entries entries = found->entries();
  if (options.output.json) {
    Json array = Json::array();
    for (const Entry& entry : entries) {
      Json::Object object{{"name", entry.name}, {"description", entry.description}};
      if (!entry.source.empty()) {
        object.push_back({"constraints", entry.constraints});
        object.push_back({"source", entry.source});
      }
      array.push(std::move(object));
    }
    print_json(Json::Object{{found->name, std::move(array)}});
    return kOk;
  }
  TextTable table({{"name"}, {"what it is"}});
  for (const Entry& entry : entries) {
    table.add_row({entry.name, entry.description});
    if (!entry.source.empty()) {
      add_lines(table, "constraints: " + entry.constraints);
      add_lines(table, "source: " + entry.source);
    }
  }
  print(table.text());
  return kOk;
}

}  // namespace

void add_list(const Command& app, Action& chosen) {
  auto options = std::make_shared<ListOptions>();
  const Command command = app.add_subcommand("list", "what there is, by name");
  command.footer(kListExamples);
  command.add_option("WHAT", options->what, catalogue_names()).required();
  add_output_options(command, options->output);
  command.callback([options, &chosen] { chosen = [options] { return run_list(*options); }; });
}

}  // namespace orrery::cli
