// SPDX-License-Identifier: Apache-2.0
// Starts this program once more for each further GPU of this host: same arguments, ranks 1 ... n-1,
// meeting at a port of the loopback. The processes end with the run: those still there shortly
// after it are stopped.
#pragma once

#include <string>
#include <vector>

#include "base/units.hpp"
#include "calibrate/nccl/rank_env.hpp"
#include "calibrate/nccl/sockets.hpp"

namespace orrery::calibrate {

class LocalLaunch {
 public:
  // `program` and `arguments` of the copies; arguments[0] is the program's name.
  LocalLaunch(const std::string& program, const std::vector<std::string>& arguments, int ranks);
  ~LocalLaunch();
  LocalLaunch(const LocalLaunch&) = delete;
  LocalLaunch& operator=(const LocalLaunch&) = delete;

  const RankIdentity& identity() const { return identity_; }  // rank 0
  Socket take_listener() { return std::move(listener_); }
  // Waits until all have ended; false when one failed.
  bool wait(Seconds patience);

 private:
  RankIdentity identity_;
  Socket listener_;
  std::vector<int> processes_;
  bool failed_ = false;
};

// The command line of this process.
std::vector<std::string> own_arguments();

}  // namespace orrery::calibrate
