// SPDX-License-Identifier: Apache-2.0
// An order of layers without edges written as a schedule document.
#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>
#include <vector>

#include "sim/orders/document_lists.hpp"
#include "sim/pipeline/pass_inputs.hpp"
#include "sim/schedule.hpp"

namespace orrery::sim {

inline std::string listed_pass_text(const PipelineOrder& order, const PassInputs& inputs,
                                    const Pass& pass) {
  const std::vector<Chain> chains = chains_of(order);
  int direction = 0;
  while (pass.virtual_stage >= chains[static_cast<std::size_t>(direction)].first +
                                   chains[static_cast<std::size_t>(direction)].stages) {
    ++direction;
  }
  const int stage = pass.virtual_stage - chains[static_cast<std::size_t>(direction)].first;
  std::string text = fmt::format(R"({{"pass": "{}", "direction": {}, "stage": {})",
                                 pass_name(pass.kind), direction, stage);
  if (pass.kind == PassKind::Optimizer) {
    text += fmt::format(R"(, "update": {})", pass.micro_batch);
  } else {
    const int unit = inputs.number_of(pass);
    text += fmt::format(R"(, "micro_batch": {})", unit / order.slices);
    text += order.slices > 1 ? fmt::format(R"(, "slice": {})", unit % order.slices) : "";
  }
  return text + (pass.joined ? R"(, "joined": true})" : "}");
}

inline std::string_view versions_text(Versions versions) {
  switch (versions) {
    case Versions::Flush:
      return "flush";
    case Versions::Stashed:
      return "stashed";
    case Versions::Delayed:
      return "delayed";
    case Versions::Predicted:
      return "predicted";
    default:
      return "input-stage";
  }
}

inline std::string document_of(const PipelineOrder& order) {
  const PassInputs inputs(order);
  std::string text =
      fmt::format(R"({{"schema": "orrery-schedule", "version": 1, "name": "mine", "slices": {},)"
                  R"( "iterations": {}, "versions": "{}", "passes": [)",
                  order.slices, order.iterations, versions_text(order.versions));
  for (std::size_t d = 0; d < order.passes.size(); ++d) {
    text += d > 0 ? ",\n[" : "[";
    for (std::size_t k = 0; k < order.passes[d].size(); ++k) {
      text += (k > 0 ? ", " : "") + listed_pass_text(order, inputs, order.passes[d][k]);
    }
    text += "]";
  }
  return text + "]}";
}

}  // namespace orrery::sim
