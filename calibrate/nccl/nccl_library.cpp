// SPDX-License-Identifier: Apache-2.0
#include "calibrate/nccl/nccl_library.hpp"

#include <fmt/format.h>
#include <nccl.h>

#include <array>
#include <chrono>
#include <cstring>
#include <thread>

#include "base/error.hpp"
#include "base/text.hpp"
#include "calibrate/shared_library.hpp"

namespace orrery::calibrate {
namespace {

constexpr auto kPause = std::chrono::milliseconds(1);

const std::array<std::string, 2> kNames = {"libnccl.so.2", "libnccl.so"};

}  // namespace

struct Nccl::Functions {
  SharedLibrary library{kNames};
  decltype(&ncclGetVersion) get_version = nullptr;
  decltype(&ncclGetUniqueId) get_unique_id = nullptr;
  decltype(&ncclGetErrorString) error_string = nullptr;
  decltype(&ncclCommInitRankConfig) init_rank = nullptr;
  decltype(&ncclCommFinalize) finalize = nullptr;
  decltype(&ncclCommDestroy) destroy = nullptr;
  decltype(&ncclCommAbort) abort = nullptr;
  decltype(&ncclCommGetAsyncError) async_error = nullptr;
  decltype(&ncclGroupStart) group_start = nullptr;
  decltype(&ncclGroupEnd) group_end = nullptr;
  decltype(&ncclAllReduce) all_reduce = nullptr;
  decltype(&ncclAllGather) all_gather = nullptr;
  decltype(&ncclReduceScatter) reduce_scatter = nullptr;
  decltype(&ncclBroadcast) broadcast = nullptr;
  decltype(&ncclSend) send = nullptr;
  decltype(&ncclRecv) receive = nullptr;
};

Nccl::Nccl() : functions_(std::make_unique<Functions>()) {
  Functions& f = *functions_;
  f.library.load(f.get_version, "ncclGetVersion");
  f.library.load(f.get_unique_id, "ncclGetUniqueId");
  f.library.load(f.error_string, "ncclGetErrorString");
  f.library.load(f.init_rank, "ncclCommInitRankConfig");
  f.library.load(f.finalize, "ncclCommFinalize");
  f.library.load(f.destroy, "ncclCommDestroy");
  f.library.load(f.abort, "ncclCommAbort");
  f.library.load(f.async_error, "ncclCommGetAsyncError");
  f.library.load(f.group_start, "ncclGroupStart");
  f.library.load(f.group_end, "ncclGroupEnd");
  f.library.load(f.all_reduce, "ncclAllReduce");
  f.library.load(f.all_gather, "ncclAllGather");
  f.library.load(f.reduce_scatter, "ncclReduceScatter");
  f.library.load(f.broadcast, "ncclBroadcast");
  f.library.load(f.send, "ncclSend");
  f.library.load(f.receive, "ncclRecv");
}

Nccl::~Nccl() = default;

std::string Nccl::version() const {
  int code = 0;
  settle(functions_->get_version(&code), nullptr, "ncclGetVersion", {});
  return fmt::format("{}.{}.{}", code / 10'000, code / 100 % 100, code % 100);
}

// Waits for what a non-blocking communicator began.
void Nccl::settle(int result, ncclComm* communicator, const char* what, const Poll& poll) const {
  auto status = static_cast<ncclResult_t>(result);
  while (status == ncclInProgress && communicator != nullptr) {
    if (poll) {
      poll();
    }
    std::this_thread::sleep_for(kPause);
    if (functions_->async_error(communicator, &status) != ncclSuccess) {
      status = ncclInternalError;
    }
  }
  if (status != ncclSuccess) {
    throw Error(ErrorKind::InputOutput, what, functions_->error_string(status),
                "NCCL_DEBUG=WARN says more");
  }
}

std::string Nccl::unique_id() const {
  ncclUniqueId id = {};
  settle(functions_->get_unique_id(&id), nullptr, "ncclGetUniqueId", {});
  return {id.internal, sizeof id.internal};
}

ncclComm* Nccl::join(const std::string& id, int rank, int size, const Poll& poll) const {
  ncclUniqueId unique = {};
  if (id.size() != sizeof unique.internal) {
    throw Error(ErrorKind::InputOutput, "ncclCommInitRank", "the group's id has a wrong length",
                "do all ranks run the same NCCL?");
  }
  std::memcpy(unique.internal, id.data(), id.size());
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  ncclComm* communicator = nullptr;
  const ncclResult_t result = functions_->init_rank(&communicator, size, unique, rank, &config);
  try {
    settle(result, communicator, "ncclCommInitRank", poll);
  } catch (...) {
    abort(communicator);
    throw;
  }
  return communicator;
}

void Nccl::leave(ncclComm* communicator, const Poll& poll) const {
  settle(functions_->finalize(communicator), communicator, "ncclCommFinalize", poll);
  settle(functions_->destroy(communicator), nullptr, "ncclCommDestroy", poll);
}

void Nccl::abort(ncclComm* communicator) const {
  if (communicator != nullptr) {
    (void)functions_->abort(communicator);
  }
}

void Nccl::check(ncclComm* communicator) const {
  ncclResult_t status = ncclSuccess;
  const ncclResult_t asked = functions_->async_error(communicator, &status);
  if (asked != ncclSuccess || (status != ncclSuccess && status != ncclInProgress)) {
    settle(asked != ncclSuccess ? asked : status, nullptr, "NCCL", {});
  }
}

void Nccl::enqueue(sim::CommKind kind, std::size_t bytes, const Buffers& buffers, int rank,
                   int size, ncclComm* communicator, void* stream, const Poll& poll) const {
  const Functions& f = *functions_;
  const auto on = static_cast<cudaStream_t>(stream);
  const std::size_t count = bytes / sizeof(float);
  const auto ranks = static_cast<std::size_t>(size);
  const auto done = [&](ncclResult_t result, const char* what) {
    settle(result, communicator, what, poll);
  };
  switch (kind) {
    case sim::CommKind::AllReduce:
      done(f.all_reduce(buffers.send, buffers.receive, count, ncclFloat, ncclSum, communicator, on),
           "ncclAllReduce");
      return;
    case sim::CommKind::AllGather:
      done(f.all_gather(buffers.send, buffers.receive, count / ranks, ncclFloat, communicator, on),
           "ncclAllGather");
      return;
    case sim::CommKind::ReduceScatter:
      done(f.reduce_scatter(buffers.send, buffers.receive, count / ranks, ncclFloat, ncclSum,
                            communicator, on),
           "ncclReduceScatter");
      return;
    case sim::CommKind::Broadcast:
      done(f.broadcast(buffers.send, buffers.receive, count, ncclFloat, 0, communicator, on),
           "ncclBroadcast");
      return;
    case sim::CommKind::AllToAll:
    case sim::CommKind::SendReceive:
      break;
    case sim::CommKind::None:
    case sim::CommKind::Copy:
      throw Error(ErrorKind::BadInput, "calibrate nccl", "not a collective");
  }
  // Calls inside a group begin when it ends.
  const auto grouped = [](ncclResult_t result) {
    return result == ncclInProgress ? ncclSuccess : result;
  };
  const bool all = kind == sim::CommKind::AllToAll;
  const std::size_t part = all ? count / ranks : count;
  done(f.group_start(), "ncclGroupStart");
  for (int step = 0; step < (all ? size : 1); ++step) {
    // Everybody to everybody, or each to its neighbour.
    const int to = all ? step : (rank + 1) % size;
    const int from = all ? step : (rank + size - 1) % size;
    const std::size_t offset = all ? static_cast<std::size_t>(step) * part : 0;
    done(grouped(f.send(static_cast<const float*>(buffers.send) + offset, part, ncclFloat, to,
                        communicator, on)),
         "ncclSend");
    done(grouped(f.receive(static_cast<float*>(buffers.receive) + offset, part, ncclFloat, from,
                           communicator, on)),
         "ncclRecv");
  }
  done(f.group_end(), "ncclGroupEnd");
}

}  // namespace orrery::calibrate
