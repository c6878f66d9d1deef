// SPDX-License-Identifier: Apache-2.0
#include "studies/rows/blank_cells.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "base/words.hpp"
#include "models/blocks.hpp"
#include "studies/rows/framework_facts.hpp"
#include "studies/rows/named_network.hpp"
#include "studies/rows/row_family.hpp"
#include "studies/rows/row_plan.hpp"

namespace orrery::studies {
namespace {

using plan::BlockPlan;
using plan::Execution;
using plan::Plan;

// Blocks of GPT and BERT have keys of every head and an MLP of four times the width: others state
// what they have.
bool has_plain_blocks(const models::NetworkSpec& spec) {
  return spec.position != models::PositionKind::Rotary && !models::is_gated(spec.activation);
}

class BlankCells {
 public:
  BlankCells(const Measurement& stated, const Measurement& completed, const Plan& plan)
      : stated_(stated),
        row_(completed),
        plan_(plan),
        layout_(plan.layout_of(1)),  // of the first layer
        framework_(framework_of(completed).facts) {}

  std::vector<std::string> run() {
    network();
    cluster();
    layout();
    kernels();
    overlap();
    software();
    return std::move(lines_);
  }

 private:
  template <typename... Arguments>
  void say(fmt::format_string<const Arguments&...> text, const Arguments&... arguments) {
    lines_.push_back(fmt::format(text, arguments...));
  }

  void network() {
    const models::NetworkSpec& spec = plan_.network.spec;
    const bool whole = !stated_.layers && named_network(row_);  // all of it is of its name
    if (stated_.model_family.empty() && family_of(row_) != nullptr && !whole) {
      say("model_family {}", family_of(row_)->name);
    }
    if (spec.family == models::Family::T5 || spec.family == models::Family::Vit) {
      return;
    }
    const bool open = !has_plain_blocks(spec);
    const bool latent = spec.mla.kv_lora_rank > 0;
    if (open && !latent && !row_.kv_heads) {
      say("kv_heads {}, as many as heads", spec.kv_heads);
    }
    if (open && !latent && !row_.head_dim) {
      say("head_dim {}, hidden over heads", spec.head_dim);
    }
    if (open && !row_.ffn_hidden && spec.moe.experts == 0) {
      say("ffn_hidden {}, four times hidden", spec.ffn_hidden);
    }
    if (!row_.tied_embeddings && spec.classes == 0) {
      say("tied_embeddings {}", spec.tied_embeddings ? 1 : 0);
    }
    if (spec.moe.experts > 1) {
      experts(spec.moe);
    }
  }

  void experts(const models::MoeSpec& moe) {
    if (!row_.moe_ffn_hidden) {
      say("moe_ffn_hidden {}, that of ffn_hidden", moe.ffn_hidden);
    }
    if (!row_.shared_expert_ffn) {
      say("shared_expert_ffn {}", moe.shared_ffn_hidden);
    }
    if (!row_.first_dense_layers) {
      say("first_dense_layers {}", moe.first_dense_layers);
    }
    if (!row_.ep && plan_.cluster.num_gpus() > 1) {
      say("ep {}", layout_.ep);
    }
  }

  void cluster() {
    if (row_.gpus_per_node || plan_.cluster.num_gpus() == 1) {
      return;
    }
    const topologies::Node& node = plan_.cluster.node;
    const bool domain = node.scale_up.wiring == topologies::Wiring::RackCrossbar;
    if (!domain || plan_.cluster.num_nodes > 1) {
      say("gpus_per_node {}, {} of {}", node.gpus, domain ? "an NVLink domain" : "those",
          node.name);
    }
  }

  void layout() {
    if (!row_.sequence_parallel && layout_.tp > 1) {
      say("sequence_parallel {} (the default of {})", layout_.sequence_parallel ? 1 : 0,
          framework_.name);
    }
    if (!row_.zero_stage && plan_.dp * layout_.cp > 1) {
      say("zero_stage {} (the default of {})", layout_.zero_stage, framework_.name);
    }
    const bool open = stated_.recompute == "selective" && stated_.recompute_detail.empty();
    if (open && layout_.recompute != plan::Recompute::Selective && !framework_.selects_layers) {
      say("selective recomputation as {}", plan::recompute_text(layout_));
    } else if (open && layout_.recompute == plan::Recompute::Selective && !is_of_megatron()) {
      say("selective recomputation as Megatron-LM's, of the attention core");
    }
  }

