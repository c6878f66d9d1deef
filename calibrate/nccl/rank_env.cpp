// SPDX-License-Identifier: Apache-2.0
#include "calibrate/nccl/rank_env.hpp"

#include <fmt/format.h>

#include <array>
#include <cstdlib>

#include "base/error.hpp"
#include "base/limits.hpp"
#include "base/quantity_text.hpp"

namespace orrery::calibrate {
namespace {

struct Launcher {
  const char* name;
  const char* rank;
  const char* size;
  const char* local_rank;
  const char* present;  // must be set as well, or null
};

// Our own launcher first: it may run inside an allocation whose variables are inherited. Slurm sets
// SLURM_PROCID in batch scripts too, where only steps (srun) start several processes.
constexpr std::array<Launcher, 5> kLaunchers = {
    {{"orrery", "ORRERY_RANK", "ORRERY_WORLD_SIZE", "ORRERY_LOCAL_RANK", nullptr},
     {"openmpi", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
      nullptr},
     {"pmi", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", nullptr},
     {"slurm", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", "SLURM_STEP_ID"},
     {"torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR"}}};

int number(const std::string& text, const char* variable, std::int64_t min) {
  return static_cast<int>(parse_integer(text, variable, min, limits::kMaxDevices));
}

}  // namespace

RankIdentity rank_identity(const Environment& environment) {
  for (const Launcher& launcher : kLaunchers) {
    const std::optional<std::string> rank = environment(launcher.rank);
    if (!rank || (launcher.present != nullptr && !environment(launcher.present))) {
      continue;
    }
    const std::optional<std::string> size = environment(launcher.size);
    if (!size) {
      bad_input(launcher.size, fmt::format("not set although {} is", launcher.rank),
                "both come from the launcher");
    }
    RankIdentity identity;
    identity.launcher = launcher.name;
    identity.rank = number(*rank, launcher.rank, 0);
    identity.size = number(*size, launcher.size, 1);
    if (identity.rank >= identity.size) {
      bad_input(launcher.rank, fmt::format("rank {} of {}", identity.rank, identity.size));
    }
    if (const std::optional<std::string> local = environment(launcher.local_rank)) {
      identity.local_rank = number(*local, launcher.local_rank, 0);
    }
    const std::optional<std::string> host = environment("MASTER_ADDR");
    const std::optional<std::string> port = environment("MASTER_PORT");
    if (const std::optional<std::string> own = environment("ORRERY_RENDEZVOUS")) {
      identity.address = *own;
    } else if (host && port) {
      identity.address = *host + ":" + *port;
    }
    identity.token = environment("ORRERY_TOKEN").value_or("");
    return identity;
  }
  return {};
}

std::optional<std::string> process_environment(const std::string& name) {
  const char* value = std::getenv(name.c_str());
  return value == nullptr ? std::nullopt : std::optional<std::string>(value);
}

}  // namespace orrery::calibrate
