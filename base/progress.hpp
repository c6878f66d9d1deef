// SPDX-License-Identifier: Apache-2.0
// Progress of long work on stderr: a rewritten bar on a terminal that can erase it, one line every
// ten seconds otherwise, nothing when quiet. Safe to call from several threads.
#pragma once

#include <memory>
#include <string>

namespace orrery {

class Progress {
 public:
  Progress(std::string title, bool quiet);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  // fraction in [0, 1], or negative when the end is unknown; note is a short state.
  void update(double fraction, const std::string& note);
  void finish();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace orrery
