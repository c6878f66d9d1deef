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

namespace orrery::search {

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

}  // namespace orrery::search