  bool is_of_megatron() const {
    constexpr auto kRelatives = std::to_array<std::string_view>(
        {"Mega", "NeMo", "launcher", "zero-bubble", "Vocab", "TeraPipe", "LargeScale", "Skywork"});
    return std::ranges::any_of(kRelatives, [&](std::string_view name) {
      return framework_.name.starts_with(name) || mentions(framework_.name, "megatron");
    });
  }

  void kernels() {
    const Execution& execution = plan_.execution;
    if (stated_.attention_impl.empty() && row_.attention_impl.empty()) {
      const std::string fused = execution.flash_version == 0
                                    ? std::string("the GPU's best fused kernel")
                                    : fmt::format("FlashAttention-{}", execution.flash_version);
      say("attention_impl {}", execution.fused_attention ? fused : "with materialised scores");
    }
    if (row_.precision == "fp8" && stated_.precision == "fp8" && stated_.precision_detail.empty()) {
      say("fp8 with {} scales", plan::to_text(execution.fp8_scaling));
    }
  }

  // What travels beside kernels, of what the plan has to send at all.
  void overlap() {
    const Execution& execution = plan_.execution;
    if (!stated_.overlap.empty() || plan_.cluster.num_gpus() == 1) {
      return;
    }
    std::vector<std::string_view> hidden;
    const auto add = [&hidden](bool sends, bool beside, std::string_view what) {
      if (sends && beside) {
        hidden.push_back(what);
      }
    };
    add(plan_.dp > 1, execution.overlap_grad_reduce, "gradients");
    add(plan_.dp > 1 && layout_.zero_stage > 0, execution.overlap_param_gather, "parameters");
    add(plan_.pp > 1, execution.overlap_p2p, "messages between stages");
    add(layout_.tp > 1, execution.overlap_tp, "tensor-parallel sums of the backward");
    add(layout_.tp > 1, execution.stream_tp, "tensor-parallel collectives in pieces");
    if (hidden.empty()) {
      hidden.emplace_back("nothing");
    }
    const bool noted = mentions(stated_.notes, "overlap") || mentions(stated_.notes, "prefetch");
    say("overlap of {} ({}the default of {})", fmt::format("{}", fmt::join(hidden, ", ")),
        noted ? "notes, else " : "", framework_.name);
  }

  void software() {
    constexpr auto kRecipes = std::to_array<std::string_view>(
        {"NeMo", "Megatron-Bridge", "Paxml", "Megatron-DeepSpeed (Sailor"});
    const bool recipes = std::ranges::any_of(
        kRecipes, [&](std::string_view name) { return framework_.name.starts_with(name); });
    if (stated_.model_name.empty() && recipes) {
      say("recipe of any network: model_name is blank");
    }
    if (!stated_.year && changes_with_years()) {
      say("{} as where no year is known: other releases run otherwise", framework_.name);
    }
  }

  bool changes_with_years() const {
    const Execution now = row_execution(row_, framework_);
    constexpr std::int64_t kFirst = 2019;
    constexpr std::int64_t kLast = 2026;
    Measurement other = row_;
    for (std::int64_t year = kFirst; year <= kLast; ++year) {
      other.year = year;
      if (row_execution(other, framework_of(other).facts) != now) {
        return true;
      }
    }
    return false;
  }

  const Measurement& stated_;
  const Measurement& row_;
  const Plan& plan_;
  const BlockPlan& layout_;
  const FrameworkFacts& framework_;
  std::vector<std::string> lines_;
};

}  // namespace

std::vector<std::string> blank_cells(const Measurement& stated, const Measurement& completed,
                                     const Plan& plan) {
  return BlankCells(stated, completed, plan).run();
}

}  // namespace orrery::studies
