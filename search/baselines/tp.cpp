// SPDX-License-Identifier: Apache-2.0
#include "search/baseline.hpp"

namespace orrery::search {

extern const Baseline baseline_tp = {
    .name = "tp",
    .description = "pure tensor parallelism over all GPUs",
    .source = "Shoeybi et al., Megatron-LM, 2019 (arXiv 1909.08053)",
    .fix = "cp=1,pp=1,dp=1,ep=1",
};

}  // namespace orrery::search
