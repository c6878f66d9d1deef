// SPDX-License-Identifier: Apache-2.0
// Writes fitted collective sections into profile documents: those of GPUs with logs, of their
// relatives without (what the family shares, with a wider spread) and of the defaults of their
// architecture. Other sections stay as they are. The same logs give the same bytes.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/json.hpp"
#include "calibrate/fit/collectives.hpp"

namespace orrery::calibrate {

// The family that a profile of this name belongs to; "" when no log is of its kind.
std::string family_of_profile(const std::string& name, std::span<const std::string> families);

// `errors` are of all logs, with those left out.
Json with_collectives(const Json& document, const std::string& where, const FamilyFit& fit,
                      std::span<const LogError> errors, const std::string& family);

// Every profile of the folder; the names of those written.
std::vector<std::string> update_profiles(const std::string& folder,
                                         std::span<const CollectiveLog> logs,
                                         std::span<const LogError> errors,
                                         const ResidualPriors& prior);

}  // namespace orrery::calibrate
