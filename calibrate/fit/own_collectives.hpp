// SPDX-License-Identifier: Apache-2.0
// Logs of one machine in a profile: its factors and residuals are where the fit starts, the logs
// move both as far as they speak (five_factors.hpp, kriging.hpp), and networks and collectives that
// no log resembles stay as they are. Residuals of what was measured are those of one version of
// NCCL, the machine's. Deterministic.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "calibrate/fit/collective_logs.hpp"
#include "calibrate/fit/kernels.hpp"
#include "calibrate/fit/kriging.hpp"
#include "costmodel/profile.hpp"

namespace orrery::calibrate {

struct OwnCollectives {
  costmodel::Profile profile;
  std::vector<LeftOut> left_out;  // each time while a fifth was no part of the fit; by group
};

struct CollectiveSize {
  sim::CommKind kind = sim::CommKind::None;
  Bytes size;
  std::int64_t ranks = 0;
};
// What is wrong with a time that is hundreds of times the expected one, or the reverse: no network
// does that, another unit does. "" where it may be right.
std::string implausible_time(const CollectiveSize& of, Seconds measured, Seconds expected);

// Takes these out, against the base. What was taken out; Error naming the first unless `partial`.
std::vector<std::string> drop_impossible(std::vector<CollectiveLog>& logs,
                                         const costmodel::Profile& base, bool partial);

// `logs`: at least one. The profile's `left_out` becomes that of the groups measured.
OwnCollectives fit_own_collectives(std::span<const CollectiveLog> logs,
                                   const costmodel::Profile& base);

// The sections of the profile that the logs move.
std::vector<std::string> sections_of(std::span<const CollectiveLog> logs);

}  // namespace orrery::calibrate
