// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/error.hpp"
#include "calibrate/shapes.hpp"
#include "models/network.hpp"

namespace orrery::calibrate {
namespace {

using models::Block;
using models::Dim;
using models::Operator;
using models::OpKind;
using models::Tensor;
using models::Var;

// What one rank holds of a dimension. Fewer key-value heads than ranks are replicated.
std::int64_t local_extent(const Dim& dim, const NetworkRequest& request, int degree) {
  std::int64_t extent = dim.extent;
  if (extent == models::kFromWorkload) {
    const std::int64_t whole = dim.var == Var::Batch ? request.micro_batch : request.sequence;
    extent = std::max<std::int64_t>(1, std::llround(static_cast<double>(whole) * dim.scale));
  }
  switch (dim.var) {
    case Var::KvHead:
      if (extent <= degree) {
        return 1;
      }
      break;
    case Var::Head:
    case Var::Ffn:
    case Var::Vocab:
      break;
    default:
      return extent;
  }
  if (extent % degree != 0) {
    bad_input("--tp",
              fmt::format("{} of \"{}\" do not divide into {} ranks", extent,
                          request.network->spec.name, degree),
              "heads, FFN width and vocabulary must be multiples of the degree");
  }
  return extent / degree;
}

bool is_reduced(const Operator& op, Var var) {
  return std::find(op.reduced.begin(), op.reduced.end(), var) != op.reduced.end();
}

const Tensor& tensor_at(const Block& block, int index) {
  return block.tensors[static_cast<std::size_t>(index)];
}

// Forward: rows of inputs[0] by the columns of all kernel weights (models/operators.hpp).
GemmSample forward_gemm(const Block& block, const Operator& op, const NetworkRequest& request,
                        int degree) {
  GemmSample gemm = {.m = 1, .n = 0, .k = 1, .dtype = request.dtype};
  for (const Dim& dim : tensor_at(block, op.inputs.front()).dims) {
    (is_reduced(op, dim.var) ? gemm.k : gemm.m) *= local_extent(dim, request, degree);
  }
  for (const int index : op.weights) {
    std::int64_t columns = 1;
    std::int64_t experts = 1;
    bool contracts = false;
    for (const Dim& dim : tensor_at(block, index).dims) {
      const std::int64_t extent = local_extent(dim, request, degree);
      if (is_reduced(op, dim.var)) {
        contracts = true;
      } else {
        (dim.var == Var::Expert ? experts : columns) *= extent;
      }
    }
    if (contracts) {
      gemm.n += columns;
      gemm.groups = experts;
    }
  }
  gemm.m = std::max<std::int64_t>(1, gemm.m / gemm.groups);
  // Logits stay in 16 bits where the other layers run in fp8.
  if (op.logits_in_fp32) {
    gemm.dtype = unquantised(request.dtype);
  }
  gemm.output = gemm.dtype == DType::Fp16 ? DType::Fp16 : DType::Bf16;
  if (gemm.dtype == DType::Fp32 || gemm.dtype == DType::Tf32) {
    gemm.output = DType::Fp32;
  }
  return gemm;
}

template <class T>
void add_once(std::vector<T>& list, const T& value) {
  if (std::find(list.begin(), list.end(), value) == list.end()) {
    list.push_back(value);
  }
}

}  // namespace

std::vector<GemmSample> network_gemms(const NetworkRequest& request) {
  std::vector<GemmSample> gemms;
  for (const int degree : request.tensor_parallel) {
    for (const Block& block : request.network->blocks) {
      for (const Operator& op : block.operators) {
        if (op.kind != OpKind::Gemm && op.kind != OpKind::GroupedGemm) {
          continue;
        }
        const GemmSample forward = forward_gemm(block, op, request, degree);
        GemmSample input_grad = forward;
        std::swap(input_grad.n, input_grad.k);
        input_grad.layout = GemmLayout::NN;
        GemmSample weight_grad = forward;
        weight_grad.m = forward.k;
        weight_grad.k = forward.m;
        weight_grad.layout = GemmLayout::NT;
        weight_grad.output = DType::Fp32;
        weight_grad.accumulate = true;
        for (const GemmSample& gemm : {forward, input_grad, weight_grad}) {
          add_once(gemms, gemm);
        }
      }
    }
  }
  return gemms;
}

std::vector<AttentionSample> network_attention(const NetworkRequest& request) {
  std::vector<AttentionSample> shapes;
  for (const int degree : request.tensor_parallel) {
    for (const Block& block : request.network->blocks) {
      const models::AttentionInfo& info = block.attention;
      if (info.heads == 0) {
        continue;
      }
      AttentionSample shape = {
          .batch = request.micro_batch,
          .heads = local_extent({Var::Head, info.heads}, request, degree),
          .kv_heads = local_extent({Var::KvHead, info.kv_heads}, request, degree),
          .q_len = request.sequence,
          .kv_len = request.sequence,
          .head_dim = info.head_dim,
          .value_head_dim = info.value_head_dim > 0 ? info.value_head_dim : info.head_dim,
          .causal = info.causal,
          .window = info.window,
          .dtype = unquantised(request.dtype)};
      add_once(shapes, shape);
      shape.backward = true;
      add_once(shapes, shape);
    }
  }
  return shapes;
}

}  // namespace orrery::calibrate
