// SPDX-License-Identifier: Apache-2.0
// What frameworks run around products in fp8 and nvfp4: tensors are cast, their scales found, and
// what a product reads in columns is transposed. What is said of fp8 goes for nvfp4 where nothing
// else is.
#pragma once

#include "plan/block/cost.hpp"
#include "plan/block/kernels.hpp"

namespace orrery::plan {

// Of an element of tokens that travel in 8 bits: one byte, and an fp32 scale for every 128 of them
// (DeepEP, README: FP8 dispatch).
inline constexpr double kQuantisedTokenBytes = 1.0 + 4.0 / 128.0;

// Linear layers run in fp8 where the plan says so; the head's logits stay in 16 bits, and the
// router's product, which is no layer of TransformerEngine (Megatron-LM core/transformer/moe/
// moe_utils.py: router_gating_linear).
DType gemm_dtype(const models::Operator& op, DType precision);

// A product in fp8 or nvfp4.
bool is_quantised_product(const models::Operator& op, DType precision);

// One that such a product multiplies by: no bias.
bool is_quantised_weight(const models::Operator& op, const models::Tensor& weight, DType precision);

// Whether tensor-parallel ranks gather a tensor in fp8: one that fp8 products alone read, or, as
// its gradient, one that such a product makes (TransformerEngine pytorch/module: quantised before
// gather_along_first_dim; torchao Float8ColwiseParallel and Float8RowwiseParallel).
bool gathered_quantised(const models::Block& block, const models::Tensor& tensor,
                        const Execution& execution, DType precision);

// Whether a norm writes a tensor in fp8 by itself: one that fp8 products alone read and that is not
// gathered in 16 bits (TransformerEngine pytorch/module/layernorm_linear.py).
bool norm_writes_fp8(const models::Block& block, const models::Tensor& tensor,
                     const KernelContext& context);

// Elements of the weights of a product in fp8 that are cast together on one device: of all its
// matrices, or of the largest where each is a layer of its own. 0 for other operators.
std::int64_t weights_cast_together(const BlockContext& context, const models::Operator& op,
                                   const Assignment& assignment);

// Of such an element what its copy takes while a product runs that cast it for itself: rows, in
// the backward columns, too, where products need them (TransformerEngine pytorch/module/linear.py
// under FSDP2; torchao float8/float8_ops.py, preprocess_addmm).
double pass_cast_bytes(const BlockContext& context, bool backward);

// The block's products in fp8 as layers of a framework. Weights that are cast once a step stay so
// to the next one (TransformerEngine pytorch/module/base.py: get_weight_workspace, its cache;
// parameters that are gathered in 8 bits are kept so, pytorch/tensor/float8_tensor.py).
QuantisedProducts quantised_products(const BlockContext& context, const BlockRules& rules);

// Casts of weights that last a step, in its first forward: parameters in 16 bits are cast with
// their transposes, of those that are gathered in 8 bits the transposes are made where products
// need them (TransformerEngine pytorch/module/linear.py: is_first_microbatch, update_usage).
// Parameters with scales of blocks are gathered in 16 bits; those in nvfp4 have scales of squares,
// so that their columns are made of their rows.
Seconds weight_casts_of_step(const BlockCost& block, const BlockPlan& layout, const Mesh& mesh,
                             DType precision, const costmodel::DeviceModel& device,
                             const Execution& execution);

// Casts of weights that every pass makes because nothing of them stays behind. Parameters that live
// elsewhere arrive in 16 bits (deepspeed/runtime/swap_tensor/partitioned_param_swapper.py moves the
// 16-bit partitions; Megatron-Core's optimizer on the host leaves parameters on the device), those
// that ZeRO-3 gathers in 16 bits, or in 8 where every rank casts its shard before the gather
// (pytorch/ao torchao/float8/fsdp_utils.py: fsdp_pre_all_gather) and the backward makes their
// transposes. With `casts_weights` the products' own casts are all there are. A forward reads rows
// alone and leaves no columns (TransformerEngine pytorch/module/linear.py: columnwise_usage under
// FSDP2). The backward casts what an input gradient or a product that runs again reads, once for
// both.
struct PassCasts {
  Seconds forward;
  Seconds backward;
};
PassCasts weight_casts_of_passes(const BlockCost& block, const BlockPlan& layout, const Mesh& mesh,
                                 DType precision, const costmodel::DeviceModel& device,
                                 const Execution& execution);

// Whether products cast their weights for themselves, so that a copy is there while they run:
// always (Execution::casts_weights), or of parameters that are put together in 16 bits or come from
// elsewhere for the pass (TransformerEngine pytorch/module/linear.py under FSDP2, of which pull
// request 2805 keeps no copy for the backward).
bool casts_in_passes(const BlockCost& block, const BlockPlan& layout, const Mesh& mesh,
                     const Execution& execution, DType precision);

// A product on one device, with all its groups.
struct CastOperands {
  double rows = 0;
  double input = 0;    // elements of a row
  double output = 0;   // elements of a row
  double weights = 0;  // elements
  // Of the input and of the output's gradient that this device casts: less than all of what is
  // gathered in fp8, none of what another product's kernels have cast.
  double input_share = 1;
  double gradient_share = 1;
  bool from_norm = false;  // the norm has written the input in fp8
  // Have come from other ranks in fp8 with their scales: all that is left are their transposes.
  bool quantised_input = false;
  bool quantised_gradient = false;
  // The backward reads the weights in columns for the one, inputs and gradients for the other.
  bool gives_input_gradient = true;
  bool gives_weight_gradient = true;
  int tensors = 1;  // experts whose inputs and gradients are cast by themselves
};

void add_casts(const CastOperands& product, const KernelContext& context, OperatorCost& cost);

}  // namespace orrery::plan
