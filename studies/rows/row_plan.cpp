// SPDX-License-Identifier: Apache-2.0
#include "studies/rows/row_plan.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <vector>

#include "base/error.hpp"
#include "base/limits.hpp"
#include "base/math.hpp"
#include "base/text.hpp"
#include "base/words.hpp"
#include "plan/schedule_traits.hpp"
#include "plan/stages.hpp"
#include "sim/schedule.hpp"
#include "studies/rows/degree_cells.hpp"
#include "studies/rows/row_cluster.hpp"
#include "studies/rows/row_network.hpp"
#include "studies/rows/row_recompute.hpp"
#include "studies/rows/row_words.hpp"
#include "studies/rows/settings.hpp"
#include "studies/rows/stated_adapters.hpp"
#include "studies/rows/stated_context.hpp"
#include "studies/rows/stated_dispatch.hpp"
#include "studies/rows/stated_experts.hpp"
#include "studies/rows/stated_groups.hpp"
#include "studies/rows/stated_offload.hpp"
#include "studies/rows/stated_optimizer.hpp"
#include "studies/rows/stated_overlap.hpp"
#include "studies/rows/stated_stages.hpp"
#include "studies/rows/stated_window.hpp"

namespace orrery::studies {
namespace {

using plan::BlockPlan;
using plan::Plan;

using Reason = std::optional<std::string>;

int degree(const OptionalCount& value) { return static_cast<int>(value.value_or(1)); }

Reason missing_choice(const Measurement& row) {
  const std::array<std::pair<std::string_view, const OptionalCount*>, 3> needed = {
      {{"tp", &row.tp}, {"pp", &row.pp}, {"micro_batch", &row.micro_batch}}};
  for (const auto& [name, value] : needed) {
    if (!*value || **value == 0) {
      return fmt::format("{} is not stated", name);
    }
  }
  if (row.recompute.empty()) {
    return "recompute is not stated";
  }
  if (!row.global_batch && !row.num_microbatches) {
    return "global_batch is not stated";
  }
  if (row.schedule == "interleaved" && degree(row.pp) > 1 && !row.vpp) {
    return "vpp is not stated";
  }
  return std::nullopt;
}

// Rows of the Vocabulary Parallelism artifact name the base in `schedule` and the output layer's
// schedule in `variant`.
bool is_vocabulary_variant(const Measurement& row) {
  const bool known = row.variant == "vocab-1" || row.variant == "vocab-2";
  return (known && (row.schedule == "1f1b" || row.schedule == "v-half")) ||
         (row.variant == "interlaced" && row.schedule == "1f1b");
}

Reason unmodelled_choice(const Measurement& row) {
  if (!row.variant.empty() && !is_modelled_variant(row)) {
    return fmt::format("variant \"{}\" is not modelled", printable(row.variant, 60));
  }
  if (mentions(row.gpu, "mixed")) {
    return "mixed GPUs are not modelled";
  }
  return std::nullopt;
}

// The plan's schedule, or the reason why there is none.
tl::expected<std::string, std::string> schedule_of(const Measurement& row) {
  if (row.schedule == "none" || degree(row.pp) == 1) {
    return std::string("1f1b");
  }
  if (row.schedule.empty()) {
    return tl::unexpected(std::string("schedule is not stated"));
  }
  if (row.schedule == "interleaved" && degree(row.vpp) == 1) {
    return std::string("1f1b");
  }
  if (is_vocabulary_variant(row)) {
    return row.variant;
  }
  for (const sim::Schedule* known : sim::schedule_table()) {
    if (known->name == row.schedule && known->in_plans) {
      return row.schedule;
    }
  }
  return tl::unexpected(
      fmt::format("schedule \"{}\" is not modelled", printable(row.schedule, 60)));
}

BlockPlan layout_of(const Measurement& row, const FrameworkFacts& framework) {
  BlockPlan layout;
  layout.tp = degree(row.tp);
  layout.cp = degree(row.cp);
  layout.ep = degree(row.ep);
  layout.sequence_parallel = row.sequence_parallel.value_or(false) && layout.tp > 1;
  layout.zero_stage = static_cast<int>(row.zero_stage.value_or(0));
  if (keeps_whole(framework, row.pp.value_or(1))) {
    layout.zero_stage = std::min(layout.zero_stage, 1);
  }
  layout.offload = stated_offload(row);
  layout.context =
      exchanges_heads(row) ? plan::ContextParallel::Ulysses : plan::ContextParallel::Ring;
  if (const int heads = ranks_of_heads(row); heads > 0) {
    layout.context = plan::ContextParallel::Mix;
    layout.ulysses_degree = heads;
  }
  if (const int ranks = state_shards(row); ranks < row.dp.value_or(1) * row.cp.value_or(1)) {
    layout.shard_degree = ranks;
  }
  return layout;
}

// FLOPs of the head over those of a layer (Narayanan et al. 2021, per token: 6hV and 72h^2 + 12hs).
double head_in_layers(const models::NetworkSpec& spec) {
  const double h = static_cast<double>(spec.hidden);
  return 6.0 * static_cast<double>(spec.vocab) /
         (72.0 * h + 12.0 * static_cast<double>(spec.sequence));
}

std::vector<int> stages_of(const Measurement& row, const models::Network& network, int stages,
                           int chunks) {
  const int length = static_cast<int>(network.chain.size());
  const int num_stages = stages * chunks;
  if (std::vector<int> stated = stated_stages(row, {length, stages, chunks}); !stated.empty()) {
    return stated;
  }
  if (length == num_stages) {  // embedding and head take the place of a layer each
    return std::vector<int>(static_cast<std::size_t>(num_stages), 1);
  }
  if (row.variant == "redis" && num_stages > 1 && network.spec.layers >= num_stages) {
    return redistributed_stages(static_cast<int>(network.spec.layers), num_stages,
                                head_in_layers(network.spec));
  }
  return plan::even_stages(network, num_stages);
}

tl::expected<DType, std::string> precision_of(const Measurement& row) {
  try {
    return parse_dtype(row.precision == "mxfp8" ? "fp8" : row.precision, row.where);
  } catch (const Error&) {
    return tl::unexpected(row.precision.empty() ? std::string("precision is not stated")
                                                : fmt::format("unknown precision \"{}\"",
                                                              printable(row.precision, 60)));
  }
}

// Schedules of a V and of waves have two chunks on every device, stated or not.
int chunks_of(const Measurement& row, const Plan& plan) {
  const sim::Schedule& schedule = sim::find_schedule(plan.schedule, "schedule");
  const auto allows = [&](int chunks) {
    return schedule
        .check({.stages = plan.pp,
                .micro_batches = static_cast<int>(plan.num_micro_batches()),
                .chunks = chunks})
        .empty();
  };
  const int stated = schedule.traits.uses_chunks ? degree(row.vpp) : 1;
  return stated == 1 && !allows(1) && allows(2) ? 2 : stated;
}

// Sources count slices of sequences as micro-batches, or say how many they are.
tl::expected<int, std::string> slices_of(const Measurement& row, const Plan& plan) {
  constexpr auto kNames = std::to_array<std::string_view>(
      {"slices", "slices per sequence", "token slices", "sequence slices", "sequence splits",
       "sequence split into", "sequences split into", "sequence chunks"});
  constexpr auto kOfData = std::to_array<std::string_view>({"file", "document", "shard"});
  const std::int64_t units = row.num_microbatches.value_or(0);
  const std::int64_t whole = plan.num_micro_batches();
  const std::int64_t counted = whole > 0 && units % whole == 0 ? units / whole : 0;
  const std::int64_t slices = count_in_remarks(row, kNames, kOfData).value_or(counted);
  if (slices == 0) {
    return tl::unexpected(std::string("the number of slices is not stated"));
  }
  return static_cast<int>(std::min<std::int64_t>(slices, limits::kMaxSequence));
}

// Data-parallel ranks; the column is used only where the degrees leave no doubt.
tl::expected<int, std::string> data_parallel(const Measurement& row, const Plan& plan) {
  const std::int64_t others = std::int64_t{degree(row.tp)} * degree(row.cp) * plan.pp;
  const std::int64_t gpus = plan.cluster.num_gpus();
  if (gpus % others != 0) {
    return tl::unexpected(fmt::format("tp x cp x pp = {} does not divide {} GPUs", others, gpus));
  }
  return static_cast<int>(gpus / others);
}

// Over context ranks where the framework does so, and over tensor-parallel ranks where the row or
// its framework's recipes say so or there are too few others.
void spread_experts(const Measurement& row, const FrameworkFacts& framework, Plan& plan) {
  const bool folds = folds_experts(row, framework);
  const bool too_few = plan.dp * (folds ? degree(row.cp) : 1) % degree(row.ep) != 0;
  const bool usual = too_few || recipe_keeps_experts_whole(row, folds);
  const int expert_tp = stated_expert_tp(row, folds).value_or(usual ? 1 : 0);
  for (plan::BlockRun& run : plan.blocks) {
    run.layout.expert_cp = folds ? 1 : 0;
    run.layout.expert_tp = expert_tp;
  }
}

tl::expected<Plan, std::string> assemble(const Measurement& row, const FrameworkFacts& framework,
                                         const models::NetworkSpec& spec,
                                         topologies::Cluster cluster, const std::string& schedule) {
  Plan plan;
  plan.network = models::build_network(spec, row.where);
  plan.profile = costmodel::load_profile("", cluster.gpu);
  plan.cluster = std::move(cluster);
  const auto precision = precision_of(row);
  if (!precision) {
    return tl::unexpected(precision.error());
  }
  const bool has_tf32 = plan.cluster.gpu.peak_of(DType::Tf32).value() > 0;
  plan.precision =
      *precision == DType::Fp32 && framework.tf32_products && has_tf32 ? DType::Tf32 : *precision;
  plan.sequence = spec.sequence;
  plan.pp = degree(row.pp);
  plan.schedule = schedule;
  plan.micro_batch = *row.micro_batch;
  const auto dp = data_parallel(row, plan);
  if (!dp) {
    return tl::unexpected(dp.error());
  }
  plan.dp = *dp;
  plan.batch = row.global_batch ? *row.global_batch
                                : *row.micro_batch * row.num_microbatches.value_or(1) * plan.dp;
  plan.chunks = chunks_of(row, plan);
  const bool uneven = plan.num_micro_batches() % plan.pp != 0;
  if (uneven && (schedule == "interleaved" || schedule == kJoinedPasses)) {
    plan.schedule = plan.chunks > 1 ? kUnevenInterleaved : "1f1b";
  }
  if (plan::schedule_traits(plan).uses_slices) {
    const auto slices = slices_of(row, plan);
    if (!slices) {
      return tl::unexpected(slices.error());
    }
    plan.slices = *slices;
  }
  plan.stage_blocks = stages_of(row, plan.network, plan.pp, plan.chunks);
  const auto recompute = stated_recompute(row, framework);
  if (!recompute) {
    return tl::unexpected(recompute.error());
  }
  BlockPlan layout = layout_of(row, framework);
  // ParallelLinearAdapter hands its A the gathered input, which A saves (Megatron-Bridge's
  // peft/utils.py, sequence_parallel_input_regather off).
  layout.keep_gathered = framework.adapter_rank > 0 && spec.adapters.rank > 0;
  plan.blocks =
      recomputed_runs(*recompute, static_cast<int>(plan.network.chain.size()), layout, row.where);
  if (recompute->first > 0) {
    recompute_first_layers(plan, recompute->first, recompute->operators);
  }
  spare_experts(row, plan);
  spread_experts(row, framework, plan);
  plan.execution = row_execution(row, framework);
  plan::check_plan(plan, row.where);
  return plan;
}

}  // namespace

bool is_modelled_variant(const Measurement& row) {
  return row.variant == "redis" ||
         letters_and_digits(row.variant) == letters_and_digits(row.framework) ||
         is_vocabulary_variant(row) || names_adapters(row.variant);
}

std::vector<int> redistributed_stages(int layers, int num_stages, double head_layers) {
  ORRERY_CHECK(num_stages > 1, "redistribution needs a stage before the last");
  const int others = num_stages - 1;
  const double mean = (layers + head_layers) / num_stages;
  const int last = std::clamp(static_cast<int>(std::ceil(mean - head_layers)), 0, layers - others);
  const int rest = layers - last;
  std::vector<int> stages;
  for (int stage = 0; stage < others; ++stage) {
    const bool larger = stage >= others - rest % others;
    stages.push_back(rest / others + (larger ? 1 : 0));
  }
  stages.front() += 1;
  stages.push_back(last + 1);
  return stages;
}

namespace {

// What readers of remarks make of a variant.
struct VariantReading {
  bool exchanges = false;
  plan::Offload offload;
  int optimizer = -1;
  int shards = 0;
  double capacity = 0;
  plan::Execution execution;
  bool operator==(const VariantReading&) const = default;
};

VariantReading reading_of(const Measurement& row, std::string_view variant) {
  Measurement alone;
  alone.variant = variant;
  alone.notes = variant;
  alone.framework = row.framework;
  alone.zero_stage = row.zero_stage;
  alone.dp = row.dp;
  alone.tp = row.tp;
  alone.cp = row.cp;
  alone.gpus_per_node = row.gpus_per_node;
  const auto optimizer = stated_optimizer(alone);
  Measurement words;
  words.variant = variant;
  return {exchanges_heads(words),
          stated_offload(alone),
          optimizer ? optimizer->state_bytes : -1,
          state_shards(alone),
          capacity_factor(alone),
          row_execution(alone, framework_of(row).facts)};
}

}  // namespace

std::vector<std::string> unread_variant(const Measurement& row) {
  const VariantReading plain = reading_of(row, "");
  const VariantReading whole = reading_of(row, row.variant);
  if (whole == plain) {
    return {row.variant};
  }
  constexpr std::ptrdiff_t kMostParts = 32;  // each is read by itself
  const std::string parts = with_signs_as(row.variant, "+,", ';');
  if (std::ranges::count(parts, ';') > kMostParts) {
    return {row.variant};
  }
  std::vector<std::string> lines;
  for (const std::string_view part : split(parts, ';')) {
    std::string rest = parts;
    rest.erase(static_cast<std::size_t>(part.data() - parts.data()), part.size());
    const bool changes = reading_of(row, part) != plain || reading_of(row, rest) != whole;
    if (!changes && !trim(part).empty()) {
      lines.emplace_back(trim(part));
    }
  }
  return lines;
}

tl::expected<Plan, std::string> row_plan(const Measurement& row) {
  const FrameworkFacts& framework = framework_of(row).facts;
  const auto network = row_network(row, framework);
  if (!network) {
    return tl::unexpected(network.error());
  }
  for (const Reason& reason : {missing_choice(row), unmodelled_choice(row)}) {
    if (reason) {
      return tl::unexpected(*reason);
    }
  }
  const auto schedule = schedule_of(row);
  if (!schedule) {
    return tl::unexpected(schedule.error());
  }
  try {
    auto cluster = row_cluster(row);
    if (!cluster) {
      return tl::unexpected(cluster.error());
    }
    return assemble(row, framework, *network, std::move(*cluster),
                    schedule_with_exchanges(row, *schedule));
  } catch (const Error& error) {
    return tl::unexpected(std::string(error.what()));
  }
}

}  // namespace orrery::studies
