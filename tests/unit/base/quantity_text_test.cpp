// SPDX-License-Identifier: Apache-2.0
#include "base/quantity_text.hpp"

#include <gmock/gmock.h>

#include <cmath>
#include <limits>

#include "tests/unit/base/testing.hpp"

namespace orrery {
namespace {

using ::testing::HasSubstr;
using testing::message_of;

TEST(ParseQuantityTest, Bytes) {
  EXPECT_EQ(parse_bytes("80 GB", "").value(), 80e9);
  EXPECT_EQ(parse_bytes("80 GiB", "").value(), 80 * 0x1p30);
  EXPECT_EQ(parse_bytes("  1.5KiB ", "").value(), 1536.0);
  EXPECT_EQ(parse_bytes("3 kB", "").value(), 3000.0);
  EXPECT_EQ(parse_bytes("3 KB", "").value(), 3000.0);
  EXPECT_EQ(parse_bytes("1e3 B", "").value(), 1000.0);
  EXPECT_EQ(parse_bytes("1 TiB", "").value(), 0x1p40);
}

TEST(ParseQuantityTest, BandwidthInBitsAndBytes) {
  EXPECT_EQ(parse_bandwidth("400 Gbit/s", "").value(), 50e9);
  EXPECT_EQ(parse_bandwidth("400 Gb/s", "").value(), 50e9);
  EXPECT_EQ(parse_bandwidth("400 GB/s", "").value(), 400e9);
  EXPECT_EQ(parse_bandwidth("8 Mbit/s", "").value(), 1e6);
  EXPECT_EQ(parse_bandwidth("1 GiB/s", "").value(), 0x1p30);
  EXPECT_EQ(parse_bandwidth("3.35 TB/s", "").value(), 3.35e12);
}

TEST(ParseQuantityTest, OtherQuantities) {
  EXPECT_EQ(parse_duration("3.4 us", "").value(), 3.4e-6);
  EXPECT_EQ(parse_duration("7 ps", "").value(), 7e-12);
  EXPECT_EQ(parse_duration("2 min", "").value(), 120.0);
  EXPECT_EQ(parse_duration("2 h", "").value(), 7200.0);
  EXPECT_EQ(parse_flop_rate("989 TFLOP/s", "").value(), 989e12);
  EXPECT_EQ(parse_flop_rate("1 EFLOP/s", "").value(), 1e18);
  EXPECT_EQ(parse_frequency("1.83 GHz", "").value(), 1.83e9);
  EXPECT_EQ(parse_price("3.6 USD/h", "").value(), 1e-3);
}

TEST(ParseQuantityTest, ANumberWithoutAUnitGivesTwoMeanings) {
  const auto hint = [](auto parse) { return message_of([&] { parse("5", "--x"); }); };
  EXPECT_EQ(hint(parse_bytes), "--x: \"5\" has no unit (write \"5 GB\" or \"5 GiB\")");
  EXPECT_THAT(hint(parse_bandwidth), HasSubstr("\"5 GB/s\" or \"5 Gbit/s\""));
  EXPECT_THAT(hint(parse_duration), HasSubstr("\"5 us\" or \"5 ms\""));
  EXPECT_THAT(hint(parse_flop_rate), HasSubstr("\"5 TFLOP/s\" or \"5 GFLOP/s\""));
  EXPECT_THAT(hint(parse_frequency), HasSubstr("\"5 GHz\" or \"5 MHz\""));
  EXPECT_THAT(hint(parse_price), HasSubstr("\"5 USD/h\" or \"5 USD/s\""));
}

TEST(ParseQuantityTest, RejectsWhatIsNotAQuantity) {
  for (const char* bad :
       {"", " ", "GB", "x GB", "nan GB", "inf GB", "1e400 GB", "--1 GB", "+1 GB", "-1 GB", "1 GB/s",
        "1 gb", "1 Gbit", "1 GB GB", "1,5 GB", "0x10 B", "2e18 B", "1e300 PiB", "1 GB\n\x01"}) {
    EXPECT_THROW(parse_bytes(bad, "where"), Error) << bad;
  }
  EXPECT_THROW(parse_bandwidth("1 GB", ""), Error);
  EXPECT_THROW(parse_duration("1e18 h", ""), Error);
  EXPECT_THAT(message_of([] { parse_bandwidth("400 Gbps", ""); }), HasSubstr("did you mean \"G"));
  EXPECT_THAT(message_of([] { parse_flop_rate("989 TFLOPS", ""); }),
              HasSubstr("did you mean \"TFLOP/s\"?"));
}

TEST(ParseNumberTest, NumbersAndIntegers) {
  EXPECT_EQ(parse_number(" 1.5e3 ", "", 0, 1e9), 1500.0);
  EXPECT_EQ(parse_integer(" -42 ", "", -100, 100), -42);
  for (const char* bad : {"", "x", "1x", "inf", "nan", "1e400", "1 2", "11"}) {
    EXPECT_THROW(parse_number(bad, "w", 0, 10), Error) << bad;
  }
  for (const char* bad : {"", "x", "1.5", "1e3", "11", "-1", "99999999999999999999", "0x1"}) {
    EXPECT_THROW(parse_integer(bad, "w", 0, 10), Error) << bad;
  }
  EXPECT_EQ(message_of([] { parse_integer("99999999999999999999", "--n", 0, 10); }),
            "--n: 99999999999999999999 is out of range (0 to 10)");
}

TEST(FormatTest, ThreeOrFourSignificantDigits) {
  EXPECT_EQ(format_bytes(Bytes(12.44 * 0x1p30)), "12.4 GiB");
  EXPECT_EQ(format_bytes(Bytes(80 * 0x1p30)), "80 GiB");
  EXPECT_EQ(format_bytes(Bytes(1000 * 0x1p30)), "1000 GiB");
  EXPECT_EQ(format_bytes(Bytes(0)), "0 B");
  EXPECT_EQ(format_bytes(Bytes(512)), "512 B");
  EXPECT_EQ(format_bytes(Bytes(-2048)), "-2 KiB");
  EXPECT_EQ(format_bandwidth(BytesPerSecond(486.3e9)), "486 GB/s");
  EXPECT_EQ(format_bandwidth(BytesPerSecond(999.9e9)), "1 TB/s");
  EXPECT_EQ(format_duration(Seconds(3.614)), "3.61 s");
  EXPECT_EQ(format_duration(Seconds(0.0123)), "12.3 ms");
  EXPECT_EQ(format_duration(Seconds(3.4e-6)), "3.4 us");
  EXPECT_EQ(format_duration(Seconds(0)), "0 s");
  EXPECT_EQ(format_duration(Seconds(119)), "119 s");
  EXPECT_EQ(format_duration(Seconds(600)), "10 min");
  EXPECT_EQ(format_duration(Seconds(86400)), "24 h");
  EXPECT_EQ(format_duration(Seconds(30 * 86400)), "30 d");
  EXPECT_EQ(format_flop_rate(FlopsPerSecond(312e12)), "312 TFLOP/s");
  EXPECT_EQ(format_count(1.2e6), "1.2 M");
  EXPECT_EQ(format_count(70.55e9), "70.5 B");
  EXPECT_EQ(format_count(12), "12");
  EXPECT_EQ(format_count(0.25), "0.25");
}

TEST(FormatTest, MoreDigitsThanUsual) {
  EXPECT_EQ(format_bytes(Bytes(12.456 * 0x1p30), 1), "12.46 GiB");
  EXPECT_EQ(format_bytes(Bytes(12.5 * 0x1p30), 3), "12.5 GiB");
  EXPECT_EQ(format_duration(Seconds(0.9996), 0), "1 s");
  EXPECT_EQ(format_duration(Seconds(0.9996), 1), "999.6 ms");
  EXPECT_EQ(format_count(0.12345, 1), "0.1235");
}

TEST(FormatTest, WholePartsOfNumbersAreInFull) {
  EXPECT_EQ(format_number(1'048'576, 3), "1048576");
  EXPECT_EQ(format_number(999'999.7, 3), "1000000");
  EXPECT_EQ(format_number(132.082, 3), "132");
  EXPECT_EQ(format_number(3.3514, 4), "3.351");
  EXPECT_EQ(format_number(-99.96, 3), "-100");
  EXPECT_EQ(format_number(0, 3), "0");
  EXPECT_EQ(format_number(0.00012, 3), "0.00012");
  EXPECT_EQ(format_number(1e300, 3), "1e+300");
}

TEST(FormatTest, NonFiniteValuesDoNotCrash) {
  const double infinity = std::numeric_limits<double>::infinity();
  EXPECT_EQ(format_duration(Seconds(infinity)), "inf");
  EXPECT_EQ(format_count(std::nan("")), "nan");
}

TEST(QuantityTextTest, IsShortAndExact) {
  EXPECT_EQ(quantity_text(Bytes(80e9)), "80 GB");
  EXPECT_EQ(quantity_text(Bytes(80 * 0x1p30)), "80 GiB");
  EXPECT_EQ(quantity_text(Bytes(0)), "0 B");
  EXPECT_EQ(quantity_text(Bytes(123457)), "123.457 kB");
  EXPECT_EQ(quantity_text(BytesPerSecond(900e9)), "900 GB/s");
  EXPECT_EQ(quantity_text(BytesPerSecond(50e9)), "50 GB/s");
  EXPECT_EQ(quantity_text(Seconds(3.4e-6)), "3.4 us");
  EXPECT_EQ(quantity_text(Seconds(120)), "120 s");
  EXPECT_EQ(quantity_text(FlopsPerSecond(989.5e12)), "989.5 TFLOP/s");
  EXPECT_EQ(quantity_text(Hertz(1.83e9)), "1.83 GHz");
  EXPECT_EQ(quantity_text(DollarsPerSecond(2.69 / 3600)), "2.69 USD/h");
}

}  // namespace
}  // namespace orrery
