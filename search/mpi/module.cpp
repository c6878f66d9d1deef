// SPDX-License-Identifier: Apache-2.0
#include <mpi.h>

#include <list>
#include <string>

#include "search/mpi/messages.hpp"

namespace {

struct Sending {
  std::string bytes;
  MPI_Request request = MPI_REQUEST_NULL;
};
std::list<Sending> sending;

int rank() {
  int value = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &value);
  return value;
}

int size() {
  int value = 1;
  MPI_Comm_size(MPI_COMM_WORLD, &value);
  return value;
}

void send(int to, const char* bytes, std::size_t size) {
  Sending& one = sending.emplace_back();
  one.bytes.assign(bytes, size);
  MPI_Isend(one.bytes.data(), static_cast<int>(size), MPI_BYTE, to, 0, MPI_COMM_WORLD,
            &one.request);
}

void forget_sent() {
  for (auto one = sending.begin(); one != sending.end();) {
    int is_sent = 0;
    MPI_Test(&one->request, &is_sent, MPI_STATUS_IGNORE);
    one = is_sent != 0 ? sending.erase(one) : std::next(one);
  }
}

long probe(int* from) {
  forget_sent();
  int has_come = 0;
  MPI_Status status;
  MPI_Iprobe(MPI_ANY_SOURCE, 0, MPI_COMM_WORLD, &has_come, &status);
  if (has_come == 0) {
    return -1;
  }
  int bytes = 0;
  MPI_Get_count(&status, MPI_BYTE, &bytes);
  *from = status.MPI_SOURCE;
  return bytes;
}

void receive(int from, char* bytes, std::size_t size) {
  MPI_Recv(bytes, static_cast<int>(size), MPI_BYTE, from, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

void finish() {
  for (Sending& one : sending) {
    MPI_Wait(&one.request, MPI_STATUS_IGNORE);
  }
  sending.clear();
  MPI_Finalize();
}

constexpr orrery::search::MpiMessages kMessages = {rank, size, send, probe, receive, finish};

}  // namespace

extern "C" const orrery::search::MpiMessages* orrery_mpi_start() {
  int provided = 0;
  if (MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &provided) != MPI_SUCCESS ||
      provided < MPI_THREAD_FUNNELED) {
    return nullptr;
  }
  return &kMessages;
}
