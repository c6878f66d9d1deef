// SPDX-License-Identifier: Apache-2.0
#include "base/files.hpp"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>

#include "base/csv.hpp"
#include "base/json.hpp"
#include "base/parallel.hpp"
#include "tests/temporary_folder.hpp"
#include "tests/unit/base/testing.hpp"

namespace orrery {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using testing::error_of;
using ::testing::HasSubstr;
using testing::message_of;

class FilesTest : public ::testing::Test {
 protected:
  std::string path(std::string_view name) const { return (folder_ / name).string(); }
  std::size_t num_files() const {
    return static_cast<std::size_t>(
        std::distance(fs::directory_iterator(folder_), fs::directory_iterator()));
  }

  const testing::TemporaryFolder temporary_;
  const fs::path folder_ = temporary_.path();
};

// Editors and spreadsheets begin texts with a mark, which is no part of them.
TEST_F(FilesTest, TextsAreReadWithoutTheirByteOrderMark) {
  write_file_atomically(path("marked"), "\xEF\xBB\xBFname,n\r\na,1\n");
  EXPECT_EQ(read_file(path("marked"), 100), "name,n\r\na,1\n");
  EXPECT_EQ(read_csv_file(path("marked")).header(), (std::vector<std::string>{"name", "n"}));
  write_file_atomically(path("alone"), "\xEF\xBB\xBF");
  EXPECT_EQ(read_file(path("alone"), 100), "");
}

// What Windows calls Unicode has a zero byte beside every letter.
TEST_F(FilesTest, TextsInUtf16AreRefusedByName) {
  for (const std::string_view content :
       {std::string_view("\xFF\xFE{\0}\0", 6), std::string_view("\xFE\xFF\0{\0}", 6)}) {
    write_file_atomically(path("wide"), content);
    EXPECT_EQ(message_of([&] { read_file(path("wide"), 100); }),
              path("wide") + ": text in UTF-16 (save it as UTF-8)");
  }
  write_file_atomically(path("short"), "\xFF");
  EXPECT_EQ(read_file(path("short"), 100), "\xFF");
}

// What tests leave in their temporary folder goes with the program (tests/main.cpp).
TEST(TemporaryFolderTest, GoesWithWhatIsInIt) {
  EXPECT_THAT(::testing::TempDir(), HasSubstr("orrery-test-"));
  fs::path path;
  {
    const testing::TemporaryFolder folder;
    path = folder.path();
    EXPECT_EQ(path.parent_path(), fs::path(::testing::TempDir()).parent_path());
    fs::create_directories(path / "a" / "b");
    write_file_atomically((path / "a" / "x").string(), "x");
  }
  EXPECT_FALSE(fs::exists(path));
}

TEST_F(FilesTest, WritesAndReadsBytesUnchanged) {
  const std::string content("a\0b\r\n\xff", 6);
  write_file_atomically(path("x"), content);
  EXPECT_EQ(read_file(path("x"), 6), content);
  write_file_atomically(path("x"), "");
  EXPECT_EQ(read_file(path("x"), 0), "");
  EXPECT_EQ(num_files(), 1U) << "no temporary file is left";
}

TEST_F(FilesTest, LargeFilesAreRefusedWithoutReadingThem) {
  write_file_atomically(path("big"), "x");
  fs::resize_file(path("big"), 200U << 20U);
  const auto error = error_of([&] { read_json_file(path("big")); });
  ASSERT_TRUE(error.has_value());
  EXPECT_EQ(error->kind(), ErrorKind::BadInput);
  EXPECT_THAT(error->what(), HasSubstr("larger than 16777216 bytes"));
  EXPECT_THROW(read_file("/dev/zero", 1000), Error);
}

TEST_F(FilesTest, ReadFailuresNameTheFileAndTheCause) {
  const auto read = [](const std::string& name) { return [=] { read_file(name, 10); }; };
  EXPECT_EQ(message_of(read("/nonexistent/x")),
            "/nonexistent/x: cannot read: No such file or directory");
  EXPECT_EQ(message_of(read(folder_.string())), folder_.string() + ": cannot read: Is a directory");
  EXPECT_EQ(message_of(read("")), "empty file name");
  EXPECT_THAT(message_of(read(std::string("a\0b", 3))), HasSubstr("NUL byte"));
  EXPECT_THAT(message_of(read(std::string(10'000, 'n'))), HasSubstr("File name too long"));
  EXPECT_EQ(error_of(read("/nonexistent/x"))->kind(), ErrorKind::InputOutput);
}

TEST_F(FilesTest, WriteFailuresLeaveTheOldContent) {
  write_file_atomically(path("x"), "old");
  const auto write = [](const std::string& name) {
    return [=] { write_file_atomically(name, "new"); };
  };
  EXPECT_THAT(message_of(write("/dev/full")), HasSubstr("No space left on device"));
  EXPECT_EQ(error_of(write("/dev/full"))->kind(), ErrorKind::InputOutput);
  EXPECT_THAT(message_of(write(folder_.string())), HasSubstr("Is a directory"));
  EXPECT_THAT(message_of(write(path("absent/x"))), HasSubstr("No such file or directory"));
  EXPECT_THAT(message_of(write(path("x/y"))), HasSubstr("Not a directory"));
  EXPECT_THAT(message_of(write("")), HasSubstr("empty file name"));
  EXPECT_EQ(read_file(path("x"), 10), "old");
  EXPECT_EQ(num_files(), 1U);
  EXPECT_NO_THROW(write_file_atomically("/dev/null", "gone"));
}

// The kernel ends the process in the middle of the content, where it has had no chance to tidy up.
TEST_F(FilesTest, AWriterThatIsKilledLeavesNothingBehind) {
  const int nameless = ::open(folder_.c_str(), O_WRONLY | O_TMPFILE, 0600);
  if (nameless < 0) {
    GTEST_SKIP() << "no files without a name on this file system";
  }
  ::close(nameless);
  write_file_atomically(path("x"), "old");
  const auto write_too_much = [&] {
    constexpr rlim_t kMost = 1U << 16U;
    const rlimit limit = {kMost, kMost};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    ::signal(SIGXFSZ, SIG_DFL);
    write_file_atomically(path("x"), std::string(2 * kMost, 'n'));
  };
  EXPECT_EXIT(write_too_much(), ::testing::KilledBySignal(SIGXFSZ), "");
  EXPECT_EQ(read_file(path("x"), 10), "old");
  EXPECT_EQ(num_files(), 1U);
}

TEST_F(FilesTest, PermissionsFollowTheUmaskAndTheOldFile) {
  const auto mode = [&](const std::string& name) {
    struct stat status = {};
    EXPECT_EQ(::stat(name.c_str(), &status), 0);
    return status.st_mode & 0777U;
  };
  const mode_t old_umask = ::umask(027);
  write_file_atomically(path("new"), "x");
  ::umask(old_umask);
  EXPECT_EQ(mode(path("new")), 0640U);
  ASSERT_EQ(::chmod(path("new").c_str(), 0600), 0);
  write_file_atomically(path("new"), "y");
  EXPECT_EQ(mode(path("new")), 0600U);
}

TEST_F(FilesTest, LinksStayLinks) {
  write_file_atomically(path("target"), "old");
  fs::create_symlink("target", path("link"));
  write_file_atomically(path("link"), "new");
  EXPECT_TRUE(fs::is_symlink(path("link")));
  EXPECT_EQ(read_file(path("target"), 10), "new");
}

TEST_F(FilesTest, ConcurrentWritersLeaveOneWholeContent) {
  parallel_for(32, 4, [&](std::size_t i) {
    write_file_atomically(path("x"), std::string(10'000, static_cast<char>('a' + i % 26)));
  });
  const std::string content = read_file(path("x"), 10'000);
  EXPECT_EQ(content, std::string(10'000, content.at(0)));
  EXPECT_EQ(num_files(), 1U);
}

TEST_F(FilesTest, CreatesFolders) {
  create_folders(path("a/b/c"));
  create_folders(path("a/b/c"));
  EXPECT_TRUE(fs::is_directory(path("a/b/c")));
  write_file_atomically(path("file"), "x");
  EXPECT_EQ(error_of([&] { create_folders(path("file")); })->kind(), ErrorKind::InputOutput);
  EXPECT_EQ(error_of([&] { create_folders(path("file/x")); })->kind(), ErrorKind::InputOutput);
}

class DataFilesTest : public FilesTest {
 protected:
  void SetUp() override {
    FilesTest::SetUp();
    ::setenv("ORRERY_DATA", folder_.c_str(), 1);
  }
  void TearDown() override {
    ::unsetenv("ORRERY_DATA");
    FilesTest::TearDown();
  }
};

TEST_F(DataFilesTest, TheChosenFolderComesFirst) {
  create_folders(path("base"));
  write_file_atomically(path("base/limits.hpp"), "mine");
  EXPECT_EQ(data_path("base/limits.hpp"), path("base/limits.hpp"));
  EXPECT_TRUE(is_data("base/limits.hpp"));
}

TEST_F(DataFilesTest, AFileThatTheChosenFolderLacksComesFromTheOthers) {
  EXPECT_TRUE(is_data("base/limits.hpp"));
  const std::string found = data_path("base/limits.hpp");
  EXPECT_TRUE(fs::exists(found));
  EXPECT_NE(found, path("base/limits.hpp"));
}

TEST_F(DataFilesTest, AChosenFolderThatIsNotThereIsAnError) {
  write_file_atomically(path("file"), "x");
  for (const std::string& bad : {path("absent"), path("file")}) {
    ::setenv("ORRERY_DATA", bad.c_str(), 1);
    EXPECT_EQ(error_of([] { data_path("base/limits.hpp"); })->kind(), ErrorKind::BadInput);
    EXPECT_THAT(message_of([] { data_names("topologies/gpus"); }), HasSubstr(bad));
  }
}

TEST_F(DataFilesTest, MissingFilesNameThePlacesTried) {
  const std::string message = message_of([] { data_path("topologies/gpus/none.json"); });
  EXPECT_THAT(message, HasSubstr("topologies/gpus/none.json: no such data file"));
  EXPECT_THAT(message, HasSubstr(folder_.string()));
  EXPECT_THAT(message, HasSubstr("share/orrery"));
  EXPECT_THROW(data_names("nowhere"), Error);
  EXPECT_FALSE(is_data("nowhere"));
}

TEST_F(DataFilesTest, NamesCannotLeaveTheDataFolders) {
  write_file_atomically(path("x.json"), "{}");
  for (const std::string& bad :
       {std::string("../x.json"), path("x.json"), std::string("a/../x.json"), std::string(),
        std::string("x\0y", 3)}) {
    EXPECT_EQ(error_of([&] { data_path(bad); })->kind(), ErrorKind::BadInput) << bad;
  }
}

TEST_F(DataFilesTest, NamesAreSortedAndWithoutExtension) {
  create_folders(path("things/sub.json.d"));
  for (const char* name : {"b", "a-1.5", "c"}) {
    write_file_atomically(path(std::string("things/") + name + ".json"), "{}");
  }
  write_file_atomically(path("things/note.txt"), "x");
  EXPECT_THAT(data_names("things"), ElementsAre("a-1.5", "b", "c"));
}

}  // namespace
}  // namespace orrery
