// SPDX-License-Identifier: Apache-2.0
#include "search/baseline.hpp"

namespace orrery::search {

extern const Baseline baseline_fsdp = {
    .name = "fsdp",
    .description = "pure fully sharded data parallelism (SDP, ZeRO-3)",
    .source = "Zhao et al., PyTorch FSDP, PVLDB 16(12), 2023 (arXiv 2304.11277)",
    .fix = "tp=1,cp=1,pp=1,ep=1,zero=3",
};

}  // namespace orrery::search
