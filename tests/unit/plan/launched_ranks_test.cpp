// SPDX-License-Identifier: Apache-2.0
#include "plan/launch_script/launched_ranks.hpp"

#include <gtest/gtest.h>

#include "base/error.hpp"

namespace orrery::plan {
namespace {

std::optional<std::int64_t> ranks_started_by(const std::string& text) {
  return launched_ranks(text, "run.sh");
}

TEST(LaunchedRanks, AreProcessesOfANodeTimesNodes) {
  EXPECT_EQ(ranks_started_by("torchrun --nproc_per_node 8 --nnodes 4 train.py --nnodes 7"), 32);
  EXPECT_EQ(ranks_started_by("N=2\ntorchrun --nproc-per-node=4 --nnodes=$((N * 2)) a.py"), 16);
  EXPECT_EQ(ranks_started_by("python -m torch.distributed.launch --nproc_per_node 8 a.py"), 8);
  EXPECT_EQ(ranks_started_by("deepspeed --num_nodes 2 --num_gpus 8 a.py"), 16);
  EXPECT_EQ(ranks_started_by("echo ready\ntorchrun --nproc_per_node 8 a.py"), 8);
}

TEST(LaunchedRanks, AreUnknownWhereTheTextDoesNotTell) {
  for (const char* text :
       {"python train.py --nproc_per_node 8", "torchrun --nproc_per_node gpu a.py",
        "torchrun --nproc_per_node 8 --nnodes 1:4 a.py", "torchrun --nnodes 4 a.py",
        "torchrun --nproc_per_node $GPUS a.py", "torchrun --nproc_per_node",
        "torchrun --nproc_per_node 0 a.py", "torchrun --nproc_per_node 99999999999999999999 a.py",
        "torchrun --nproc_per_node 8 a.py\ntorchrun --nproc_per_node 4 b.py"}) {
    EXPECT_EQ(ranks_started_by(text), std::nullopt) << text;
  }
  EXPECT_THROW(ranks_started_by("torchrun \"--nproc_per_node 8 a.py"), Error);
}

}  // namespace
}  // namespace orrery::plan
