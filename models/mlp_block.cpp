// SPDX-License-Identifier: Apache-2.0
// Dense feed-forward networks: two GEMMs around an activation function, or three with a gate, gate
// and up being one GEMM.
#include "models/blocks.hpp"

namespace orrery::models {

bool is_gated(Activation activation) {
  return activation == Activation::SwiGlu || activation == Activation::GeGlu;
}

int add_activation(BlockBuilder& builder, Activation activation, const std::vector<int>& inputs,
                   const std::string& name) {
  const int output = builder.activation(name, builder.dims(inputs.front()));
  Operator op{.name = name, .kind = OpKind::Elementwise, .inputs = inputs, .outputs = {output}};
  if (is_gated(activation)) {
    op.flops_per_point = 10.0;
    op.backward_bytes_factor = 5.0 / 3.0;  // reads gate, up, dY; writes two gradients
  } else {
    op.flops_per_point = activation == Activation::Gelu ? 8.0 : 2.0;
    op.backward_bytes_factor = 1.5;  // reads X, dY; writes dX
  }
  for (const int input : inputs) {
    builder.save(op, input);
  }
  builder.add(std::move(op));
  return output;
}

int add_mlp(BlockBuilder& builder, const NetworkSpec& spec, int input, std::int64_t ffn,
            const std::string& prefix, bool save_input) {
  const Dims columns{{Var::Ffn, ffn}};
  std::vector<BlockBuilder::Projection> projections{{prefix + "up", columns}};
  if (is_gated(spec.activation)) {
    projections.insert(projections.begin(), {prefix + "gate", columns});
  }
  const std::vector<int> inner =
      builder.gemm(prefix + "mlp_up", input, {Var::Hidden}, projections,
                   {.bias = spec.mlp_bias, .save_input = save_input, .target = &AdapterSpec::up});
  const int active = add_activation(builder, spec.activation, inner, prefix + "mlp_activation");
  return builder.linear(prefix + "mlp_down", active, {Var::Ffn},
                        {prefix + "mlp_output", {{Var::Hidden, spec.hidden}}},
                        {.bias = spec.mlp_bias, .target = &AdapterSpec::down});
}

}  // namespace orrery::models
