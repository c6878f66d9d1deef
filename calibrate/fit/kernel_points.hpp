// SPDX-License-Identifier: Apache-2.0
// Samples of matrix products and attention in the form that the cost model predicts them in: one
// point for each shape (the median of repeated measurements), with the residual set it belongs to
// and the fold of the cross-validation that leaves it out. Shapes that differ in the number of rows
// only (m of a GEMM, batch and length of attention) share a fold, so that a left-out point has no
// neighbour one row away in the fit.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "calibrate/samples.hpp"
#include "costmodel/device_model.hpp"

namespace orrery::calibrate {

struct KernelPointOf {
  costmodel::ResidualKey key;
  costmodel::KernelSizes sizes{};
  std::variant<costmodel::GemmShape, costmodel::AttentionShape> shape;
  double seconds = 0;
  std::uint64_t group = 0;  // of shapes that differ in the number of rows only
  std::size_t fold = 0;
  bool of_training = false;  // timed as a framework of training runs it
  bool short_loop = false;   // attention of training, over before the power limit acts
  bool both_passes = false;  // attention, forward and backward together; `key` says forward
};

using KernelPoints = std::vector<const KernelPointOf*>;
KernelPoints select(const KernelPoints& points,
                    const std::function<bool(const KernelPointOf&)>& wanted);

costmodel::GemmLayout modelled_layout(GemmLayout layout);

// By load, kind, format and layout, then by sizes.
bool comes_before(const KernelPointOf& a, const KernelPointOf& b);

// Load under which a point was timed, where its table does not tell; null: by the length of a loop.
using LoadOf = std::function<costmodel::Load(const KernelPointOf&)>;

bool power_limited(const costmodel::Profile& base);

// Points of the samples that the model has a formula for, by key and sizes. Times are those of
// kernels: DeepBench issues 400 calls and waits once (gemm_bench.cu), so launches are hidden.
// `base` says whether the GPU's rate under sustained load is known to be lower (elsewhere the two
// loads are not told apart) and whether FlashAttention-2 is its best kernel. Others (older
// attention kernels, best-of-many shapes, slow or impossible timings) are counted in `remarks`. Of
// weight gradients timed with outputs of 16 and of 32 bits those of 32 are taken, which training
// adds to.
std::vector<KernelPointOf> kernel_points(std::span<const Sample> samples,
                                         const topologies::Gpu& gpu, const costmodel::Profile& base,
                                         std::uint64_t seed, std::vector<std::string>& remarks,
                                         const LoadOf& load_of = nullptr);

// Time by the model of the point's load; without the cast of activations when not `with_casts`.
double predicted_time(const KernelPointOf& point, const costmodel::DeviceModel& burst,
                      const costmodel::DeviceModel& sustained, bool with_casts = true);

// Seconds without the cast of activations, which is not known apart: the product is taken to be at
// least a quarter of it all.
double kernel_seconds(const KernelPointOf& point, const costmodel::DeviceModel& burst,
                      const costmodel::DeviceModel& sustained);

bool is_large(const KernelPointOf& point);  // a product with m, n and k of 1,024 and more

// Attention at the rate that the power limit feeds, or at the peak where none is known.
costmodel::DeviceModel fed_model(const topologies::Gpu& gpu, costmodel::Profile profile);

std::string class_name(const costmodel::ResidualKey& key);  // "gemm bf16 tn burst"
std::string class_name(const KernelPointOf& point);         // "attention-both fp16 sustained", too

}  // namespace orrery::calibrate
