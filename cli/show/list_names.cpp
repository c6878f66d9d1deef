// SPDX-License-Identifier: Apache-2.0
#include "cli/show/list_names.hpp"

#include <fmt/format.h>

#include <string_view>

#include "plan/recommender/pipeline.hpp"
#include "sim/orders/nest_streams.hpp"

namespace orrery::cli {

std::vector<std::string> list_names(const std::string& schedule, const sim::PipelineOrder& order) {
  std::vector<std::string> names;
  if (schedule != plan::kNestedSchedule) {
    return names;
  }
  names.resize(order.passes.size());
  const std::size_t workers = names.size() / sim::kNestStreams;
  for (std::size_t stage = 0; stage < order.device_of.size(); ++stage) {
    const auto [worker, stream] = sim::nest_stream(stage, workers);
    const std::string_view name = plan::nested_stage_name(stream);
    names[order.device_of[stage]] =
        workers > 1 ? fmt::format("worker {}, {}", worker, name) : std::string(name);
  }
  return names;
}

}  // namespace orrery::cli
