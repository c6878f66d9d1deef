// SPDX-License-Identifier: Apache-2.0
#include "studies/rows/row_choice.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "base/text.hpp"
#include "base/words.hpp"
#include "plan/simulation/simulate.hpp"
#include "studies/rows/assumptions.hpp"
#include "studies/rows/bridge_recipes.hpp"
#include "studies/rows/framework_facts.hpp"
#include "studies/rows/row_plan.hpp"
#include "studies/rows/row_recompute.hpp"
#include "studies/rows/stated_overlap.hpp"

namespace orrery::studies {
namespace {

using plan::Plan;
using PlanOrReason = tl::expected<Plan, std::string>;

constexpr std::int64_t kMostSequences = 64;  // of a micro-batch
constexpr std::int64_t kMostChunks = 8;      // of a device; a stated number may be larger

// What is tuned; a row that states the number of micro-batches states their size.
struct OpenChoices {
  explicit OpenChoices(const Measurement& row)
      : micro_batch(!row.micro_batch && !row.num_microbatches && usual_micro_batches(row) == 0),
        chunks(row.schedule == "interleaved" && row.pp.value_or(1) > 1 && !row.vpp &&
               !row.most_chunks),
        recompute(row.recompute.empty()),
        stage(!row.zero_stage) {}
  bool micro_batch;
  bool chunks;
  bool recompute;
  bool stage;  // of ZeRO
};

std::vector<std::int64_t> micro_batches(const Measurement& row, const Plan& plan) {
  const std::int64_t samples = row.global_batch.value_or(0) / std::max(1, plan.dp);
  std::vector<std::int64_t> sizes;
  for (std::int64_t size = 1; size <= std::min(samples, kMostSequences); size *= 2) {
    if (samples % size == 0) {
      sizes.push_back(size);
    }
  }
  return sizes;
}

// Chunks into which the layers divide evenly, alone or with embedding and head as one each.
std::vector<std::int64_t> chunk_counts(const Measurement& row) {
  const std::int64_t layers = row.layers.value_or(0);
  const std::int64_t pp = std::max<std::int64_t>(1, row.pp.value_or(1));
  std::vector<std::int64_t> counts;
  for (std::int64_t chunks = 1; chunks <= kMostChunks; ++chunks) {
    if (layers % (chunks * pp) == 0 || (layers + 2) % (chunks * pp) == 0) {
      counts.push_back(chunks);
    }
  }
  return counts;
}

int most_layers(const Plan& plan) {
  return *std::max_element(plan.stage_blocks.begin(), plan.stage_blocks.end());
}

// Sizes are chosen such that stages divide the micro-batches, which most versions of Megatron need.
bool is_uneven(const Plan& plan) { return plan.schedule == kUnevenInterleaved; }

bool fits(const Plan& plan) { return plan::Simulator(plan).fits(plan).fits; }

struct Choice {
  Plan plan;
  int recomputed = 0;  // layers of a virtual stage
  bool fits = false;
  double time = 0;
};

// The least recomputation that fits; all layers where even that does not.
Choice least_recomputation(const Plan& plan) {
  Choice choice{plan, 0, fits(plan), 0};
  int too_few = 0;
  int enough = most_layers(plan);
  if (choice.fits) {
    return choice;
  }
  const auto with = [&](int layers) {
    Plan changed = plan;
    recompute_first_layers(changed, layers);
    return changed;
  };
  choice = {with(enough), enough, fits(with(enough)), 0};
  while (choice.fits && enough - too_few > 1) {
    const int layers = too_few + (enough - too_few) / 2;
    Plan changed = with(layers);
    if (fits(changed)) {
      choice = {std::move(changed), layers, true, 0};
      enough = layers;
    } else {
      too_few = layers;
    }
  }
  return choice;
}

// What the configuration or recipe behind a row recomputes, where the row does not say; the line
// for it.
std::string follow_recipe(Measurement& row) {
  const std::string_view usual = framework_of(row).facts.recompute;
  if (row.recompute.empty() && !usual.empty()) {
    const bool policy = usual != "none" && usual != "full";
    row.recompute = policy ? "selective" : usual;
    row.recompute_detail = policy ? usual : "";
    return fmt::format("recompute {} (the configuration's)", usual);
  }
  const std::optional<BridgeRecipe> recipe = bridge_recipe(row);
  if (!row.recompute.empty() || !recipe || recipe->recomputed.empty()) {
    return "";
  }
  row.recompute = "custom";
  row.recompute_detail = recipe->recomputed;
  return fmt::format("recompute {} (the recipe's)", recipe->recomputed);
}

// How the plan hides exchanges between experts, or that it does not what the row says it does.
std::string hidden_exchanges(const Measurement& row, const Plan& plan) {
  if (plan.schedule == kJoinedPasses && row.schedule != kJoinedPasses) {
    return fmt::format("schedule {} as {}: tokens travel beside other passes",
                       row.schedule.empty() ? "none" : row.schedule, kJoinedPasses);
  }
  const bool stated = stated_hidden_exchanges(row).value_or(false);
  return stated && plan.schedule != kJoinedPasses
             ? "overlap between experts as not stated: passes cannot join"
             : "";
}

// Whole layers a stage that the recipes behind a row recompute. Those of Megatron-Bridge name them;
// most recompute none, at most operators of little time, and keep memory down by other means
// (NVIDIA-NeMo/Megatron-Bridge scripts/performance/configs and src/megatron/bridge/perf_recipes,
// v0.2.0 to v0.6.0: recompute_num_layers).
std::optional<int> recipe_layers(const Measurement& row) {
  if (framework_of(row).facts.name != "Megatron-Bridge") {
    return std::nullopt;
  }
  const bool small = letters_and_digits(row.model_name).find("llama38b") != std::string::npos &&
                     mentions(row.gpu, "H100");
  return small && row.precision == "fp8" ? 5 : 0;
}

Choice recipe_recomputation(const Plan& plan, int layers) {
  Choice choice{plan, layers, false, 0};
  recompute_first_layers(choice.plan, layers);
  choice.fits = fits(choice.plan);
  return choice;
}

class Chooser {
 public:
  Chooser(Measurement& row, std::vector<std::string>& assumed)
      : row_(row), assumed_(assumed), open_(row) {
    const std::string stated = row_.recompute;
    assumed_ = assume_defaults(row_);
    // Words that mean no operators and no layers leave it open, too.
    open_.recompute |= !row_.full && stated == "custom" && row_.recompute == "none";
  }

