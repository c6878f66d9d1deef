// SPDX-License-Identifier: Apache-2.0
#include "search/space/constraints.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>

#include "base/error.hpp"
#include "base/files.hpp"
#include "base/limits.hpp"
#include "base/quantity_text.hpp"
#include "base/text.hpp"
#include "base/words.hpp"
#include "plan/schedule_traits.hpp"
#include "search/space/execution_flags.hpp"
#include "search/space/field_names.hpp"
#include "search/space/layout_fields.hpp"
#include "sim/schedule.hpp"

namespace orrery::search {

namespace {

constexpr std::array kNumbers = std::to_array<std::string_view>(
    {"tp", "cp", "ep", "pp", "dp", "chunks", "slices", "encoder_parts", "servers", "clock_distance",
     "micro_batch", "zero", "expert_tp", "shard_degree", "activation_cap"});

struct Alias {
  std::string_view name;
  std::string_view field;
};

constexpr std::array<Alias, 9> kAliases = {{{"sp", "sequence_parallel"},
                                            {"vpp", "chunks"},
                                            {"microbatch", "micro_batch"},
                                            {"micro_batch_size", "micro_batch"},
                                            {"mbs", "micro_batch"},
                                            {"hsdp", "shard_degree"},
                                            {"zero_stage", "zero"},
                                            {"recomputation", "recompute"},
                                            {"etp", "expert_tp"}}};

// Dashes count as underscores.
std::string field_name(std::string_view text) {
  std::string name = to_lower(text);
  std::replace(name.begin(), name.end(), '-', '_');
  for (const Alias& alias : kAliases) {
    if (alias.name == name) {
      return std::string(alias.field);
    }
  }
  return name;
}

constexpr std::array<std::string_view, 4> kTiers = {
    "offload_activations_tier", "offload_parameters", "offload_gradients", "offload_optimizer"};

bool is_tier(std::string_view field) { return is_among(field, kTiers); }

double parse_share(std::string_view value, std::string_view where) {
  double share = 0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), share);
  if (error != std::errc() || end != value.data() + value.size() || !(share >= 0 && share <= 1)) {
    bad_input(where, fmt::format("\"{}\" is not a share between 0 and 1", printable(value)));
  }
  return share;
}

std::vector<std::string> field_names() {
  std::vector<std::string> names(kNumbers.begin(), kNumbers.end());
  names.insert(names.end(), {"recompute", "sequence_parallel", "schedule", "context", "stages",
                             "offload_activations", "offload_activations_of", "backward_prefetch",
                             "gathers_in_flight", "fetched_together", "tensor_shares"});
  names.insert(names.end(), kTiers.begin(), kTiers.end());
  for (std::string& name : layout_field_names()) {
    names.push_back(std::move(name));
  }
  for (std::string& name : execution_flag_names()) {
    names.push_back(std::move(name));
  }
  return names;
}

std::string parse_name(std::string_view value, std::string_view where,
                       const std::vector<std::string>& names) {
  if (std::find(names.begin(), names.end(), value) == names.end()) {
    bad_input(where, fmt::format("unknown value \"{}\"", printable(value)),
              nearest_hint(value, names));
  }
  return std::string(value);
}

// The value in its one spelling; Error when the field does not take it.
std::string canonical(std::string_view field, std::string_view value, std::string_view where) {
  if (is_among(field, kNumbers)) {
    const std::int64_t least =
        field == "zero" || field == "expert_tp" || field == "clock_distance" ? 0 : 1;
    const std::int64_t most = field == "zero"             ? 3
                              : field == "clock_distance" ? 4
                                                          : limits::kMaxDevices;
    return std::to_string(
        parse_integer(value, where, least, field == "slices" ? limits::kMaxSequence : most));
  }
  if (field == "recompute") {
    plan::BlockPlan layout;
    plan::set_recompute(value, where, layout);
    return plan::recompute_text(layout);
  }
  if (field == "context") {
    return parse_name(value, where, {"ring", "all-gather", "ulysses", "mix"});
  }
  if (field == "tensor_shares") {
    return parse_name(value, where, {"equal", "by-speed"});
  }
  if (is_layout_field(field)) {
    return canonical_layout_value(field, value, where);
  }
  if (is_tier(field)) {
    return std::string(plan::to_text(plan::parse_tier(value, where)));
  }
  if (field == "offload_activations") {
    return fmt::format("{}", parse_share(value, where));
  }
  if (field == "offload_activations_of") {
    return plan::parse_operator_set(value, where).text();
  }
  if (field == "backward_prefetch") {
    return std::string(plan::to_text(plan::parse_backward_prefetch(value, where)));
  }
  if (field == "gathers_in_flight" || field == "fetched_together") {
    const std::int64_t least = field == "fetched_together" ? 1 : 0;
    return std::to_string(parse_integer(value, where, least, 4 * limits::kMaxLayers));
  }
  if (field == "stages") {
    return parse_name(value, where, {"even", "balanced"});
  }
  if (field == "sequence_parallel" || execution_flag(field) != nullptr) {
    return parse_flag(value, where);
  }
  bad_input(where, fmt::format("unknown field \"{}\"", printable(field)),
            nearest_hint(field, field_names()));
}

}  // namespace

