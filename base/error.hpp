// SPDX-License-Identifier: Apache-2.0
// Three different things: Error (bad input or I/O, thrown, ends the operation), a value (an
// expected negative outcome such as an infeasible plan, see plan/), and ORRERY_CHECK (a bug).
#pragma once

#include <cstddef>
#include <stdexcept>
#include <string>
#include <string_view>

namespace orrery {

enum class ErrorKind { BadInput, InputOutput, DeviceMissing };

// What is wrong, where, and what would be right. `where` is "file: /json/pointer", "file:line" or
// an option name; it may be empty. what() joins "where: message (hint)" and never exceeds 4,000
// characters; control characters of user text are escaped.
class Error : public std::runtime_error {
 public:
  Error(ErrorKind kind, std::string_view where, std::string_view message,
        std::string_view hint = {});
  ErrorKind kind() const { return kind_; }
  std::string_view where() const { return std::string_view(what()).substr(0, where_size_); }
  // This error, behind the file that it is about; itself when its place is in that file.
  Error in_file(std::string_view file) const;

 private:
  ErrorKind kind_;
  std::size_t where_size_;  // characters of what()
};

// The result of an action on a file that does not know its name: errors say it.
template <class Action>
auto in_file(std::string_view file, const Action& action) {
  try {
    return action();
  } catch (const Error& error) {
    throw error.in_file(file);
  }
}

[[noreturn]] void bad_input(std::string_view where, std::string_view message,
                            std::string_view hint = {});

[[noreturn]] void check_failed(const char* expression, const char* file, int line,
                               std::string_view detail);

}  // namespace orrery

// Always on. Aborts with exit code 1 after printing the expression; never reachable from input.
#define ORRERY_CHECK(expression, detail)                                 \
  do {                                                                   \
    if (!(expression)) {                                                 \
      ::orrery::check_failed(#expression, __FILE__, __LINE__, (detail)); \
    }                                                                    \
  } while (false)
