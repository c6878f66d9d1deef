// SPDX-License-Identifier: Apache-2.0
#include "sim/orders/rule_reader.hpp"

#include <fmt/core.h>

#include <utility>

#include "base/limits.hpp"

namespace orrery::sim {
namespace {

constexpr std::array<std::string_view, 3> kPriorityNames = {"F", "B", "W"};
constexpr std::array kPriorityKinds = {PassKind::Forward, PassKind::Backward, PassKind::WeightGrad};
constexpr std::array<std::string_view, 3> kPlacementNames = {"loop", "v", "zigzag"};
constexpr std::array<std::string_view, 2> kTraversalNames = {"breadth", "depth"};
constexpr std::array<std::string_view, 2> kGradientNames = {"first-in-first-out",
                                                            "last-in-first-out"};

std::vector<PassKind> read_priority(const JsonReader& value, bool split_backward) {
  std::vector<PassKind> priority;
  for (const JsonReader& entry : value.array()) {
    const PassKind kind = kPriorityKinds[index_in(entry, kPriorityNames)];
    if (std::find(priority.begin(), priority.end(), kind) != priority.end()) {
      entry.fail("this kind of pass is listed twice");
    }
    if (kind == PassKind::WeightGrad && !split_backward) {
      entry.fail("there are no passes W without \"split_backward\": true");
    }
    priority.push_back(kind);
  }
  if (priority.size() != (split_backward ? 3U : 2U)) {
    value.fail(split_backward ? "\"F\", \"B\" and \"W\" are required, best first"
                              : "\"F\" and \"B\" are required, best first");
  }
  return priority;
}

WarmUpDepth read_warm_up(const JsonReader& value) {
  constexpr std::int64_t kMax = limits::kMaxBatch;
  if (value.json().is_string()) {
    constexpr std::array<std::string_view, 1> kAll = {"all"};
    index_in(value, kAll);
    return {.all = true};
  }
  if (value.json().is_number()) {
    return {.forwards = static_cast<int>(value.integer(1, kMax))};
  }
  ObjectReader object = value.object();
  WarmUpDepth depth;
  depth.forwards = static_cast<int>(object.integer_or("forwards", 1, 1, kMax));
  depth.per_later_device = static_cast<int>(object.integer_or("per_later_device", 0, 0, kMax));
  depth.groups_per_later_chunk =
      static_cast<int>(object.integer_or("groups_per_later_chunk", 0, 0, kMax));
  depth.micro_batches = static_cast<int>(object.integer_or("micro_batches", 0, 0, kMax));
  if (depth.micro_batches > 0 && !object.has("forwards")) {
    depth.forwards = 0;
  }
  object.finish();
  return depth;
}

std::vector<DeviceOverride> read_overrides(const JsonReader& value,
                                           const ScheduleDescription& rule) {
  std::vector<DeviceOverride> overrides;
  for (const JsonReader& entry : value.array(limits::kMaxLayers)) {
    ObjectReader object = entry.object();
    DeviceOverride one;
    one.device = static_cast<int>(object.required("device").integer(0, limits::kMaxLayers - 1));
    if (std::any_of(overrides.begin(), overrides.end(),
                    [&](const DeviceOverride& other) { return other.device == one.device; })) {
      entry.fail(fmt::format("device {} has an override already", one.device), "join them");
    }
    if (const auto warm_up = object.optional("warm_up")) {
      one.warm_up = read_warm_up(*warm_up);
      if (!rule.warm_up) {
        warm_up->fail("the rule has no \"warm_up\" to override", "give it one for all devices");
      }
    }
    if (const auto priority = object.optional("priority")) {
      one.priority = read_priority(*priority, rule.split_backward);
    }
    if (const auto cap = object.optional("cap")) {
      one.cap = cap->number(1.0, 1e9);
    }
    object.finish();
    if (!one.warm_up && one.priority.empty() && one.cap == 0.0) {
      entry.fail(fmt::format("nothing is different on device {}", one.device),
                 "give it warm_up, priority or cap, or leave it out");
    }
    overrides.push_back(std::move(one));
  }
  return overrides;
}

}  // namespace

ScheduleDescription read_schedule_rule(ObjectReader& object) {
  ScheduleDescription rule;
  constexpr std::array kPlacements = {Placement::Loop, Placement::V, Placement::Zigzag};
  rule.placement = kPlacements[index_in(object.required("placement"), kPlacementNames)];
  rule.split_backward = object.boolean_or("split_backward", false);
  if (const auto priority = object.optional("priority")) {
    rule.priority = read_priority(*priority, rule.split_backward);
  }
  if (const auto traversal = object.optional("traversal")) {
    rule.depth_first = index_in(*traversal, kTraversalNames) == 1;
  }
  if (const auto group = object.optional("group")) {
    rule.group = static_cast<int>(group->integer(1, limits::kMaxBatch));
    if (!rule.depth_first) {
      group->fail("groups belong to \"traversal\": \"depth\"");
    }
  }
  if (const auto gradients = object.optional("gradients")) {
    rule.last_in_first_out = index_in(*gradients, kGradientNames) == 1;
  }
  if (const auto warm_up = object.optional("warm_up")) {
    rule.warm_up = read_warm_up(*warm_up);
  }
  if (const auto late = object.optional("weight_grads")) {
    ObjectReader delay = late->object();
    rule.weight_grads = WeightGradDelay{
        static_cast<int>(delay.integer_or("late", 0, 0, limits::kMaxBatch)),
        static_cast<int>(delay.integer_or("per_earlier_device", 0, 0, limits::kMaxBatch))};
    delay.finish();
  }
  rule.recompute = object.boolean_or("recompute", false);
  if (const auto cap = object.optional("cap")) {
    rule.cap = cap->number(1.0, 1e9);
  }
  if (const auto overrides = object.optional("overrides")) {
    rule.overrides = read_overrides(*overrides, rule);
  }
  return rule;
}

}  // namespace orrery::sim
