// SPDX-License-Identifier: Apache-2.0
// For tests of readers: files written for one test, the message a file is refused with, and where
// the published samples are when this machine has them.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "base/error.hpp"
#include "calibrate/reader.hpp"
#include "tests/folders.hpp"

namespace orrery::calibrate {

class ReaderFiles : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::path(testing::TempDir()) / "readers";
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string write(const std::string& name, const std::string& text) const {
    const std::string path = (folder_ / name).string();
    std::ofstream(path, std::ios::binary) << text;
    return path;
  }
  static Reading read(const std::string& path, bool partial = false) {
    return read_foreign(path, "", {.partial = partial, .device = ""});
  }
  // What an Error says; "" when the file is read.
  static std::string message_of(const std::string& path, bool partial = false) {
    try {
      (void)read(path, partial);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  }
  static std::filesystem::path shared(const std::string& folder) {
    return orrery::shared_folder() / folder;
  }

  std::filesystem::path folder_;
};

}  // namespace orrery::calibrate
