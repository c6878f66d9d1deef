// SPDX-License-Identifier: Apache-2.0
#include "base/progress.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <mutex>

#include "base/terminal.hpp"
#include "base/text.hpp"

namespace orrery {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::milliseconds kTerminalInterval(100);
constexpr std::chrono::seconds kLogInterval(10);
constexpr int kBarWidth = 24;
constexpr int kMaxColumns = 80;
constexpr int kColumnsForBar = 60;

void print(const std::string& text) {
  std::fputs(text.c_str(), stderr);
  std::fflush(stderr);
}

std::string bar(double fraction) {
  const int filled = static_cast<int>(fraction * kBarWidth);
  return fmt::format("[{:#<{}}{:.<{}}] ", "", filled, "", kBarWidth - filled);
}

// "50 % a note", behind a bar where there is room for one.
std::string line_of(const std::string& title, double fraction, const std::string& note, int columns,
                    bool with_bar) {
  std::string text = title + ": ";
  if (fraction >= 0.0) {
    const double shown = std::min(fraction, 1.0);
    text += with_bar && columns >= kColumnsForBar ? bar(shown) : "";
    text += fmt::format("{:.0f} % ", 100.0 * shown);
  }
  // A line as wide as the terminal would wrap and could not be rewritten.
  return printable(text + note, std::min(columns, kMaxColumns) - 1);
}

}  // namespace

struct Progress::State {
  std::mutex mutex;
  std::string title;
  bool is_active = false;
  bool is_terminal = false;
  bool has_line = false;
  Clock::time_point last_print;
};

Progress::Progress(std::string title, bool quiet) : state_(std::make_unique<State>()) {
  state_->title = std::move(title);
  state_->is_active = !quiet;
  state_->is_terminal = knows_escape_codes(STDERR_FILENO);
  state_->last_print = Clock::now();
}

Progress::~Progress() { finish(); }

void Progress::update(double fraction, const std::string& note) {
  const std::lock_guard lock(state_->mutex);
  const Clock::time_point now = Clock::now();
  const Clock::duration interval =
      state_->is_terminal ? Clock::duration(kTerminalInterval) : Clock::duration(kLogInterval);
  if (!state_->is_active || now - state_->last_print < interval) {
    return;
  }
  state_->last_print = now;
  if (state_->is_terminal) {
    const int columns = terminal_columns(STDERR_FILENO);
    print(fmt::format("\r{}\x1b[K", line_of(state_->title, fraction, note, columns, true)));
  } else {
    print(line_of(state_->title, fraction, note, kMaxColumns, false) + "\n");
  }
  state_->has_line = state_->is_terminal;
}

void Progress::finish() {
  const std::lock_guard lock(state_->mutex);
  if (state_->has_line) {
    print("\r\x1b[K");
  }
  state_->has_line = false;
  state_->is_active = false;
}

}  // namespace orrery
