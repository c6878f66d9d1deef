// SPDX-License-Identifier: Apache-2.0
#include "search/constraints.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/error.hpp"
#include "base/limits.hpp"
#include "base/quantity_text.hpp"
#include "base/text.hpp"
#include "sim/schedule.hpp"

namespace orrery::search {

namespace {

constexpr std::array<std::string_view, 10> kNumbers = {
    "tp",          "cp",   "ep",        "pp",          "dp", "chunks",
    "micro_batch", "zero", "expert_tp", "shard_degree"};

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

struct Flag {
  std::string_view name;
  bool plan::Execution::* member;
};

constexpr std::array<Flag, 15> kFlags = {{
    {"fused_attention", &plan::Execution::fused_attention},
    {"fused_kernels", &plan::Execution::fused_kernels},
    {"fused_cross_entropy", &plan::Execution::fused_cross_entropy},
    {"eager_loss", &plan::Execution::eager_loss},
    {"vocab_parallel", &plan::Execution::vocab_parallel},
    {"overlap_grad_reduce", &plan::Execution::overlap_grad_reduce},
    {"overlap_param_gather", &plan::Execution::overlap_param_gather},
    {"overlap_p2p", &plan::Execution::overlap_p2p},
    {"split_transfers", &plan::Execution::split_transfers},
    {"overlap_tp", &plan::Execution::overlap_tp},
    {"stream_tp", &plan::Execution::stream_tp},
    {"fp32_gradients", &plan::Execution::fp32_gradients},
    {"master_weights", &plan::Execution::master_weights},
    {"fp32_parameters", &plan::Execution::fp32_parameters},
    {"reshard_after_forward", &plan::Execution::reshard_after_forward},
}};

const Flag* find_flag(std::string_view name) {
  const auto* found = std::find_if(kFlags.begin(), kFlags.end(),
                                   [&](const Flag& flag) { return flag.name == name; });
  return found == kFlags.end() ? nullptr : found;
}

std::vector<std::string> field_names() {
  std::vector<std::string> names(kNumbers.begin(), kNumbers.end());
  names.insert(names.end(), {"recompute", "sequence_parallel", "schedule", "context", "stages"});
  for (const Flag& flag : kFlags) {
    names.emplace_back(flag.name);
  }
  return names;
}

std::string parse_flag(std::string_view value, std::string_view where) {
  const std::string text = to_lower(value);
  if (text == "true" || text == "1" || text == "yes" || text == "on") {
    return "true";
  }
  if (text == "false" || text == "0" || text == "no" || text == "off") {
    return "false";
  }
  bad_input(where, fmt::format("\"{}\" is neither true nor false", printable(value)));
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
  if (std::find(kNumbers.begin(), kNumbers.end(), field) != kNumbers.end()) {
    const std::int64_t least = field == "zero" || field == "expert_tp" ? 0 : 1;
    const std::int64_t most = field == "zero" ? 3 : limits::kMaxDevices;
    return std::to_string(parse_integer(value, where, least, most));
  }
  if (field == "recompute") {
    return std::string(plan::to_text(plan::parse_recompute(value, where)));
  }
  if (field == "schedule") {
    return std::string(sim::find_schedule(value, where).name);
  }
  if (field == "context") {
    return parse_name(value, where, {"ring", "all-gather", "ulysses"});
  }
  if (field == "stages") {
    return parse_name(value, where, {"even", "balanced"});
  }
  if (field == "sequence_parallel" || find_flag(field) != nullptr) {
    return parse_flag(value, where);
  }
  bad_input(where, fmt::format("unknown field \"{}\"", printable(field)),
            nearest_hint(field, field_names()));
}

}  // namespace

std::vector<Constraints::Entry> Constraints::parse(std::string_view text,
                                                   std::string_view option) {
  std::vector<Entry> entries;
  for (const std::string_view part : split(text, ',')) {
    const std::string_view item = trim(part);
    if (item.empty()) {
      continue;
    }
    const std::size_t equals = item.find('=');
    if (equals == std::string_view::npos) {
      bad_input(option, fmt::format("\"{}\" has no value", printable(item)),
                "write field=value, for example tp=8,pp=4");
    }
    const std::string field = field_name(trim(item.substr(0, equals)));
    const std::string where = fmt::format("{} {}", option, printable(field));
    entries.push_back({field, canonical(field, trim(item.substr(equals + 1)), where)});
  }
  return entries;
}

void Constraints::fix(std::string_view text) {
  for (Entry& entry : parse(text, "--fix")) {
    for (const Entry& known : fixed_) {
      if (known.field == entry.field && known.value != entry.value) {
        bad_input("--fix", fmt::format("{} is fixed to both {} and {}", entry.field, known.value,
                                       entry.value));
      }
    }
    fixed_.push_back(std::move(entry));
  }
}

void Constraints::forbid(std::string_view text) {
  for (Entry& entry : parse(text, "--forbid")) {
    forbidden_.push_back(std::move(entry));
  }
}

void Constraints::allow(std::string_view text) {
  for (const std::string_view part : split(text, ',')) {
    if (trim(part) != "asynchronous") {
      const std::vector<std::string> known = {"asynchronous"};
      bad_input("--allow", fmt::format("unknown choice \"{}\"", printable(trim(part))),
                nearest_hint(trim(part), known));
    }
    asynchronous_ = true;
  }
}

bool Constraints::admits(std::string_view field, std::string_view value) const {
  for (const Entry& entry : fixed_) {
    if (entry.field == field && entry.value != value) {
      return false;
    }
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
  return texts;
}

Constraints Constraints::without_fixed(std::size_t index) const {
  Constraints relaxed = *this;
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
      return parse_integer(entry.value, "--fix", 0, limits::kMaxDevices);
    }
  }
  return std::nullopt;
}

void Constraints::apply(plan::Execution& execution) const {
  for (const Entry& entry : fixed_) {
    if (const Flag* flag = find_flag(entry.field)) {
      execution.*(flag->member) = entry.value == "true";
    }
  }
}

}  // namespace orrery::search
