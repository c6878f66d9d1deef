// SPDX-License-Identifier: Apache-2.0
#include "sim/orders/schedule_document.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <limits>
#include <string_view>
#include <utility>

#include "base/error.hpp"
#include "base/json_reader.hpp"
#include "base/limits.hpp"
#include "base/text.hpp"
#include "sim/orders/rule_reader.hpp"
#include "sim/orders/schedule_rule.hpp"
#include "sim/pipeline/pipeline.hpp"

namespace orrery::sim {
namespace {

constexpr std::array<std::string_view, 5> kPassNames = {"F", "B", "W", "BW", "R"};
constexpr std::array kPassKinds = {PassKind::Forward, PassKind::InputGrad, PassKind::WeightGrad,
                                   PassKind::Backward, PassKind::Recompute};

// A number from 0 on of which every smaller one has a pass, too.
std::uint32_t read_number(const JsonReader& value, std::int64_t limit, std::int64_t passes) {
  const std::int64_t number = value.integer(0, limit - 1);
  if (number >= passes) {
    value.fail(fmt::format("{} is too large for a document of {} passes", number, passes),
               fmt::format("numbers begin at 0: at most {}", passes - 1));
  }
  return static_cast<std::uint32_t>(number);
}

std::vector<std::vector<Pass>> read_passes(const JsonReader& value) {
  std::vector<std::vector<Pass>> passes;
  const std::vector<JsonReader> devices = value.array(limits::kMaxLayers);
  std::int64_t total = 0;
  for (const JsonReader& device : devices) {
    total += static_cast<std::int64_t>(device.array().size());
  }
  for (const JsonReader& device : devices) {
    std::vector<Pass>& list = passes.emplace_back();
    for (const JsonReader& entry : device.array()) {
      ObjectReader object = entry.object();
      const PassKind kind = kPassKinds[index_in(object.required("pass"), kPassNames)];
      const std::uint32_t stage = read_number(object.required("stage"), kMaxVirtualStages, total);
      const std::uint32_t unit =
          read_number(object.required("micro_batch"), limits::kMaxBatch, total);
      object.finish();
      list.emplace_back(kind, static_cast<std::uint16_t>(stage), unit);
    }
  }
  if (passes.empty()) {
    value.fail("the list of at least one device is required");
  }
  return passes;
}

std::string_view short_name(PassKind kind) {
  const auto at = std::find(kPassKinds.begin(), kPassKinds.end(), kind) - kPassKinds.begin();
  return kPassNames[static_cast<std::size_t>(at)];
}

// Turns the lists of a document into an order: sizes, placement, then each pass exactly once.
class ListReader {
 public:
  ListReader(const ScheduleDocument& document, const ScheduleParams& params)
      : document_(document), stages_(static_cast<std::size_t>(params.stages * params.chunks)) {
    const auto devices = static_cast<int>(document.passes.size());
    if (devices != params.stages) {
      fail("", fmt::format("lists of {} devices do not fit {} stages", devices, params.stages),
           fmt::format("set stages to {}", devices));
    }
    order_ = empty_order(params, std::vector<std::uint16_t>(stages_, kNowhere), 0);
    units_ = static_cast<std::size_t>(params.micro_batches);
    listed_.assign(stages_ * units_, 0);
  }

  PipelineOrder read() {
    for (std::size_t d = 0; d < document_.passes.size(); ++d) {
      for (std::size_t k = 0; k < document_.passes[d].size(); ++k) {
        add(d, k);
      }
    }
    if (found_units_ > 0 && found_units_ < units_) {
      fail("", fmt::format("lists of {} micro-batches do not fit {}", found_units_, units_),
           fmt::format("set microbatches to {}", found_units_));
    }
    for (std::size_t i = 0; i < listed_.size(); ++i) {
      check_complete(i / units_, i % units_);
    }
    check_recomputed();
    order_.passes = document_.passes;
    return std::move(order_);
  }