bool is_plan_field(std::string_view text) {
  const std::vector<std::string> names = field_names();
  return std::find(names.begin(), names.end(), field_name(text)) != names.end();
}

std::string Constraints::schedule_name(std::string_view text, std::string_view where) {
  if (!text.ends_with(".json")) {
    for (const auto& document : documents_) {
      if (document->name == text) {
        return std::string(text);
      }
    }
    const sim::Schedule& schedule = sim::find_schedule(text, where);
    const std::string reason = plan::reason_not_in_plans(schedule);
    if (!reason.empty()) {
      bad_input(where, reason);
    }
    return std::string(schedule.name);
  }
  const std::string path(text);
  auto document = std::make_shared<const sim::ScheduleDocument>(
      sim::read_schedule_document(read_json_file(path), path));
  sim::check_lists(*document);  // at other sizes than their own something else would be blamed
  for (const auto& known : documents_) {
    if (known->name == document->name) {
      if (known->json != document->json) {
        bad_input(path,
                  fmt::format("another schedule document, {}, has the same name \"{}\"",
                              known->where, document->name),
                  "choose another name for one of them");
      }
      return document->name;
    }
  }
  documents_.push_back(std::move(document));
  return documents_.back()->name;
}

void Constraints::note(std::string_view kind, const std::string& text, std::string_view from) {
  const bool known =
      std::any_of(restrictions_.begin(), restrictions_.end(),
                  [&](const Restriction& one) { return one.kind == kind && one.text == text; });
  if (!known) {
    restrictions_.push_back({std::string(kind), text, std::string(from)});
  }
}

void Constraints::set_file(std::size_t first, const std::string& file) {
  for (std::size_t index = first; index < restrictions_.size(); ++index) {
    restrictions_[index].file = file;
  }
}

void Constraints::choose_schedule(std::string_view text, std::string_view from) {
  for (const std::string_view part : split(text, ',')) {
    const std::string name = schedule_name(trim(part), from);
    note("schedule", name, from);
    if (std::find(chosen_.begin(), chosen_.end(), name) == chosen_.end()) {
      chosen_.push_back(name);
      chosen_from_.emplace_back(from);
    }
  }
}

std::vector<std::string> Constraints::named_schedules() const {
  std::vector<std::string> names = chosen_;
  for (const Entry& entry : fixed_) {
    if (entry.field == "schedule") {
      names.push_back(entry.value);
    }
  }
  return names;
}

std::vector<Constraints::Entry> Constraints::parse(std::string_view text, std::string_view from) {
  std::vector<Entry> entries;
  if (trim(text).empty()) {
    return entries;
  }
  std::vector<std::string_view> parts = split(text, ',');
  if (parts.size() > 1 && trim(parts.back()).empty()) {
    parts.pop_back();  // one comma behind the last
  }
  for (const std::string_view part : parts) {
    const std::string_view item = trim(part);
    if (item.empty()) {
      bad_input(from, fmt::format("nothing between the commas of \"{}\"", printable(text)),
                "write field=value, for example tp=8,pp=4");
    }
    const std::size_t equals = item.find('=');
    if (equals == std::string_view::npos) {
      bad_input(from, fmt::format("\"{}\" has no value", printable(item)),
                "write field=value, for example tp=8,pp=4");
    }
    const std::string field = field_name(trim(item.substr(0, equals)));
    const std::string where = fmt::format("{} {}", from, printable(field));
    const std::string_view value = trim(item.substr(equals + 1));
    entries.push_back(
        {field, field == "schedule" ? schedule_name(value, where) : canonical(field, value, where),
         std::string(from)});
  }
  return entries;
}

