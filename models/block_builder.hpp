// SPDX-License-Identifier: Apache-2.0
// Assembles the operators and tensors of one Block: the vocabulary in which the block files speak.
// Every helper appends one operator in execution order and returns the index of its output tensor.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "models/network.hpp"
#include "models/operators.hpp"

namespace orrery::models {

using Dims = std::vector<Dim>;

inline constexpr Dim kBatchDim{Var::Batch, kFromWorkload};
inline constexpr Dim kSeqDim{Var::Seq, kFromWorkload};

// Query heads; those of one key-value head stay together wherever shards are uneven.
Dim query_heads(const NetworkSpec& spec);

class BlockBuilder {
 public:
  BlockBuilder(std::string name, BlockKind kind, const AdapterSpec& adapters);

  int activation(std::string name, Dims dims, Element element = Element::Compute);
  int weight(std::string name, Dims dims, bool tied = false);
  const Dims& dims(int tensor) const;
  // {Batch, Seq} followed by `rest`: of the block's own positions.
  Dims token_dims(Dims rest) const;
  Operator& add(Operator op);
  void save(Operator& op, int tensor) const;

  struct Projection {
    std::string output;  // name; the weight is "w_" + output
    Dims columns;        // n
  };
  struct GemmOptions {
    OpKind kind = OpKind::Gemm;
    Dims leading = {};  // dims of the weight before k: {Expert}
    bool bias = false;
    bool save_input = true;  // false when another operator of the block keeps it already
    bool tied = false;
    bool AdapterSpec::*target = nullptr;  // that an adapter of this product belongs to
  };
  // One GEMM of `input` with a weight per projection, summing over `reduced`.
  std::vector<int> gemm(std::string name, int input, const std::vector<Var>& reduced,
                        const std::vector<Projection>& projections, const GemmOptions& options);
  int linear(std::string name, int input, const std::vector<Var>& reduced, Projection projection,
             const GemmOptions& options);

  // Norm over the last dim of `input`.
  int norm(std::string name, int input, NormKind kind, bool save_input = true);

  struct PointwiseCost {
    double flops_per_point = 1.0;
    double backward_bytes_factor = 1.0;
  };
  Operator& pointwise(std::string name, std::vector<int> inputs, std::vector<int> outputs,
                      PointwiseCost cost);
  // branch + stream, with dropout of the branch when `dropout` (keeps a byte mask).
  int residual(const std::string& name, int branch, int stream, bool dropout,
               const std::string& output);
  int dropout(const std::string& name, int input);

  Block block;
  Dim positions = kSeqDim;  // a share of the sequence in a decoder of shorter texts
  bool freezes = false;     // weights that are added from now on

 private:
  std::vector<int> adapt(const std::string& name, int input, const std::vector<Var>& reduced,
                         const std::vector<Projection>& projections, const GemmOptions& options,
                         const std::vector<int>& outputs);

  AdapterSpec adapters_;
};

}  // namespace orrery::models
