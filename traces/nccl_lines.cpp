// SPDX-License-Identifier: Apache-2.0
#include "traces/nccl_lines.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cmath>
#include <iterator>

#include "base/text.hpp"

namespace orrery::traces {

namespace {

// Whether a word stands in the line by itself: "Killed" does in "[1,3]<stderr>:Killed", but not in
// "numKilled".
bool says_word(std::string_view line, std::string_view word) {
  const auto is_part = [&](std::size_t at) {
    return at < line.size() &&
           (std::isalnum(static_cast<unsigned char>(line[at])) != 0 || line[at] == '_');
  };
  for (std::size_t at = line.find(word); at != std::string_view::npos;
       at = line.find(word, at + 1)) {
    if ((at == 0 || !is_part(at - 1)) && !is_part(at + word.size())) {
      return true;
    }
  }
  return false;
}

}  // namespace

std::vector<std::string_view> words_of(std::string_view line) {
  std::vector<std::string_view> words;
  std::size_t begin = 0;
  while (begin < line.size()) {
    const auto is_space = [](char c) { return c == ' ' || c == '\t' || c == '\r'; };
    if (is_space(line[begin])) {
      ++begin;
      continue;
    }
    std::size_t end = begin;
    while (end < line.size() && !is_space(line[end])) {
      ++end;
    }
    words.push_back(line.substr(begin, end - begin));
    begin = end;
  }
  return words;
}

bool is_number(std::string_view word) {
  return !word.empty() &&
         std::ranges::all_of(word, [](unsigned char c) { return std::isdigit(c) != 0; });
}

bool is_damaged_row(const std::vector<std::string_view>& words, std::size_t columns) {
  constexpr std::ptrdiff_t kWords = 4;  // of a row that are none: type, redop, "N/A"
  const auto is_figure = [](std::string_view word) {
    return word.find_first_not_of("0123456789.e+-") == std::string_view::npos;
  };
  // As many as a row has; behind other words, the last ones.
  const std::size_t first = words.size() > columns ? words.size() - columns : 0;
  const std::size_t size = words.size() - first;
  const std::ptrdiff_t figures =
      std::count_if(words.begin() + static_cast<std::ptrdiff_t>(first), words.end(), is_figure);
  return size + 1 >= columns && size > 1 && is_number(words[first]) == (first > 0) &&
         is_number(words[first + 1]) && figures + kWords >= static_cast<std::ptrdiff_t>(size);
}

namespace {

// A time in front of a line, as the pattern has it ('d': a digit, '?': 'T' or a blank); its end, or
// 0.
std::size_t stamp_end(std::string_view line, std::string_view pattern) {
  if (line.size() < pattern.size()) {
    return 0;
  }
  for (std::size_t at = 0; at < pattern.size(); ++at) {
    const bool fits = pattern[at] == 'd'   ? is_number(line.substr(at, 1))
                      : pattern[at] == '?' ? line[at] == 'T' || line[at] == ' '
                                           : line[at] == pattern[at];
    if (!fits) {
      return 0;
    }
  }
  return pattern.size();
}

bool could_be_row(std::string_view line) {
  constexpr std::size_t kFewest = 6;  // of a table of one timing without its type
  const auto words = words_of(line);
  return words.size() >= kFewest && is_number(words[0]) && is_number(words[1]);
}

// "[0] ", "[default0]:", "node0: " before a comment or a row.
std::string_view name_before(std::string_view line) {
  constexpr std::size_t kLongest = 64;
  const bool bracket = line.starts_with('[');
  const std::size_t end = line.find_first_of(bracket ? "]" : ": \t");
  if (end == std::string_view::npos || end == 0 || end > kLongest ||
      (!bracket && (line[end] != ':' || end + 1 == line.size()))) {
    return {};
  }
  std::size_t after = end + 1;
  after += bracket && after < line.size() && line[after] == ':' ? 1 : 0;
  const std::string_view rest = trim(line.substr(after));
  return rest.starts_with('#') || could_be_row(rest) ? line.substr(0, after) : std::string_view{};
}

}  // namespace

std::string_view without_stamp(std::string_view line) {
  if (const std::size_t end = stamp_end(line, "[dddd-dd-dd?dd:dd:dd"); end > 0) {
    const std::size_t bracket = line.find(']', end);
    return bracket == line.npos ? line : trim(line.substr(bracket + 1));
  }
  const std::size_t end = stamp_end(line, "dddd-dd-dd?dd:dd:dd");
  if (end == 0) {
    return line;
  }
  line.remove_prefix(std::min(line.find(' ', end), line.size()));
  for (const std::string_view stream : {" stdout F ", " stderr F "}) {
    if (line.starts_with(stream)) {
      return line.substr(stream.size());
    }
  }
  return line.substr(std::min<std::size_t>(1, line.size()));
}

std::string without_colours(std::string_view line) {
  std::string plain;
  while (!line.empty()) {
    const std::size_t escape = std::min({line.find("\x1b["), line.find("\x1b]"), line.size()});
    plain += line.substr(0, escape);
    line.remove_prefix(escape);
    // "ESC ]" begins a title or a link, which BEL or "ESC \" ends.
    const bool is_title = line.starts_with("\x1b]");
    const auto is_final = [&](char c) {
      return is_title ? c == '\a' || c == '\\' : c >= '@' && c <= '~';
    };
    const auto end = std::find_if(line.begin() + std::min<std::ptrdiff_t>(2, std::ssize(line)),
                                  line.end(), is_final);
    line.remove_prefix(static_cast<std::size_t>(end - line.begin()) + (end == line.end() ? 0 : 1));
  }
  return plain;
}

std::string_view tag_of(std::string_view line) {
  constexpr std::string_view kMark = "]<stdout>:";
  const std::size_t mark = line.substr(0, 120).find(kMark);
  if (mark != std::string_view::npos) {
    return line.substr(0, mark + kMark.size());
  }
  const std::string_view start = trim(line.substr(0, line.find(':')));
  const std::size_t colon = line.find(": ");
  return is_number(start) && start.size() <= 7 && colon != std::string_view::npos
             ? line.substr(0, colon + 1)
             : name_before(line);
}

std::string_view rank_of(std::string_view tag) {
  const std::size_t bracket = tag.rfind('[');  // "Mon Nov 30 01:02:03 2026[1,0]<stdout>:"
  return tag.substr(bracket == tag.npos ? 0 : bracket);
}

std::string forced_setting(const std::vector<std::string_view>& words) {
  for (std::size_t i = 0; i + 5 < words.size(); ++i) {
    if ((words[i] == "NCCL_ALGO" || words[i] == "NCCL_PROTO") && words[i + 1] == "set" &&
        words[i + 3] == "environment") {
      std::string_view value = words[i + 5];
      value.remove_suffix(value.ends_with('.') ? 1 : 0);
      return std::string(words[i]) + "=" + std::string(value);
    }
  }
  return "";
}

std::string network_in_use(const std::vector<std::string_view>& words) {
  const auto info = std::ranges::find(words, "INFO");
  if (info == words.begin() || info == words.end() || *(info - 1) != "NCCL") {
    return "";
  }
  const std::vector<std::string_view> said(info + 1, words.end());
  if (said.size() > 2 && said[0] == "Using" && said[1] == "network") {
    return std::string(said[2]);
  }
  constexpr std::string_view kNet = "NET/";
  return said.size() > 2 && said[0].starts_with(kNet) && said[1] == ":" && said[2] == "Using"
             ? std::string(said[0].substr(kNet.size()))
             : "";
}

std::string_view modern_name(std::string_view column) {
  if (column == "bytes") {
    return "size";
  }
  if (column == "N") {
    return "count";
  }
  return column == "op" ? "redop" : column;
}

bool starts_timing(std::string_view column) { return column == "time" || column == "cputime"; }

double half_of_last_digit(std::string_view number) {
  const std::size_t mantissa = std::min(number.find_first_of("eE"), number.size());
  const std::size_t point = number.substr(0, mantissa).find('.');
  int exponent = 0;
  if (mantissa < number.size()) {
    std::string_view power = number.substr(mantissa + 1);
    power.remove_prefix(power.starts_with('+') ? 1 : 0);
    std::from_chars(power.data(), power.data() + power.size(), exponent);
  }
  if (point != std::string_view::npos) {
    exponent -= static_cast<int>(mantissa - point - 1);
  }
  return 0.5 * std::pow(10.0, exponent);
}

bool is_nccl_failure(std::string_view line) {
  // Of the test itself, of CUDA and NCCL, of the shell, and of launchers. What NCCL merely informs
  // or warns of does not end a run unless it is one of these.
  constexpr auto kMarks = std::to_array<std::string_view>({
      "Test NCCL failure",
      "Test CUDA failure",
      "Test failure",
      "Test timeout",
      "CUDA error:",
      "NCCL WARN Cuda failure",
      "unhandled cuda error",
      "unhandled system error",
      "Segmentation fault",
      "Bus error",
      "(core dumped)",
      "out of memory",
      "Out of memory",
      "Out Of Memory",
      "oom-kill",
      "oom_kill",
      "exited on signal",
      "returned a non-zero exit code",
      "mpirun noticed",
      "mpiexec noticed",
      "MPI_ABORT was invoked",
      "srun: error:",
  });
  if (line.find(" NCCL INFO ") != std::string_view::npos) {
    return false;
  }
  const auto says = [&](std::string_view mark) {
    return line.find(mark) != std::string_view::npos;
  };
  return std::ranges::any_of(kMarks, says) || says_word(line, "Killed") ||
         says_word(line, "Aborted") || says_word(line, "CANCELLED");
}

bool is_lost_peer(std::string_view line) {
  return line.find(" NCCL INFO ") == std::string_view::npos &&
         (line.find("Connection closed by remote peer") != std::string_view::npos ||
          line.find("Connection reset by peer") != std::string_view::npos);
}

}  // namespace orrery::traces
