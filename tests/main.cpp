// SPDX-License-Identifier: Apache-2.0
// Runs the tests of a program with a temporary folder of its own.
#include <gmock/gmock.h>

#include <cstdlib>

#include "tests/temporary_folder.hpp"

int main(int argc, char** argv) {
  ::testing::InitGoogleMock(&argc, argv);
  const orrery::testing::TemporaryFolder folder;
  ::setenv("TMPDIR", folder.path().c_str(), 1);
  return RUN_ALL_TESTS();
}