 private:
  static constexpr std::uint16_t kNowhere = std::numeric_limits<std::uint16_t>::max();
  enum Bit : unsigned { kForward = 1, kInputGrad = 2, kWeightGrad = 4, kRecompute = 8 };

  static unsigned bits_of(PassKind kind) {
    switch (kind) {
      case PassKind::Forward:
        return kForward;
      case PassKind::InputGrad:
        return kInputGrad;
      case PassKind::WeightGrad:
        return kWeightGrad;
      case PassKind::Recompute:
        return kRecompute;
      default:
        return kInputGrad | kWeightGrad;
    }
  }

  [[noreturn]] void fail(const std::string& pointer, const std::string& message,
                         const std::string& hint = "") const {
    bad_input(fmt::format("{}: /passes{}", document_.where, pointer), message, hint);
  }

  void add(std::size_t device, std::size_t at) {
    const Pass& pass = document_.passes[device][at];
    const std::string pointer = fmt::format("/{}/{}", device, at);
    if (pass.virtual_stage >= stages_) {
      fail(pointer,
           fmt::format("stage {} does not exist: stages x chunks is {}", pass.virtual_stage,
                       stages_),
           "set chunks to the virtual stages of a device");
    }
    if (pass.micro_batch >= units_) {
      fail(pointer, fmt::format("micro-batch {} does not exist", pass.micro_batch),
           fmt::format("set microbatches to {}", pass.micro_batch + 1));
    }
    found_units_ = std::max<std::size_t>(found_units_, pass.micro_batch + 1);
    std::uint16_t& holder = order_.device_of[pass.virtual_stage];
    if (holder != kNowhere && holder != device) {
      fail(pointer,
           fmt::format("impossible placement: stage {} is on device {} and on device {}",
                       pass.virtual_stage, holder, device),
           "all passes of a stage belong to one device");
    }
    holder = static_cast<std::uint16_t>(device);
    std::uint8_t& listed = listed_[pass.virtual_stage * units_ + pass.micro_batch];
    const unsigned bits = bits_of(pass.kind);
    if ((listed & bits) != 0) {
      fail(pointer,
           fmt::format("doubled pass: {} of stage {}, micro-batch {} is listed before",
                       short_name(pass.kind), pass.virtual_stage, pass.micro_batch),
           "BW is B and W in one; list each once");
    }
    listed = static_cast<std::uint8_t>(listed | bits);
  }

  // All micro-batches of a stage or none: its forwards keep the same.
  void check_recomputed() {
    for (std::size_t i = 0; i < listed_.size(); ++i) {
      const bool recomputes = (listed_[i] & kRecompute) != 0;
      order_.extended = order_.extended || recomputes;
      if (recomputes != ((listed_[i / units_ * units_] & kRecompute) != 0)) {
        const std::size_t without = recomputes ? i / units_ * units_ : i;
        fail("",
             fmt::format("missing pass: R of stage {}, micro-batch {}", without / units_,
                         without % units_),
             "a stage recomputes all its micro-batches or none");
      }
    }
  }

  void check_complete(std::size_t stage, std::size_t unit) const {
    const unsigned listed = listed_[stage * units_ + unit];
    const unsigned missing = (kForward | kInputGrad | kWeightGrad) & ~listed;
    if (missing == 0) {
      return;
    }
    std::string_view name = "BW";
    if ((missing & kForward) != 0) {
      name = "F";
    } else if (missing != (kInputGrad | kWeightGrad)) {
      name = (missing & kInputGrad) != 0 ? "B" : "W";
    }
    const std::uint16_t device = order_.device_of[stage];
    fail("", fmt::format("missing pass: {} of stage {}, micro-batch {}", name, stage, unit),
         device == kNowhere ? "no device holds this stage"
                            : fmt::format("add it to the list of device {}", device));
  }

