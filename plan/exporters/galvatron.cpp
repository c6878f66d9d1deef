// SPDX-License-Identifier: Apache-2.0
// Hetu-Galvatron's strategy file, one value a layer (galvatron/utils/config_utils.py and
// core/runtime/hybrid_parallel_config.py of PKU-DAIR/Hetu-Galvatron). It describes neither the
// network nor the precision, which are Galvatron's own arguments.
#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "plan/block_rules.hpp"
#include "plan/exporter.hpp"

namespace orrery::plan {
namespace {

void require(bool expressible, const std::string& what, const std::string& hint = {}) {
  if (!expressible) {
    bad_input("galvatron", fmt::format("Galvatron's strategy file cannot express {}", what), hint);
  }
}

models::BlockKind kind_at(const Plan& plan, int position) {
  const auto index =
      static_cast<std::size_t>(plan.network.chain[static_cast<std::size_t>(position)]);
  return plan.network.blocks[index].kind;
}

// Layouts of the layers in order, embedding and head left out.
std::vector<const BlockPlan*> layer_layouts(const Plan& plan) {
  std::vector<const BlockPlan*> layouts;
  for (int i = 0; i < static_cast<int>(plan.network.chain.size()); ++i) {
    if (kind_at(plan, i) == models::BlockKind::Layer) {
      layouts.push_back(&plan.layout_of(i));
    }
  }
  return layouts;
}

// "ddp", "zero2" or "zero3": what a layer has whose type is 0; type 1 is ZeRO-3.
std::string default_data_parallel(const Plan& plan, const std::vector<const BlockPlan*>& layers) {
  int common = 3;
  for (const BlockPlan* layout : layers) {
    const int stage = layout->zero_stage;
    require(stage != 1, "ZeRO-1", "--fix zero=2");
    require(stage == 3 || common == 3 || common == stage, "DDP and ZeRO-2 in one network");
    common = stage == 3 ? common : stage;
    require(
        layout->shard_degree == 0 || layout->shard_degree == plan.data_ranks(*layout) * layout->cp,
        "a sharding group smaller than the data-parallel group");
  }
  return common == 3 ? "zero3" : common == 2 ? "zero2" : "ddp";
}

void check_layer(const BlockPlan& layout) {
  require(!layout.offload.any(), "offloading");
  require(layout.recompute == Recompute::None || layout.recompute == Recompute::Full,
          fmt::format("{} recomputation", to_text(layout.recompute)), "--fix recompute=full");
  require(layout.cp == 1 || layout.context != ContextParallel::AllGather,
          "context parallelism by all-gather");
  require(layout.tp == 1 || layout.cp == 1 || layout.context != ContextParallel::Ulysses,
          "tensor parallelism and Ulysses in one layer");
  require(layout.ep == 1 || layout.cp == 1 || layout.expert_cp != 1,
          "experts that are spread over the context ranks", "--fix expert_cp=0");
  require(layout.ep == 1 || copies_inside(layout) == 1, "experts on a part of the tensor ranks");
  require(!reorders_experts(layout), "expert-parallel ranks inside tensor or context ranks",
          "--fix ep_inside=dp");
  require(layout.tp == 1 || layout.sequence_parallel,
          "tensor parallelism without sequence parallelism", "--fix sequence_parallel=true");
}

bool ulysses(const BlockPlan& layout) {
  return layout.cp > 1 && layout.context == ContextParallel::Ulysses;
}

// What Galvatron calls tensor-parallel ranks: with use_sp those of Ulysses.
int tensor_ranks(const BlockPlan& layout) { return ulysses(layout) ? layout.cp : layout.tp; }
int context_ranks(const BlockPlan& layout) { return ulysses(layout) ? 1 : layout.cp; }

// The batch must divide by the ranks that the smallest degrees of any layer leave, though no layer
// need have both (get_hybrid_parallel_configs_api).
void check_batch(const Plan& plan, std::vector<const BlockPlan*> layouts) {
  layouts.push_back(&plan.layout_of(0));
  int tensor = tensor_ranks(*layouts.front());
  int context = context_ranks(*layouts.front());
  for (const BlockPlan* layout : layouts) {
    tensor = std::min(tensor, tensor_ranks(*layout));
    context = std::min(context, context_ranks(*layout));
  }
  const int ranks = plan.num_gpus() / plan.pp / tensor / context;
  require(plan.batch % ranks == 0,
          fmt::format("a batch of {} that {} ranks (all of a stage over the smallest degrees of "
                      "tensor and context parallelism) do not divide",
                      plan.batch, ranks));
}

std::string join(const std::vector<const BlockPlan*>& layers,
                 const std::function<int(const BlockPlan&)>& value) {
  std::string text;
  for (const BlockPlan* layout : layers) {
    text += fmt::format("{}{}", text.empty() ? "" : ",", value(*layout));
  }
  return text;
}

std::string layers_by_stage(const Plan& plan) {
  std::string text;
  int position = 0;
  for (const int count : plan.stage_blocks) {
    int layers = 0;
    for (const int end = position + count; position < end; ++position) {
      layers += kind_at(plan, position) == models::BlockKind::Layer ? 1 : 0;
    }
    text += fmt::format("{}{}", text.empty() ? "" : ",", layers);
  }
  return text;
}

std::string write(const Plan& plan) {
  require(plan.chunks == 1, "several model chunks on a device", "--fix chunks=1");
  require(plan.pp == 1 || plan.schedule == "1f1b" || plan.schedule == "gpipe",
          fmt::format("the schedule {}", plan.schedule), "--fix schedule=1f1b");
  require(has_16_bits(plan.precision) || plan.precision == DType::Fp32,
          fmt::format("{} training (--mixed_precision has none)", to_text(plan.precision)));
  const std::vector<const BlockPlan*> layers = layer_layouts(plan);
  for (const BlockPlan* layout : layers) {
    check_layer(*layout);
  }
  const BlockPlan& embedding = plan.layout_of(0);
  const BlockPlan& head = plan.layout_of(static_cast<int>(plan.network.chain.size()) - 1);
  require(embedding == head, "an embedding and a head of different layouts");
  require(plan.execution.vocab_parallel || embedding.tp == 1,
          "an embedding that tensor parallelism does not shard");
  check_batch(plan, layers);
  Json document = Json::object();
  document.set("pp_deg", plan.pp);
  document.set("tp_sizes_enc", join(layers, tensor_ranks));
  document.set("tp_consecutive_flags", join(layers, [](const BlockPlan&) { return 1; }));
  document.set("cp_sizes_enc", join(layers, context_ranks));
  document.set("dp_types_enc", join(layers, [](const BlockPlan& layout) {
                 return layout.zero_stage == 3 ? 1 : 0;
               }));
  document.set("use_sp",
               join(layers, [](const BlockPlan& layout) { return ulysses(layout) ? 1 : 0; }));
  document.set("checkpoint", join(layers, [](const BlockPlan& layout) {
                 return layout.recompute == Recompute::Full ? 1 : 0;
               }));
  if (plan.network.spec.moe.experts > 0) {
    document.set("ep_sizes_enc", join(layers, [](const BlockPlan& layout) { return layout.ep; }));
    document.set("tp_of_ep_sizes_enc",
                 join(layers, [](const BlockPlan& layout) { return expert_tensor_ranks(layout); }));
  }
  document.set("global_bsz", plan.batch);
  document.set("chunks", plan.num_micro_batches());
  document.set("pp_division", layers_by_stage(plan));
  document.set("pipeline_type", plan.schedule == "gpipe" ? "gpipe" : "pipedream_flush");
  document.set("default_dp_type", default_data_parallel(plan, layers));
  document.set("vtp", tensor_ranks(embedding));
  document.set("vsp", ulysses(embedding) ? 1 : 0);
  document.set("vcp", context_ranks(embedding));
  // The runtime reads the second name since it has one, its releases and its search the first.
  for (const char* const name : {"embed_sdp", "vocab_sdp"}) {
    document.set(name, embedding.zero_stage == 3 ? 1 : 0);
  }
  return document.dump() + "\n";
}

// FSDP is told to reduce in the parameters' type unless an argument says otherwise.
Execution usual(const Plan& plan) {
  Execution execution;
  execution.fp32_gradients = plan.precision == DType::Fp32;
  return execution;
}

std::vector<std::string> script(const Plan& plan) {
  std::vector<std::string> duties;
  if (plan.precision != DType::Fp32 && plan.execution.fp32_gradients) {
    duties.emplace_back(
        "the plan reduces gradients in fp32: set the argument reduce_in_fp32, which no strategy "
        "file holds");
  }
  const auto layers = layer_layouts(plan);
  if (plan.num_micro_batches() > 1 && std::ranges::any_of(layers, [](const BlockPlan* layout) {
        return layout->zero_stage >= 2;
      })) {
    duties.emplace_back(
        fmt::format("the plan shards the gradients of each of {} micro-batches: set the argument "
                    "async_grad_reduce to false, else every GPU keeps whole gradients until the "
                    "last one",
                    plan.num_micro_batches()));
  }
  return duties;
}

}  // namespace

extern const Exporter exporter_galvatron = {
    .name = "galvatron",
    .description = "Hetu-Galvatron strategy file, layer by layer",
    .write = write,
    .script = script,
    .usual = usual,
};

}  // namespace orrery::plan
