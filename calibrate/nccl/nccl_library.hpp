// SPDX-License-Identifier: Apache-2.0
// NCCL opened while the program runs, so that the program starts where it is missing. The types of
// its functions come from the header of the toolkit it was built with.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>

#include "sim/engine/tags.hpp"

struct ncclComm;

namespace orrery::calibrate {

// Called while waiting; throws to give up.
using Poll = std::function<void()>;

class Nccl {
 public:
  Nccl();  // Error(DeviceMissing) when the library cannot be opened
  ~Nccl();
  Nccl(const Nccl&) = delete;
  Nccl& operator=(const Nccl&) = delete;

  std::string version() const;  // "2.28.9"
  std::string unique_id() const;
  // Non-blocking inside, so that a rank that never comes is noticed by `poll`.
  ncclComm* join(const std::string& id, int rank, int size, const Poll& poll) const;
  void leave(ncclComm* communicator, const Poll& poll) const;
  void abort(ncclComm* communicator) const;
  // Error when the communicator failed since.
  void check(ncclComm* communicator) const;

  struct Buffers {
    const void* send = nullptr;
    void* receive = nullptr;
  };
  // One operation on floats on a stream (cudaStream_t); `bytes` as nccl-tests prints them.
  void enqueue(sim::CommKind kind, std::size_t bytes, const Buffers& buffers, int rank, int size,
               ncclComm* communicator, void* stream, const Poll& poll) const;

 private:
  struct Functions;
  void settle(int result, ncclComm* communicator, const char* what, const Poll& poll) const;

  std::unique_ptr<Functions> functions_;
};

}  // namespace orrery::calibrate
