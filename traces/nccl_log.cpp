// SPDX-License-Identifier: Apache-2.0
#include "traces/nccl_log.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.hpp"
#include "base/limits.hpp"
#include "base/quantity_text.hpp"
#include "base/text.hpp"
#include "traces/nccl_lines.hpp"
#include "traces/nccl_notes.hpp"
#include "traces/nccl_sweep.hpp"

namespace orrery::traces {
namespace {

constexpr double kGigabyte = 1e9;
constexpr std::size_t kMaxColumns = 64;
constexpr std::size_t kMaxProblems = 100;
constexpr std::int64_t kMaxBytes = std::int64_t{1} << 60;

class LogReader {
 public:
  LogReader(const std::string& name, NcclFaults faults) : faults_(faults) { log_.name = name; }

  NcclLog read(std::string_view text) {
    if (text.substr(0, 4096).find('\0') != std::string_view::npos) {
      bad_input(log_.name, "a binary file, not the output of nccl-tests");
    }
    while (!text.empty()) {
      const std::size_t end = std::min(text.find('\n'), text.size());
      ++line_;
      guarded([&] {
        if (end > static_cast<std::size_t>(limits::kMaxLineBytes)) {
          fail("the line is too long", fmt::format("at most {} bytes", limits::kMaxLineBytes));
        }
        read_tagged_line(text.substr(0, end));
      });
      text.remove_prefix(std::min(end + 1, text.size()));
    }
    if (columns_.empty()) {
      bad_input(log_.name, "no header row \"#  size  count  type ... time algbw busbw\"",
                "is this the output of nccl-tests?");
    }
    guarded([&] { check_end(); });
    return std::move(log_);
  }

 private:
  std::string where() const { return fmt::format("{}:{}", log_.name, line_); }
  [[noreturn]] void fail(std::string_view message, std::string_view hint = {}) const {
    bad_input(where(), message, hint);
  }
  template <class Action>
  void guarded(const Action& action) {
    if (faults_ == NcclFaults::Throw) {
      action();
      return;
    }
    try {
      action();
    } catch (const Error& error) {
      if (log_.problems.size() < kMaxProblems) {
        log_.problems.emplace_back(error.what());
      }
    }
  }

  void read_tagged_line(std::string_view line) {
    std::string plain;
    if (line.find('\x1b') != line.npos) {
      line = plain = without_colours(line);
    }
    line = without_stamp(line);
    const std::string_view before = tag_of(line);
    const std::string_view tag = rank_of(before);
    line = trim(line.substr(before.size()));
    if (line.starts_with('#')) {
      read_comment(line.substr(1), tag);
      return;
    }
    find_failure(line);
    const auto words = words_of(line);
    if (!columns_.empty() && !words.empty() && is_number(words.front())) {
      if (tag != tag_) {
        fail("a row of another rank than the header's", "keep the output of one rank");
      }
      read_row(words);
    } else if (!columns_.empty() && !ended_ && is_damaged_row(words, columns_.size())) {
      fail(fmt::format("\"{}\" is no size of a row", printable(words.front())),
           "the file is damaged, or something else wrote before the row");
    } else {
      read_fact(words);
    }
  }

  void find_failure(std::string_view line) {
    const bool failed = is_nccl_failure(line) || (!ended_ && is_lost_peer(line));
    if (failed && log_.failures.size() < kMaxProblems) {
      log_.failures.push_back({line_, printable(line)});
    }
  }

  void read_comment(std::string_view text, std::string_view tag) {
    const auto words = words_of(text);
    if (words.empty()) {
      return;
    }
    const auto has = [&](std::string_view word) {
      return std::ranges::find(words, word) != words.end();
    };
    const bool old = words.front() == "bytes" && words.size() > 1 && words[1] == "N";
    const bool modern = words.front() == "size" && words.size() > 1 && words[1] == "count";
    if ((old || modern) && (has("time") || has("cputime")) && has("busbw")) {
      read_header(words, old, tag);
    } else if (words.front() == "(B)") {
      read_units(words);
    } else if (words.front() == "Rank" && words.size() > 1 && is_number(words[1])) {
      read_rank(text, words);
    } else {
      read_config(words);
      check_same(read_notes(text, where(), log_));
      read_fact(words);
    }
  }