  PlanOrReason run() {
    PlanOrReason usual = row_plan(row_);
    if (usual && open_.stage && !row_.zero_stage) {
      shard_until_it_fits(*usual);
    }
    if (!usual || (!open_.micro_batch && !open_.chunks && !open_.recompute)) {
      return usual;
    }
    const bool tuned = open_.micro_batch || open_.chunks;
    Choice best = complete(*usual, tuned);
    OptionalCount micro_batch = row_.micro_batch;
    OptionalCount chunks = row_.vpp;
    if (tuned) {
      for (const Measurement& other : others(*usual)) {
        const PlanOrReason plan = row_plan(other);
        if (!plan || (is_uneven(*plan) && !is_uneven(*usual))) {
          continue;
        }
        Choice choice = complete(*plan, true);
        if (choice.fits && (!best.fits || choice.time < best.time)) {
          best = std::move(choice);
          micro_batch = other.micro_batch;
          chunks = other.vpp;
        }
      }
    }
    explain(best, micro_batch, chunks);
    row_.micro_batch = micro_batch;
    row_.vpp = chunks;
    return std::move(best.plan);
  }

 private:
  // With everything recomputed where the row leaves that open.
  bool may_fit(Plan plan) const {
    if (open_.recompute) {
      recompute_first_layers(plan, most_layers(plan));
    }
    return fits(plan);
  }

  // The first stage of ZeRO with which the plan fits; stages of a pipeline share optimizer states
  // at most, since they would gather parameters for every micro-batch.
  void shard_until_it_fits(Plan& usual) {
    const std::int64_t most = usual.dp == 1 || may_fit(usual) ? 0 : usual.pp > 1 ? 1 : 3;
    for (std::int64_t stage = 1; stage <= most; ++stage) {
      Measurement sharded = row_;
      sharded.zero_stage = stage;
      PlanOrReason plan = row_plan(sharded);
      if (plan && may_fit(*plan)) {
        row_.zero_stage = stage;
        usual = std::move(*plan);
        assumed_.push_back(fmt::format("zero_stage {} (the first that fits)", stage));
        return;
      }
    }
  }

  Choice complete(const Plan& plan, bool timed) const {
    const std::optional<int> stated = recipe_layers(row_);
    Choice choice = !open_.recompute ? Choice{plan, 0, fits(plan), 0}
                    : stated         ? recipe_recomputation(plan, *stated)
                                     : least_recomputation(plan);
    if (timed && choice.fits) {
      choice.time = plan::simulate(choice.plan, {.record_spans = false}).iteration_time.value();
    }
    return choice;
  }

  std::vector<Measurement> others(const Plan& usual) const {
    std::vector<std::int64_t> sizes = {row_.micro_batch.value_or(1)};
    std::vector<OptionalCount> chunks = {row_.vpp};
    if (open_.micro_batch) {
      sizes = micro_batches(row_, usual);
    }
    if (open_.chunks) {
      const auto counts = chunk_counts(row_);
      chunks.assign(counts.begin(), counts.end());
    }
    std::vector<Measurement> rows;
    for (const std::int64_t size : sizes) {
      for (const OptionalCount& count : chunks) {
        if (size != row_.micro_batch || count != row_.vpp) {
          rows.push_back(row_);
          rows.back().micro_batch = size;
          rows.back().vpp = count;
        }
      }
    }
    return rows;
  }

  void replace(std::string_view what, const std::string& text) {
    for (std::string& line : assumed_) {
      if (line.starts_with(what)) {
        line = text;
      }
    }
  }

  void explain(const Choice& best, const OptionalCount& micro_batch, const OptionalCount& chunks) {
    const std::string_view how = best.fits ? "the fastest that fits" : "nothing fits";
    if (open_.micro_batch) {
      replace("micro_batch ", fmt::format("micro_batch {} ({})", micro_batch.value_or(1), how));
    }
    if (open_.chunks) {
      replace("vpp ", fmt::format("vpp {} ({})", chunks.value_or(1), how));
    }
    if (best.recomputed > 0) {
      const bool all = best.recomputed == most_layers(best.plan);
      const std::string_view why = recipe_layers(row_) ? "the recipe's" : "the least that fits";
      replace("recompute ",
              all ? std::string("recompute full (the plan does not fit without)")
                  : fmt::format("recompute {} layers of a stage ({})", best.recomputed, why));
    }
  }

  Measurement& row_;
  std::vector<std::string>& assumed_;
  OpenChoices open_;
};

}  // namespace

PlanOrReason chosen_plan(Measurement& row, std::vector<std::string>& assumed) {
  const std::string recomputed = follow_recipe(row);
  PlanOrReason plan = Chooser(row, assumed).run();
  const std::string hidden = plan ? hidden_exchanges(row, *plan) : std::string();
  for (const std::string& line : {recomputed, hidden}) {
    if (!line.empty()) {
      assumed.push_back(line);
    }
  }
  return plan;
}

}  // namespace orrery::studies
