// SPDX-License-Identifier: Apache-2.0
#include "studies/validation/row_labels.hpp"

#include <fmt/format.h>

namespace orrery::studies {
namespace {

std::string network_text(const Measurement& row, const models::NetworkSpec& spec) {
  return fmt::format("{} l{} h{} a{} k{} d{} f{} v{} e{}/{}/{}", row.model_family, spec.layers,
                     spec.hidden, spec.heads, spec.kv_heads, spec.head_dim, spec.ffn_hidden,
                     row.vocab.value_or(0), spec.moe.experts, spec.moe.top_k, spec.moe.ffn_hidden);
}

std::string plan_text(const Measurement& row, const plan::Plan& plan) {
  const plan::BlockPlan& layout = plan.blocks.front().layout;
  std::string text = fmt::format("tp {} cp {} ep {} pp {} dp {}, {}", layout.tp, layout.cp,
                                 layout.ep, plan.pp, plan.dp, plan.schedule);
  if (plan.chunks > 1) {
    text += fmt::format(" x{}", plan.chunks);
  }
  text += fmt::format(", mb {}, zero {}, recompute {}", plan.micro_batch, layout.zero_stage,
                      row.recompute);
  for (const std::string* extra : {&row.recompute_detail, &row.variant, &row.overlap}) {
    text += extra->empty() ? "" : ", " + *extra;
  }
  return text + (layout.sequence_parallel ? ", sequence parallel" : "");
}

std::string kind_of(const plan::Plan& plan, const Measurement& row) {
  const plan::BlockPlan& layout = plan.blocks.front().layout;
  if (plan.pp > 1) {
    return row.variant.empty() || row.variant == plan.schedule
               ? plan.schedule
               : fmt::format("{} {}", plan.schedule, row.variant);
  }
  if (layout.cp > 1) {
    return "context parallel";
  }
  if (layout.ep > 1) {
    return "expert parallel";
  }
  if (layout.tp > 1) {
    return "tensor parallel";
  }
  return layout.zero_stage == 3 ? "fully sharded" : "data parallel";
}

}  // namespace

void label_row(const Measurement& row, const plan::Plan& plan, RowResult& result) {
  const models::NetworkSpec& spec = plan.network.spec;
  const std::string network = fmt::format("{}, {}, {}, {}", network_text(row, spec),
                                          plan.cluster.gpu.name, row.precision, row.framework);
  result.plan = plan_text(row, plan);
  result.subject =
      fmt::format("{}, {} x {}, {}", row.model(), plan.num_gpus(), row.gpu, result.plan);
  result.kind = kind_of(plan, row);
  result.gpu = plan.cluster.gpu.name;
  if (row.metric.starts_with("layer_")) {
    return;  // a layer alone is neither ranked nor counted in FLOPs
  }
  result.plan_group =
      fmt::format("{}, {} GPUs, {} a node, {}, batch {} x {}", network, plan.num_gpus(),
                  plan.cluster.node.gpus, row.inter_node, plan.batch, plan.sequence);
  result.network_group = network;
  const models::Workload work{plan.batch, plan.sequence};
  result.flops_per_gpu =
      result.memory ? 0 : models::model_flops(plan.network, work).value() / plan.num_gpus();
}

}  // namespace orrery::studies
