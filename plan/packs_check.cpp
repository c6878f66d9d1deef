// SPDX-License-Identifier: Apache-2.0
// Which packs a plan may have (plan/packs.hpp).
#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

#include "plan/block_rules.hpp"
#include "plan/heads.hpp"
#include "plan/packs.hpp"
#include "plan/schedule_traits.hpp"
#include "plan/slices.hpp"

namespace orrery::plan {

namespace {

std::string problem_of_network(const Plan& plan) {
  const models::NetworkSpec& spec = plan.network.spec;
  if (plan.micro_batch > 1) {
    return "packs say which sequences run together: set micro_batch to 1";
  }
  if (spec.encoder.layers > 0 || spec.encoder_layers > 0) {
    return fmt::format(
        "{} has an encoder, and packs hold sequences of one chain of layers: leave \"packs\" out, "
        "and set the schedule to \"1f1b\"",
        spec.name);
  }
  return plan.blocks.front().layout.tensor_parallel == TensorMesh::OneD
             ? ""
             : "a tensor mesh cuts the samples of a micro-batch, or whole sequences: set "
               "tensor_parallel to 1d";
}

constexpr const char* kUnfused =
    "packed sequences share one attention kernel: set fused_attention to true";

// Groups of ranks of their own, without a pipeline.
std::string problem_of_groups(const Plan& plan) {
  if (plan.pp > 1) {
    return "there is no pipeline: set pp to 1";
  }
  if (plan.blocks.size() > 1) {
    return "groups cut the sequences of all blocks alike: give all blocks the same layout";
  }
  const BlockPlan& layout = plan.blocks.front().layout;
  if (layout.cp > 1 || layout.ep > 1 || layout.shard_degree > 0) {
    return "the groups of packs are the context parallelism: set cp and ep to 1 and shard_degree "
           "to 0";
  }
  return plan.execution.fused_attention ? "" : kUnfused;
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
  return pack.padded || !pack.slices.empty()
             ? "groups take whole sequences behind one another: leave out padded and slices"
             : "";
}

std::string problem_of_counts(const Plan& plan) {
  const std::vector<std::vector<Pack>>& packs = plan.packs;
  for (std::size_t k = 0; k < packs.size(); ++k) {
    for (const Pack& pack : packs[k]) {
      if (pack.group != 1) {
        return fmt::format(
            "a pack of a pipeline is that of one replica, not of a group of {}: leave out group",
            pack.group);
      }
    }
    if (k == 0 && static_cast<int>(packs[k].size()) != plan.dp) {
      return fmt::format("micro-batch 0 has {} packs: each of dp = {} replicas runs one",
                         packs[k].size(), plan.dp);
    }
    if (k > 0 && packs[k].size() > packs[k - 1].size()) {
      return fmt::format(
          "micro-batch {} has {} packs, and the one before it {}: replicas with fewer of them "
          "stand "
          "last",
          k, packs[k].size(), packs[k - 1].size());
    }
  }
  return "";
}

// Ranks that work on one micro-batch together wait for one another in every pass.
std::string problem_of_replicas(const Plan& plan) {
  const std::vector<std::vector<Pack>>& packs = plan.packs;
  const bool differ = std::any_of(packs.begin(), packs.end(), [&](const std::vector<Pack>& row) {
    return static_cast<int>(row.size()) < plan.dp ||
           std::any_of(row.begin(), row.end(),
                       [&](const Pack& pack) { return !(pack == row.front()); });
  });
  for (const BlockRun& run : plan.blocks) {
    if (differ && run.layout.zero_stage >= 2) {
      return fmt::format(
          "zero_stage = {} makes replicas meet in every micro-batch, and theirs differ: set "
          "zero_stage to 1, or give all replicas the same lengths",
          run.layout.zero_stage);
    }
    if (differ && expert_replicas(run.layout) > 1) {
      return "experts are spread over replicas, which meet in every layer, and their micro-batches "
             "differ: set ep to 1, or give all replicas the same lengths";
    }
  }
  return "";
}

// `plan` without its packs.
std::string problem_of_unit(const Plan& plan, const Pack& pack) {
  if (!pack.slices.empty()) {
    return schedule_traits(plan).uses_slices
               ? slices_problem(plan_of_pack(plan, pack))
               : "its sequences are not cut: leave out slices, or set the schedule to "
                 "\"infinipipe\"";
  }
  if (pack.padded || pack.sequences.size() == 1) {
    return "";
  }
  if (!plan.execution.fused_attention) {
    return kUnfused;
  }
  const BlockPlan& layout = plan.blocks.front().layout;
  return layout.cp > 1 && layout.context != ContextParallel::Ulysses
             ? "context ranks pass on keys of one sequence, and a pack has several: set context to "
               "ulysses, or pad the sequences"
             : "";
}

std::string problem_of_pipeline(const Plan& plan) {
  if (!runs_units_of_any_length(schedule_traits(plan))) {
    return "its micro-batches are all of one length: leave \"packs\" out, or set the schedule to "
           "\"dynapipe\"";
  }
  if (plan.slices > 1) {
    return "each pack says how its sequence is cut: set slices to 1";
  }
  const BlockPlan& first = plan.blocks.front().layout;
  for (const BlockRun& run : plan.blocks) {
    if (run.layout.tp != first.tp || run.layout.cp != first.cp ||
        run.layout.context != first.context ||
        run.layout.sequence_parallel != first.sequence_parallel) {
      return "a pack runs through all blocks on the same ranks: give them the same tp, cp, context "
             "and sequence_parallel";
    }
  }
  const std::string counts = problem_of_counts(plan);
  return counts.empty() ? problem_of_replicas(plan) : counts;
}

std::string problem_of_pack(const Plan& plan, const Plan& layout, const Pack& pack) {
  const std::int64_t longest = *std::max_element(pack.sequences.begin(), pack.sequences.end());
  if (longest > plan.sequence) {
    return fmt::format("a sequence of {} tokens: set sequence to {}", longest, longest);
  }
  return runs_packed_pipeline(plan) ? problem_of_unit(layout, pack)
                                    : problem_of_group(layout, pack);
}

}  // namespace

bool runs_units_of_any_length(const ScheduleTraits& traits) {
  return traits.synchronous && !traits.splits_backward && !traits.two_directions &&
         !traits.joins_passes && !traits.shares_output_layer && !traits.shares_attention &&
         !traits.fills_frozen && !traits.cascades && !traits.by_modules && !traits.uses_servers &&
         !traits.copies_to_host && !traits.spreads_attention && !traits.runs_arcs &&
         !traits.packs_sequences && !traits.recomputes && !traits.lists_updates;
}

std::string packs_problem(const Plan& plan) {
  const bool groups = schedule_traits(plan).packs_sequences;
  if (plan.packs.empty() && !groups) {
    return "";
  }
  if (plan.network.chain.empty()) {
    return "";
  }
  std::string problem = problem_of_network(plan);
  if (problem.empty()) {
    problem = groups ? problem_of_groups(plan) : problem_of_pipeline(plan);
  }
  if (!problem.empty()) {
    return problem;
  }
  if (plan.packs.empty()) {
    return "which sequences run on which groups is missing: state \"packs\" in \"parallelism\", or "
           "let `orrery plan` find them (--lengths)";
  }
  std::int64_t sequences = 0;
  const Plan layout = without_packs(plan);
  for (const std::vector<Pack>& micro_batch : plan.packs) {
    int ranks = 0;
    for (const Pack& pack : micro_batch) {
      problem = problem_of_pack(plan, layout, pack);
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

}  // namespace orrery::plan
