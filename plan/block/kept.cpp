// SPDX-License-Identifier: Apache-2.0
#include "plan/block/kept.hpp"

#include <algorithm>

#include "plan/block/quantised_casts.hpp"
#include "plan/block/tensors.hpp"

namespace orrery::plan {

using models::Operator;
using models::Saved;

namespace {

bool is_absent(const BlockContext& context, const Saved& saved, Recompute recompute) {
  const Execution& execution = context.execution;
  const bool fused = execution.fused_attention;
  const bool again = recompute == Recompute::Selective;
  return (saved.attention_core && (fused || again)) || (saved.fused_only && (!fused || again)) ||
         (saved.unweighted && execution.weighted_activations);
}

bool is_recomputed(const BlockContext& context, const Operator& op, Recompute recompute) {
  return recompute == Recompute::Operators &&
         context.layout.recomputed.has(group_of(context.block, op));
}

// Whether some operator makes the tensor anew, or the product itself runs again.
bool is_made_anew(const BlockContext& context, const Operator& product, int tensor,
                  Recompute recompute) {
  const std::vector<Operator>& operators = context.block.operators;
  return is_recomputed(context, product, recompute) ||
         std::any_of(operators.begin(), operators.end(), [&](const Operator& op) {
           return contains(op.outputs, tensor) && is_recomputed(context, op, recompute);
         });
}

// Whether an operator that is no product in 8 or 4 bits keeps the tensor.
bool is_kept_by_others(const BlockContext& context, int tensor, Recompute recompute) {
  const auto keeps = [&](const Operator& op) {
    if (op.kind == models::OpKind::Attention && contains(op.outputs, tensor)) {
      return context.execution.fused_attention && !result_is_exchanged(context, op);
    }
    return !keeps_cast(context, op) &&
           std::any_of(op.saved.begin(), op.saved.end(), [&](const Saved& saved) {
             return saved.tensor == tensor && keeps_tensor(context.block, saved) &&
                    !is_absent(context, saved, recompute);
           });
  };
  const std::vector<Operator>& operators = context.block.operators;
  return std::any_of(operators.begin(), operators.end(), keeps);
}

}  // namespace

bool keeps_cast(const BlockContext& context, const Operator& op) {
  return context.execution.fp8_inputs && is_quantised_product(op, context.precision) &&
         models::gives_weight_gradient(context.block, op);
}

double cast_share(const BlockContext& context) {
  const bool blocks =
      context.precision == DType::Fp8 && context.execution.fp8_scaling == Fp8Scaling::Blocks;
  const double bytes = bytes_per_element(context.precision) + (blocks ? 1.0 / 32 : 0.0);
  return bytes / element_bytes(models::Element::Compute, context.precision);
}

bool result_is_exchanged(const BlockContext& context, const Operator& attention) {
  const BlockRules rules = rules_of(context.layout, context.execution.vocab_parallel);
  const models::Block& block = context.block;
  const int result = attention.outputs.front();
  const auto slot = static_cast<std::size_t>(result);
  const Layout produced = produced_output(attention, block.tensors[slot],
                                          assign(block, attention, rules.of(attention)));
  for (const Operator& reader : block.operators) {
    const auto input = std::find(reader.inputs.begin(), reader.inputs.end(), result);
    if (input == reader.inputs.end()) {
      continue;
    }
    const Layout read =
        required_input(reader, block.tensors[slot], static_cast<int>(input - reader.inputs.begin()),
                       assign(block, reader, rules.of(reader)));
    const std::vector<Conversion> needed = conversions(produced, read);
    if (std::any_of(needed.begin(), needed.end(), [&](const Conversion& conversion) {
          return conversion.kind == sim::CommKind::AllToAll && context.mesh.of(conversion.axis) > 1;
        })) {
      return true;
    }
  }
  return false;
}

std::vector<Saved> kept_by(const BlockContext& context, const Operator& op, Recompute recompute) {
  std::vector<Saved> kept;
  std::copy_if(op.saved.begin(), op.saved.end(), std::back_inserter(kept),
               [&](const Saved& saved) { return !is_absent(context, saved, recompute); });
  if (!keeps_cast(context, op) || is_made_anew(context, op, op.inputs.front(), recompute)) {
    return kept;
  }
  const int input = op.inputs.front();
  if (!is_kept_by_others(context, input, recompute)) {
    std::erase_if(kept, [input](const Saved& saved) { return saved.tensor == input; });
  } else if (context.precision != DType::Fp8 ||
             context.execution.fp8_scaling != Fp8Scaling::Delayed) {
    return kept;
  }
  kept.push_back({.tensor = input, .copies = cast_share(context)});
  return kept;
}

OperatorGroup kept_with(const models::Block& block, const Operator& op, const Saved& saved) {
  return models::is_gemm(op) ? maker_of(block, saved.tensor) : group_of(block, op);
}

std::vector<std::vector<Saved>> kept_by_operators(const BlockContext& context,
                                                  Recompute recompute) {
  std::vector<std::vector<Saved>> kept;
  for (const Operator& op : context.block.operators) {
    kept.push_back(kept_by(context, op, recompute));
  }
  return kept;
}

bool is_moved(const Layout& from, const Layout& to, const Mesh& mesh) {
  const std::vector<Conversion> needed = conversions(from, to);
  const auto makes = [&](sim::CommKind kind) {
    return std::any_of(needed.begin(), needed.end(), [&](const Conversion& conversion) {
      return conversion.kind == kind && mesh.of(conversion.axis) > 1;
    });
  };
  return makes(sim::CommKind::ReduceScatter) ||
         (makes(sim::CommKind::AllToAll) && !makes(sim::CommKind::AllGather));
}

}  // namespace orrery::plan
