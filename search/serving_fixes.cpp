// SPDX-License-Identifier: Apache-2.0
#include "search/serving_fixes.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.hpp"
#include "base/limits.hpp"
#include "base/text.hpp"
#include "plan/offload.hpp"
#include "plan/serving/option_limits.hpp"
#include "plan/serving/serving.hpp"
#include "search/space/constraints.hpp"

namespace orrery::search {
namespace {

bool is_flag(std::string_view field) {
  return field == "fp8_cache" || field == "overlap_chunks" || field == "overlap_shared_experts";
}

}  // namespace

const std::vector<std::string>& serving_fields() {
  static const std::vector<std::string> fields = {"tp",
                                                  "pp",
                                                  "dp",
                                                  "token_budget",
                                                  "max_requests",
                                                  "prefill",
                                                  "chunk",
                                                  "nano_batches",
                                                  "cp",
                                                  "ep",
                                                  "expert_tp",
                                                  "cache_block",
                                                  "prefix_hits",
                                                  "host_cache",
                                                  "fp8_cache",
                                                  "overlap_chunks",
                                                  "overlap_shared_experts",
                                                  "routing",
                                                  "all_reduce",
                                                  "offload_parameters",
                                                  "offload_share",
                                                  "gathers_in_flight",
                                                  "fetched_together"};
  return fields;
}

void fix_serving(std::string_view text, ServingFixes& fixed) {
  for (const std::string_view entry : split(text, ',')) {
    const std::size_t equals = entry.find('=');
    const std::string field(trim(entry.substr(0, equals)));
    const auto& fields = serving_fields();
    if (std::find(fields.begin(), fields.end(), field) == fields.end()) {
      bad_input("--fix", fmt::format("unknown field \"{}\" of a serving plan", printable(field)),
                nearest_hint(field, fields));
    }
    if (equals == std::string_view::npos) {
      bad_input("--fix", fmt::format("\"{}\" has no value", field), "write field=value");
    }
    const std::string value(trim(entry.substr(equals + 1)));
    if (field == "prefill") {
      if (value != "chunked" && value != "separate") {
        bad_input("--fix", fmt::format("unknown prefill \"{}\"", printable(value)),
                  "chunked or separate");
      }
    } else if (is_flag(field)) {
      if (value != "true" && value != "false") {
        bad_input("--fix", fmt::format("{} = \"{}\"", field, printable(value)), "true or false");
      }
    } else if (field == "routing") {
      plan::routing_of(value);
    } else if (field == "all_reduce") {
      plan::all_reduce_of(value);
    } else if (field == "offload_parameters") {
      plan::parse_tier(value, "--fix " + field);
    } else if (field == "prefix_hits" || field == "host_cache" || field == "offload_share") {
      parse_number(value, "--fix " + field, 0, field == "host_cache" ? plan::kMostOnHost : 1.0);
    } else {
      parse_integer(value, "--fix " + field, field == "chunk" || field == "expert_tp" ? 0 : 1,
                    plan::most_of_option(field));
    }
    std::vector<std::string>& values = fixed[field];
    if (std::find(values.begin(), values.end(), value) == values.end()) {
      values.push_back(value);
    }
  }
}

std::vector<std::int64_t> serving_values(const ServingFixes& fixed, const std::string& field,
                                         std::vector<std::int64_t> usual) {
  const auto entry = fixed.find(field);
  if (entry == fixed.end()) {
    return usual;
  }
  std::vector<std::int64_t> values;
  for (const std::string& value : entry->second) {
    values.push_back(parse_integer(value, "--fix " + field, 0, limits::kMaxSequence));
  }
  return values;
}

std::vector<double> serving_shares(const ServingFixes& fixed, const std::string& field,
                                   std::vector<double> usual) {
  const auto entry = fixed.find(field);
  std::vector<double> shares;
  if (entry != fixed.end()) {
    for (const std::string& value : entry->second) {
      shares.push_back(parse_number(value, "--fix " + field, 0, 1));
    }
  }
  return shares.empty() ? usual : shares;
}

std::vector<bool> serving_flags(const ServingFixes& fixed, const std::string& field, bool usual) {
  const auto entry = fixed.find(field);
  if (entry == fixed.end()) {
    return {usual};
  }
  std::vector<bool> flags;
  for (const std::string& value : entry->second) {
    flags.push_back(value == "true");
  }
  return flags;
}

void allow_serving(std::span<const std::string> texts, ServingFixes& fixed) {
  bool lossy = false;
  for (const std::string& text : texts) {
    for (const std::string_view part : split(text, ',')) {
      const std::string name(trim(part));
      const std::vector<std::string> known = Constraints::choice_names();
      if (std::find(known.begin(), known.end(), name) == known.end()) {
        bad_input("--allow", fmt::format("unknown choice \"{}\"", printable(name)),
                  nearest_hint(name, known));
      }
      if (name != "lossy") {
        bad_input("--allow", fmt::format("\"{}\" belongs to training", name),
                  "with --serve: lossy, a cache in 8 bits");
      }
      lossy = true;
    }
  }
  const std::vector<bool> fp8 = serving_flags(fixed, "fp8_cache", lossy);
  const bool wanted = std::find(fp8.begin(), fp8.end(), true) != fp8.end();
  if (wanted && !lossy) {
    bad_input("--fix fp8_cache", "keys and values in 8 bits lose precision that products have",
              "add --allow lossy to accept that");
  }
  if (lossy && !wanted) {
    bad_input("--allow lossy", "it lets the cache have 8 bits, but fp8_cache = false is fixed",
              "leave out one of the two");
  }
  if (lossy && !fixed.contains("fp8_cache")) {
    fixed["fp8_cache"] = {"false", "true"};
  }
}

}  // namespace orrery::search
