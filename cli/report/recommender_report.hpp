// SPDX-License-Identifier: Apache-2.0
// Recommendation networks on the command line (docs/recommendation.md): what ranks hold of every
// table, which collectives run, what a step takes, and the search of shardings behind
// `orrery plan NETWORK CLUSTER --batch N`.
#pragma once

#include <string>

#include "base/json.hpp"
#include "cli/command/common.hpp"
#include "plan/recommender/recommender.hpp"

namespace orrery::cli {

struct PlanOptions;

std::string recommender_text(const plan::Recommender& network, const plan::RecommenderCost& cost);
// Members of `simulate --json`; the last is `plan`.
Json::Object recommender_json(const plan::Recommender& network, const plan::RecommenderCost& cost);

int simulate_recommender(const Json& document, const std::string& where,
                         const std::string& report_path, const OutputOptions& output);

// Whether NETWORK is a document of a recommendation network.
bool is_recommender_file(const std::string& network);
int plan_recommender(const PlanOptions& options);

}  // namespace orrery::cli
