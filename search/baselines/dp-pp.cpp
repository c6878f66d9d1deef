// SPDX-License-Identifier: Apache-2.0
#include "search/baseline.hpp"

namespace orrery::search {

extern const Baseline baseline_dp_pp = {
    .name = "dp+pp",
    .description = "data and pipeline parallelism, no tensor parallelism",
    .source = "Miao et al., Galvatron, PVLDB 16(3), 2022 (arXiv 2211.13878), section 5",
    .fix = "tp=1,cp=1,ep=1,zero=0",
};

}  // namespace orrery::search
