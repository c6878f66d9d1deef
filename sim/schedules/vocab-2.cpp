// SPDX-License-Identifier: Apache-2.0
// The output layer cut over all devices, with one barrier per micro-batch that hides behind one
// micro-batch more in flight: p + 1 activations on the first stage of 1f1b.
#include "sim/orders/output_layer.hpp"

namespace orrery::sim {
namespace {

constexpr int kBarriers = 1;

}  // namespace

extern const Schedule schedule_vocab_2 = vocabulary_schedule<kBarriers>(
    "vocab-2", "output layer over all stages, one barrier (on 1f1b or v-half)",
    "Yeung et al., Vocabulary Parallelism, MLSys 2025 (arXiv 2411.05288), section 4, algorithm "
    "2");

}  // namespace orrery::sim
