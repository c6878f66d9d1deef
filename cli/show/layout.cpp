// SPDX-License-Identifier: Apache-2.0
// `orrery show layout PLAN`: block by block what each rank holds and which collectives run; of a
// recommendation network table by table.
#include <fmt/format.h>

#include "base/quantity_text.hpp"
#include "base/table.hpp"
#include "cli/show/show.hpp"
#include "plan/block/layout_check.hpp"
#include "plan/mixed/plan.hpp"
#include "plan/packs.hpp"
#include "plan/plan.hpp"
#include "plan/recommender/recommender.hpp"
#include "plan/simulation/layout_report.hpp"

namespace orrery::cli {

namespace {

std::string_view when_text(sim::PassKind pass) {
  switch (pass) {
    case sim::PassKind::Forward:
      return "forward";
    case sim::PassKind::Recompute:
      return "recompute";
    default:
      return "backward";
  }
}

std::string collectives_text(const std::vector<plan::ReportedCollective>& list) {
  TextTable table({{"pass"},
                   {"collective"},
                   {"axes"},
                   {"ranks", Align::Right},
                   {"count", Align::Right},
                   {"buffer", Align::Right},
                   {"sent", Align::Right},
                   {"of"}});
  for (const plan::ReportedCollective& one : list) {
    const std::string kind =
        one.pieces > 1 ? fmt::format("{} in {} pieces", sim::to_text(one.kind), one.pieces)
                       : std::string(sim::to_text(one.kind));
    table.add_row({std::string(when_text(one.pass)), kind, one.axes, std::to_string(one.ranks),
                   std::to_string(one.count), format_bytes(one.bytes), format_bytes(one.sent),
                   one.tensor});
  }
  return table.text();
}

// What is left of a tensor between passes, and where.
std::string kept_text(const plan::HeldTensor& held) {
  std::string text = held.use == plan::HeldUse::Passing ? "" : std::string(plan::to_text(held.use));
  if (held.away > 0) {
    text += text.empty() ? "" : ", ";
    text += held.away < 1 ? fmt::format("{:.4g} % ", 100 * held.away) : "";
    text += fmt::format("on {}", plan::to_text(held.tier));
  }
  return text;
}

std::string block_text(const plan::BlockReport& block, bool serves) {
  std::string text = fmt::format(
      "{} (chain position{} {}{}): {}; mesh {}\n", block.name, block.count > 1 ? "s" : "",
      block.first,
      block.count > 1 ? fmt::format(" to {}", block.first + block.count - 1) : std::string(),
      block.layout, block.mesh);
  TextTable table({{"tensor"}, {"of a rank"}, {"bytes", Align::Right}, {"layout"}, {"kept"}});
  for (const plan::HeldTensor& held : block.tensors) {
    table.add_row(
        {held.name, held.shape, format_bytes(held.bytes.bytes()), held.layout, kept_text(held)});
  }
  text += table.text();
  if (!block.shares.empty()) {
    TextTable ranks({{"rank of tp", Align::Right},
                     {"share", Align::Right},
                     {"holds"},
                     {"weights", Align::Right}});
    for (const plan::RankShare& one : block.shares) {
      ranks.add_row({std::to_string(one.rank), std::to_string(one.share), one.holds,
                     format_bytes(one.weights.bytes())});
    }
    text += "tensor shares (above: the rank that holds most):\n" + ranks.text();
  }
  const auto section = [&](std::string_view title,
                           const std::vector<plan::ReportedCollective>& list) {
    if (!list.empty()) {
      text += fmt::format("{}:\n{}", title, collectives_text(list));
    }
  };
  section("conversion from the block before", block.conversion);
  section(serves ? fmt::format("collectives of an iteration of {} tokens", block.tokens)
                 : "collectives of a micro-batch",
          block.collectives);
  section(fmt::format("to the next stage{}", serves ? "" : " and back, of a micro-batch"),
          block.transfers);
  section("gradients and parameters", block.states);
  return text + "\n";
}

Json collectives_json(const std::vector<plan::ReportedCollective>& list) {
  Json array = Json::array();
  for (const plan::ReportedCollective& one : list) {
    array.push(Json::Object{{"pass", when_text(one.pass)},
                            {"collective", sim::to_text(one.kind)},
                            {"axes", one.axes},
                            {"ranks", one.ranks},
                            {"count", one.count},
                            {"pieces", one.pieces},
                            {"buffer_bytes", one.bytes.value()},
                            {"sent_bytes", one.sent.value()},
                            {"tensor", one.tensor}});
  }
  return array;
}

Json block_json(const plan::BlockReport& block) {
  Json tensors = Json::array();
  for (const plan::HeldTensor& held : block.tensors) {
    Json::Object tensor{{"name", held.name},         {"kind", plan::to_text(held.kind)},
                        {"shape", held.shape},       {"bytes", held.bytes.value()},
                        {"layout", held.layout},     {"tier", plan::to_text(held.tier)},
                        {"away_fraction", held.away}};
    if (held.kind == plan::HeldKind::Activation) {
      tensor.emplace_back("kept", plan::to_text(held.use));
    }
    tensors.push(std::move(tensor));
  }
  Json shares = Json::array();
  for (const plan::RankShare& one : block.shares) {
    shares.push(Json::Object{{"rank", one.rank},
                             {"share", one.share},
                             {"holds", one.holds},
                             {"weight_bytes", one.weights.value()}});
  }
  return Json::Object{{"block", block.name},
                      {"first", block.first},
                      {"count", block.count},
                      {"layout", block.layout},
                      {"mesh", block.mesh},
                      {"tokens", block.tokens},
                      {"tensors", std::move(tensors)},
                      {"shares", std::move(shares)},
                      {"conversion", collectives_json(block.conversion)},
                      {"collectives", collectives_json(block.collectives)},
                      {"transfers", collectives_json(block.transfers)},
                      {"states", collectives_json(block.states)}};
}

// Of every stage the pools of its tensor-parallel ranks.
std::string ranks_text(const plan::MixedPlan& plan) {
  TextTable table(
      {{"replicas", Align::Right}, {"stage", Align::Right}, {"pools of its ranks of tp"}});
  for (const plan::ReplicaGroup& group : plan.groups) {
    for (std::size_t device = 0; device < group.pools.size(); ++device) {
      const std::vector<int>* team = group.team_of(device);
      std::string pools;
      for (const int pool : team != nullptr ? *team : std::vector<int>{group.pools[device]}) {
        pools += pools.empty() ? "" : ", ";
        pools += plan.machine->cluster.pools[static_cast<std::size_t>(pool)].name;
      }
      table.add_row({fmt::format("{}", group.replicas), fmt::format("{}", device), pools});
    }
  }
  return table.text() + "\n";
}

// Of all micro-batches alike: slices and blocks.
void add_layouts(const plan::Plan& plan, std::string& text, Json& json) {
  const std::vector<plan::BlockReport> reports = plan::report_layouts(plan);
  Json slices = Json::array();
  for (const plan::Slice& slice : plan::slices_of(plan)) {
    slices.push(plan.serving       ? reports.front().tokens
                : slice.is_whole() ? plan.sequence
                                   : slice.tokens);
  }
  if (slices.as_array().size() > 1) {
    text += fmt::format(
        "a micro-batch in {} slices; tensors of the longest, collectives of all of them\n\n",
        slices.as_array().size());
  }
  Json blocks = Json::array();
  for (const plan::BlockReport& block : reports) {
    text += block_text(block, plan.serving != nullptr);
    blocks.push(block_json(block));
  }
  json.set("slices", std::move(slices));
  json.set("blocks", std::move(blocks));
}

std::string pack_text(const plan::PackShape& shape) {
  const plan::Plan& plan = shape.plan;
  const std::string sequences =
      plan.micro_batch > 1 ? fmt::format("{} sequences of ", plan.micro_batch) : "";
  return fmt::format(
      "# {} of {}{} tokens with padding, on {} of {}: gradients and parameters of "
      "the whole step\n\n",
      shape.count == 1 ? "1 pack" : fmt::format("{} packs", shape.count), sequences, plan.sequence,
      shape.group == 1 ? "1 rank" : fmt::format("{} ranks", shape.group), plan.dp * shape.group);
}

}  // namespace

Shown show_layout(const ShowRequest& request) {
  const auto [document, where] = load_plan_document(request.name);
  if (plan::is_recommender(document)) {
    return show_recommender(document, where);
  }
  Shown shown;
  plan::Plan plan;
  if (plan::is_mixed_plan(document)) {
    const plan::MixedPlan mixed = plan::read_mixed_plan(document, where);
    plan = plan::pool_view(mixed, 0);
    plan::set_view(mixed, mixed.groups.front().micro_batches, plan);
    shown.text = ranks_text(mixed);
  } else {
    plan = plan::read_plan(document, where);
  }
  plan::check_layouts(plan, where);
  shown.json = Json::object();
  if (plan.packs.empty()) {
    add_layouts(plan, shown.text, shown.json);
    return shown;
  }
  Json packs = Json::array();
  for (const plan::PackShape& shape : plan::pack_shapes(plan)) {
    shown.text += pack_text(shape);
    Json pack = Json::Object{{"group", shape.group},
                             {"sequences", shape.plan.micro_batch},
                             {"tokens", shape.plan.sequence},
                             {"count", shape.count}};
    add_layouts(shape.plan, shown.text, pack);
    packs.push(std::move(pack));
  }
  shown.json = Json::Object{{"packs", std::move(packs)}};
  return shown;
}

}  // namespace orrery::cli
