// SPDX-License-Identifier: Apache-2.0
#include "base/interrupt.hpp"

#include <signal.h>
#include <unistd.h>

#include <atomic>

namespace orrery {
namespace {

std::atomic<bool> flag = false;
static_assert(std::atomic<bool>::is_always_lock_free, "the flag is set in a signal handler");

void on_signal(int signal_number) {
  if (flag.exchange(true)) {
    _exit(128 + signal_number);
  }
}

}  // namespace

void install_interrupt_handler() {
  struct sigaction action = {};
  action.sa_handler = on_signal;
  sigemptyset(&action.sa_mask);
  action.sa_flags = SA_RESTART;
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
}

bool interrupted() { return flag.load(std::memory_order_relaxed); }

}  // namespace orrery