void Constraints::fix(std::string_view text, std::string_view from) {
  for (Entry& entry : parse(text, from)) {
    note("fix", entry.field + "=" + entry.value, from);
    for (const Entry& known : fixed_) {
      if (known.field == entry.field && known.value != entry.value) {
        bad_input(from, known.from == from
                            ? fmt::format("{} is fixed to both {} and {}", entry.field, known.value,
                                          entry.value)
                            : fmt::format("{} is fixed to {}, and to {} by {}", entry.field,
                                          entry.value, known.value, known.from));
      }
    }
    if (!is_fixed(entry.field)) {
      fixed_.push_back(std::move(entry));
    }
  }
}

bool Constraints::admits(std::string_view field, std::string_view value) const {
  for (const Entry& entry : fixed_) {
    if (entry.field == field && entry.value != value) {
      return false;
    }
  }
  if (field == "schedule" && !chosen_.empty() &&
      std::find(chosen_.begin(), chosen_.end(), value) == chosen_.end()) {
    return false;
  }
  return std::none_of(forbidden_.begin(), forbidden_.end(), [&](const Entry& entry) {
    return entry.field == field && entry.value == value;
  });
}

bool Constraints::admits(std::string_view field, std::int64_t value) const {
  return admits(field, std::to_string(value));
}

std::vector<std::string> Constraints::fixed_texts() const {
  std::vector<std::string> texts;
  for (const Entry& entry : fixed_) {
    texts.push_back(entry.field + "=" + entry.value);
  }
  if (!chosen_.empty()) {
    texts.push_back(fmt::format("schedule {}", fmt::join(chosen_, " or ")));
  }
  return texts;
}

Constraints Constraints::without_fixed(std::size_t index) const {
  Constraints relaxed = *this;
  if (index >= fixed_.size()) {
    relaxed.chosen_.clear();
    relaxed.chosen_from_.clear();
    return relaxed;
  }
  relaxed.fixed_.erase(relaxed.fixed_.begin() + static_cast<std::ptrdiff_t>(index));
  return relaxed;
}

bool Constraints::is_fixed(std::string_view field) const {
  return std::any_of(fixed_.begin(), fixed_.end(),
                     [&](const Entry& entry) { return entry.field == field; });
}

std::optional<std::int64_t> Constraints::fixed_number(std::string_view field) const {
  for (const Entry& entry : fixed_) {
    if (entry.field == field) {
      return parse_integer(entry.value, "--fix", 0,
                           std::max<std::int64_t>(limits::kMaxDevices, limits::kMaxSequence));
    }
  }
  return std::nullopt;
}

void Constraints::apply(plan::Execution& execution) const {
  for (const Entry& entry : fixed_) {
    if (bool plan::Execution::*const flag = execution_flag(entry.field)) {
      execution.*flag = entry.value == "true";
    } else if (entry.field == "backward_prefetch") {
      execution.backward_prefetch = plan::parse_backward_prefetch(entry.value, "--fix");
    } else if (entry.field == "gathers_in_flight" || entry.field == "fetched_together") {
      (entry.field == "gathers_in_flight" ? execution.gathers_in_flight
                                          : execution.fetched_together) =
          static_cast<int>(parse_integer(entry.value, "--fix", 0, 4 * limits::kMaxLayers));
    }
  }
}

void Constraints::apply(plan::BlockPlan& layout) const {
  for (const Entry& entry : fixed_) {
    if (is_layout_field(entry.field)) {
      set_layout_field(entry.field, entry.value, layout);
    } else if (entry.field == "recompute") {
      plan::set_recompute(entry.value, "--fix", layout);
    } else if (entry.field == "expert_tp") {
      layout.expert_tp = static_cast<int>(*fixed_number("expert_tp"));
    }
  }
}

}  // namespace orrery::search
