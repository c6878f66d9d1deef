// SPDX-License-Identifier: Apache-2.0
// Rules of the source tree that the compiler does not check: which room may include which, file
// length, licence lines, third-party headers only in .cpp files, no left-behind marks.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include "tests/folders.hpp"

namespace {

namespace fs = std::filesystem;

constexpr int kMaxLines = 400;

// The rooms below each room (DESIGN: rooms and the one direction between them).
const std::map<std::string, std::set<std::string>> kBelow = {
    {"base", {}},
    {"sim", {"base"}},
    {"models", {"base"}},
    {"topologies", {"base", "sim"}},
    {"traces", {"base", "sim"}},
    {"costmodel", {"base", "sim", "models", "topologies"}},
    {"plan", {"base", "sim", "models", "topologies", "costmodel"}},
    {"search", {"base", "sim", "models", "topologies", "costmodel", "plan"}},
    {"studies",
     {"base", "sim", "models", "topologies", "costmodel", "plan", "search", "calibrate"}},
    {"calibrate", {"base", "sim", "models", "topologies", "costmodel", "traces"}},
    {"cli",
     {"base", "sim", "models", "topologies", "costmodel", "plan", "search", "studies", "traces",
      "calibrate"}},
};

struct SourceFile {
  std::string path;  // relative to the source tree
  std::vector<std::string> lines;
};

bool is_source(const fs::path& path) {
  static const std::set<std::string> kEndings = {".cpp", ".hpp", ".cu", ".cuh"};
  return kEndings.contains(path.extension().string());
}

SourceFile read(const fs::path& path, const fs::path& root) {
  SourceFile file{fs::relative(path, root).string(), {}};
  std::ifstream stream(path);
  for (std::string line; std::getline(stream, line);) {
    file.lines.push_back(line);
  }
  return file;
}

std::vector<SourceFile> sources() {
  const fs::path root = orrery::source_folder();
  std::vector<SourceFile> files;
  std::vector<std::string> folders = {"tests"};
  for (const auto& [room, below] : kBelow) {
    folders.push_back(room);
  }
  for (const std::string& folder : folders) {
    for (const auto& entry : fs::recursive_directory_iterator(root / folder)) {
      if (entry.is_regular_file() && is_source(entry.path())) {
        files.push_back(read(entry.path(), root));
      }
    }
  }
  std::sort(files.begin(), files.end(),
            [](const SourceFile& a, const SourceFile& b) { return a.path < b.path; });
  return files;
}

std::string room_of(const std::string& path) { return path.substr(0, path.find('/')); }

std::string folder_of(const std::string& path) { return path.substr(0, path.rfind('/')); }

// The text between the delimiters of an #include, with its opening delimiter, or "".
std::string included(const std::string& line) {
  if (!line.starts_with("#include ")) {
    return "";
  }
  const std::size_t open = line.find_first_of("<\"");
  const std::size_t close = line.find_first_of(">\"", open + 1);
  return open == std::string::npos || close == std::string::npos ? ""
                                                                 : line.substr(open, close - open);
}

class Tree : public testing::Test {
 protected:
  static const std::vector<SourceFile>& files() {
    static const std::vector<SourceFile> kFiles = sources();
    return kFiles;
  }
};

TEST_F(Tree, HasSources) { EXPECT_GT(files().size(), 100U); }

TEST_F(Tree, RoomsIncludeOnlyRoomsBelow) {
  for (const SourceFile& file : files()) {
    const auto room = kBelow.find(room_of(file.path));
    if (room == kBelow.end()) {
      continue;
    }
    for (const std::string& line : file.lines) {
      const std::string header = included(line);
      if (!header.starts_with('"')) {
        continue;
      }
      const std::string target = room_of(header.substr(1));
      EXPECT_TRUE(target == room->first || room->second.contains(target))
          << file.path << " includes " << header.substr(1);
    }
  }
}

// Inside a room, too: of two folders at most one includes the other, directly or through others.
TEST_F(Tree, FoldersOfARoomPointOneWay) {
  std::map<std::string, std::set<std::string>> reached;
  for (const SourceFile& file : files()) {
    for (const std::string& line : file.lines) {
      const std::string header = included(line);
      if (!header.starts_with('"') || room_of(header.substr(1)) != room_of(file.path)) {
        continue;
      }
      const std::string from = folder_of(file.path);
      const std::string to = folder_of(header.substr(1));
      if (from != to) {
        reached[from].insert(to);
      }
    }
  }
  bool grown = true;
  while (grown) {
    grown = false;
    for (auto& [from, targets] : reached) {
      const std::set<std::string> before = targets;
      for (const std::string& folder : before) {
        const auto further = reached.find(folder);
        if (further != reached.end()) {
          targets.insert(further->second.begin(), further->second.end());
        }
      }
      grown = grown || targets.size() > before.size();
    }
  }
  for (const auto& [from, targets] : reached) {
    EXPECT_FALSE(targets.contains(from)) << from << " includes a folder that includes it";
  }
}

// Headers stay cheap and free of other people's names; tl::expected is the vocabulary type for
// expected negative outcomes.
TEST_F(Tree, ThirdPartyHeadersStayInSourceFiles) {
  for (const SourceFile& file : files()) {
    if (!file.path.ends_with(".hpp") || room_of(file.path) == "tests") {
      continue;
    }
    for (const std::string& line : file.lines) {
      const std::string header = included(line);
      if (header.starts_with('<') && header != "<tl/expected.hpp") {
        EXPECT_EQ(header.find_first_of("/."), std::string::npos) << file.path << ": " << line;
      }
    }
  }
}

TEST_F(Tree, FilesAreShort) {
  for (const SourceFile& file : files()) {
    EXPECT_LE(file.lines.size(), static_cast<std::size_t>(kMaxLines)) << file.path;
  }
}

// A schedule holds placement and order alone; what schedules share is in sim/ itself. Its body is
// what it defines before its registered constant, without blank lines and comments.
TEST_F(Tree, SchedulesAreShort) {
  constexpr int kMaxBody = 60;
  int schedules = 0;
  for (const SourceFile& file : files()) {
    if (!file.path.starts_with("sim/schedules/")) {
      continue;
    }
    const auto begin = std::find(file.lines.begin(), file.lines.end(), "namespace {");
    const auto end = std::find(begin, file.lines.end(), "}  // namespace");
    ASSERT_NE(end, file.lines.end()) << file.path;
    const auto body = std::count_if(begin + 1, end, [](const std::string& line) {
      const std::size_t text = line.find_first_not_of(' ');
      return text != std::string::npos && line.compare(text, 2, "//") != 0;
    });
    EXPECT_LE(body, kMaxBody) << file.path;
    ++schedules;
  }
  EXPECT_GT(schedules, 30);
}

TEST_F(Tree, FilesNameTheirLicence) {
  for (const SourceFile& file : files()) {
    ASSERT_FALSE(file.lines.empty()) << file.path;
    EXPECT_EQ(file.lines.front(), "// SPDX-License-Identifier: Apache-2.0") << file.path;
  }
}

TEST_F(Tree, HeadersHaveOneGuard) {
  for (const SourceFile& file : files()) {
    if (file.path.ends_with(".hpp")) {
      EXPECT_EQ(std::count(file.lines.begin(), file.lines.end(), "#pragma once"), 1) << file.path;
    }
  }
}

// Whole words only: the template of a temporary name ends in six X.
bool holds_word(const std::string& line, const std::string& word) {
  const auto in_word = [&](std::size_t at) {
    return at < line.size() && std::isalnum(static_cast<unsigned char>(line[at])) != 0;
  };
  for (std::size_t at = line.find(word); at != std::string::npos; at = line.find(word, at + 1)) {
    if ((at == 0 || !in_word(at - 1)) && !in_word(at + word.size())) {
      return true;
    }
  }
  return false;
}

TEST_F(Tree, NothingIsLeftBehind) {
  // Spelt apart, so that this file passes its own test.
  const std::vector<std::string> marks = {std::string("TO") + "DO", std::string("FIX") + "ME",
                                          std::string("XX") + "X", std::string("HA") + "CK"};
  for (const SourceFile& file : files()) {
    for (const std::string& line : file.lines) {
      for (const std::string& mark : marks) {
        EXPECT_FALSE(holds_word(line, mark)) << file.path << ": " << line;
      }
    }
  }
}

// Results may not depend on the host: no wall clock, environment or libc random numbers where
// results are computed.
TEST_F(Tree, ResultsDoNotDependOnTheHost) {
  const std::set<std::string> rooms = {"sim", "models", "topologies", "costmodel", "plan"};
  const std::vector<std::string> calls = {"std::chrono", "getenv(", "std::rand", "random_device",
                                          "long double"};
  for (const SourceFile& file : files()) {
    if (!rooms.contains(room_of(file.path))) {
      continue;
    }
    for (const std::string& line : file.lines) {
      for (const std::string& call : calls) {
        EXPECT_EQ(line.find(call), std::string::npos) << file.path << ": " << line;
      }
    }
  }
}

// Programs draw by base/random.hpp, alike on every platform.
TEST_F(Tree, RandomNumbersAreTheBases) {
  for (const SourceFile& file : files()) {
    for (const std::string& line : file.lines) {
      EXPECT_TRUE(file.path.starts_with("tests/") ||
                  (line.find("mt19937") == std::string::npos &&
                   line.find("_distribution<") == std::string::npos))
          << file.path << ": " << line;
    }
  }
}

TEST_F(Tree, EveryTestFileAsserts) {
  for (const SourceFile& file : files()) {
    if (!file.path.starts_with("tests/") || !file.path.ends_with("_test.cpp")) {
      continue;
    }
    const bool asserts =
        std::any_of(file.lines.begin(), file.lines.end(), [](const std::string& line) {
          return line.find("EXPECT_") != std::string::npos ||
                 line.find("ASSERT_") != std::string::npos ||
                 line.find("rc::check") != std::string::npos;
        });
    EXPECT_TRUE(asserts) << file.path;
  }
}

// The name that a line at the left margin of a test defines for its file: a function's with its
// arguments, a type's or a constant's; "" for other lines.
std::string defined_name(const std::string& line) {
  static const std::regex kFunction(R"(^[A-Za-z_][\w:<>,&* ]* [&*]?(\w+\([^)]*\) \{)$)");
  static const std::regex kType(R"(^(?:struct|class|enum class) (\w+)[^;]*\{)");
  static const std::regex kConstant(R"(^(?:constexpr|const) [^=;({]*\b(\w+)(?:\[\w*\])? ?[={])");
  for (const std::regex* kind : {&kFunction, &kType, &kConstant}) {
    if (std::smatch found; std::regex_search(line, found, *kind)) {
      return found[1];
    }
  }
  return "";
}

// Tests of one folder are compiled several files at a time: which ones changes with every new file.
TEST_F(Tree, HelpersOfTestsHaveNamesOfTheirOwn) {
  std::map<std::string, std::string> first;  // by folder and name
  for (const SourceFile& file : files()) {
    if (!file.path.starts_with("tests/") || !file.path.ends_with("_test.cpp")) {
      continue;
    }
    for (const std::string& line : file.lines) {
      if (const std::string name = defined_name(line); !name.empty()) {
        const auto [at, fresh] = first.emplace(folder_of(file.path) + ": " + name, file.path);
        EXPECT_TRUE(fresh || at->second == file.path)
            << file.path << " and " << at->second << ": " << name;
      }
    }
  }
}

}  // namespace
