// SPDX-License-Identifier: Apache-2.0
// Every field of a plan document, edited by hand, one after another: the edit changes the answer,
// is refused, or is named as being without effect. Nothing is silently ignored.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/error.hpp"
#include "base/text.hpp"
#include "plan/document/idle_fields.hpp"
#include "plan/replay/memory_replay.hpp"
#include "plan/serving/simulate.hpp"
#include "plan/simulation/simulate.hpp"
#include "tests/unit/plan/plan_fields_fixture.hpp"

namespace orrery::plan {
namespace {

using testing::HasSubstr;

using Path = std::vector<std::string>;

struct Answer {
  bool refused = false;
  std::string text;  // the message, or all figures
  std::set<std::string> idle;
};

std::string figures(const Plan& plan) {
  if (plan.serving) {
    return to_json(simulate_serving(plan)).dump(-1);
  }
  const Simulation simulation = simulate(plan, {.interval_draws = 2});
  std::string text = fmt::format("{} {} {} {} {} {}", simulation.iteration_time.value(),
                                 simulation.interval_low.value(), simulation.interval_high.value(),
                                 simulation.mfu_fraction, simulation.hfu_fraction,
                                 simulation.does_not_fit.value_or(""));
  for (const StageMemory& memory : simulation.memory) {
    text +=
        fmt::format(" {} {} {}", memory.total().value(), memory.host.value(), memory.disk.value());
  }
  for (const MemoryPeak& peak : replay_memory(plan)) {
    text += fmt::format(" {} {}", peak.allocated.value(), peak.device().value());
  }
  return text;
}

Answer answer_of(const Json& document) {
  Answer answer;
  try {
    const Plan plan = read_plan(document, "plan.json");
    answer.text = figures(plan);
    for (const IdleField& idle : idle_fields(plan)) {
      answer.idle.insert(idle.field);
    }
  } catch (const Error& error) {
    answer.refused = true;
    answer.text = error.what();
  }
  return answer;
}

// "blocks.0.zigzag" is named "blocks.zigzag".
std::string idle_name(const Path& path) {
  std::string name;
  for (const std::string& step : path) {
    const bool index = step.find_first_not_of("0123456789") == std::string::npos;
    if (!index) {
      name += (name.empty() ? "" : ".") + step;
    }
  }
  return name;
}

const std::map<std::string, std::vector<Json>>& choices() {
  static const std::map<std::string, std::vector<Json>> names = {
      {"recompute", {"full", "selective", "products", "none"}},
      {"context", {"ulysses", "all-gather", "mix"}},
      {"schedule", {"gpipe", "zb-h1"}},
      {"precision", {"fp16", "bf16", "fp32"}},
      {"backward_prefetch", {"none", "post"}},
      {"fp8_scaling", {"current", "blocks"}},
      {"amax_ranks", {"none", "model"}},
      {"softmax", {"eager", "compiled"}},
      {"activations_tier", {"disk"}},
      {"parameters", {"host", "device"}},
      {"gradients", {"host", "device"}},
      {"optimizer", {"host", "disk", "device"}},
      {"family", {"llama", "gpt", "bert"}},
      {"norm", {"rmsnorm", "layernorm"}},
      {"position", {"rotary", "learned", "none"}},
      {"activation", {"swiglu", "gelu"}},
      {"prefill", {"separate"}},
      {"arrivals", {"regular", "at-once"}},
      {"tensor_parallel", {"1d", "2.5d"}},
      {"tp_depth", {2}},
      {"tp_inner", {"rows", "depth"}},
      {"flash_version", {1, 2}},
      {"link", {"roce", "ethernet", "nvlink4", "pcie4"}},
      {"builder", {"fat-tree", "full-mesh", "pcie"}},
      {"cpu_vendor", {"intel", "nvidia"}},
      {"first_bucket", {"4 KiB", "1 MiB"}},
      {"bucket", {"64 KiB", "16 MiB"}},
      {"memory_reserve", {"79 GB"}},
      {"host_per_block", {"50 ms"}},
      {"max", {64}},
      {"host_cache", {0.5}},
      {"prefix_hits", {0.5}},
      {"chunk", {16}},
      {"cache_block", {64}},
      {"all_reduce", {"star", "ring"}},
      {"hidden_dropout", {0.0, 0.1}},
      {"attention_dropout", {0.0, 0.1}},
  };
  return names;
}

std::vector<Json> edits(const std::string& key, const Json& value) {
  if (const auto known = choices().find(key); known != choices().end()) {
    return known->second;
  }
  if (value.is_bool()) {
    return {!value.as_bool()};
  }
  if (value.is_integer()) {
    const std::int64_t number = value.as_integer();
    return {number + 1, 2 * number, number / 2, number - 1, 0, 1000 * (number + 1)};
  }
  if (value.is_number()) {
    return {value.as_number() * 0.5, value.as_number() * 1.1, value.as_number() + 1, 0.7};
  }
  if (!value.is_string()) {
    return {};
  }
  const std::string& text = value.as_string();
  const std::size_t blank = text.find(' ');
  char* end = nullptr;
  const double number = std::strtod(text.c_str(), &end);
  if (blank == std::string::npos || end != text.c_str() + blank) {
    return {text + "-edited"};
  }
  const std::string unit = text.substr(blank);
  return {fmt::format("{:.10g}{}", number * 2, unit), fmt::format("{:.10g}{}", number * 0.01, unit),
          fmt::format("{:.10g}{}", number * 1000, unit),
          fmt::format("{:.10g}{}", number + 1, unit)};
}

Json* member_at(Json& document, const Path& path) {
  Json* at = &document;
  for (const std::string& step : path) {
    at = at->is_array() ? &at->as_array()[std::stoul(step)] : at->find(step);
    if (at == nullptr) {
      return nullptr;
    }
  }
  return at;
}

void leaves(const Json& value, const Path& path, std::vector<std::pair<Path, Json>>& found) {
  const auto below = [&](const std::string& step, const Json& child) {
    Path next = path;
    next.push_back(step);
    leaves(child, next, found);
  };
  if (value.is_object()) {
    for (const auto& [key, child] : value.as_object()) {
      below(key, child);
    }
  } else if (value.is_array()) {
    const std::size_t shown = std::min<std::size_t>(2, value.as_array().size());
    for (std::size_t i = 0; i < shown; ++i) {
      below(std::to_string(i), value.as_array()[i]);
    }
  } else if (!value.is_null()) {
    found.emplace_back(path, value);
  }
}

std::string text_of(const Path& path) { return fmt::format("{}", fmt::join(path, ".")); }

// What the edits of one field do: whether one changed the answer, whether all that did not were
// refused or named.
struct Verdict {
  bool changed = false;
  bool accounted = true;
  std::string ignored;  // an edit that nobody mentions
};

class Edits {
 public:
  explicit Edits(Json document) : document_(std::move(document)), base_(answer_of(document_)) {}

