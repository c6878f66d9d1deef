// SPDX-License-Identifier: Apache-2.0
// An iteration on a stage: blocks in order, parts of each, and what of them runs together.
#include <algorithm>
#include <numeric>

#include "base/math.hpp"
#include "plan/serving/cost.hpp"
#include "sim/engine/share_curves.hpp"

namespace orrery::plan {
namespace {

using models::Block;
using models::BlockKind;

// A nano-batch has no fewer tokens (NanoFlow, section 4.1); smaller iterations run in turn.
constexpr std::int64_t kNanoTokens = 128;

}  // namespace

IterationCost ServingModel::own_cost(int index, const Iteration& iteration, std::int64_t parts) {
  const Block& block = network().blocks[static_cast<std::size_t>(index)];
  const std::int64_t rows = block.kind == BlockKind::Head ? iteration.sampled : iteration.tokens();
  IterationCost one;
  if (rows > 0) {
    const LinearParts& own = linear(index, ceil_div(rows, parts)).own;
    const auto times = static_cast<double>(parts);
    one.of(ServingPart::Gemm) = own.gemm * times;
    one.of(ServingPart::Network) = own.network * times + merge_time(block, iteration);
    one.of(ServingPart::Other) = own.other * times;
    one.of(ServingPart::Decode) = decode_attention(block, iteration);
    one.of(ServingPart::Prompt) = prompt_attention(block, iteration);
  }
  return one;
}

// Each waits for the slowest before the experts' part, which is about the tokens of all; to send
// its copies the fullest takes longest.
void ServingModel::add_experts(int index, std::span<const Iteration> iterations, std::int64_t parts,
                               IterationCost& cost) {
  std::int64_t sum = 0;
  std::int64_t most = 0;
  for (const Iteration& iteration : iterations) {
    sum += iteration.tokens();
    most = std::max(most, iteration.tokens());
  }
  const std::int64_t mean = ceil_div(sum, static_cast<std::int64_t>(iterations.size()));
  const LinearParts& experts = linear(index, ceil_div(mean, parts)).experts;
  const auto times = static_cast<double>(parts);
  cost.of(ServingPart::Gemm) += experts.gemm * times;
  cost.of(ServingPart::Network) += experts.network * times;
  cost.of(ServingPart::Other) += experts.other * times;
  // Nano-batches compute under any exchange.
  const LinearCost& fullest = linear(index, ceil_div(most, parts));
  const Seconds hidden = parts == 1 ? fullest.hidden : Seconds();
  cost.of(ServingPart::Network) += std::max(Seconds(), fullest.exchange - hidden) * times;
}

IterationCost ServingModel::block_cost(int index, std::span<const Iteration> iterations,
                                       std::int64_t parts) {
  IterationCost slowest;
  for (const Iteration& iteration : iterations) {
    IterationCost one = own_cost(index, iteration, parts);
    for (const Seconds part : one.parts) {
      one.time += part;
    }
    if (one.time > slowest.time) {
      slowest = one;
    }
  }
  if (replicas_ > 1 && network().blocks[static_cast<std::size_t>(index)].experts > 0) {
    add_experts(index, iterations, parts, slowest);
  }
  return slowest;
}

ServingModel::FixedCost ServingModel::fixed_cost(const Stage& stage, const Iteration& iteration,
                                                 std::int64_t parts) {
  FixedCost cost;
  cost.sampled = iteration.sampled;
  const auto times = static_cast<double>(parts);
  for (const int index : stage.blocks) {
    const Block& block = network().blocks[static_cast<std::size_t>(index)];
    const std::int64_t rows =
        block.kind == BlockKind::Head ? iteration.sampled : iteration.tokens();
    if (rows > 0) {
      const LinearParts& own = linear(index, ceil_div(rows, parts)).own;
      cost.gemm += own.gemm * times;
      cost.network += own.network * times;
      cost.other += own.other * times;
    }
  }
  return cost;
}

const ServingModel::FixedCost& ServingModel::known_fixed_cost(Stage& stage,
                                                              const Iteration& iteration,
                                                              std::int64_t parts) {
  const auto slot = static_cast<std::size_t>(std::min(iteration.tokens(), kRememberedTokens));
  if (slot >= stage.fixed.size()) {
    stage.fixed.resize(std::max(slot + 1, 2 * stage.fixed.size()));
  }
  FixedCost& known = stage.fixed[slot];
  if (known.sampled != iteration.sampled || iteration.tokens() >= kRememberedTokens) {
    known = fixed_cost(stage, iteration, parts);
  }
  return known;
}

IterationCost ServingModel::cost_alone(Stage& stage, const Iteration& iteration,
                                       std::int64_t parts) {
  const FixedCost& fixed = known_fixed_cost(stage, iteration, parts);
  IterationCost cost;
  cost.of(ServingPart::Gemm) = fixed.gemm;
  cost.of(ServingPart::Network) = fixed.network;
  cost.of(ServingPart::Other) = fixed.other;
  int last = -1;  // blocks of a stage come in runs of equal ones
  Seconds decode;
  Seconds prompt;
  Seconds merge;
  for (const int index : stage.blocks) {
    if (index != last) {
      const Block& block = network().blocks[static_cast<std::size_t>(index)];
      decode = decode_attention(block, iteration);
      prompt = prompt_attention(block, iteration);
      merge = merge_time(block, iteration);
      last = index;
    }
    cost.of(ServingPart::Decode) += decode;
    cost.of(ServingPart::Prompt) += prompt;
    cost.of(ServingPart::Network) += merge;
  }
  return cost;
}

// Every block waits for the slowest of them.
IterationCost ServingModel::cost_in_step(const Stage& stage, std::span<const Iteration> iterations,
                                         std::int64_t parts) {
  IterationCost cost;
  int last = -1;  // blocks of a stage come in runs of equal ones
  IterationCost one;
  for (const int index : stage.blocks) {
    if (index != last) {
      one = block_cost(index, iterations, parts);
      last = index;
    }
    for (std::size_t part = 0; part < kNumServingParts; ++part) {
      cost.parts[part] += one.parts[part];
    }
  }
  return cost;
}

// Blocks whose kernels overlap share what they take together in the ratio of their own times.
void ServingModel::add_copies(Stage& stage, std::span<const Iteration> iterations,
                              std::int64_t parts, IterationCost& cost) {
  Seconds time = cost.time;
  for (const Iteration& iteration : iterations) {
    time = std::max(time, host_copies(stage, iteration));
  }
  if (!stage.weights.empty()) {
    Seconds sum;
    int last = -1;  // blocks of a stage come in runs of equal ones
    Seconds one;
    for (std::size_t index = 0; index < stage.blocks.size(); ++index) {
      if (stage.blocks[index] != last) {
        last = stage.blocks[index];
        const IterationCost block = block_cost(last, iterations, parts);
        one = std::accumulate(block.parts.begin(), block.parts.end(), Seconds());
      }
      stage.weights[index].compute = one;
      sum += one;
    }
    for (ServedWeights& block : stage.weights) {
      block.compute = sum > Seconds() ? block.compute * (cost.time / sum) : Seconds();
    }
    time = std::max(time, fetched_iteration(stage.weights, plan_.execution, tiers_));
  }
  cost.of(ServingPart::HostCopies) = time - cost.time;
  cost.time = time;
}

IterationCost ServingModel::cost(int stage, std::span<const Iteration> iterations) {
  std::int64_t tokens = 0;
  for (const Iteration& iteration : iterations) {
    tokens = std::max(tokens, iteration.tokens());
  }
  const std::int64_t parts =
      std::clamp<std::int64_t>(tokens / kNanoTokens, 1, plan_.serving->options.nano_batches);
  Stage& blocks = stages_[static_cast<std::size_t>(stage)];
  IterationCost cost = replicas_ > 1 ? cost_in_step(blocks, iterations, parts)
                                     : cost_alone(blocks, iterations.front(), parts);
  // One scheduler starts an iteration at the first stage; the others take what it has begun.
  const Seconds host = stage == 0 ? plan_.serving->options.host_per_iteration : Seconds();
  const Seconds alone = cost.of(ServingPart::Prompt) + cost.of(ServingPart::Other) + host;
  if (parts > 1) {
    cost.time = alone + sim::nano_batch_sharing().time({cost.of(ServingPart::Gemm),
                                                        cost.of(ServingPart::Decode),
                                                        cost.of(ServingPart::Network)});
  } else {
    cost.time = alone + cost.of(ServingPart::Gemm) + cost.of(ServingPart::Decode) +
                cost.of(ServingPart::Network);
  }
  add_copies(blocks, iterations, parts, cost);
  return cost;
}

Seconds ServingModel::transfer(int stage, const Iteration& iteration) const {
  const int stages = num_stages();
  const int ranks = layout_.tp * layout_.cp * plan_.dp;
  const int next = (stage + 1) % stages;
  const int per_node = plan_.cluster.node.gpus;
  const bool same_node = stage * ranks / per_node == (next * ranks + ranks - 1) / per_node;
  const int width = element_bytes(models::Element::Compute, plan_.precision);
  const double bytes = next == 0 ? 8.0 * as_double(iteration.sampled)
                                 : as_double(iteration.tokens() * network().spec.hidden) * width;
  const Bytes size(std::max(1.0, bytes));
  const int senders = std::min(ranks, per_node);
  return plan_.serving->options.all_reduce == AllReduce::Nccl
             ? costs_->blocks.collectives().send_receive(size, same_node, senders)
             : messages().send(size, same_node, senders);
}

}  // namespace orrery::plan