  void read_header(const std::vector<std::string_view>& words, bool old, std::string_view tag) {
    if (words.size() > kMaxColumns) {
      fail("too many columns");
    }
    if (!columns_.empty() && !ended_) {
      if (log_.rows.empty() || log_.rows.back().line < header_line_) {
        fail("a second header row right after the first", "two ranks or runs wrote into this file");
      }
      if (!sweep_.complete()) {
        fail("a second header row before the first table ended",
             "two ranks or runs wrote into this file");
      }
    }
    columns_.clear();
    for (const std::string_view word : words) {
      columns_.emplace_back(modern_name(word));
    }
    log_.host_times = log_.host_times || std::ranges::find(words, "cputime") != words.end();
    time_unit_ = Seconds(old ? 1e-3 : 1e-6);
    tag_ = std::string(tag);
    header_line_ = line_;
    ended_ = false;
    log_.tables.push_back({line_, collective_});
    sweep_.start(collective_, log_.ranks);
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
  void read_rank(std::string_view text, const std::vector<std::string_view>& words) {
    NcclRank place;
    place.rank = static_cast<int>(parse_integer(words[1], where(), 0, limits::kMaxDevices));
    for (std::size_t i = 2; i + 1 < words.size(); ++i) {
      if (words[i] == "Group" && is_number(words[i + 1])) {
        place.group =
            static_cast<int>(parse_integer(words[i + 1], where(), 0, std::int64_t{1} << 30));
      } else if (words[i] == "Pid" && is_number(words[i + 1])) {
        place.pid = parse_integer(words[i + 1], where(), 0, std::int64_t{1} << 40);
      } else if (words[i] == "on" && place.host.empty()) {
        place.host = printable(words[i + 1]);
      }
    }
    check_same(hosts_.add(place, log_));
    log_.ranks = std::max(log_.ranks, place.rank + 1);
    place.line = line_;
    if (const std::size_t bracket = text.find(']'); bracket != std::string_view::npos) {
      place.device = printable(trim(text.substr(bracket + 1)));
    }
    log_.device = log_.device.empty() ? place.device : log_.device;
    log_.places.push_back(std::move(place));
  }

  // "nThread 1 nGpus 2 minBytes 8 maxBytes 16 step: 2(factor) warmup iters: 5 iters: 20"; first
  // versions of rccl-tests have a colon behind every name.
  void read_config(std::vector<std::string_view> words) {
    for (std::string_view& word : words) {
      word.remove_suffix(word.ends_with(':') ? 1 : 0);
    }
    if (words.front() == "Reducing" && words.size() > 3 && is_number(words[3])) {
      sweep_.reduce_max(parse_integer(words[3], where(), 0, kMaxBytes));
    }
    if (words.front() != "nThread") {
      return;
    }
    std::int64_t max_bytes = 0;
    for (std::size_t i = 0; i + 1 < words.size(); ++i) {
      const std::string_view digits = words[i + 1].substr(0, words[i + 1].find('('));
      if (!is_number(digits)) {
        continue;
      }
      const std::int64_t value = parse_integer(digits, where(), 0, kMaxBytes);
      if (words[i] == "maxBytes") {
        max_bytes = value;
      } else if (words[i] == "step") {
        sweep_.configure(max_bytes, value, words[i + 1].find("factor") != std::string_view::npos);
      } else if (words[i] == "nThread") {
        log_.threads = static_cast<int>(std::min<std::int64_t>(value, limits::kMaxDevices));
      } else if (words[i] == "nGpus") {
        log_.gpus_per_thread = static_cast<int>(std::min<std::int64_t>(value, limits::kMaxDevices));
      }
    }
  }

  // What holds for a file holds for all of its tests.
  void check_same(const std::string& contradiction) const {
    if (!contradiction.empty()) {
      fail(contradiction, "two runs wrote into this file: fit them as two files");
    }
  }

  void set_collective(std::string_view name) {
    collective_ = printable(name);
    if (log_.collective.empty()) {
      log_.collective = collective_;
    }
  }

  // "nccl-tests version 2.17.6 nccl-headers=22809 nccl-library=22809"
  void read_library(std::string_view word) {
    constexpr std::string_view kLibrary = "nccl-library=";
    if (word.starts_with(kLibrary) && is_number(word.substr(kLibrary.size()))) {
      const std::int64_t code = parse_integer(word.substr(kLibrary.size()), where(), 0, kMaxBytes);
      check_same(
          set_version(fmt::format("{}.{}.{}", code / 10'000, code / 100 % 100, code % 100), log_));
    }
  }

  void read_forced(const std::vector<std::string_view>& words) {
    const std::string stated = printable(forced_setting(words));
    if (!stated.empty() && std::ranges::find(log_.forced, stated) == log_.forced.end() &&
        log_.forced.size() < kMaxProblems) {
      log_.forced.push_back(stated);
    }
  }

  void read_fact(const std::vector<std::string_view>& words) {
    for (const std::string_view word : words) {
      read_library(word);
    }
    read_forced(words);
    if (std::string network = network_in_use(words); !network.empty()) {
      log_.network = printable(network);
    }
    for (std::size_t i = 0; i + 1 < words.size(); ++i) {
      if (words[i] == "collective:") {
        set_collective(words[i + 1]);
      } else if (words[i] == "ranks:") {
        log_.ranks = static_cast<int>(parse_integer(words[i + 1], where(), 1, limits::kMaxDevices));
      } else if (words[i] == "starting:") {  // "Collective test starting: all_reduce_perf"
        set_collective(words[i + 1].substr(0, words[i + 1].rfind("_perf")));
      } else if (words[i] == "version" && words[i - (i > 0 ? 1 : 0)] == "NCCL") {
        check_same(set_version(printable(words[i + 1]), log_));
      }
    }
    if (words.size() >= 5 && words[0] == "Avg" && words[2] == "bandwidth") {
      ended_ = true;
    }
    if (words.size() > 5 && words[0] == "Out" && words.back() == "FAILED") {
      log_.failures.push_back({line_, "wrong results: Out of bounds values FAILED"});
    }
  }

  void check_end() {
    if (!ended_ && !sweep_.complete()) {
      fail(fmt::format("the log ends at {} of {} bytes", sweep_.last(), sweep_.max_bytes()),
           "it was cut off, or the run failed");
    }
  }

  double number(std::string_view word, std::string_view column) const {
    if (word.find(',') != std::string_view::npos) {
      bad_input(fmt::format("{}: {}", where(), column),
                fmt::format("\"{}\" has a decimal comma", printable(word)), "run with LC_ALL=C");
    }
    return parse_number(word, fmt::format("{}: {}", where(), column), 0, limits::kMaxQuantity);
  }

  void read_row(std::vector<std::string_view> words) {
    if (columns_.back() == "timestamp" && words.size() == columns_.size() + 1) {
      words.pop_back();  // a date and a time
    }
    if (words.size() != columns_.size()) {
      fail(fmt::format("{} values in a row of {} columns", words.size(), columns_.size()),
           "the log is cut short, or two ranks wrote into one line");
    }
    if (log_.rows.size() >= static_cast<std::size_t>(limits::kMaxArrayLength)) {
      fail("too many rows");
    }
    NcclRow row;
    row.line = line_;
    row.collective = collective_;
    int group = 0;
    for (std::size_t column = 0; column < columns_.size(); ++column) {
      if (starts_timing(columns_[column])) {
        (group++ == 0 ? row.out_of_place : row.in_place) = read_timing(words, column);
      } else if (group == 0) {
        read_cell(columns_[column], words[column], row);
      }
    }
    if (!sweep_.accept(fmt::format("{} {} {}", row.type, row.op, row.root), row.size.value())) {
      fail(fmt::format("{} bytes out of the order of sizes", row.size.value()),
           "two ranks or runs wrote into this file");
    }
    log_.rows.push_back(std::move(row));
  }

  void read_cell(std::string_view column, std::string_view word, NcclRow& row) const {
    const auto integer = [&](std::int64_t min, std::int64_t max) {
      return parse_integer(word, fmt::format("{}: {}", where(), column), min, max);
    };
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
    timing.time_rounding = time_unit_ * half_of_last_digit(words[begin]);
    for (std::size_t column = begin + 1;
         column < columns_.size() && !starts_timing(columns_[column]); ++column) {
      const std::string& name = columns_[column];
      if (name == "algbw" || name == "busbw") {
        const bool alg = name == "algbw";
        (alg ? timing.algbw : timing.busbw) =
            BytesPerSecond(number(words[column], name) * kGigabyte);
        (alg ? timing.algbw_rounding : timing.busbw_rounding) =
            BytesPerSecond(half_of_last_digit(words[column]) * kGigabyte);
      } else if ((name == "#wrong" || name == "wrong") && words[column] != "N/A" &&
                 words[column] != "-") {
        timing.wrong = static_cast<std::int64_t>(std::min(number(words[column], name), 1e15));
      }
    }
    return timing;
  }

  NcclFaults faults_;
  NcclLog log_;
  NcclSweep sweep_;
  std::vector<std::string> columns_;
  RankHosts hosts_;
  std::string collective_;  // of the test being read
  std::string tag_;         // of the header row
  Seconds time_unit_{1e-6};
  int line_ = 0;
  int header_line_ = 0;
  bool ended_ = false;  // the table's footer was read
};

}  // namespace

NcclLog parse_nccl_log(std::string_view text, const std::string& name, NcclFaults faults) {
  return LogReader(name, faults).read(text);
}

}  // namespace orrery::traces