  const Answer& base() const { return base_; }
  const Json& document() const { return document_; }

  Verdict try_all(const Path& path, const std::vector<Json>& values) const {
    Verdict verdict;
    for (const Json& value : values) {
      Json edited = document_;
      if (!set(edited, path, value) || edited == document_) {
        continue;
      }
      const Answer answer = answer_of(edited);
      const std::string name = idle_name(path);
      const bool named = answer.idle.contains(name) || base_.idle.contains(name);
      if (answer.refused) {
        EXPECT_FALSE(answer.text.empty());
      } else if (answer.text != base_.text) {
        verdict.changed = true;
        const bool wrong = answer.idle.contains(name) && base_.idle.contains(name);
        EXPECT_FALSE(wrong) << text_of(path) << " = " << value.dump(-1)
                            << " changes the answer, but is said to be without effect";
      } else if (!named) {
        verdict.accounted = false;
        verdict.ignored = value.dump(-1);
      }
    }
    return verdict;
  }

 private:
  static bool set(Json& document, Path path, const Json& value) {
    const std::string last = path.back();
    path.pop_back();
    Json* parent = member_at(document, path);
    if (parent == nullptr) {
      return false;
    }
    if (parent->is_array()) {
      parent->as_array()[std::stoul(last)] = value;
    } else {
      parent->set(last, value);
    }
    return true;
  }

