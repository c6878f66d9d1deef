// SPDX-License-Identifier: Apache-2.0
#include "plan/offload.hpp"

#include <fmt/format.h>

#include <array>

#include "base/error.hpp"
#include "base/json_reader.hpp"
#include "base/text.hpp"
#include "plan/named_values.hpp"
#include "plan/plan.hpp"

namespace orrery::plan {

namespace {

constexpr std::array<std::string_view, 3> kTiers = {"device", "host", "disk"};

// One run of blocks against the cluster, with its name for messages.
class OffloadChecker {
 public:
  OffloadChecker(const Plan& plan, const std::string& where, std::size_t run, int first)
      : plan_(plan), where_(where), run_(run), first_(first), layout_(plan.blocks[run].layout) {}

  void check() const {
    const Offload& offload = layout_.offload;
    if (!(offload.activations >= 0 && offload.activations <= 1)) {
      fail("activations", fmt::format("a share of {} cannot leave the device", offload.activations),
           "it is between 0 and 1");
    }
    if (offload.activations > 0 && offload.activations_tier == Tier::Device) {
      fail("activations", "their tier is the device", "\"host\" or \"disk\"");
    }
    const bool by_operator =
        layout_.recompute == Recompute::None || layout_.recompute == Recompute::Operators;
    if (!offload.activations_of.empty() && !by_operator) {
      fail("activations",
           fmt::format("those of {} are not kept under recompute {}", offload.activations_of.text(),
                       to_text(layout_.recompute)),
           "name operators together with recompute none or a list of operators");
    }
    for (const OperatorGroup group : offload.activations_of.groups()) {
      if (layout_.recompute == Recompute::Operators && layout_.recomputed.has(group)) {
        fail("activations", fmt::format("those of {} are recomputed", to_text(group)),
             "a tensor is kept, recomputed or offloaded");
      }
    }
    reachable("activations", offload.home_of_activations());
    reachable("parameters", offload.parameters);
    reachable("gradients", offload.gradients);
    reachable("optimizer", offload.optimizer);
    if (plan_.serving) {
      return;  // nothing updates its parameters
    }
    if (offload.optimizer == Tier::Device && offload.parameters != Tier::Device) {
      fail("parameters", "they leave the device, but the optimizer that updates them does not",
           "set offload.optimizer");
    }
    if (offload.optimizer == Tier::Device && offload.gradients != Tier::Device) {
      fail("gradients", "they leave the device, but the optimizer that uses them does not",
           "set offload.optimizer");
    }
    if (offload.gradients != Tier::Device && layout_.zero_stage < 2) {
      fail("gradients", "they are summed on the device over the micro-batches",
           "zero_stage 2 and 3 reduce and send them every micro-batch");
    }
  }

 private:
  [[noreturn]] void fail(std::string_view tensor, const std::string& message,
                         const std::string& hint) const {
    const auto position = static_cast<std::size_t>(first_);
    const auto block = static_cast<std::size_t>(plan_.network.chain[position]);
    bad_input(where_,
              fmt::format("offload of block {} ({}, /blocks/{}), {}: {}", first_,
                          plan_.network.blocks[block].name, run_, tensor, message),
              hint);
  }

  void reachable(std::string_view tensor, Tier tier) const {
    const topologies::Node& node = plan_.cluster.node;
    if (tier != Tier::Device && node.host_memory.value() <= 0) {
      fail(tensor, fmt::format("the cluster {} has no host memory", plan_.cluster.name),
           "set node.host.memory, memory_bandwidth and link_per_gpu");
    }
    if (tier == Tier::Disk && (node.disk.value() <= 0 || node.disk_bandwidth.value() <= 0)) {
      fail(tensor, fmt::format("the nodes of {} have no disk", plan_.cluster.name),
           "set node.host.disk and node.host.disk_bandwidth");
    }
  }

  const Plan& plan_;
  const std::string& where_;
  std::size_t run_;
  int first_;
  const BlockPlan& layout_;
};

}  // namespace

std::string_view to_text(Tier tier) { return name_of(kTiers, tier); }

Tier parse_tier(std::string_view text, std::string_view where) {
  return parse_named<Tier>(kTiers, text, where, "value");
}

Json to_json(const Offload& offload) {
  Json document = Json::Object{{"activations", offload.activations},
                               {"activations_tier", to_text(offload.activations_tier)},
                               {"parameters", to_text(offload.parameters)},
                               {"gradients", to_text(offload.gradients)},
                               {"optimizer", to_text(offload.optimizer)}};
  if (!offload.activations_of.empty()) {
    document.set("activations_of", to_json(offload.activations_of));
  }
  return document;
}

Offload read_offload(const JsonReader& value) {
  ObjectReader object = value.object();
  Offload offload;
  offload.activations = object.number_or("activations", 0, 0, 1);
  const auto tier = [&object](std::string_view key, Tier fallback) {
    const auto text = object.optional(key);
    return text ? parse_tier(text->string(), text->where()) : fallback;
  };
  offload.activations_tier = tier("activations_tier", offload.activations_tier);
  if (const auto list = object.optional("activations_of")) {
    offload.activations_of = read_operator_set(*list);
  }
  offload.parameters = tier("parameters", offload.parameters);
  offload.gradients = tier("gradients", offload.gradients);
  offload.optimizer = tier("optimizer", offload.optimizer);
  object.finish();
  return offload;
}

void check_offload(const Plan& plan, const std::string& where) {
  const Execution& execution = plan.execution;
  if (execution.gathers_in_flight > 0 && execution.fetched_together > execution.gathers_in_flight) {
    bad_input(where,
              fmt::format("fetched_together is {}, but gathers_in_flight lets {} blocks be whole "
                          "at once",
                          execution.fetched_together, execution.gathers_in_flight),
              "raise gathers_in_flight");
  }
  int first = 0;
  for (std::size_t run = 0; run < plan.blocks.size(); ++run) {
    if (plan.blocks[run].layout.offload.any()) {
      OffloadChecker(plan, where, run, first).check();
    }
    first += plan.blocks[run].count;
  }
}

}  // namespace orrery::plan
