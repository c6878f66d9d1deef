// SPDX-License-Identifier: Apache-2.0
// A folder for files that tests write, which goes with the object. main.cpp makes one for every
// test program, so that testing::TempDir() is a folder that nobody shares and nothing is left in.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <string>

namespace orrery::testing {

class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "orrery-test-XXXXXX").string();
    if (::mkdtemp(pattern.data()) == nullptr) {
      std::abort();
    }
    path_ = pattern;
  }
  ~TemporaryFolder() {
    std::error_code error;  // it may be gone
    std::filesystem::remove_all(path_, error);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

}  // namespace orrery::testing