  const ScheduleDocument& document_;
  std::size_t stages_;
  std::size_t units_ = 0;
  std::size_t found_units_ = 0;
  PipelineOrder order_;
  std::vector<std::uint8_t> listed_;  // bits, by stage and micro-batch
};

// The key that was meant for one of these, if any.
std::string resembling_hint(const Json& document) {
  const std::array<std::string, 2> meant = {"placement", "passes"};
  for (const Json::Member& member : document.as_object()) {
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
  if (object.has("passes") && object.has("placement")) {
    reader.fail("either \"placement\" with its rule or \"passes\" is required, not both",
                "leave one out");
  }
  if (!object.has("passes") && !object.has("placement")) {
    reader.fail("\"placement\" with its rule, or \"passes\", is required",
                resembling_hint(document));
  }
  if (object.has("passes")) {
    result.passes = read_passes(object.required("passes"));
  } else {
    result.rule = read_schedule_rule(object);
  }
  object.finish();
  return result;
}

std::optional<ListedSizes> listed_sizes(const ScheduleDocument& document) {
  if (document.rule) {
    return std::nullopt;
  }
  std::uint32_t units = 0;
  for (const std::vector<Pass>& list : document.passes) {
    for (const Pass& pass : list) {
      units = std::max(units, pass.micro_batch + 1);
    }
  }
  return ListedSizes{static_cast<int>(document.passes.size()), static_cast<int>(units)};
}

int fewest_chunks(const ScheduleDocument& document) {
  if (document.rule) {
    return document.rule->placement == Placement::Loop ? 1 : 2;
  }
  int stages = 0;
  for (const std::vector<Pass>& list : document.passes) {
    for (const Pass& pass : list) {
      stages = std::max(stages, pass.virtual_stage + 1);
    }
  }
  const auto devices = static_cast<int>(document.passes.size());
  return std::max(1, (stages + devices - 1) / devices);
}

namespace {

// What lists of fixed length say about the parameters they were written for.
std::string check_lists(const ScheduleDocument& document, const ListedSizes& listed,
                        const ScheduleParams& params) {
  if (params.stages != listed.stages) {
    return fmt::format("lists of {} devices do not fit {} stages: set stages to {}", listed.stages,
                       params.stages, listed.stages);
  }
  if (params.micro_batches != listed.micro_batches) {
    return fmt::format("lists of {} micro-batches do not fit {}: set microbatches to {}",
                       listed.micro_batches, params.micro_batches, listed.micro_batches);
  }
  return check_chunks(params, fewest_chunks(document));
}

std::string check_common(const ScheduleDocument& document, const ScheduleParams& params) {
  return first_broken({check_sizes(params), check_one_slice(params), check_own_warm_up(params),
                       check_one_replica(params), check_own_iterations(params),
                       document.rule ? check_rule(*document.rule, params) : check_no_cap(params)});
}

}  // namespace

std::string check_document(const ScheduleDocument& document, const ScheduleParams& params) {
  const std::optional<ListedSizes> listed = listed_sizes(document);
  return first_broken(
      {check_common(document, params), listed ? check_lists(document, *listed, params) : ""});
}

bool splits_backward(const ScheduleDocument& document) {
  if (document.rule) {
    return document.rule->split_backward;
  }
  return std::any_of(document.passes.begin(), document.passes.end(), [](const auto& list) {
    return std::any_of(list.begin(), list.end(),
                       [](const Pass& pass) { return pass.kind == PassKind::InputGrad; });
  });
}

PipelineOrder order_of(const ScheduleDocument& document, const ScheduleParams& params) {
  const std::string broken = check_common(document, params);
  if (!broken.empty()) {
    bad_input(document.where, broken);
  }
  PipelineOrder order = document.rule ? run_rule(*document.rule, params, document.where)
                                      : ListReader(document, params).read();
  const std::string wrong = check_order(order, order.micro_batches);
  if (!wrong.empty()) {
    bad_input(document.where, wrong, "list what is waited for earlier");
  }
  return order;
}

}  // namespace orrery::sim
