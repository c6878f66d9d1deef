// SPDX-License-Identifier: Apache-2.0
// Numbers and texts as bytes: what was written is read back, and nothing is read that is not there.
#include "base/bytes.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "base/error.hpp"

namespace orrery {
namespace {

std::string all_kinds() {
  ByteWriter out;
  out.u8(200);
  out.u16(60'000);
  out.u32(4'000'000'000);
  out.u64(std::numeric_limits<std::uint64_t>::max() - 1);
  out.real(-0.0);
  out.real(std::numeric_limits<double>::infinity());
  out.text("a\0b");
  out.text(std::string("x\0y", 3));
  return out.bytes();
}

TEST(Bytes, ReadBackWhatWasWritten) {
  const std::string bytes = all_kinds();
  ByteReader in(bytes, "test");
  EXPECT_EQ(in.u8(), 200);
  EXPECT_EQ(in.u16(), 60'000);
  EXPECT_EQ(in.u32(), 4'000'000'000);
  EXPECT_EQ(in.u64(), std::numeric_limits<std::uint64_t>::max() - 1);
  EXPECT_TRUE(std::signbit(in.real()));
  EXPECT_EQ(in.real(), std::numeric_limits<double>::infinity());
  EXPECT_EQ(in.text(), "a");
  EXPECT_EQ(in.text(), std::string("x\0y", 3));
  EXPECT_EQ(in.left(), 0u);
  EXPECT_THROW((void)in.u8(), Error);
}

TEST(Bytes, LittleEndian) {
  ByteWriter out;
  out.u32(0x01020304);
  EXPECT_EQ(out.bytes(), std::string("\x04\x03\x02\x01"));
}

// Wherever they are cut, reading fails and does not go beyond.
TEST(Bytes, TruncatedIsAnError) {
  const std::string bytes = all_kinds();
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    ByteReader in(std::string_view(bytes).substr(0, size), "test");
    EXPECT_THROW(
        {
          (void)in.u8();
          (void)in.u16();
          (void)in.u32();
          (void)in.u64();
          (void)in.real();
          (void)in.real();
          (void)in.text();
          (void)in.text();
        },
        Error)
        << size;
  }
}

TEST(Bytes, CountsBeyondTheEndAreErrors) {
  ByteWriter out;
  out.u64(3);
  out.u64(0);
  ByteReader three(out.bytes(), "test");
  EXPECT_THROW((void)three.count(4), Error);
  ByteReader fits(out.bytes(), "test");
  EXPECT_EQ(fits.count(2), 3u);
}

TEST(Bytes, HashesDiffer) {
  EXPECT_EQ(hash_of(""), 0xcbf29ce484222325u);
  EXPECT_EQ(hash_of("a"), 0xaf63dc4c8601ec8cu);  // the published test vector
  EXPECT_NE(hash_of("ab"), hash_of("ba"));
}

}  // namespace
}  // namespace orrery
