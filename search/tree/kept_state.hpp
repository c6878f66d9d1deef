// SPDX-License-Identifier: Apache-2.0
// The checkpoint that a search keeps up to date, where it is asked to, and what it goes on from:
// its state as bytes of one kind (search/tree/checkpoint.hpp).
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/bytes.hpp"
#include "search/tree/checkpoint.hpp"
#include "search/tree/state_files.hpp"

namespace orrery::search {

class KeptState {
 public:
  // `inputs`: what two searches have to agree on; made where anything is kept or read.
  KeptState(const StateFiles& files, Progress kind,
            const std::function<std::vector<InputHash>()>& inputs);

  bool resumes() const { return !files_.resume.empty(); }
  // Nothing where there is no state to go on from; then the file says that the search has begun.
  std::optional<std::string> read();
  // `state` writes it; asked where it is kept, by the second when that is due.
  void save(const std::function<void(ByteWriter&)>& state);
  void save_when_due(const std::function<void(ByteWriter&)>& state);
  // What is found from here on is not the same in every run: the file stays as it is.
  void close() { is_closed_ = true; }

 private:
  StateFiles files_;
  Progress kind_;
  std::vector<InputHash> inputs_;
  bool is_closed_ = false;
  std::chrono::steady_clock::time_point saved_ = std::chrono::steady_clock::now();
};

}  // namespace orrery::search
