// SPDX-License-Identifier: Apache-2.0
// What one call of fused attention computes and moves, and the share of the peak that it reaches.
#pragma once

#include "costmodel/device_model.hpp"

namespace orrery::costmodel {

// With what the zeros of a shape stand for.
AttentionShape completed(AttentionShape shape);

double head_widths(const AttentionShape& shape);  // of queries and values together

struct AttentionWork {
  double needed_flops = 0;  // of the visible pairs
  double flops = 0;         // with whole tiles, the ends of rows and lost waves
  double bytes = 0;         // of HBM
};

// `row_overhead` in keys; of a completed shape.
AttentionWork work_of(const AttentionShape& shape, bool backward, double row_overhead,
                      double idle_waves);

// Share of peak rate that the GPU's best kernel reaches at a head size (`dims`: of queries and
// values together).
double attention_share(const AttentionParameters& parameters, double dims, bool backward);

// Rate of the forward products in fp8 over that in 16 bits; 1 where it was not measured.
double fp8_attention_rate(const AttentionParameters& parameters, double dims);

}  // namespace orrery::costmodel
