// SPDX-License-Identifier: Apache-2.0
// A graph of operations for cuDNN's backend interface (cudnn_graph.h, version 9): tensors of four
// dimensions, pointwise operations, matrix products, reductions. cuDNN fuses what it recognises,
// such as attention, into one kernel; a graph for which it has none is Unsupported.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>

#include "calibrate/cuda/device.hpp"

namespace orrery::calibrate::cuda {

enum class Element { Bf16, Fp16, Fp32, Int32, Boolean };
enum class Pointwise {
  Add,
  Subtract,
  Multiply,
  Divide,
  Exp,
  Log,
  Identity,
  RowIndex,     // along the third dimension
  ColumnIndex,  // along the fourth
  GreaterOrEqual,
  Greater,
  Select,  // third operand ? first : second
};
enum class Reduction { Sum, Max };

using Extents = std::array<std::int64_t, 4>;

class CudnnGraph {
 public:
  // A tensor by its number.
  using Tensor = int;
  static constexpr Tensor kNone = -1;

  CudnnGraph();
  ~CudnnGraph();
  CudnnGraph(const CudnnGraph&) = delete;
  CudnnGraph& operator=(const CudnnGraph&) = delete;

  Tensor stored(const Extents& extents, const Extents& strides, Element element, void* data);
  Tensor value(float scalar);
  // Lives inside the fused kernel only. Packed unless strides are given.
  Tensor passing(const Extents& extents, Element element);
  Tensor passing(const Extents& extents, const Extents& strides, Element element);

  // Each has a form that makes its result, with the extents of `x`, and one that is given it.
  Tensor apply(Pointwise mode, Tensor x, Tensor second = kNone, Tensor third = kNone);
  void apply_into(Tensor result, Pointwise mode, Tensor x, Tensor second = kNone,
                  Tensor third = kNone);
  void multiply_into(Tensor result, Tensor a, Tensor b);
  void reduce_into(Tensor result, Reduction mode, Tensor x);
  void reshape_into(Tensor result, Tensor x);

  // Chooses the first kernel of the heuristic that can be built and allocates its workspace.
  void build();
  void enqueue(Stream stream) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

std::string cudnn_version();  // "9.19.0"; empty when the library is missing

}  // namespace orrery::calibrate::cuda
