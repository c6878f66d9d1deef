// SPDX-License-Identifier: Apache-2.0
#include "search/baseline.hpp"

namespace orrery::search {

extern const Baseline baseline_pp = {
    .name = "pp",
    .description = "pure pipeline parallelism over all GPUs",
    .source = "Huang et al., GPipe, NeurIPS 2019 (arXiv 1811.06965)",
    .fix = "tp=1,cp=1,dp=1,ep=1",
};

}  // namespace orrery::search
