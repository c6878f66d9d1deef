// SPDX-License-Identifier: Apache-2.0
// send_receive of a profile from messages of one rank to the next (`orrery calibrate nccl`,
// sendrecv_perf of nccl-tests): what a message takes before its first byte and the rate of the
// link, inside nodes and between them. Of a ring of ranks over several nodes the messages that
// cross between nodes are the slowest, one a node each way, so they are what is timed.
//
// One message at a time tells what one connection carries: between nodes that is the limit of a
// peer where the adapter has more, else the share of the adapter.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "calibrate/fit/collective_logs.hpp"
#include "calibrate/fit/kernels.hpp"
#include "costmodel/profile.hpp"

namespace orrery::calibrate {

struct SendReceiveFit {
  costmodel::Profile profile;        // with the errors among those of collectives
  std::vector<LeftOut> left_out;     // each time while a fifth of the sizes was no part of the fit
  std::vector<std::string> remarks;  // why logs say nothing of a link
  bool is_moved = false;
};

// Inside nodes and between them apart; what logs say nothing of stays as in the base.
SendReceiveFit fit_send_receive(std::span<const CollectiveLog> peers,
                                const costmodel::Profile& base);

}  // namespace orrery::calibrate
