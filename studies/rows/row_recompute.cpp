// SPDX-License-Identifier: Apache-2.0
#include "studies/rows/row_recompute.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>
#include <utility>

#include "base/text.hpp"
#include "base/words.hpp"
#include "studies/rows/recompute_operators.hpp"
#include "studies/rows/recomputed_layers.hpp"
#include "studies/rows/row_words.hpp"
#include "studies/rows/stated_gradients.hpp"
#include "studies/rows/stated_offload.hpp"

namespace orrery::studies {
namespace {

using plan::BlockRun;
using plan::Recompute;

// Whether full recomputation leaves out the last product, whose result no backward reads where the
// residual is added without dropout. llm-foundry's runs with mixed precision PURE are those of its
// first table, of May 2023 and PyTorch 1.13.1 (scripts/train/benchmarking/sweep.sh).
bool leaves_out_last_product(const Measurement& row, const FrameworkFacts& framework) {
  return framework.stops_recomputation && !framework.gpt_dropout && row.experts.value_or(0) == 0 &&
         !has_pure_precision(row);
}

std::string whole_layer(const Measurement& row, const FrameworkFacts& framework) {
  return leaves_out_last_product(row, framework)
             ? "norms+qkv+rotary+attention+attention-output+mlp-up+mlp-activation+residuals"
             : "full";
}

// "selective + layernorm": beside the attention core.
bool adds_to_selective(std::string_view detail) {
  constexpr auto kJoints = std::to_array<std::string_view>(
      {"selective +", "selective and ", "selective plus ", "selective, plus ", "+ selective"});
  return says_any(detail, kJoints);
}

// "attention only": of full recomputation no layer as a whole.
bool names_parts_only(std::string_view detail) {
  constexpr auto kOnly = std::to_array<std::string_view>({"only"});
  return has_word(detail, kOnly) && detail.find("layers") == detail.npos &&
         !recomputed_operators(detail).empty();
}

// Of a framework whose selective recomputation is that of some whole layers.
StatedRecompute selected_layers(const Measurement& row, const FrameworkFacts& framework) {
  const double share = share_of_counts(row).value_or(1);
  const LayerShare layers = share_of_fraction(share);
  constexpr double kNone = 0.0005;  // a share of no thousandth
  return share < kNone
             ? StatedRecompute{"none", 1, 0}
             : StatedRecompute{whole_layer(row, framework), layers.every, 0, layers.share};
}

// Selective recomputation as Megatron-LM means it (the attention core) unless the row names
// operators, layers or torchtitan's form "per-op", which keeps every second product and which its
// train configs ask for (torchtitan/models/llama3/train_configs: selective_ac_option = "op").
StatedRecompute selective(const Measurement& row, const FrameworkFacts& framework,
                          std::string_view detail) {
  std::string operators = recomputed_operators(detail);
  if (const auto [share, every] = stated_share(detail, false); every > 1) {
    return {operators.empty() ? whole_layer(row, framework) : operators, every, 0, share};
  }
  const bool titan = framework.name == "torchtitan";
  if (const LayerShare layers = titan ? share_of_option(detail) : LayerShare(); layers.every > 1) {
    return {whole_layer(row, framework), layers.every, 0, layers.share};
  }
  if (names_operators_apart(detail, titan) || (titan && detail.empty())) {
    return {"products", 1, 0};
  }
  if (framework.selects_layers && operators.empty()) {
    return selected_layers(row, framework);
  }
  if (operators.empty() || operators == "attention-core") {
    return {"selective", 1, 0};
  }
  if (adds_to_selective(detail) && operators.find("attention") == operators.npos) {
    operators.append("+attention-core");
  }
  return {std::move(operators), 1, 0};
}

// Which end of the network recomputes does not change how long a pass of all of it takes.
constexpr auto kEnds = std::to_array<std::string_view>({"first ", "last "});

// Whether a detail that names neither a share nor a number of layers says something known; numbers
// only beside words for what they count.
bool is_read(std::string_view detail, bool titan) {
  constexpr auto kUnspecific =
      std::to_array<std::string_view>({"n layer", "some layer", "? layer"});
  constexpr auto kCounting =
      std::to_array<std::string_view>({"all", "every", "uniform", "100", "flash", "per-op"});
  if (states_interval(detail) || names_operators_apart(detail, titan) ||
      (titan && share_of_option(detail).every > 1)) {
    return true;
  }
  constexpr auto kKnown =
      std::to_array<std::string_view>({"full", "selective", "layer", "sac", "checkpoint",
                                       "recomput", "remat", "offload", "none", "granularity"});
  const bool number = detail.find_first_of("0123456789") != detail.npos;
  return !says_any(detail, kUnspecific) &&
         (says_any(detail, kCounting) || (!number && says_any(detail, kKnown)) ||
          detail.find("offload") != detail.npos || !recomputed_operators(detail).empty());
}

// Which layers a framework that selects whole ones was taken to recompute; empty where that is read
// from the row's words or nothing is to say.
std::string assumed_layers(const Measurement& row, const std::string& detail) {
  if (row.recompute != "selective" || !framework_of(row).facts.selects_layers ||
      stated_share(detail, false).every > 1 || !recomputed_operators(detail).empty()) {
    return "";
  }
  const std::optional<double> share = share_of_counts(row);
  return share ? fmt::format("recompute selective as {:.0f} % of the layers (hfu over mfu)",
                             100 * *share)
               : "recompute selective as all layers (what the framework selects by default)";
}

// Of layers or operators, whatever the row calls its recomputation.
bool speaks_of_recomputation(std::string_view detail) {
  constexpr auto kWords =
      std::to_array<std::string_view>({"full", "selective", "checkpoint", "recomput", "per-op"});
  return says_any(detail, kWords) || layers_of_a_stage(detail) > 0 ||
         stated_share(detail, true).every > 1;
}

}  // namespace

tl::expected<StatedRecompute, std::string> stated_recompute(const Measurement& row,
                                                            const FrameworkFacts& framework) {
  const std::string detail = to_lower(row.recompute_detail);
  if (row.recompute != "none" && names_some_stages(detail)) {
    return tl::unexpected(fmt::format("recomputation of some stages (\"{}\") is not modelled",
                                      printable(row.recompute_detail, 60)));
  }
  if (row.recompute == "full" && names_parts_only(detail)) {
    return selective(row, framework, detail);
  }
  if (row.recompute == "full") {
    const int first = layers_of_a_stage(detail);
    const auto [share, every] = first > 0 ? LayerShare() : share_of_layers(row, detail);
    std::string others = operators_but_kept(detail);
    return StatedRecompute{others.empty() ? whole_layer(row, framework) : std::move(others), every,
                           first, share};
  }
  if (row.recompute == "selective") {
    return selective(row, framework, detail);
  }
  if (row.recompute != "custom") {
    return StatedRecompute{row.recompute, 1, 0};
  }
  std::string operators = recomputed_operators(detail);
  if (const auto [share, every] = stated_share(detail, false); every > 1) {
    return StatedRecompute{operators.empty() ? whole_layer(row, framework) : operators, every, 0,
                           share};
  }
  if (const int first = layers_of_a_stage(detail); first > 0) {
    return StatedRecompute{whole_layer(row, framework), 1, first, 1};
  }
  if (operators.empty()) {
    return tl::unexpected(detail.empty() ? std::string("custom recomputation is not modelled")
                                         : fmt::format("recomputation \"{}\" is not modelled",
                                                       printable(detail, 60)));
  }
  return StatedRecompute{std::move(operators), 1, 0};
}

std::vector<std::string> unread_recompute(const Measurement& row) {
  const std::string detail = to_lower(row.recompute_detail);
  const bool full = row.recompute == "full";
  const bool custom = row.recompute == "custom";
  if (row.recompute == "none" && speaks_of_recomputation(asserted(detail))) {
    return {fmt::format("recompute none, not \"{}\"", printable(row.recompute_detail, 60))};
  }
  if (std::string assumed = assumed_layers(row, detail); !assumed.empty()) {
    return {std::move(assumed)};
  }
  if (detail.empty() || (!full && !custom && row.recompute != "selective")) {
    return {};
  }
  const int first = layers_of_a_stage(detail);
  const LayerShare layers = full ? share_of_layers(row, detail) : stated_share(detail, false);
  const std::int64_t stages = row.pp.value_or(1) * row.vpp.value_or(1);
  const std::int64_t most =
      (row.layers.value_or(0) + stages - 1) / std::max<std::int64_t>(1, stages);
  std::vector<std::string> lines;
  if (full && first > 0 && first <= most && lacks_method(detail)) {
    lines.push_back(fmt::format("recompute_num_layers {} without a method as block: {} of a stage",
                                first, counted(first, "layer")));
  }
  if (full && first == 0 && layers.every == 1 && !names_parts_only(detail) &&
      operators_but_kept(detail).empty() && !recomputed_operators(detail).empty()) {
    lines.push_back(
        fmt::format("recompute full, not \"{}\" alone", printable(row.recompute_detail, 60)));
  }
  if (layers.every > 1 && says_any(detail, kEnds)) {
    lines.push_back(fmt::format("recomputation \"{}\" as {} of every {} layers",
                                printable(row.recompute_detail, 60), layers.share, layers.every));
  } else if ((full || custom) && first > most && row.layers) {
    lines.push_back(fmt::format("recomputation of {} layers as of all {} of a stage", first, most));
  } else if (!custom && layers.every == 1 && (!full || first == 0) &&
             !is_read(detail, framework_of(row).facts.name == "torchtitan")) {
    lines.push_back(
        fmt::format("recompute_detail \"{}\" as not stated", printable(row.recompute_detail, 60)));
  }
  if (detail.find("offload") != detail.npos && !stated_offload(row).any() &&
      asserted(detail).find("offload") != std::string::npos) {
    lines.push_back(fmt::format("offload in \"{}\" as not stated: of which tensors?",
                                printable(row.recompute_detail, 60)));
  }
  return lines;
}

std::vector<BlockRun> recomputed_runs(const StatedRecompute& stated, int length,
                                      const plan::BlockPlan& layout, const std::string& where) {
  plan::BlockPlan recomputed = layout;
  plan::set_recompute(stated.operators, where, recomputed);
  if (stated.first > 0) {
    return {{length, layout}};
  }
  if (stated.every == 1) {
    return {{length, recomputed}};
  }
  std::vector<BlockRun> runs;
  for (int position = 0; position < length; ++position) {
    runs.push_back(
        {1, position * stated.share % stated.every < stated.share ? recomputed : layout});
  }
  return runs;
}

namespace {

void add_run(const BlockRun& run, std::vector<BlockRun>& runs) {
  if (!runs.empty() && runs.back().layout == run.layout) {
    runs.back().count += run.count;
  } else {
    runs.push_back(run);
  }
}

plan::OperatorSet without_products(plan::OperatorSet set, bool keeps_activation) {
  plan::OperatorSet rest;
  for (const plan::OperatorGroup group : set.groups()) {
    const bool product =
        group == plan::OperatorGroup::MlpUp || group == plan::OperatorGroup::MlpDown;
    if (!product && (keeps_activation || group != plan::OperatorGroup::MlpActivation)) {
      rest.add(group);
    }
  }
  return rest;
}

}  // namespace

void spare_experts(const Measurement& row, plan::Plan& plan) {
  constexpr auto kModule = std::to_array<std::string_view>({"mlp"});
  const std::string_view framework = framework_of(row).facts.name;
  const std::string detail = to_lower(row.recompute_detail);
  const bool of_megatron = mentions(framework, "Megatron") || framework == "NeMo";
  if (!of_megatron || !has_word(detail, kModule)) {
    return;
  }
  const bool activation = detail.find("moe_act") != detail.npos;
  std::vector<BlockRun> runs;
  for (std::size_t position = 0; position < plan.network.chain.size(); ++position) {
    BlockRun run{1, plan.layout_of(static_cast<int>(position))};
    const auto block = static_cast<std::size_t>(plan.network.chain[position]);
    if (plan.network.blocks[block].experts > 0 && run.layout.recompute == Recompute::Operators) {
      run.layout.recomputed = without_products(run.layout.recomputed, activation);
      run.layout.recompute = run.layout.recomputed.empty() ? Recompute::None : Recompute::Operators;
    }
    add_run(run, runs);
  }
  plan.blocks = std::move(runs);
}

void recompute_first_layers(plan::Plan& plan, int layers, const std::string& operators) {
  std::vector<BlockRun> runs;
  std::size_t position = 0;
  for (const int blocks : plan.stage_blocks) {
    int done = 0;
    for (int index = 0; index < blocks; ++index, ++position) {
      const auto block = static_cast<std::size_t>(plan.network.chain[position]);
      BlockRun run{1, plan.layout_of(static_cast<int>(position))};
      if (plan.network.blocks[block].kind == models::BlockKind::Layer && done++ < layers) {
        plan::set_recompute(operators, "recompute", run.layout);
      }
      add_run(run, runs);
    }
  }
  plan.blocks = std::move(runs);
}

}  // namespace orrery::studies
