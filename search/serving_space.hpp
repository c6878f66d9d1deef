// SPDX-License-Identifier: Apache-2.0
// The serving plans that a search looks at: layouts, what an iteration may hold, what the cache is
// like and how requests find their replica. Each list is what the field is usually tried with, or
// what --fix names; combinations that cannot run are left out. In a fixed order.
#pragma once

#include <string>
#include <vector>

#include "plan/plan.hpp"
#include "plan/serving/serving.hpp"
#include "search/serving_fixes.hpp"

namespace orrery::search {

// The layouts of tp x cp x pp x dp GPUs that the network allows; `reason`: why the last one of the
// others is not.
std::vector<plan::Plan> serving_layouts(const plan::Plan& base, const ServingFixes& fixed,
                                        std::string& reason);
// Plans of these layouts whose layers' parameters live on the host or on disk, all of them or a
// share, a window of them on the device: what is fixed, else every tier that the cluster has.
// `reason` as above.
std::vector<plan::Plan> with_weights_elsewhere(const std::vector<plan::Plan>& layouts,
                                               const ServingFixes& fixed, std::string& reason);
// What is fixed alone: pages, prefixes found in the cache, cache on the host; in 8 bits where that
// is allowed.
std::vector<plan::ServingOptions> serving_caches(const plan::ServingOptions& base,
                                                 const ServingFixes& fixed);
// Tokens and requests of an iteration, prefill and nano-batches. Where chunked prefill has fewer
// tokens than any number of requests that is tried, it has as many requests. `reason`: why the last
// one of those that are not possible is not.
std::vector<plan::ServingOptions> serving_options(const plan::ServingOptions& base,
                                                  const ServingFixes& fixed, std::string& reason);
// Which replica gets a request: in turn, and where prompts begin alike by what replicas hold.
std::vector<plan::Routing> serving_routings(int replicas, const ServingFixes& fixed,
                                            bool has_prefixes);
// How all-reduces run: through NCCL, but over links that are slow to start as messages.
std::vector<plan::AllReduce> serving_all_reduces(const plan::Plan& layout,
                                                 const ServingFixes& fixed);
// Whether chunks of a prompt overlap: as in vLLM and SGLang wherever they can, unless fixed.
std::vector<bool> serving_overlaps(const plan::Plan& layout, plan::Prefill prefill,
                                   const ServingFixes& fixed);
// What was fixed without effect in the plan found, and why.
std::vector<std::string> idle_serving_fixes(const plan::Plan& found, const ServingFixes& fixed);

}  // namespace orrery::search
