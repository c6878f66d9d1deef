// SPDX-License-Identifier: Apache-2.0
// Searches of serving plans for tests: sixty requests, and what is fixed.
#pragma once

#include <memory>
#include <string>

#include "search/serving_search.hpp"

namespace orrery::search {

inline plan::Plan served_base_plan(const std::string& network, const std::string& cluster) {
  plan::Plan base;
  base.network = models::load_network(network);
  base.cluster = topologies::load_cluster(cluster);
  base.profile = costmodel::load_profile("", base.cluster.gpu);
  base.precision = DType::Fp16;
  plan::Serving serving;
  serving.requests.count = 60;
  serving.requests.prompt = {400, 200, 2000};
  serving.requests.output = {60, 30, 300};
  base.sequence = plan::longest_request(plan::generate_requests(serving.requests));
  base.serving = std::make_shared<const plan::Serving>(serving);
  return base;
}

inline ServingSearch fixed_serving(const std::string& text, std::size_t top) {
  ServingSearch search;
  search.top = top;
  if (!text.empty()) {
    fix_serving(text, search.fixed);
  }
  return search;
}

}  // namespace orrery::search
