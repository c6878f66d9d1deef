// SPDX-License-Identifier: Apache-2.0
#include "plan/packs.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <iterator>
#include <numeric>
#include <set>
#include <utility>

#include "base/json_reader.hpp"
#include "base/limits.hpp"
#include "base/math.hpp"
#include "plan/heads.hpp"
#include "plan/schedule_traits.hpp"

namespace orrery::plan {

namespace {

std::int64_t tokens_of(const Pack& pack) {
  return std::accumulate(pack.sequences.begin(), pack.sequences.end(), std::int64_t{0});
}

std::string problem_of_shape(const Plan& plan) {
  const models::NetworkSpec& spec = plan.network.spec;
  if (plan.pp > 1) {
    return "there is no pipeline: set pp to 1";
  }
  if (plan.micro_batch > 1) {
    return "packs say which sequences run together: set micro_batch to 1";
  }
  if (spec.encoder.layers > 0 || spec.encoder_layers > 0) {
    return fmt::format(
        "{} has an encoder, and packs hold sequences of one chain of layers: set "
        "the schedule to \"1f1b\"",
        spec.name);
  }
  if (plan.blocks.size() > 1) {
    return "groups cut the sequences of all blocks alike: give all blocks the same layout";
  }
  const BlockPlan& layout = plan.blocks.front().layout;
  if (layout.cp > 1 || layout.ep > 1 || layout.shard_degree > 0) {
    return "the groups of packs are the context parallelism: set cp and ep to 1 and shard_degree "
           "to "
           "0";
  }
  if (layout.tensor_parallel != TensorMesh::OneD) {
    return "groups trade sequence for heads: set tensor_parallel to 1d";
  }
  return plan.execution.fused_attention
             ? ""
             : "packed sequences share one attention kernel: set fused_attention to true";
}

std::string problem_of_group(const Plan& plan, const Pack& pack) {
  const int tp = plan.blocks.front().layout.tp;
  const models::NetworkSpec& spec = plan.network.spec;
  if (plan.dp % pack.group != 0) {
    return fmt::format("a group of {} ranks does not divide dp = {}", pack.group, plan.dp);
  }
  if (!exchanges_heads(spec, std::int64_t{tp} * pack.group)) {
    return fmt::format("a group of {} ranks with tp = {} does not divide {} heads and {} kv_heads",
                       pack.group, tp, spec.heads, spec.kv_heads);
  }
  const std::int64_t longest = *std::max_element(pack.sequences.begin(), pack.sequences.end());
  return longest <= plan.sequence
             ? ""
             : fmt::format("a sequence of {} tokens: set sequence to {}", longest, longest);
}

}  // namespace

std::vector<std::vector<Pack>> read_packs(const JsonReader& value) {
  std::vector<std::vector<Pack>> packs;
  for (const JsonReader& micro_batch : value.array(limits::kMaxBatch)) {
    packs.emplace_back();
    for (const JsonReader& entry : micro_batch.array(limits::kMaxDevices)) {
      ObjectReader object = entry.object();
      Pack pack;
      pack.group = static_cast<int>(object.required("group").integer(1, limits::kMaxDevices));
      const JsonReader sequences = object.required("sequences");
      for (const JsonReader& tokens : sequences.array(limits::kMaxBatch)) {
        pack.sequences.push_back(tokens.integer(1, limits::kMaxSequence));
      }
      if (pack.sequences.empty() || tokens_of(pack) > limits::kMaxSequence) {
        sequences.fail(fmt::format("a pack has between 1 and {} tokens", limits::kMaxSequence));
      }
      object.finish();
      packs.back().push_back(std::move(pack));
    }
    if (packs.back().empty()) {
      micro_batch.fail("a micro-batch without packs");
    }
  }
  return packs;
}

Json packs_json(const std::vector<std::vector<Pack>>& packs) {
  Json all = Json::array();
  for (const std::vector<Pack>& micro_batch : packs) {
    Json side_by_side = Json::array();
    for (const Pack& pack : micro_batch) {
      Json sequences = Json::array();
      for (const std::int64_t tokens : pack.sequences) {
        sequences.push(tokens);
      }
      side_by_side.push(Json::Object{{"group", pack.group}, {"sequences", std::move(sequences)}});
    }
    all.push(std::move(side_by_side));
  }
  return all;
}

std::string packs_problem(const Plan& plan) {
  const bool runs_packs = schedule_traits(plan).packs_sequences;
  if (!runs_packs) {
    return plan.packs.empty() ? ""
                              : fmt::format("packs belong to the schedule {}: leave them out",
                                            schedules_with(&sim::Schedule::packs_sequences));
  }
  if (plan.network.chain.empty()) {
    return "";
  }
  const std::string shape = problem_of_shape(plan);
  if (!shape.empty()) {
    return shape;
  }
  if (plan.packs.empty()) {
    return "which sequences run on which groups is missing: state \"packs\" in \"parallelism\", or "
           "let `orrery plan` find them (--lengths)";
  }
  std::int64_t sequences = 0;
  for (const std::vector<Pack>& micro_batch : plan.packs) {
    int ranks = 0;
    for (const Pack& pack : micro_batch) {
      const std::string problem = problem_of_group(plan, pack);
      if (!problem.empty()) {
        return problem;
      }
      ranks += pack.group;
      sequences += static_cast<std::int64_t>(pack.sequences.size());
    }
    if (ranks > plan.dp) {
      return fmt::format("the groups of a micro-batch have {} ranks, more than dp = {}", ranks,
                         plan.dp);
    }
  }
  return sequences == plan.batch
             ? ""
             : fmt::format("the packs hold {} sequences: set batch to {}", sequences, sequences);
}

std::string group_sizes_text(const Plan& plan) {
  std::set<int, std::greater<>> sizes;
  for (const std::vector<Pack>& micro_batch : plan.packs) {
    for (const Pack& pack : micro_batch) {
      sizes.insert(pack.group);
    }
  }
  std::string text;
  for (auto size = sizes.begin(); size != sizes.end(); ++size) {
    const bool last = std::next(size) == sizes.end();
    text += text.empty() ? "" : last ? " and " : ", ";
    text += fmt::format("{}", *size);
  }
  return text;
}

void tell_packs(const Plan& plan, sim::ScheduleParams& params) {
  params.stages = plan.dp;
  params.slices_of.clear();
  for (const std::vector<Pack>& micro_batch : plan.packs) {
    for (const Pack& pack : micro_batch) {
      params.slices_of.push_back(pack.group);
    }
  }
  params.micro_batches = std::max<int>(1, static_cast<int>(params.slices_of.size()));
}

Plan plan_of_pack(const Plan& plan, const Pack& pack) {
  Plan alone = plan;
  alone.schedule = "1f1b";
  alone.packs = {{pack}};
  alone.dp = plan.dp / pack.group;
  alone.batch = alone.dp;
  for (BlockRun& run : alone.blocks) {
    run.layout.cp = pack.group;
    run.layout.context = ContextParallel::Ulysses;
  }
  const BlockPlan& layout = alone.blocks.front().layout;
  const std::int64_t parts = std::int64_t{pack.group} * (layout.sequence_parallel ? layout.tp : 1);
  alone.sequence = ceil_div(tokens_of(pack), parts) * parts;
  return alone;
}

const Pack& fullest_pack(const Plan& plan) {
  const Pack* fullest = nullptr;
  const auto load = [](const Pack& pack) {
    return static_cast<double>(tokens_of(pack)) / pack.group;
  };
  for (const std::vector<Pack>& micro_batch : plan.packs) {
    for (const Pack& pack : micro_batch) {
      fullest = fullest == nullptr || load(pack) > load(*fullest) ? &pack : fullest;
    }
  }
  return *fullest;
}

}  // namespace orrery::plan
