// SPDX-License-Identifier: Apache-2.0
// NanoFlow: a layer of serving as two nano-batches whose operations overlap on one device
// (search/problems/nano_batches.hpp does the planning).
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "search/planner.hpp"
#include "search/problems/nano_batches.hpp"

namespace orrery::search {
namespace {

constexpr std::array<std::string_view, sim::kSharingClasses> kClasses = {"compute", "memory",
                                                                         "network"};
constexpr std::int64_t kUnit = 128;  // tokens; sizes of nano-batches are multiples
constexpr std::size_t kMaxOrders = 1'000'000;

NanoProblem read_operations(ObjectReader& reader) {
  NanoProblem problem;
  std::array<std::size_t, sim::kSharingClasses> members{};
  const JsonReader list = reader.required("operations");
  bool takes_time = false;
  for (const JsonReader& entry : list.array(16)) {
    ObjectReader object = entry.object();
    NanoProblem::Operation operation;
    const JsonReader name = object.required("name");
    operation.name = name.string();
    if (std::any_of(problem.operations.begin(), problem.operations.end(),
                    [&](const auto& other) { return other.name == operation.name; })) {
      name.fail("another operation has that name");
    }
    const std::string kind = object.required("class").one_of(kClasses);
    operation.kind = static_cast<std::size_t>(std::find(kClasses.begin(), kClasses.end(), kind) -
                                              kClasses.begin());
    operation.time = object.required("time").duration().value();
    takes_time = takes_time || operation.time > 0;
    if (const auto after = object.optional("after")) {
      for (const JsonReader& before : after->array(16)) {
        const auto known = std::find_if(
            problem.operations.begin(), problem.operations.end(),
            [&](const NanoProblem::Operation& other) { return other.name == before.string(); });
        if (known == problem.operations.end()) {
          before.fail("no operation before this one has that name");
        }
        operation.after.push_back(static_cast<int>(known - problem.operations.begin()));
      }
    }
    object.finish();
    ++members[operation.kind];
    problem.operations.push_back(std::move(operation));
  }
  double orders = 1;
  for (const std::size_t n : members) {
    double binomial = static_cast<double>(n + 1);
    for (std::size_t i = 1; i <= n; ++i) {
      binomial *= static_cast<double>(n + i) / static_cast<double>(i);
    }
    orders *= std::max(1.0, binomial);
  }
  if (problem.operations.empty() || orders > static_cast<double>(kMaxOrders)) {
    list.fail(problem.operations.empty() ? "there are no operations"
                                         : "too many orders of these operations to try them all",
              "merge operations of one class that follow each other");
  }
  if (!takes_time) {
    list.fail("no operation takes time");
  }
  return problem;
}

std::vector<std::int64_t> read_splits(ObjectReader& reader, std::int64_t tokens) {
  std::vector<std::int64_t> splits;
  if (const auto list = reader.optional("first_tokens")) {
    for (const JsonReader& value : list->array(64)) {
      splits.push_back(value.integer(kUnit, std::max(kUnit, tokens - kUnit)));
      if (splits.back() % kUnit != 0) {
        value.fail(fmt::format("nano-batches are multiples of {} tokens", kUnit));
      }
    }
  }
  if (splits.empty()) {
    splits.push_back(std::max(kUnit, tokens / 2 / kUnit * kUnit));
  }
  return splits;
}

Json phases_json(const NanoBatches& planning, const NanoBatches::Shared& best) {
  Json list = Json::array();
  for (const NanoBatches::Phase& phase : best.phases) {
    if (phase.time < 1e-9 * best.period) {
      continue;
    }
    Json runs = Json::array();
    for (std::size_t run = 0; run < phase.runs.size(); ++run) {
      runs.push(Json::Object{{"operation", planning.name(phase.runs[run])},
                             {"share", phase.share[run] / phase.time}});
    }
    list.push(Json::Object{{"time_s", phase.time}, {"runs", std::move(runs)}});
  }
  return list;
}

Json plan(ObjectReader& reader) {
  NanoProblem problem = read_operations(reader);
  problem.tokens = reader.required("tokens").integer(2 * kUnit, 1 << 24);
  const std::int64_t gpus = reader.integer_or("gpus", 1, 1, 1 << 20);
  const double loss = reader.number_or("nano_batch_loss", 0, 0, 0.99);
  const std::vector<std::int64_t> splits = read_splits(reader, problem.tokens);
  reader.finish();

  sim::SharedWork work{};
  for (const NanoProblem::Operation& operation : problem.operations) {
    work[operation.kind] += Seconds(operation.time);
  }
  const double serial = (work[0] + work[1] + work[2]).value();
  const double bound = sim::nano_batch_sharing().time(work).value();
  NanoBatches::Shared best;
  Json phases = Json::array();
  double alone = 0;
  std::int64_t first = 0;
  for (const std::int64_t split : splits) {
    const NanoBatches planning(problem, split);
    for (const NanoBatches::Ordered& structure : planning.order()) {
      NanoBatches::Shared found = planning.share(structure, sim::measured_curves());
      if (found.period < best.period) {
        best = std::move(found);
        alone = structure.period;
        first = split;
        phases = phases_json(planning, best);
      }
    }
  }
  if (!std::isfinite(best.period)) {
    return infeasible("no cyclic order of these operations exists");
  }
  const double time = best.period / (1 - loss);
  const auto rate = [&](double seconds) {
    return static_cast<double>(problem.tokens) / (seconds * static_cast<double>(gpus));
  };
  Json answer = Json::Object{{"first_tokens", first},
                             {"serial_time_s", serial},
                             {"serial_tokens_per_s_per_gpu", rate(serial)},
                             {"compute_time_s", work[0].value()}};
  if (work[0].value() > 0) {
    answer.set("compute_tokens_per_s_per_gpu", rate(work[0].value()));
  }
  answer.set("interference_free_time_s", alone);
  answer.set("sharing_bound_s", bound);
  answer.set("shared_time_s", best.period);
  answer.set("time_s", time);
  answer.set("tokens_per_s_per_gpu", rate(time));
  answer.set("phases", std::move(phases));
  return answer;
}

}  // namespace

extern const Planner planner_nanoflow = {
    .name = "nanoflow",
    .description = "order and device shares of the operations of two nano-batches",
    .source = "Zhu et al., NanoFlow, OSDI 2025 (arXiv 2408.12757), section 4",
    .example = R"({"schema": "orrery-problem", "version": 1, "tokens": 2048, "gpus": 8,
  "first_tokens": [768], "nano_batch_loss": 0.132, "operations": [
    {"name": "qkv", "class": "compute", "time": "16.08 ms"},
    {"name": "attention", "class": "memory", "time": "35.6 ms", "after": ["qkv"]},
    {"name": "projection", "class": "compute", "time": "16.01 ms", "after": ["attention"]},
    {"name": "ffn", "class": "compute", "time": "104.88 ms", "after": ["projection"]},
    {"name": "all-reduce", "class": "network", "time": "47.92 ms", "after": ["ffn"]}]})",
    .plan = plan,
};

}  // namespace orrery::search
