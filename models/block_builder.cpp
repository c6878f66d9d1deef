// SPDX-License-Identifier: Apache-2.0
#include "models/block_builder.hpp"

#include <algorithm>

#include "base/error.hpp"

namespace orrery::models {
namespace {

// The dims of an operand split at `reduced`: {rows, k}.
std::pair<Dims, Dims> split_reduced(const Dims& dims, const std::vector<Var>& reduced) {
  Dims rows;
  Dims k;
  for (const Dim& dim : dims) {
    (contains(reduced, dim.var) ? k : rows).push_back(dim);
  }
  return {rows, k};
}

Dims join(Dims first, const Dims& second) {
  first.insert(first.end(), second.begin(), second.end());
  return first;
}

}  // namespace

Dim query_heads(const NetworkSpec& spec) {
  const bool grouped = spec.kv_heads > 0 && spec.heads % spec.kv_heads == 0;
  return {Var::Head, spec.heads, 1.0, grouped ? spec.heads / spec.kv_heads : 1};
}

BlockBuilder::BlockBuilder(std::string name, BlockKind kind, const AdapterSpec& adapters)
    : freezes(adapters.rank > 0), adapters_(adapters) {
  block.name = std::move(name);
  block.kind = kind;
}

int BlockBuilder::activation(std::string name, Dims dims, Element element) {
  block.tensors.push_back({.name = std::move(name),
                           .kind = TensorKind::Activation,
                           .element = element,
                           .dims = std::move(dims)});
  return static_cast<int>(block.tensors.size()) - 1;
}

int BlockBuilder::weight(std::string name, Dims dims, bool tied) {
  block.tensors.push_back({.name = std::move(name),
                           .kind = TensorKind::Weight,
                           .element = Element::Param,
                           .dims = std::move(dims),
                           .tied = tied,
                           .frozen = freezes});
  return static_cast<int>(block.tensors.size()) - 1;
}

const Dims& BlockBuilder::dims(int tensor) const {
  return block.tensors[static_cast<std::size_t>(tensor)].dims;
}

Dims BlockBuilder::token_dims(Dims rest) const { return join({kBatchDim, positions}, rest); }

Operator& BlockBuilder::add(Operator op) {
  block.operators.push_back(std::move(op));
  return block.operators.back();
}

void BlockBuilder::save(Operator& op, int tensor) const {
  op.saved.push_back(
      {.tensor = tensor, .element = block.tensors[static_cast<std::size_t>(tensor)].element});
}

std::vector<int> BlockBuilder::gemm(std::string name, int input, const std::vector<Var>& reduced,
                                    const std::vector<Projection>& projections,
                                    const GemmOptions& options) {
  const auto [rows, k] = split_reduced(dims(input), reduced);
  ORRERY_CHECK(!k.empty(), name);
  Operator op{.name = name, .kind = options.kind, .inputs = {input}, .reduced = reduced};
  op.flops_per_point = 2.0;
  for (const Projection& projection : projections) {
    op.weights.push_back(weight("w_" + projection.output,
                                join(join(options.leading, k), projection.columns), options.tied));
    op.outputs.push_back(activation(projection.output, join(rows, projection.columns)));
  }
  if (options.bias) {
    for (const Projection& projection : projections) {
      op.weights.push_back(
          weight("b_" + projection.output, join(options.leading, projection.columns)));
    }
  }
  if (options.save_input) {
    save(op, input);
  }
  const std::vector<int> outputs = add(std::move(op)).outputs;
  const bool adapted = options.target != nullptr && adapters_.rank > 0 && adapters_.*options.target;
  return adapted ? adapt(name, input, reduced, projections, options, outputs) : outputs;
}

int BlockBuilder::linear(std::string name, int input, const std::vector<Var>& reduced,
                         Projection projection, const GemmOptions& options) {
  return gemm(std::move(name), input, reduced, {std::move(projection)}, options).front();
}

int BlockBuilder::norm(std::string name, int input, NormKind kind, bool save_input) {
  const Dim width = dims(input).back();
  const bool layer_norm = kind == NormKind::LayerNorm;
  Operator op{.name = name, .kind = OpKind::Norm, .inputs = {input}};
  op.weights.push_back(weight("g_" + name, {width}));
  if (layer_norm) {
    op.weights.push_back(weight("b_" + name, {width}));
  }
  op.outputs.push_back(activation(name + "_out", dims(input)));
  op.flops_per_point = layer_norm ? 7.0 : 5.0;
  op.backward_bytes_factor = 1.5;  // reads dY and X, writes dX
  if (save_input) {
    save(op, input);
  }
  return add(std::move(op)).outputs.front();
}

Operator& BlockBuilder::pointwise(std::string name, std::vector<int> inputs,
                                  std::vector<int> outputs, PointwiseCost cost) {
  return add({.name = std::move(name),
              .kind = OpKind::Elementwise,
              .inputs = std::move(inputs),
              .outputs = std::move(outputs),
              .flops_per_point = cost.flops_per_point,
              .backward_bytes_factor = cost.backward_bytes_factor,
              .pointwise = true});
}

int BlockBuilder::residual(const std::string& name, int branch, int stream, bool dropout,
                           const std::string& output) {
  const int sum = activation(output, dims(stream));
  if (!dropout) {
    // Backward: the two gradients of the stream meet in one addition.
    pointwise(name, {branch, stream}, {sum}, {.flops_per_point = 1, .backward_bytes_factor = 1});
    return sum;
  }
  const int mask = activation(name + "_mask", dims(stream), Element::Mask);
  // Forward 7 bytes an element (three operands and a mask); backward 5 for the masked gradient and
  // 6 for the addition at the fork.
  Operator& op = pointwise(name, {branch, stream}, {sum, mask},
                           {.flops_per_point = 2, .backward_bytes_factor = 11.0 / 7.0});
  save(op, mask);
  return sum;
}

int BlockBuilder::dropout(const std::string& name, int input) {
  const int output = activation(name + "_out", dims(input));
  const int mask = activation(name + "_mask", dims(input), Element::Mask);
  Operator& op = pointwise(name, {input}, {output, mask}, {});
  save(op, mask);
  return output;
}

}  // namespace orrery::models
