// SPDX-License-Identifier: Apache-2.0
// Tables, progress, parallel loops, interrupts and the version text.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <numeric>
#include <stdexcept>
#include <string>
#include <thread>

#include "base/interrupt.hpp"
#include "base/limits.hpp"
#include "base/parallel.hpp"
#include "base/progress.hpp"
#include "base/table.hpp"
#include "base/version.hpp"

namespace orrery {
namespace {

using ::testing::ExitedWithCode;
using ::testing::MatchesRegex;

TEST(TableTest, AlignsColumnsAndDrawsRules) {
  TextTable table({{"name"}, {"time", Align::Right}});
  table.add_row({"a", "12 s"});
  table.add_rule();
  table.add_row({"\xC3\xA4\xC3\xB6\xC3\xBC\xC3\x9F!", "1 s"});
  EXPECT_EQ(table.text(),
            "name   time\n"
            "-----------\n"
            "a      12 s\n"
            "-----------\n"
            "\xC3\xA4\xC3\xB6\xC3\xBC\xC3\x9F!   1 s\n");
}

TEST(TableTest, CellsAreHarmlessAndLinesHaveNoTrailingSpace) {
  TextTable table({{"a"}, {"b"}});
  table.add_row({"x\n\x1b[2J", ""});
  EXPECT_EQ(table.text(), "a           b\n-------------\nx\\n\\x1b[2J\n");
}

TEST(TableDeathTest, RowsHaveAsManyCellsAsColumns) {
  TextTable table({{"a"}, {"b"}});
  EXPECT_EXIT(table.add_row({"x"}), ExitedWithCode(1), "as many cells");
}

TEST(ParallelTest, RunsEveryIndexOnceForAnyNumberOfThreads) {
  for (const int jobs : {0, 1, 2, 7, 5000}) {
    std::vector<int> counts(1000, 0);
    parallel_for(counts.size(), jobs, [&](std::size_t i) { ++counts[i]; });
    EXPECT_EQ(counts, std::vector<int>(1000, 1)) << jobs;
  }
  parallel_for(0, 4, [](std::size_t) { FAIL(); });
}

TEST(ParallelTest, TheFirstFailingIndexIsRethrown) {
  for (const int jobs : {1, 2, 8}) {
    for (int repeat = 0; repeat < 20; ++repeat) {
      std::string message;
      try {
        parallel_for(200, jobs, [](std::size_t i) {
          if (i % 10 == 7) {
            throw std::runtime_error(std::to_string(i));
          }
        });
      } catch (const std::runtime_error& error) {
        message = error.what();
      }
      EXPECT_EQ(message, "7") << jobs;
    }
  }
}

TEST(ParallelTest, ThereIsACore) { EXPECT_GE(available_cores(), 1); }

TEST(ParallelTest, ThreadsAreThoseAskedForWithinTheLimit) {
  EXPECT_EQ(thread_count(0), std::min(available_cores(), limits::kMaxThreads));
  EXPECT_EQ(thread_count(3), 3);
  EXPECT_EQ(thread_count(limits::kMaxThreads + 1), limits::kMaxThreads);
}

TEST(ProgressTest, IsSilentWhenQuietOrShort) {
  ::testing::internal::CaptureStderr();
  {
    Progress quiet("search", true);
    quiet.update(0.5, "half");
    Progress brief("search", false);
    parallel_for(100, 4, [&](std::size_t i) { brief.update(static_cast<double>(i) / 100, "x"); });
    brief.update(-1.0, "unknown end");
    brief.finish();
    brief.update(2.0, "after the end");
  }
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
}

// What a bar shows on a terminal of 40 columns whose TERM is `name`.
std::string shown_on_terminal(const char* name) {
  const int terminal = ::posix_openpt(O_RDWR | O_NOCTTY);
  EXPECT_EQ(::grantpt(terminal) + ::unlockpt(terminal), 0);
  const int shown = ::open(::ptsname(terminal), O_RDWR | O_NOCTTY);
  const winsize size = {.ws_row = 24, .ws_col = 40, .ws_xpixel = 0, .ws_ypixel = 0};
  EXPECT_EQ(::ioctl(shown, TIOCSWINSZ, &size), 0);
  const int kept = ::dup(STDERR_FILENO);
  ::dup2(shown, STDERR_FILENO);
  const char* named = std::getenv("TERM");
  const std::string before = named == nullptr ? "" : named;
  ::setenv("TERM", name, 1);
  {
    Progress progress("search", false);
    std::this_thread::sleep_for(std::chrono::milliseconds(110));
    progress.update(0.5, "a note that is longer than the terminal is wide");
  }
  ::setenv("TERM", before.c_str(), 1);
  ::dup2(kept, STDERR_FILENO);
  constexpr char kEnd = '\f';
  EXPECT_EQ(::write(shown, &kEnd, 1), 1);
  std::string text;
  for (char byte = 0; ::read(terminal, &byte, 1) == 1 && byte != kEnd;) {
    text += byte;
  }
  for (const int descriptor : {kept, shown, terminal}) {
    ::close(descriptor);
  }
  return text;
}

TEST(ProgressTest, IsOneLineOfTheTerminalAndNotRewrittenOnADumbOne) {
  EXPECT_EQ(shown_on_terminal("xterm"), "\rsearch: 50 % a note that is longer t...\x1b[K\r\x1b[K");
  EXPECT_EQ(shown_on_terminal("dumb"), "");
}

TEST(InterruptDeathTest, TheFirstSignalSetsTheFlagAndTheSecondEnds) {
  const auto interrupt_twice = [] {
    install_interrupt_handler();
    if (interrupted()) {
      std::_Exit(1);
    }
    ::raise(SIGINT);
    if (!interrupted()) {
      std::_Exit(2);
    }
    ::raise(SIGINT);
    std::_Exit(3);
  };
  EXPECT_EXIT(interrupt_twice(), ExitedWithCode(130), "");
}

TEST(VersionTest, NamesVersionAndCompiler) {
  EXPECT_THAT(version_text(), MatchesRegex("[0-9]+\\.[0-9]+\\.[0-9]+ \\((g\\+\\+|clang) .*\\)"));
}

}  // namespace
}  // namespace orrery
