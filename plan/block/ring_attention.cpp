// SPDX-License-Identifier: Apache-2.0
#include "plan/block/ring_attention.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "base/math.hpp"
#include "plan/block/attention_kernels.hpp"
#include "plan/block/ring_parts.hpp"

namespace orrery::plan {

namespace {

using costmodel::AttentionShape;
using costmodel::MemoryKernel;

// Bytes an element of 16 bits that merging one part costs: of the output, of the query's and of the
// keys' and values' gradients, and of the keys and values that are copied to be sent.
struct MergeTraffic {
  double output;
  double query;
  double keys;
  double sent;
  int forward_kernels;
  int backward_kernels;
};
// Of a rank's own part, once a pass, and of each other one.
struct RingTraffic {
  MergeTraffic own;
  MergeTraffic other;
};
// TransformerEngine 1.4 to 2.11 (pytorch/attention.py, later context_parallel.py,
// AttnFuncWithCPAndKVP2P). Every part is added to an output of zeros (6 bytes, and 2 to fill it).
// Gradients of queries and keys are copied for the first part (4), added for the others (6). Keys
// and values are joined to be sent, in the backward copied (4). Kernels of the own part: those
// copies, zeros, three copies or casts of the sums of exponentials, and what another part has, too.
constexpr RingTraffic kTraffic = {{8, 4, 4, 4, 6, 4}, {6, 6, 6, 0, 2, 3}};
// Of balanced parts the last rank sees half of the keys of all others, the first of which it
// copies.
constexpr RingTraffic kBalancedTraffic = {{8, 4, 5, 4, 6, 4}, {6, 6, 3, 0, 2, 3}};
// pytorch/pytorch, distributed/tensor/experimental/_attention.py, in fp32: cast 6, difference 12,
// product 8, difference 12; backward query 10, keys and values 5, 8 and 8 (half added,
// concatenated, concatenated to be sent), and 4 in both passes for what is sent.
constexpr RingTraffic kEagerTraffic = {{}, {38, 10, 21, 4, 5, 6}};
// The same where torch.compile fuses them: an fp32 sum is read and written, a part in 16 bits that
// holds all of it or half is read (8 + 1.5); what is sent is written in place.
constexpr RingTraffic kCompiledTraffic = {{}, {9.5, 9.5, 9.5, 0, 1, 2}};

const RingTraffic& ring_traffic(const KernelContext& context, bool causal) {
  if (!context.execution.eager_ring) {
    return causal && context.zigzag ? kBalancedTraffic : kTraffic;
  }
  return context.execution.fused_kernels ? kCompiledTraffic : kEagerTraffic;
}

// Kernels of a rank: on its own keys, and alike ones on those of others.
struct OtherParts {
  AttentionShape shape;
  std::int64_t count = 1;
};
struct RingKernels {
  AttentionShape own;
  std::vector<OtherParts> others;
};

// Without a window: half of every other part, all of it on the last rank if parts are not balanced.
RingKernels kernels_of_all_parts(const AttentionShape& shape, std::int64_t parts,
                                 const KernelContext& context) {
  const std::int64_t earlier = context.slice.start / parts;
  RingKernels kernels{shape, {{shape, parts - 1}}};
  kernels.own.kv_len = earlier + shape.q_len;
  AttentionShape& other = kernels.others.front().shape;
  other.kv_len =
      earlier + std::max<std::int64_t>(1, context.zigzag ? shape.q_len / 2 : shape.q_len);
  other.causal = false;
  return kernels;
}

// As many keys for every row as give the pairs.
AttentionShape kernel_of_part(AttentionShape shape, const RingPart& part) {
  shape.q_len = part.rows;
  shape.kv_len = std::max<std::int64_t>(1, std::llround(part.pairs / as_double(part.rows)));
  shape.causal = false;
  return shape;
}

// The own part, along the diagonal: within the window, or with as many keys for every row.
AttentionShape kernel_of_own(AttentionShape shape, const RingPart& part) {
  const double rows = as_double(shape.q_len);
  if (part.pairs == rows * (rows + 1) / 2) {
    shape.kv_len = shape.q_len;
    return shape;
  }
  shape.window = std::max<std::int64_t>(1, std::llround(part.pairs / rows));
  shape.kv_len = shape.q_len + shape.window;
  return shape;
}

// Parts beyond the window have none. Ranks with the same parts, whosever they are, are alike.
std::vector<RingKernels> windowed_kernels(const AttentionShape& shape, std::int64_t parts,
                                          const KernelContext& context) {
  const RingShape ring{shape.q_len, parts, context.slice.start, shape.window, context.zigzag};
  std::set<std::pair<RingPart, std::vector<RingPart>>> known;
  std::vector<RingKernels> ranks;
  for (std::int64_t rank = 0; rank < parts; ++rank) {
    const std::map<std::int64_t, RingPart> parts_seen = ring_parts(ring, rank);
    const RingPart own = parts_seen.at(rank);
    std::vector<RingPart> others;
    for (const auto& [owner, part] : parts_seen) {
      if (owner != rank) {
        others.push_back(part);
      }
    }
    std::ranges::sort(others);
    RingKernels kernels{kernel_of_own(shape, own), {}};
    for (std::size_t i = 0; i < others.size(); ++i) {
      if (i > 0 && others[i] == others[i - 1]) {
        ++kernels.others.back().count;
      } else {
        kernels.others.push_back({kernel_of_part(shape, others[i])});
      }
    }
    if (known.emplace(own, std::move(others)).second) {
      ranks.push_back(std::move(kernels));
    }
  }
  return ranks;
}

// A part's partial results are merged into those of all rows, which have its keys beside them.
OperatorCost cost_of(const RingKernels& kernels, const AttentionShape& shape,
                     const KernelContext& context) {
  const double row =
      static_cast<double>(shape.batch * shape.q_len) * bytes_per_element(shape.dtype) / 2;
  const RingTraffic& traffic = ring_traffic(context, shape.causal);
  const double query = static_cast<double>(shape.heads * shape.head_dim);
  const double output = static_cast<double>(shape.heads * shape.value_head_dim);
  const double key_value =
      static_cast<double>(shape.kv_heads * (shape.head_dim + shape.value_head_dim));
  const auto add_merge = [&](KernelCost& pass, double bytes, int merges) {
    if (merges > 0) {
      const Bytes each(row * bytes / merges);
      pass.time += context.device.memory_bound(each, MemoryKernel::Elementwise) * merges;
      pass.launches += merges;
    }
  };
  const auto merged = [&](const AttentionShape& part, const MergeTraffic& merge) {
    OperatorCost cost = fused_attention_cost(part, context);
    add_merge(cost.forward, merge.output * output + merge.sent * key_value, merge.forward_kernels);
    add_merge(cost.input_grad, merge.query * query + (merge.keys + merge.sent) * key_value,
              merge.backward_kernels);
    return cost;
  };
  const auto add = [](KernelCost& pass, const KernelCost& part, std::int64_t count) {
    pass.time += part.time * static_cast<double>(count);
    pass.flops += part.flops * static_cast<double>(count);
    pass.launches += part.launches * static_cast<int>(count);
  };
  OperatorCost cost = merged(kernels.own, traffic.own);
  for (const OtherParts& other : kernels.others) {
    const OperatorCost part = merged(other.shape, traffic.other);
    add(cost.forward, part.forward, other.count);
    add(cost.input_grad, part.input_grad, other.count);
  }
  return cost;
}

}  // namespace

OperatorCost ring_attention(const AttentionShape& shape, std::int64_t parts,
                            const KernelContext& context) {
  if (shape.window == 0 || shape.window >= shape.kv_len) {
    return cost_of(kernels_of_all_parts(shape, parts, context), shape, context);
  }
  OperatorCost slowest;
  for (const RingKernels& kernels : windowed_kernels(shape, parts, context)) {
    const OperatorCost cost = cost_of(kernels, shape, context);
    if (cost.forward.time + cost.input_grad.time > slowest.forward.time + slowest.input_grad.time) {
      slowest = cost;
    }
  }
  return slowest;
}

}  // namespace orrery::plan
