// SPDX-License-Identifier: Apache-2.0
#include "search/tree/mpi_ranks.hpp"

#include <dlfcn.h>

#include <cstdlib>

#include "base/error.hpp"
#include "search/mpi/messages.hpp"

namespace orrery::search {

namespace {

constexpr const char* kModule = "orrery_mpi.so";

int number_in(const char* variable, int otherwise) {
  const char* text = std::getenv(variable);
  return text == nullptr ? otherwise : std::atoi(text);
}

class MpiRanks : public Ranks {
 public:
  explicit MpiRanks(const MpiMessages& mpi) : mpi_(mpi), rank_(mpi.rank()), size_(mpi.size()) {}
  ~MpiRanks() override {
    if (rank_ == 0) {
      say_goodbye(*this);
    }
    mpi_.finish();
  }
  int rank() const override { return rank_; }
  int size() const override { return size_; }
  void send(int to, std::string_view bytes) override { mpi_.send(to, bytes.data(), bytes.size()); }
  std::optional<Message> receive() override {
    Message message;
    const long size = mpi_.probe(&message.from);
    if (size < 0) {
      return std::nullopt;
    }
    message.bytes.resize(static_cast<std::size_t>(size));
    mpi_.receive(message.from, message.bytes.data(), message.bytes.size());
    return message;
  }

 private:
  const MpiMessages& mpi_;
  int rank_;
  int size_;
};

}  // namespace

std::unique_ptr<Ranks> open_mpi(bool asked) {
  if (!asked && launched_size() < 2) {
    return nullptr;
  }
  // Beside the program, or where it is installed (its RUNPATH); stays loaded, as MPI's own
  // libraries do.
  void* module = dlopen(kModule, RTLD_NOW | RTLD_GLOBAL);
  if (module == nullptr) {
    const char* reason = dlerror();
    throw Error(ErrorKind::BadInput, asked ? "--mpi" : "started by an MPI launcher",
                std::string("MPI is not there: ") + (reason == nullptr ? kModule : reason),
                "build with MPI (libopenmpi-dev), or start one process");
  }
  const auto entry = reinterpret_cast<MpiEntry>(dlsym(module, kMpiEntry));
  ORRERY_CHECK(entry != nullptr, "the module has no entry");
  const MpiMessages* mpi = entry();
  if (mpi == nullptr) {
    throw Error(ErrorKind::InputOutput, "MPI", "cannot be initialised with threads");
  }
  return std::make_unique<MpiRanks>(*mpi);
}

// Open MPI; MPICH, Intel MPI and srun --mpi=pmi2. With PMIx alone only ranks above 0 are telling,
// hence --mpi.
int launched_size() { return number_in("OMPI_COMM_WORLD_SIZE", number_in("PMI_SIZE", 1)); }

int launched_rank() {
  return number_in("OMPI_COMM_WORLD_RANK", number_in("PMI_RANK", number_in("PMIX_RANK", 0)));
}

}  // namespace orrery::search
