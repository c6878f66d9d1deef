// SPDX-License-Identifier: Apache-2.0
// DIP: modules of a multimodal network (vision encoder, language model, diffusion head) with their
// own micro-batches. Chunks: the lightest module makes one pass over the ranks, the others
// floor(T_i / T_lightest). Micro-batches: the smallest size that reaches 95 % of the best
// throughput. Order: priorities of the segments by Monte-Carlo tree search
// (search/problems/segment_order.hpp). Memory: every (stage, micro-batch) pair of a rank picks one
// of its (time, memory) variants so that the added time is least and no peak exceeds the memory
// (search/problems/memory_variants.hpp).
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/text.hpp"
#include "search/planner.hpp"
#include "search/problems/memory_variants.hpp"
#include "search/problems/segment_order.hpp"

namespace orrery::search {
namespace {

constexpr double kEfficient = 0.95;
constexpr double kRounding = 1e-12;        // of a quotient that is a round number in decimals
constexpr double kMostSegments = 1 << 20;  // of a module

struct Module {
  std::string name;
  double instances = 1;       // of the batch
  std::vector<double> times;  // seconds of a micro-batch of 1, 2, 4, ... instances
  int micro_batch = 1;
  int micro_batches = 1;
  double latency = 0;
};

// The smallest size with nearly the best time per instance.
void choose_micro_batch(Module& module) {
  double best = 0;
  for (std::size_t i = 0; i < module.times.size(); ++i) {
    best = std::max(best, std::ldexp(1.0, static_cast<int>(i)) / module.times[i]);
  }
  for (std::size_t i = 0; i < module.times.size(); ++i) {
    const double size = std::ldexp(1.0, static_cast<int>(i));
    if (size / module.times[i] >= kEfficient * best * (1 - kRounding)) {
      module.micro_batch = static_cast<int>(size);
      module.latency = module.times[i];
      break;
    }
  }
  module.micro_batches = static_cast<int>(std::ceil(module.instances / module.micro_batch));
}

std::vector<Module> read_modules(ObjectReader& problem) {
  std::vector<Module> modules;
  const JsonReader list = problem.required("modules");
  for (const JsonReader& entry : list.array(16)) {
    ObjectReader reader = entry.object();
    Module module;
    module.name = reader.required("name").string();
    module.instances = reader.required("instances").number(1, 1e9);
    const JsonReader times = reader.required("times");
    for (const JsonReader& time : times.array(24)) {
      module.times.push_back(time.duration(false).value());
    }
    reader.finish();
    if (module.times.empty()) {
      times.fail("expected the times of micro-batches of 1, 2, 4, ... instances");
    }
    choose_micro_batch(module);
    modules.push_back(std::move(module));
  }
  if (modules.empty()) {
    list.fail("expected at least one module");
  }
  return modules;
}

std::vector<VariantPair> read_pairs(const JsonReader& list) {
  std::vector<VariantPair> pairs;
  for (const JsonReader& entry : list.array(512)) {
    ObjectReader reader = entry.object();
    VariantPair pair;
    pair.start = static_cast<int>(reader.required("start").integer(0, 1 << 20));
    pair.end = static_cast<int>(reader.required("end").integer(pair.start, 1 << 20));
    const JsonReader variants = reader.required("variants");
    for (const JsonReader& variant : variants.array(32)) {
      ObjectReader fields = variant.object();
      const double seconds = fields.required("time").duration().value();
      pair.variants.push_back({seconds, fields.required("memory").bytes(true).value()});
      fields.finish();
    }
    reader.finish();
    if (pair.variants.empty()) {
      variants.fail("expected at least one variant");
    }
    pairs.push_back(std::move(pair));
  }
  if (pairs.empty()) {
    list.fail("expected at least one pair");
  }
  return pairs;
}

Json variants_json(const std::vector<VariantPair>& pairs, double memory) {
  const auto choice = choose_variants(pairs, memory);
  if (!choice) {
    return infeasible("no choice of variants fits the memory");
  }
  Json chosen = Json::array();
  for (const int variant : choice->chosen) {
    chosen.push(variant);
  }
  Json result = Json::object();
  result.set("variants", std::move(chosen));
  result.set("added_s", choice->seconds);
  result.set("proven", choice->proven);
  return result;
}

constexpr double kMaxSteps = 5e8;  // of all rollouts

struct SegmentSearch {
  SegmentProblem problem;
  int rollouts = 0;
};

SegmentSearch read_segments(ObjectReader& problem, const JsonReader& list) {
  SegmentProblem segments;
  segments.ranks = static_cast<int>(problem.required("ranks").integer(1, 1024));
  segments.cap = static_cast<int>(problem.integer_or("cap", 0, 1, 1 << 20));
  const int rollouts = static_cast<int>(problem.integer_or("rollouts", 100, 1, 100'000));
  double passes = 0;
  for (const JsonReader& entry : list.array(64)) {
    ObjectReader reader = entry.object();
    Segment segment;
    segment.forward = reader.required("forward").duration().value();
    segment.backward = reader.required("backward").duration().value();
    segment.micro_batches = static_cast<int>(reader.required("micro_batches").integer(1, 65'536));
    const auto count = static_cast<std::int64_t>(segments.segments.size());
    if (const auto after = reader.optional("after")) {
      segment.after = static_cast<int>(after->integer(0, count - 1));
      if (std::any_of(segments.segments.begin(), segments.segments.end(),
                      [&](const Segment& other) { return other.after == segment.after; })) {
        after->fail("a segment feeds one other at most");
      }
    }
    reader.finish();
    passes += 2.0 * segment.micro_batches * segments.ranks;
    segments.segments.push_back(segment);
  }
  if (segments.segments.empty()) {
    list.fail("expected at least one segment");
  }
  if (passes * segments.ranks * static_cast<double>(segments.segments.size()) * rollouts >
      kMaxSteps) {
    list.fail("the search is too large", "use fewer \"rollouts\" or micro-batches");
  }
  return {std::move(segments), rollouts};
}

Json order_segments(const SegmentSearch& search) {
  const SegmentOrder found = search_segment_order(search.problem, search.rollouts);
  if (std::isinf(found.makespan)) {
    return infeasible("the cap stops the segments: more forwards must be held");
  }
  Json order = Json::array();
  for (const int segment : found.order) {
    order.push(segment);
  }
  Json answer = Json::object();
  answer.set("order", std::move(order));
  answer.set("makespan_s", found.makespan);
  if (!std::isinf(found.given)) {
    answer.set("makespan_as_given_s", found.given);
  }
  return answer;
}

// Without an answer in one part the problem has none.
void add_part(Json& answer, std::string_view key, Json part) {
  if (const Json* reason = part.find("reason")) {
    answer.set("feasible", false);
    answer.set("reason", *reason);
  }
  answer.set(key, std::move(part));
}

Json plan(ObjectReader& problem) {
  const std::vector<Module> modules = read_modules(problem);
  std::optional<SegmentSearch> search;
  if (const auto list = problem.optional("segments")) {
    search = read_segments(problem, *list);
  }
  const auto list_of_pairs = problem.optional("pairs");
  const auto memory = problem.optional("memory");
  if (list_of_pairs.has_value() != memory.has_value()) {
    problem.value().fail("\"pairs\" and \"memory\" belong together");
  }
  std::vector<VariantPair> pairs;
  double room = 0;
  if (memory) {
    pairs = read_pairs(*list_of_pairs);
    room = memory->bytes().value();
  }
  problem.finish();
  const auto lightest =
      std::min_element(modules.begin(), modules.end(),
                       [](const Module& a, const Module& b) { return a.latency < b.latency; });
  Json list = Json::array();
  for (const Module& module : modules) {
    Json entry = Json::object();
    entry.set("name", module.name);
    entry.set("micro_batch", module.micro_batch);
    entry.set("micro_batches", module.micro_batches);
    // Rounding must not lose a chunk when the ratio is whole.
    const double segments = std::floor(module.latency / lightest->latency * (1 + kRounding));
    if (segments > kMostSegments) {
      problem.value().fail(fmt::format("module \"{}\" takes {:.3g} times as long as \"{}\"",
                                       printable(module.name), segments, printable(lightest->name)),
                           fmt::format("at most {:.0f} times", kMostSegments));
    }
    entry.set("segments", static_cast<std::int64_t>(segments));
    list.push(std::move(entry));
  }
  Json answer = Json::object();
  answer.set("modules", std::move(list));
  if (search) {
    add_part(answer, "segments", order_segments(*search));
  }
  if (memory) {
    add_part(answer, "memory", variants_json(pairs, room));
  }
  return answer;
}

}  // namespace

extern const Planner planner_dip = {
    .name = "dip",
    .description = "segments, micro-batches and priorities of modules, memory variants of passes",
    .source = "Xue et al., DIP, ASPLOS 2026 (arXiv 2504.14145), sections 4 and 5",
    .example = R"({"schema": "orrery-problem", "version": 1,
  "modules": [{"name": "vision", "instances": 48, "times": ["2 ms", "3 ms", "5.8 ms"]},
              {"name": "language", "instances": 8, "times": ["13 ms"]}],
  "ranks": 2, "segments": [{"forward": "1 ms", "backward": "2 ms", "micro_batches": 4},
                           {"forward": "2 ms", "backward": "4 ms", "micro_batches": 2, "after": 0}],
  "memory": "3 GB",
  "pairs": [{"start": 0, "end": 2, "variants": [{"time": "0 ms", "memory": "2 GB"}, {"time": "1 ms", "memory": "1 GB"}]},
            {"start": 1, "end": 3, "variants": [{"time": "0 ms", "memory": "2 GB"}, {"time": "2 ms", "memory": "1 GB"}]}]})",
    .plan = plan,
};

}  // namespace orrery::search
