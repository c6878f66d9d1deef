// SPDX-License-Identifier: Apache-2.0
// The processes of one calibration run and the words they exchange beside NCCL: communicator ids,
// times, barriers. Rank 0 listens, the others connect (a star). Every wait has a deadline; a peer
// that fails says why before it leaves, and one that just dies is named, on every rank.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/units.hpp"
#include "calibrate/nccl/rank_env.hpp"
#include "calibrate/nccl/sockets.hpp"

namespace orrery::calibrate {

// Of this machine; "?" where it has none.
std::string host_name();

struct TeamOptions {
  // HOST:PORT of rank 0, or "file:PATH" of a file on storage all ranks see, where rank 0 writes it.
  std::string address;
  Seconds join_timeout{120};
  Seconds step_timeout{600};  // for each exchange
  Socket listener;            // of rank 0 when it already has one
};

class Team {
 public:
  // Meets the others. A run of one rank needs no address.
  Team(const RankIdentity& identity, TeamOptions options);
  ~Team();
  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;

  int rank() const { return identity_.rank; }
  int size() const { return identity_.size; }

  // What every rank said, in rank order, on every rank. Calls must match on all ranks.
  std::vector<std::string> all_gather(const std::string& text);
  std::string broadcast(const std::string& text);  // rank 0's
  void barrier() { (void)all_gather(""); }

  // Throws when a peer left or reported a fault; never blocks. For loops that wait for a GPU.
  void check();
  // Tells the others why this rank ends; the next exchange of each throws it.
  void report_fault(const std::string& text) noexcept;

 private:
  void lead(TeamOptions& options);
  void follow(const TeamOptions& options);
  Address published_address(const std::string& path, Clock::time_point deadline) const;
  std::string receive_from(std::size_t peer);
  void send_to(std::size_t peer, const std::string& text);
  [[noreturn]] void lost(std::size_t peer, const std::string& why);
  Clock::time_point step_deadline() const;

  RankIdentity identity_;
  Seconds step_timeout_;
  std::vector<Socket> peers_;            // rank 0: one for each other rank; else to rank 0
  std::vector<std::string> peer_names_;  // "rank 3 (host)"
  std::string published_;                // file with the address, to remove in the end
};

}  // namespace orrery::calibrate
