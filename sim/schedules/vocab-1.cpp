// SPDX-License-Identifier: Apache-2.0
// The output layer cut over all devices, with two barriers per micro-batch that hide behind two
// micro-batches more in flight: p + 2 activations on the first stage of 1f1b.
#include "sim/orders/output_layer.hpp"

namespace orrery::sim {
namespace {

constexpr int kBarriers = 2;

}  // namespace

extern const Schedule schedule_vocab_1 = vocabulary_schedule<kBarriers>(
    "vocab-1", "output layer over all stages, two barriers (on 1f1b or v-half)",
    "Yeung et al., Vocabulary Parallelism, MLSys 2025 (arXiv 2411.05288), section 4, algorithm "
    "1");

}  // namespace orrery::sim
