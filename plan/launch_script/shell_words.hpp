// SPDX-License-Identifier: Apache-2.0
// Reads a shell script as text and never runs anything: which commands it would run and with which
// words, as far as the file itself tells. Quotes, comments, continuation lines, here-documents,
// variables, arrays, ${NAME:-default}, $((arithmetic)) and `if` over known values are followed;
// command substitutions, positional parameters, unset variables and values that depend on an
// unknown condition leave a word `unknown`, which matters only to whoever needs that word.
// Deterministic; linear in the text, expansions bounded by 4 MiB.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace orrery::plan {

struct ShellWord {
  std::string text;
  int line = 0;
  std::string unknown;  // what the text does not tell: "$NAME is not set in this file"; or ""
  bool operator==(const ShellWord&) const = default;
};

struct ShellCommand {
  std::vector<ShellWord> words;  // never empty
  int line = 0;
};

// Commands in the order written; those of branches known not to be taken are left out. `where` is
// the file name of messages. Error for an unterminated quote, bracket or too much text.
std::vector<ShellCommand> read_shell(std::string_view text, const std::string& where);

}  // namespace orrery::plan
