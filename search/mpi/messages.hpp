// SPDX-License-Identifier: Apache-2.0
// What the module orrery_mpi.so offers: MPI as five functions, so that the program itself is not
// linked against any MPI and starts as fast without it. The module is loaded when the program was
// started by an MPI launcher. Used from one thread.
#pragma once

#include <cstddef>

namespace orrery::search {

struct MpiMessages {
  int (*rank)();
  int (*size)();
  void (*send)(int to, const char* bytes, std::size_t size);  // copies; does not wait
  // Size of the next message and who sent it; -1: none has come.
  long (*probe)(int* from);
  void (*receive)(int from, char* bytes, std::size_t size);  // the one that was probed
  void (*finish)();  // waits until everything has been sent, then leaves MPI
};

inline constexpr const char* kMpiEntry = "orrery_mpi_start";
using MpiEntry = const MpiMessages* (*)();  // enters MPI; null when that failed

}  // namespace orrery::search
