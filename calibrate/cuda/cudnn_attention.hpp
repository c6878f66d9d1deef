// SPDX-License-Identifier: Apache-2.0
// Fused attention as a graph of cuDNN: scores, mask, softmax and context in one kernel, and its
// backward. The graphs follow NVIDIA's description of the pattern that cuDNN recognises (developer
// guide, fused attention; names of NVIDIA/cudnn-frontend, scaled_dot_product_flash_attention.h).
#pragma once

#include <cstddef>
#include <functional>
#include <memory>

#include "calibrate/cuda/cudnn_graph.hpp"
#include "calibrate/cuda/device.hpp"
#include "calibrate/sample_shapes.hpp"

namespace orrery::calibrate::cuda {

// Memory for an operand; what it points to must live as long as the graph.
using Allocate = std::function<void*(std::size_t elements, DType dtype)>;

// Adds the operations of one attention to an empty graph. Needs the library, but no device.
void describe_attention(CudnnGraph& graph, const AttentionSample& shape, const Allocate& allocate);

class CudnnAttention {
 public:
  // Allocates operands of random contents. Unsupported when cuDNN has no kernel for the shape.
  explicit CudnnAttention(const AttentionSample& shape);
  ~CudnnAttention();
  void enqueue(Stream stream) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace orrery::calibrate::cuda
