// SPDX-License-Identifier: Apache-2.0
#include "plan/block/kept.hpp"

#include <algorithm>

#include "plan/block/attention_kernels.hpp"
#include "plan/block/eager_kernels.hpp"
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
      return context.execution.fused_attention && !keeps_both_results(context, op);
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

ByteCount as_gathered(const BlockContext& context, int tensor, ByteCount bytes) {
  const models::Tensor& value = context.block.tensors[static_cast<std::size_t>(tensor)];
  const bool quantised =
      gathered_quantised(context.block, value, context.execution, context.precision);
  return quantised ? ByteCount(static_cast<std::int64_t>(static_cast<double>(bytes.value()) *
                                                         cast_share(context)))
                   : bytes;
}

ByteCount beside_part(const BlockContext& context, int tensor, ByteCount whole, ByteCount part) {
  const ByteCount inside = context.execution.fp8_inputs ? as_gathered(context, tensor, part) : part;
  return std::max(ByteCount(), as_gathered(context, tensor, whole) - inside);
}

bool keeps_both_results(const BlockContext& context, const Operator& attention) {
  if (context.layout.context == ContextParallel::Mix) {
    return false;
  }
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

namespace {

// Tensors of another one's shape beside it, in bytes an element.
Saved more_of(int tensor, double bytes) {
  return {.tensor = tensor, .copies = bytes / 4, .element = models::Element::Fp32};
}

// rms_norm of ATen before its fused kernel (native/layer_norm.cpp): the power and the scaling keep
// the input as it was cast to fp32, the product with the weight what was normalised.
void keep_of_norm(const BlockContext& context, const Operator& op, std::vector<Saved>& kept) {
  const double cast = models::gives_input_gradient(context.block, op) ? 4.0 : 0.0;
  const double normalised = models::gives_weight_gradient(context.block, op) ? 2.0 : 0.0;
  kept = {more_of(op.inputs.front(), cast + normalised)};
}

bool casts_its_scores(const BlockContext& context, const Operator& op) {
  if (op.kind != models::OpKind::Attention || context.execution.fused_attention) {
    return false;
  }
  KernelContext kernels{context.device, context.execution, context.precision, context.mesh,
                        context.extents};
  kernels.slice = context.slice;
  const BlockRules rules = rules_of(context.layout, context.execution.vocab_parallel);
  return casts_scores(
      attention_shape(context.block, op, assign(context.block, op, rules.of(op)), kernels),
      context.execution.softmax);
}

// PyTorch's kernels keep more than one that stands for them all.
void keep_as_eager(const BlockContext& context, const Operator& op, std::vector<Saved>& kept) {
  if (!models::has_backward(context.block, op)) {
    return;
  }
  switch (eager_form(op, context.execution)) {
    case EagerForm::RmsNorm:
      return keep_of_norm(context, op, kept);
    case EagerForm::WideNorm:  // run again, it has its input; else the norm keeps its copy
      if (!reruns_norms(context.block, context.layout, context.execution)) {
        kept = {more_of(op.inputs.front(), 4.0)};
      }
      return;
    case EagerForm::Gated:  // the product keeps both its operands, one of which silu has made
      kept.push_back(more_of(op.inputs.front(), 2.0));
      return;
    case EagerForm::None:
      break;
  }
  if (casts_its_scores(context, op)) {
    for (Saved& saved : kept) {  // the softmax its output in fp32 beside the one that is cast
      const bool scores = saved.attention_core && saved.element == models::Element::Compute;
      saved.copies = scores ? 3.0 : saved.copies;
    }
  }
}

}  // namespace

std::vector<Saved> kept_by(const BlockContext& context, const Operator& op, Recompute recompute) {
  std::vector<Saved> kept;
  std::copy_if(op.saved.begin(), op.saved.end(), std::back_inserter(kept),
               [&](const Saved& saved) { return !is_absent(context, saved, recompute); });
  keep_as_eager(context, op, kept);
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
