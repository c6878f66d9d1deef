// SPDX-License-Identifier: Apache-2.0
#include "topologies/network_remarks.hpp"

#include <gtest/gtest.h>

namespace orrery::topologies {
namespace {

TEST(NetworkRemarks, AKindOfNetworkAndItsRate) {
  for (const char* clause :
       {"nccl over 100g ethernet", "100 gb/s ethernet", "ethernet at 100g", "ib/roce 200 gb/s",
        "infiniband with 200 gbps", "8x200gb nics", "interconnect of 3.2 tb/s", "hdr 200gb/s"}) {
    EXPECT_TRUE(states_network(clause)) << clause;
  }
}

TEST(NetworkRemarks, OtherThingsWithRates) {
  for (const char* clause :
       {"100 gb/s ethernet to storage", "measured 90 gb/s over ib", "nvlink 600 gb/s beside ib",
        "500 gb over ib", "40 gb ethernet", "2 gpus in a network", "infiniband", "100 gb/s", ""}) {
    EXPECT_FALSE(states_network(clause)) << clause;
  }
}

}  // namespace
}  // namespace orrery::topologies
