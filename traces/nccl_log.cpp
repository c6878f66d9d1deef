// SPDX-License-Identifier: Apache-2.0
#include "traces/nccl_log.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "base/error.hpp"
#include "base/files.hpp"
#include "base/limits.hpp"
#include "base/quantity_text.hpp"
#include "base/text.hpp"

namespace orrery::traces {
namespace {

constexpr double kGigabyte = 1e9;
constexpr std::size_t kMaxColumns = 64;

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

// "[1,0]<stdout>: ..." as mpirun --tag-output prefixes every line.
std::string_view without_prefix(std::string_view line) {
  constexpr std::string_view kMark = "]<stdout>:";
  const std::size_t mark = line.substr(0, 40).find(kMark);
  return mark == std::string_view::npos ? line : line.substr(mark + kMark.size());
}

class LogReader {
 public:
  explicit LogReader(const std::string& name) { log_.name = name; }

  NcclLog read(std::string_view text) {
    while (!text.empty()) {
      const std::size_t end = std::min(text.find('\n'), text.size());
      ++line_;
      if (end > static_cast<std::size_t>(limits::kMaxLineBytes)) {
        fail("line too long");
      }
      read_line(without_prefix(text.substr(0, end)));
      text.remove_prefix(std::min(end + 1, text.size()));
    }
    if (columns_.empty()) {
      bad_input(log_.name, "no header row \"#  size  count  type ... time algbw busbw\"",
                "is this the output of nccl-tests?");
    }
    return std::move(log_);
  }

 private:
  std::string where() const { return fmt::format("{}:{}", log_.name, line_); }
  [[noreturn]] void fail(std::string_view message, std::string_view hint = {}) const {
    bad_input(where(), message, hint);
  }

  void read_line(std::string_view line) {
    line = trim(line);
    if (line.starts_with('#')) {
      read_comment(line.substr(1));
      return;
    }
    const auto words = words_of(line);
    if (!columns_.empty() && !words.empty() && is_number(words.front())) {
      read_row(words);
    }
  }

  void read_comment(std::string_view text) {
    const auto words = words_of(text);
    if (words.empty()) {
      return;
    }
    const auto has = [&](std::string_view word) {
      return std::ranges::find(words, word) != words.end();
    };
    if (words.front() == "size" && words.size() > 1 && words[1] == "count" && has("time") &&
        has("busbw")) {
      if (words.size() > kMaxColumns) {
        fail("too many columns");
      }
      columns_.assign(words.begin(), words.end());
      time_unit_ = Seconds(1e-6);
    } else if (words.front() == "(B)") {
      read_units(words);
    } else if (words.front() == "Rank" && words.size() > 1 && is_number(words[1])) {
      read_rank(text);
    } else {
      read_fact(words);
    }
  }

  void read_units(const std::vector<std::string_view>& words) {
    for (const std::string_view word : words) {
      if (word == "(ms)") {
        time_unit_ = Seconds(1e-3);
      } else if (word == "(s)") {
        time_unit_ = Seconds(1);
      }
    }
  }

  // "Rank  0 Group  0 Pid 4711 on host device  0 [0x07] NVIDIA H100 80GB HBM3"
  void read_rank(std::string_view text) {
    ++log_.ranks;
    const std::size_t bracket = text.find(']');
    if (log_.device.empty() && bracket != std::string_view::npos) {
      log_.device = printable(trim(text.substr(bracket + 1)));
    }
  }

  void read_fact(const std::vector<std::string_view>& words) {
    for (std::size_t i = 0; i + 1 < words.size(); ++i) {
      if (words[i] == "collective:") {
        log_.collective = printable(words[i + 1]);
      } else if (words[i] == "ranks:") {
        log_.ranks = static_cast<int>(parse_integer(words[i + 1], where(), 1, limits::kMaxDevices));
      } else if (words[i] == "starting:") {  // "Collective test starting: all_reduce_perf"
        const std::string_view test = words[i + 1];
        log_.collective = printable(test.substr(0, test.rfind("_perf")));
      }
    }
    if (words.size() == 5 && words[0] == "Avg" && words[2] == "bandwidth") {
      log_.average_busbw = BytesPerSecond(number(words[4], "Avg bus bandwidth") * kGigabyte);
    }
  }

  double number(std::string_view word, std::string_view column) const {
    return parse_number(word, fmt::format("{}: {}", where(), column), 0, limits::kMaxQuantity);
  }

  void read_row(const std::vector<std::string_view>& words) {
    if (words.size() != columns_.size()) {
      fail(fmt::format("{} values in a row of {} columns", words.size(), columns_.size()),
           "the log may be cut short");
    }
    if (log_.rows.size() >= static_cast<std::size_t>(limits::kMaxArrayLength)) {
      fail("too many rows");
    }
    NcclRow row;
    row.line = line_;
    int group = 0;
    for (std::size_t column = 0; column < columns_.size(); ++column) {
      if (columns_[column] == "time") {
        (group++ == 0 ? row.out_of_place : row.in_place) = read_timing(words, column);
      } else if (group == 0) {
        read_cell(columns_[column], words[column], row);
      }
    }
    log_.rows.push_back(std::move(row));
  }

  void read_cell(std::string_view column, std::string_view word, NcclRow& row) const {
    const auto integer = [&](std::int64_t min, std::int64_t max) {
      return parse_integer(word, fmt::format("{}: {}", where(), column), min, max);
    };
    constexpr std::int64_t kMaxBytes = std::int64_t{1} << 60;
    if (column == "size") {
      row.size = ByteCount(integer(0, kMaxBytes));
    } else if (column == "count") {
      row.count = integer(0, kMaxBytes);
    } else if (column == "type") {
      row.type = printable(word);
    } else if (column == "redop") {
      row.op = printable(word);
    } else if (column == "root") {
      row.root = static_cast<int>(integer(-1, limits::kMaxDevices));
    }
  }

  // The columns from `time` to the next one; "-" where nothing was published.
  std::optional<NcclTiming> read_timing(const std::vector<std::string_view>& words,
                                        std::size_t begin) const {
    if (words[begin] == "-" || words[begin] == "N/A") {
      return std::nullopt;
    }
    NcclTiming timing;
    timing.time = time_unit_ * number(words[begin], "time");
    for (std::size_t column = begin + 1; column < columns_.size() && columns_[column] != "time";
         ++column) {
      const std::string& name = columns_[column];
      if (name == "algbw" || name == "busbw") {
        (name == "algbw" ? timing.algbw : timing.busbw) =
            BytesPerSecond(number(words[column], name) * kGigabyte);
      } else if ((name == "#wrong" || name == "wrong") && words[column] != "N/A" &&
                 words[column] != "-") {
        timing.wrong = static_cast<std::int64_t>(std::min(number(words[column], name), 1e15));
      }
    }
    return timing;
  }

  NcclLog log_;
  std::vector<std::string> columns_;
  Seconds time_unit_{1e-6};
  int line_ = 0;
};

}  // namespace

NcclLog parse_nccl_log(std::string_view text, const std::string& name) {
  return LogReader(name).read(text);
}

NcclLog read_nccl_log(const std::string& path) {
  return parse_nccl_log(read_file(path, limits::kMaxTableFileBytes), path);
}

}  // namespace orrery::traces
