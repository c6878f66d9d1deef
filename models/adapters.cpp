// SPDX-License-Identifier: Apache-2.0
// Low-rank adapters (Hu et al. 2021, arXiv 2106.09685) as NeMo adds them: one pair of products for
// a product, whatever it projects to (q, k and v; gate and up). The result is scaled by alpha /
// rank in a pass of its own and added (Megatron-Bridge peft/utils.py, ParallelLinearAdapter; PEFT's
// lora/layer.py writes the same).
#include "models/adapters.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/error.hpp"
#include "models/block_builder.hpp"

namespace orrery::models {
namespace {

double width_of(const Dims& dims) {
  double width = 1.0;
  for (const Dim& dim : dims) {
    width *= static_cast<double>(dim.extent);
  }
  return width;
}

bool has_rank(const Tensor& tensor) {
  return std::any_of(tensor.dims.begin(), tensor.dims.end(),
                     [](const Dim& dim) { return dim.var == Var::Rank; });
}

std::int64_t adapted_width(const Tensor& weight) {
  std::int64_t width = 1;
  for (const Dim& dim : weight.dims) {
    width *= dim.var == Var::Rank || dim.var == Var::Expert ? 1 : dim.extent;
  }
  return width;
}

}  // namespace

std::vector<int> BlockBuilder::adapt(const std::string& name, int input,
                                     const std::vector<Var>& reduced,
                                     const std::vector<Projection>& projections,
                                     const GemmOptions& options, const std::vector<int>& outputs) {
  const std::size_t first = block.operators.size();
  const bool frozen = std::exchange(freezes, false);
  const int read = adapters_.dropout > 0 ? dropout(name + "_lora_dropout", input) : input;
  const bool shared = adapters_.shared_by_experts && options.kind == OpKind::GroupedGemm;
  const GemmOptions plain{.kind = shared ? OpKind::Gemm : options.kind,
                          .leading = shared ? Dims() : options.leading,
                          .save_input = false};
  const int low = linear(name + "_lora_a", read, reduced,
                         {name + "_lora_low", {{Var::Rank, adapters_.rank}}}, plain);
  std::vector<Projection> up;
  double width = 0.0;
  for (const Projection& projection : projections) {
    up.push_back({projection.output + "_lora", projection.columns});
    width += width_of(projection.columns);
  }
  const std::vector<int> added = gemm(name + "_lora_b", low, {Var::Rank}, up, plain);
  std::vector<int> scaled;
  std::vector<int> sums;
  for (std::size_t index = 0; index < outputs.size(); ++index) {
    const std::string& output = projections[index].output;
    scaled.push_back(activation(output + "_lora_scaled", dims(outputs[index])));
    sums.push_back(activation(output + "_adapted", dims(outputs[index])));
  }
  pointwise(name + "_lora_scale", added, scaled, {});
  std::vector<int> inputs = outputs;
  inputs.insert(inputs.end(), scaled.begin(), scaled.end());
  // Backward: the gradients of the input, of the product's width, meet in one addition.
  double read_width = 1.0;
  for (const Dim& dim : dims(input)) {
    const bool summed = std::find(reduced.begin(), reduced.end(), dim.var) != reduced.end();
    read_width *= summed ? static_cast<double>(dim.extent) : 1.0;
  }
  pointwise(name + "_lora_add", std::move(inputs), sums,
            {.flops_per_point = 1.0, .backward_bytes_factor = read_width / width});
  for (std::size_t index = first; index < block.operators.size(); ++index) {
    block.operators[index].adapter = true;
  }
  freezes = frozen;
  return sums;
}

void settle_adapters(Network& network) {
  std::vector<bool> settled(network.blocks.size(), false);
  bool gradient = false;  // of what the next block is handed
  for (std::size_t position = 0; position < network.chain.size(); ++position) {
    int index = network.chain[position];
    if (gradient || network.blocks[static_cast<std::size_t>(index)].tokens > 0) {
      continue;
    }
    if (std::count(network.chain.begin(), network.chain.end(), index) > 1) {
      Block first = network.blocks[static_cast<std::size_t>(index)];
      first.name += "_first";
      network.blocks.push_back(std::move(first));
      settled.push_back(false);
      index = static_cast<int>(network.blocks.size()) - 1;
      network.chain[position] = index;
    }
    const auto slot = static_cast<std::size_t>(index);
    settle_gradients(network.blocks[slot], /*input_gradient=*/false);
    settled[slot] = true;
    gradient = !network.blocks[slot].frozen;
  }
  for (std::size_t slot = 0; slot < network.blocks.size(); ++slot) {
    if (!settled[slot] && network.blocks[slot].tokens == 0) {
      settle_gradients(network.blocks[slot], /*input_gradient=*/true);
    }
  }
}

void check_adapters(const Network& network, const std::string& where) {
  const Tensor* narrowest = nullptr;
  for (const Block& block : network.blocks) {
    for (const Tensor& tensor : block.tensors) {
      const bool adapter = tensor.kind == TensorKind::Weight && has_rank(tensor);
      if (adapter && (narrowest == nullptr || adapted_width(tensor) < adapted_width(*narrowest))) {
        narrowest = &tensor;
      }
    }
  }
  const std::int64_t rank = network.spec.adapters.rank;
  if (narrowest != nullptr && adapted_width(*narrowest) < rank) {
    bad_input(where,
              fmt::format("adapters.rank is {}, but the product of {} is {} wide", rank,
                          narrowest->name, adapted_width(*narrowest)),
              fmt::format("1 to {}", adapted_width(*narrowest)));
  }
}

}  // namespace orrery::models
