// SPDX-License-Identifier: Apache-2.0
#include "base/terminal.hpp"

#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdlib>
#include <string_view>

namespace orrery {

bool knows_escape_codes(int descriptor) {
  const char* terminal = std::getenv("TERM");
  const std::string_view name = terminal == nullptr ? "" : terminal;
  return !name.empty() && name != "dumb" && isatty(descriptor) == 1;
}

int terminal_columns(int descriptor) {
  constexpr int kUsual = 80;
  winsize size = {};
  return ::ioctl(descriptor, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : kUsual;
}

}  // namespace orrery
