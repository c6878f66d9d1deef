// SPDX-License-Identifier: Apache-2.0
// As far as NCCL goes without a GPU: the library opens, every function the program calls is there,
// and what needs a device says so.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.hpp"
#include "calibrate/nccl/device.hpp"
#ifdef ORRERY_HAS_NCCL
#include "calibrate/nccl/nccl_library.hpp"
#endif

namespace orrery::calibrate {
namespace {

#ifdef ORRERY_HAS_NCCL
TEST(NcclLibrary, OpensWithEveryFunction) {
  try {
    const Nccl nccl;
    EXPECT_TRUE(nccl.version().starts_with("2.")) << nccl.version();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::DeviceMissing);
    GTEST_SKIP() << error.what();
  }
}
#endif

TEST(NcclLibrary, NoDeviceIsSaidSo) {
  std::string why;
  if (collective_device_count(why) > 0) {
    GTEST_SKIP() << "there is a GPU";
  }
  EXPECT_FALSE(why.empty());
  try {
    (void)open_collective_device(0, [] {});
    ADD_FAILURE() << "opened a device that is not there";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::DeviceMissing);
  }
}

}  // namespace
}  // namespace orrery::calibrate
