// SPDX-License-Identifier: Apache-2.0
// Runs the tests of a program with a temporary folder of its own.
#include <gmock/gmock.h>

#include <cstdlib>

#include "tests/folders.hpp"
#include "tests/temporary_folder.hpp"

namespace orrery {

std::filesystem::path source_folder() { return ORRERY_SOURCE_DIR; }
std::filesystem::path test_folder() { return source_folder() / "tests"; }
std::filesystem::path shared_folder() { return source_folder() / ".." / "shared"; }

}  // namespace orrery

int main(int argc, char** argv) {
  ::testing::InitGoogleMock(&argc, argv);
  const orrery::testing::TemporaryFolder folder;
  ::setenv("TMPDIR", folder.path().c_str(), 1);
  return RUN_ALL_TESTS();
}
