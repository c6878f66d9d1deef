// SPDX-License-Identifier: Apache-2.0
// What --fix says of serving plans.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace orrery::search {

using ServingFixes = std::map<std::string, std::vector<std::string>>;  // values by field

// tp, pp, dp, token_budget, max_requests, prefill, chunk, nano_batches, ...: what --fix may name.
const std::vector<std::string>& serving_fields();
// Adds "tp=4,prefill=chunked", each value once; Error for an unknown field or value.
void fix_serving(std::string_view text, ServingFixes& fixed);

// What --allow says beside them. "lossy": caches in 8 bits are tried, or may be fixed, which is an
// error without.
void allow_serving(std::span<const std::string> texts, ServingFixes& fixed);

// What a field is fixed to, else what is usual.
std::vector<std::int64_t> serving_values(const ServingFixes& fixed, const std::string& field,
                                         std::vector<std::int64_t> usual);
// Shares between 0 and 1.
std::vector<double> serving_shares(const ServingFixes& fixed, const std::string& field,
                                   std::vector<double> usual);
std::vector<bool> serving_flags(const ServingFixes& fixed, const std::string& field, bool usual);

}  // namespace orrery::search
