// SPDX-License-Identifier: Apache-2.0
#include "sim/orders/schedule_document.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <limits>
#include <string_view>

#include "base/error.hpp"
#include "base/json_reader.hpp"
#include "base/text.hpp"
#include "sim/orders/list_advice.hpp"
#include "sim/orders/listed_order.hpp"
#include "sim/orders/rule_reader.hpp"
#include "sim/orders/schedule_rule.hpp"
#include "sim/pipeline/pipeline.hpp"
#include "sim/schedule_changes.hpp"

namespace orrery::sim {
namespace {

// What registered schedules have and documents do not, and why.
struct NotInDocuments {
  std::string_view key;
  std::string_view reason;
  std::string_view hint;
};
constexpr std::array<NotInDocuments, 3> kNotInDocuments = {{
    {"holds", "an activation of a document is held from its forward to its last gradient pass",
     "list passes R to keep the input alone in between"},
    {"output", "shards of the output layer are not listed: their passes and barriers follow a rule",
     "\"vocab-1\", \"vocab-2\" and \"interlaced\" have them"},
    {"frozen", "which blocks are frozen is the network's to say, not the schedule's",
     "state it there; \"diffusionpipe\" runs a frozen encoder in idle times"},
}};

void refuse_others(const JsonReader& reader, const Json& document) {
  for (const NotInDocuments& one : kNotInDocuments) {
    if (document.find(one.key) != nullptr) {
      reader.fail(fmt::format("\"{}\": {}", one.key, one.reason), std::string(one.hint));
    }
  }
}

// The key that was meant for one of these, if any.
std::string resembling_hint(const Json& document) {
  const std::array<std::string, 2> meant = {"placement", "passes"};
  for (const Json::Member& member : document.as_object()) {
    if (std::find(meant.begin(), meant.end(), member.first) != meant.end()) {
      return fmt::format("\"{}\" is null, which is no value", member.first);  // else it is there
    }
    const std::string nearest = nearest_name(member.first, meant);
    if (!nearest.empty()) {
      return fmt::format("\"{}\" is no key: did you mean \"{}\"?", printable(member.first),
                         nearest);
    }
  }
  return "";
}

}  // namespace

ScheduleDocument read_schedule_document(const Json& document, const std::string& where) {
  ScheduleDocument result;
  result.where = where;
  result.json = document;
  const JsonReader reader(document, where);
  ObjectReader object = reader.object();
  object.expect_schema("orrery-schedule", 1);
  const JsonReader name = object.required("name");
  result.name = name.string();
  if (!is_kebab_case(result.name)) {
    name.fail("a name in lower case with hyphens is required", "for example \"my-schedule\"");
  }
  if (is_registered_schedule(result.name)) {
    name.fail(fmt::format("\"{}\" is a schedule of `orrery list schedules` already", result.name),
              fmt::format("choose another name, for example \"my-{}\"", result.name));
  }
  result.description = printable(object.string_or("description", ""));
  refuse_others(reader, document);
  if (object.has("passes") && object.has("placement")) {
    reader.fail("either \"placement\" with its rule or \"passes\" is required, not both",
                "leave one out");
  }
  if (!object.has("passes") && !object.has("placement")) {
    const std::string hint = resembling_hint(document);
    reader.fail(
        "\"placement\" with its rule, or \"passes\", is required",
        hint.empty() ? "add \"placement\": \"loop\", or list the passes of every device" : hint);
  }
  if (object.has("passes")) {
    result.lists = read_schedule_lists(object);
  } else {
    result.rule = read_schedule_rule(object);
  }
  object.finish();
  return result;
}

std::optional<ListedSizes> listed_sizes(const ScheduleDocument& document) {
  return document.lists ? std::optional(sizes_of(*document.lists)) : std::nullopt;
}

int fewest_chunks(const ScheduleDocument& document) {
  if (document.lists) {
    return sizes_of(*document.lists).chunks;
  }
  return document.rule->placement == Placement::Loop ? 1 : 2;
}

namespace {

Refusal check_common(const ScheduleDocument& document, const ScheduleParams& params) {
  ScheduleParams all = params;  // of all iterations
  if (document.lists) {
    const std::int64_t most = std::numeric_limits<int>::max();
    all.micro_batches = static_cast<int>(
        std::min(most, std::int64_t{params.micro_batches} * document.lists->iterations));
  }
  return first_broken(
      {check_sizes(all), check_own_warm_up(params), check_one_replica(params),
       check_equal_slices(params),
       document.rule
           ? first_broken({check_own_iterations(params), check_rule(*document.rule, params)})
           : first_broken({check_no_cap(params), check_no_rollbacks(params),
                           check_listed_sizes(*document.lists, params)})});
}

}  // namespace

Refusal check_document(const ScheduleDocument& document, const ScheduleParams& params) {
  if (!document.lists) {
    return check_common(document, params);
  }
  const int chunks = fewest_chunks(document);
  const int listed = num_stages(*document.lists);
  return first_broken(
      {check_common(document, params), check_chunks(params, chunks),
       listed % params.stages == 0
           ? Refusal()
           : Refusal{fmt::format("{} stages are listed, and a plan has as many on each of {} "
                                 "devices: list {}",
                                 listed, params.stages, params.stages * chunks)}});
}

ScheduleTraits traits_of(const ScheduleDocument& document) {
  if (document.rule) {
    return {.splits_backward = document.rule->split_backward,
            .cuts_every_backward = document.rule->split_backward,
            .uses_chunks = true,
            .uses_slices = counts_decide(*document.rule),
            .uses_times = true,
            .recomputes = document.rule->recompute};
  }
  const ScheduleLists& lists = *document.lists;
  const bool synchronous = lists.versions == Versions::Flush;
  return {.synchronous = synchronous,
          .splits_backward = lists_kind(lists, PassKind::InputGrad),
          .uses_chunks = true,
          .uses_slices = lists.slices > 1,
          .two_directions = directions_of(lists) > 1,
          .joins_passes = joins_kinds(lists),
          .predicts_weights = lists.versions == Versions::Predicted,
          .recomputes = lists_kind(lists, PassKind::Recompute),
          .lists_updates = synchronous && lists_kind(lists, PassKind::Optimizer)};
}

std::optional<PipelineOrder> try_order(const ScheduleDocument& document,
                                       const ScheduleParams& params) {
  if (!check_common(document, params).empty()) {
    return std::nullopt;
  }
  std::optional<PipelineOrder> order =
      document.rule ? try_rule(*document.rule, params)
                    : order_of_lists(*document.lists, params, document.where);
  return order && check_order(*order, order->micro_batches).empty() ? std::move(order)
                                                                    : std::nullopt;
}

PipelineOrder order_of(const ScheduleDocument& document, const ScheduleParams& params) {
  const std::string broken =
      refusal([&](const ScheduleParams& of) { return check_common(document, of); }, params);
  if (!broken.empty()) {
    bad_input(document.where, broken);
  }
  PipelineOrder order = document.rule ? run_rule(*document.rule, params, document.where)
                                      : order_of_lists(*document.lists, params, document.where);
  const std::string wrong = check_order(order, order.micro_batches);
  if (!wrong.empty()) {
    bad_input(document.where, wrong, list_advice(order));
  }
  return order;
}

void check_lists(const ScheduleDocument& document) {
  if (const auto listed = listed_sizes(document)) {
    ScheduleParams params{listed->stages, std::max(listed->micro_batches, 1), listed->chunks, 0};
    params.slices = listed->slices;
    (void)order_of(document, params);
  }
}

}  // namespace orrery::sim
