// SPDX-License-Identifier: Apache-2.0
#include "plan/execution.hpp"

#include <array>

#include "plan/named_values.hpp"

namespace orrery::plan {

namespace {

constexpr std::array<std::string_view, 3> kScalings = {"delayed", "current", "blocks"};
constexpr std::array<std::string_view, 3> kAmaxRanks = {"none", "model", "all"};
constexpr std::array<std::string_view, 4> kScopes = {"dense", "router", "attention", "layer"};
constexpr std::array<std::string_view, 3> kSoftmaxes = {"megatron", "eager", "compiled"};
constexpr std::array<std::string_view, 3> kPrefetches = {"pre", "post", "none"};

}  // namespace

std::string_view to_text(Fp8Scaling scaling) { return name_of(kScalings, scaling); }
std::string_view to_text(AmaxRanks ranks) { return name_of(kAmaxRanks, ranks); }
std::string_view to_text(GraphScope scope) { return name_of(kScopes, scope); }
std::string_view to_text(Softmax softmax) { return name_of(kSoftmaxes, softmax); }
std::string_view to_text(BackwardPrefetch prefetch) { return name_of(kPrefetches, prefetch); }

Fp8Scaling parse_fp8_scaling(std::string_view text, std::string_view where) {
  return parse_named<Fp8Scaling>(kScalings, text, where, "scaling");
}

AmaxRanks parse_amax_ranks(std::string_view text, std::string_view where) {
  return parse_named<AmaxRanks>(kAmaxRanks, text, where, "ranks");
}

GraphScope parse_graph_scope(std::string_view text, std::string_view where) {
  return parse_named<GraphScope>(kScopes, text, where, "scope of graphs");
}

Softmax parse_softmax(std::string_view text, std::string_view where) {
  return parse_named<Softmax>(kSoftmaxes, text, where, "softmax");
}

BackwardPrefetch parse_backward_prefetch(std::string_view text, std::string_view where) {
  return parse_named<BackwardPrefetch>(kPrefetches, text, where, "value");
}

}  // namespace orrery::plan
