// SPDX-License-Identifier: Apache-2.0
#include "plan/slices.hpp"

#include <fmt/format.h>

#include <numeric>

#include "plan/plan.hpp"
#include "plan/schedule_traits.hpp"

namespace orrery::plan {

namespace {

constexpr int kMaxSlices = 4096;  // each is costed by itself

std::int64_t tokens_of(const Plan& plan, int slice) {
  return plan.slice_tokens.empty() ? plan.sequence / plan.slices
                                   : plan.slice_tokens[static_cast<std::size_t>(slice)];
}

// The next number of equal slices that divides the sequence: more, or fewer when there is none.
std::int64_t next_divisor(std::int64_t sequence, std::int64_t slices) {
  std::int64_t next = slices;
  while (next < sequence && sequence % next != 0) {
    ++next;
  }
  return next;
}

std::string problem_of_network(const models::NetworkSpec& spec) {
  const bool decodes = spec.family == models::Family::Gpt || spec.family == models::Family::Llama;
  if (!decodes || !spec.causal) {
    return fmt::format("slices need a causal decoder, and tokens of {} attend to later ones",
                       spec.name);
  }
  return spec.encoder.layers > 0
             ? "slices cut the sequence of a decoder alone, and this network has an encoder"
             : "";
}

std::string problem_of_count(const Plan& plan) {
  if (plan.slices > plan.sequence) {
    return fmt::format("slices = {} are more than the {} tokens of a sequence: set slices to {}",
                       plan.slices, plan.sequence, plan.sequence);
  }
  if (plan.slices > kMaxSlices) {
    return fmt::format("slices = {}: at most {} are simulated", plan.slices, kMaxSlices);
  }
  if (plan.slice_tokens.empty()) {
    return plan.sequence % plan.slices == 0
               ? ""
               : fmt::format(
                     "sequence = {} is not divisible by slices = {}: set slices to {}, or "
                     "list the tokens of every slice",
                     plan.sequence, plan.slices, next_divisor(plan.sequence, plan.slices));
  }
  if (static_cast<int>(plan.slice_tokens.size()) != plan.slices) {
    return fmt::format("{} slices, but the tokens of {} are listed", plan.slices,
                       plan.slice_tokens.size());
  }
  const std::int64_t sum =
      std::accumulate(plan.slice_tokens.begin(), plan.slice_tokens.end(), std::int64_t{0});
  if (sum != plan.sequence) {
    return fmt::format(
        "the slices have {} tokens, but the sequence has {}: the last slice must "
        "have {}",
        sum, plan.sequence, plan.slice_tokens.back() + plan.sequence - sum);
  }
  if (schedule_traits(plan).shares_attention) {
    return fmt::format(
        "schedule \"{}\" exchanges work between slices of equal length: give their number",
        plan.schedule);
  }
  return "";
}

// A slice needs the keys and values of the tokens before it and nothing of those after it.
std::string problem_of_layout(const BlockPlan& layout, const Plan& plan) {
  if (layout.variables != BlockPlan().variables) {
    return "slices are modelled with the usual variables of every axis: leave `variables` out, or "
           "set slices to 1";
  }
  // Of a causal ring every rank has two chunks of a slice.
  const bool ring = layout.cp > 1 && layout.context == ContextParallel::Ring;
  const std::int64_t shards = std::int64_t{layout.cp} * (layout.sequence_parallel ? layout.tp : 1);
  const std::int64_t ranks = ring ? std::lcm(shards, std::int64_t{2} * layout.cp) : shards;
  for (int slice = 0; slice < plan.slices; ++slice) {
    if (tokens_of(plan, slice) % ranks != 0) {
      const std::string fewer =
          plan.slice_tokens.empty() && plan.sequence % ranks == 0
              ? fmt::format(": set slices to {}",
                            std::gcd(plan.sequence / ranks, std::int64_t{plan.slices}))
              : "";
      return fmt::format(
          "slice {} has {} tokens, which {} ranks share ({}{}): it must be a multiple "
          "of {}{}",
          slice, tokens_of(plan, slice), shards,
          layout.sequence_parallel ? "tp x cp, sequence_parallel" : "cp",
          ring ? "; a causal ring: two chunks each" : "", ranks, fewer);
    }
  }
  return "";
}

}  // namespace

std::vector<Slice> slices_of(const Plan& plan) {
  if (plan.slices == 1) {
    return {Slice{}};
  }
  std::vector<Slice> slices;
  std::int64_t start = 0;
  for (int index = 0; index < plan.slices; ++index) {
    slices.push_back({start, tokens_of(plan, index), index + 1 == plan.slices});
    start += slices.back().tokens;
  }
  return slices;
}

std::string slices_problem(const Plan& plan) {
  const bool whole = plan.slice_tokens.empty() || plan.slice_tokens.front() == plan.sequence;
  if (plan.slices == 1 && whole) {
    return "";
  }
  if (!schedule_traits(plan).uses_slices) {
    const bool other = problem_of_network(plan.network.spec).empty();
    return fmt::format("schedule \"{}\" does not cut sequences, but slices = {}: set slices to 1{}",
                       plan.schedule, plan.slices, other ? ", or the schedule to \"seq1f1b\"" : "");
  }
  if (const std::string problem = problem_of_network(plan.network.spec); !problem.empty()) {
    return fmt::format(
        "{}: set slices to 1{}", problem,
        schedule_traits(plan).shares_attention ? " and the schedule to \"1f1b\"" : "");
  }
  std::string problem = problem_of_count(plan);
  if (problem.empty() && schedule_traits(plan).shares_output_layer && plan.blocks.size() > 1) {
    problem =
        "slices between layers and an output layer over all stages are not converted: give all "
        "blocks one layout";
  }
  for (const BlockRun& run : plan.blocks) {
    if (problem.empty()) {
      problem = problem_of_layout(run.layout, plan);
    }
  }
  return problem;
}

}  // namespace orrery::plan
