// SPDX-License-Identifier: Apache-2.0
#include "search/tree/kept_state.hpp"

namespace orrery::search {

KeptState::KeptState(const StateFiles& files, Progress kind,
                     const std::function<std::vector<InputHash>()>& inputs)
    : files_(files), kind_(kind) {
  if (!files.checkpoint.empty() || !files.resume.empty()) {
    inputs_ = inputs();
  }
}

std::optional<std::string> KeptState::read() {
  if (resumes()) {
    std::string bytes;
    const Progress progress = read_checkpoint(files_.resume, inputs_, bytes);
    if (progress == kind_) {
      return bytes;
    }
    if (progress != Progress::None) {
      ByteReader(bytes, files_.resume).fail("holds the state of a search of another space");
    }
  }
  if (!files_.checkpoint.empty()) {
    write_checkpoint(files_.checkpoint, inputs_, Progress::None, "");
  }
  return std::nullopt;
}

void KeptState::save(const std::function<void(ByteWriter&)>& state) {
  if (files_.checkpoint.empty() || is_closed_) {
    return;
  }
  ByteWriter out;
  state(out);
  write_checkpoint(files_.checkpoint, inputs_, kind_, out.bytes());
  saved_ = std::chrono::steady_clock::now();
}

void KeptState::save_when_due(const std::function<void(ByteWriter&)>& state) {
  const std::chrono::duration<double> since = std::chrono::steady_clock::now() - saved_;
  if (since.count() >= files_.checkpoint_every.value()) {
    save(state);
  }
}

}  // namespace orrery::search