  Json document_;
  Answer base_;
};

bool is_cluster(const Path& path) { return path[0] == "cluster"; }
bool is_profile(const Path& path) { return path[0] == "profile"; }  // tests/unit/costmodel has it

bool holds_one_of(const Path& path, const std::set<std::string>& names) {
  return std::any_of(path.begin(), path.end(),
                     [&](const std::string& step) { return names.contains(step); });
}

// What says where numbers come from, the length that --seq takes when it is left out, and the width
// of dense layers in a network of experts, which has none.
bool is_label(const Path& path) {
  if (path[0] == "network" && (path.back() == "sequence" || path.back() == "ffn_hidden")) {
    return true;
  }
  return holds_one_of(path, {"name", "aliases", "sources", "source", "note", "vendor", "accuracy",
                             "calibrated", "schema", "version", "left_out", "architecture"});
}

// Hardware that only other commands read (the price: plan --pareto; clock, cache: calibrate; link
// names, sockets and switches: show cluster; which GPU or node is meant: logs and measurements) or
// that bounds how large a fabric may get.
bool is_for_others(const Path& path) {
  return holds_one_of(
      path, {"price", "boost_clock", "l2_cache", "link", "sockets", "switches", "socket_bandwidth",
             "radix", "levels", "pcie_bandwidth", "stands_for_others", "usual_node"});
}

// A bound that changes the answer only where something reaches it; graphs lift the host's.
bool is_bound(const Path& path) {
  const bool tier = path.size() > 2 && path[path.size() - 2] == "host";
  return holds_one_of(path, {"memory_reserve", "max", "expected_output", "cuda_graphs"}) ||
         (tier && (path.back() == "memory" || path.back() == "disk"));
}

TEST(PlanFields, ChoicesAreHonouredRefusedOrNamed) {
  for (const auto& [name, plan] : plans_of_choices()) {
    const Edits edit(to_json(plan));
    ASSERT_FALSE(edit.base().refused) << name << ": " << edit.base().text;
    std::vector<std::pair<Path, Json>> fields;
    leaves(edit.document(), {}, fields);
    for (const auto& [path, value] : fields) {
      if (is_cluster(path) || is_profile(path) || is_label(path) || is_bound(path)) {
        continue;
      }
      const Verdict verdict = edit.try_all(path, edits(path.back(), value));
      EXPECT_TRUE(verdict.changed || verdict.accounted)
          << name << ": " << text_of(path) << " = " << verdict.ignored << " is silently ignored";
    }
    for (const auto& [text, values] : absent_members()) {
      Path path;
      for (const std::string_view step : split(text, '.')) {
        path.emplace_back(step);
      }
      const Verdict verdict = edit.try_all(path, values);
      EXPECT_TRUE(verdict.changed || verdict.accounted)
          << name << ": " << text << " = " << verdict.ignored << " is silently ignored";
    }
  }
}

// A cluster has more numbers than one plan looks at: each decides something in one of them.
TEST(PlanFields, EveryNumberOfAClusterMattersSomewhere) {
  std::map<std::string, bool> matters;
  for (const auto& [name, plan] : plans_of_hardware()) {
    const Edits edit(to_json(plan));
    std::vector<std::pair<Path, Json>> fields;
    leaves(edit.document(), {}, fields);
    for (const auto& [path, value] : fields) {
      const std::string text = text_of(path);
      if (is_cluster(path) && !is_label(path) && !is_for_others(path) && !is_bound(path) &&
          !matters[text]) {
        const Verdict verdict = edit.try_all(path, edits(path.back(), value));
        matters[text] = verdict.changed || verdict.accounted;
      }
    }
  }
  for (const auto& [text, does] : matters) {
    EXPECT_TRUE(does) << text;
  }
}

std::string refusal(const Json& document) {
  const Answer answer = answer_of(document);
  return answer.refused ? answer.text : "";
}

// --set leaves a record beside the document; editing the record alone is refused.
TEST(PlanFields, RecordsOfOverridesMustHold) {
  Plan plan = plan_of(tiny_spec(), "dgx-a100:2", 2, {.tp = 2});
  plan.cluster = topologies::load_cluster(
      "dgx-a100:2", {"gpu.memory=79 GB", "node.scale_up.bandwidth_per_gpu=150 GB/s"});
  plan.network =
      models::load_network("gpt3-125m", {"layers=4", "hidden_dropout=0.0", "max_positions=4096"});
  plan.stage_blocks = {3, 3};
  plan.blocks.front().count = 6;
  const Json written = to_json(plan);
  ASSERT_EQ(refusal(written), "");
  const auto edited = [&](const Path& path, const Json& value) {
    Json document = written;
    *member_at(document, path) = value;
    return refusal(document);
  };
  EXPECT_THAT(
      edited({"network", "overrides", "0"}, "layers=6"),
      HasSubstr("/network/overrides: \"layers=6\" is not what the document beside it says"));
  EXPECT_THAT(edited({"network", "overrides"}, Json::Array{"layers=4", "heads=4"}),
              HasSubstr("\"heads=4\" is not what"));
  EXPECT_THAT(edited({"network", "overrides", "1"}, "nonsense"), HasSubstr("\"nonsense\" is not"));
  EXPECT_THAT(edited({"network", "document", "layers"}, 5), HasSubstr("\"layers=4\" is not"));
  EXPECT_THAT(edited({"cluster", "overrides", "0"}, "gpu.memory=40 GB"),
              HasSubstr("is not the list of document.overrides"));
  EXPECT_THAT(edited({"cluster", "overrides"}, Json::Array{}),
              HasSubstr("is not the list of document.overrides"));
  EXPECT_THAT(edited({"cluster", "document", "gpu", "memory"}, "40 GB"),
              HasSubstr("change gpu.memory in plan.json: /cluster/document and here alike"));
  EXPECT_THAT(edited({"cluster", "name"}, "other"), HasSubstr("but document.name is"));
}

TEST(PlanFields, IdleFieldsSayWhatTheyNeed) {
  Plan plan = plan_of(tiny_spec(), "dgx-a100:2", 2, {.tp = 2, .zero_stage = 1});
  EXPECT_EQ(idle_text(idle_fields(plan)), "");
  plan.execution.stream_tp = true;
  plan.blocks.front().layout.zigzag = false;
  EXPECT_EQ(idle_text(idle_fields(plan)),
            "blocks.zigzag (needs several context ranks that cut the tokens of causal attention in "
            "a training plan), execution.stream_tp (needs tp > 1 with sequence_parallel, adapters "
            "or on a tensor mesh)");
}

TEST(PlanFields, SequencesOfOneTensorRankAreWhole) {
  Plan plan = plan_of(tiny_spec(), "dgx-a100:2", 2, {.zero_stage = 1});
  const Seconds without = simulate(plan).iteration_time;
  plan.blocks.front().layout.sequence_parallel = true;
  EXPECT_EQ(simulate(plan).iteration_time, without);
}

// Inputs are gathered with sequence parallelism and on meshes, and what is kept is not gathered
// again.
TEST(PlanFields, GathersAgainWhereInputsAreGathered) {
  Plan plan = plan_of(tiny_spec(), "dgx-a100:2", 1, {.tp = 4});
  plan.execution.regathers_inputs = false;
  const auto idle = [&] { return !idle_text(idle_fields(plan)).empty(); };
  BlockPlan& layout = plan.blocks.front().layout;
  EXPECT_TRUE(idle());
  layout.sequence_parallel = true;
  EXPECT_FALSE(idle());
  layout.keep_gathered = true;
  EXPECT_TRUE(idle());
  layout = {.tp = 4, .tensor_parallel = TensorMesh::TwoD};
  EXPECT_FALSE(idle());
}

}  // namespace
}  // namespace orrery::plan
