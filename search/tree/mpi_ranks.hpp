// SPDX-License-Identifier: Apache-2.0
// The ranks of an MPI launcher (mpirun, mpiexec, srun). MPI is optional: it is in a module that is
// loaded when the environment says that a launcher started several processes, or when asked.
#pragma once

#include <memory>

#include "search/tree/ranks.hpp"

namespace orrery::search {

// Null when this process runs alone. Error when there are several, or `asked`, and the module was
// not built or cannot be loaded. On destruction rank 0 says goodbye to the others, and MPI ends.
std::unique_ptr<Ranks> open_mpi(bool asked);

// Rank in the environment of a launcher; 0 without one. For messages before MPI is there.
int launched_rank();
// How many it says there are; 1 without one.
int launched_size();

}  // namespace orrery::search
