// SPDX-License-Identifier: Apache-2.0
// `orrery show layout PLAN`: block by block what each rank holds and which collectives run; of a
// recommendation network table by table.
#include <fmt/format.h>

#include "base/files.hpp"
#include "base/quantity_text.hpp"
#include "base/table.hpp"
#include "cli/show.hpp"
#include "plan/layout_check.hpp"
#include "plan/layout_report.hpp"
#include "plan/plan.hpp"
#include "plan/recommender/recommender.hpp"

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

std::string block_text(const plan::BlockReport& block) {
  std::string text = fmt::format(
      "{} (chain positions {}{}): {}; mesh {}\n", block.name, block.first,
      block.count > 1 ? fmt::format(" to {}", block.first + block.count - 1) : std::string(),
      block.layout, block.mesh);
  TextTable table({{"tensor"}, {"held by a rank"}, {"bytes", Align::Right}, {"layout"}});
  for (const plan::HeldTensor& held : block.tensors) {
    table.add_row({held.name, held.shape, format_bytes(held.bytes.bytes()), held.layout});
  }
  text += table.text();
  const auto section = [&](std::string_view title,
                           const std::vector<plan::ReportedCollective>& list) {
    if (!list.empty()) {
      text += fmt::format("{}:\n{}", title, collectives_text(list));
    }
  };
  section("conversion from the block before", block.conversion);
  section("collectives of a micro-batch", block.collectives);
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
    tensors.push(Json::Object{{"name", held.name},
                              {"kind", held.weight ? "weight" : "activation"},
                              {"shape", held.shape},
                              {"bytes", held.bytes.value()},
                              {"layout", held.layout}});
  }
  return Json::Object{{"block", block.name},
                      {"first", block.first},
                      {"count", block.count},
                      {"layout", block.layout},
                      {"mesh", block.mesh},
                      {"tensors", std::move(tensors)},
                      {"conversion", collectives_json(block.conversion)},
                      {"collectives", collectives_json(block.collectives)},
                      {"states", collectives_json(block.states)}};
}

}  // namespace

Shown show_layout(const ShowRequest& request) {
  const Json document = read_json_file(request.name);
  if (plan::is_recommender(document)) {
    return show_recommender(document, request.name);
  }
  const plan::Plan plan = plan::read_plan(document, request.name);
  plan::check_layouts(plan, request.name);
  Shown shown;
  Json blocks = Json::array();
  for (const plan::BlockReport& block : plan::report_layouts(plan)) {
    shown.text += block_text(block);
    blocks.push(block_json(block));
  }
  shown.json = Json::Object{{"blocks", std::move(blocks)}};
  return shown;
}

}  // namespace orrery::cli
