// SPDX-License-Identifier: Apache-2.0
#include "base/error.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "base/limits.hpp"
#include "base/text.hpp"

namespace orrery {
namespace {

// The place and the hint keep their share, so that a long message cannot push them out.
constexpr int kSideShare = limits::kMaxErrorCharacters / 4;

std::string place(std::string_view where) { return printable(where, kSideShare); }

std::string joined(std::string_view where, std::string_view message, std::string_view hint) {
  std::string before = place(where);
  if (!before.empty()) {
    before += ": ";
  }
  std::string after = printable(hint, kSideShare);
  if (!after.empty()) {
    after = " (" + after + ")";
  }
  const auto rest = limits::kMaxErrorCharacters - static_cast<int>(before.size()) -
                    static_cast<int>(after.size());
  return before + printable(message, rest) + after;
}

}  // namespace

Error::Error(ErrorKind kind, std::string_view where, std::string_view message,
             std::string_view hint)
    : std::runtime_error(joined(where, message, hint)),
      kind_(kind),
      where_size_(place(where).size()) {}

Error Error::in_file(std::string_view file) const {
  const std::string name = place(file);  // which may be a member's: "file: /runs/plan"
  const bool is_there =
      where() == name || where().starts_with(name + ":") || where().starts_with(name + "/");
  return is_there ? *this : Error(kind_, file, what());
}

void bad_input(std::string_view where, std::string_view message, std::string_view hint) {
  throw Error(ErrorKind::BadInput, where, message, hint);
}

void check_failed(const char* expression, const char* file, int line, std::string_view detail) {
  const std::string text = printable(detail, 2000);
  std::fprintf(stderr, "orrery: internal error: %s does not hold at %s:%d: %s\n", expression, file,
               line, text.c_str());
  std::fflush(stderr);
  // No destructors: the state is wrong, and other threads may still use it.
  std::_Exit(1);
}

}  // namespace orrery
