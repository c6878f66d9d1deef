// SPDX-License-Identifier: Apache-2.0
// Who this process is in a job of several: from the variables that Open MPI, MPICH and Intel MPI
// (PMI), Slurm, torchrun and our own launcher set. Nothing is read from an MPI library, so that the
// program needs none.
#pragma once

#include <functional>
#include <optional>
#include <string>

namespace orrery::calibrate {

struct RankIdentity {
  int rank = 0;
  int size = 1;
  int local_rank = -1;   // -1: not stated
  std::string launcher;  // "openmpi", "pmi", "slurm", "torchrun", "orrery"; "": started alone
  std::string address;   // where rank 0 listens, if the launcher says so (HOST:PORT)
  std::string token;     // what our own launcher tells its processes apart from strangers with
};

using Environment = std::function<std::optional<std::string>(const std::string& name)>;

// Error when a launcher's variables contradict each other (a rank beyond the size, a missing size).
RankIdentity rank_identity(const Environment& environment);
std::optional<std::string> process_environment(const std::string& name);

}  // namespace orrery::calibrate
