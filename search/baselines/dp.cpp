// SPDX-License-Identifier: Apache-2.0
#include "search/baseline.hpp"

namespace orrery::search {

extern const Baseline baseline_dp = {
    .name = "dp",
    .description = "pure data parallelism: every GPU holds all of the network",
    .source = "Li et al., PyTorch Distributed, VLDB 2020 (arXiv 2006.15704)",
    .fix = "tp=1,cp=1,pp=1,ep=1,zero=0",
};

}  // namespace orrery::search
