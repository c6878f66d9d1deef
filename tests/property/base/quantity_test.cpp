// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <cmath>

#include "base/csv.hpp"
#include "base/error.hpp"
#include "base/quantity_text.hpp"
#include "base/random.hpp"
#include "base/sim_time.hpp"
#include "base/text.hpp"

namespace orrery {
namespace {

// Values as documents hold them (few digits) and as computations give them (53 bits), 1e-13 to
// 1e18.
rc::Gen<double> any_value() {
  const auto digits =
      rc::gen::map(rc::gen::pair(rc::gen::inRange(0, 10'000), rc::gen::inRange(-12, 14)),
                   [](const std::pair<int, int>& p) { return p.first * std::pow(10.0, p.second); });
  const auto bits =
      rc::gen::map(rc::gen::pair(rc::gen::arbitrary<std::uint64_t>(), rc::gen::inRange(-42, 58)),
                   [](const std::pair<std::uint64_t, int>& p) {
                     return std::ldexp(1.0 + Random(p.first).uniform(), p.second);
                   });
  return rc::gen::oneOf(digits, bits);
}

template <typename Quantity, typename Parse>
void expect_round_trip(Parse parse) {
  EXPECT_TRUE(rc::check("parse(quantity_text(x)) == x", [&] {
    const Quantity value(*any_value());
    const std::string text = quantity_text(value);
    RC_ASSERT(parse(text, "where").value() == value.value());
  }));
}

TEST(QuantityPropertyTest, TextReadsBackExactly) {
  expect_round_trip<Bytes>(parse_bytes);
  expect_round_trip<BytesPerSecond>(parse_bandwidth);
  expect_round_trip<Seconds>(parse_duration);
  expect_round_trip<FlopsPerSecond>(parse_flop_rate);
  expect_round_trip<Hertz>(parse_frequency);
  expect_round_trip<DollarsPerSecond>(parse_price);
}

TEST(QuantityPropertyTest, ParsersAreTotal) {
  EXPECT_TRUE(rc::check("a quantity is read or refused", [] {
    const auto parts = *rc::gen::container<std::vector<std::string>>(
        rc::gen::element<std::string>("1", "9", ".", "e", "-", "+", " ", "G", "B", "i", "bit", "/s",
                                      "FLOP", "s", "nan", "inf", "\xff", "0x"));
    std::string text;
    for (const std::string& part : parts) {
      text += part;
    }
    try {
      const double value = parse_bytes(text, "where").value();
      RC_ASSERT(value >= 0.0 && value <= 1e18);
    } catch (const Error& error) {
      const std::string message = error.what();
      RC_ASSERT(printable(message, 4000) == message);
    }
  }));
}

TEST(FormatPropertyTest, AtMostFourSignificantDigits) {
  EXPECT_TRUE(rc::check("formatted numbers are close and short", [] {
    const int exponent = *rc::gen::inRange(0, 59);
    const double value =
        std::ldexp(1.0 + Random(*rc::gen::arbitrary<std::uint64_t>()).uniform(), exponent);
    const std::string text = format_bandwidth(BytesPerSecond(value));
    RC_ASSERT(text.size() <= 9);
    const double read = parse_bandwidth(text, "").value();
    RC_ASSERT(std::abs(read - value) <= 0.0051 * value);
  }));
}

TEST(SimTimePropertyTest, ConversionRoundsUpAndComesBack) {
  EXPECT_TRUE(rc::check("picoseconds survive seconds", [] {
    const SimTime time{*rc::gen::inRange<std::int64_t>(0, 1LL << 51)};
    RC_ASSERT(to_sim_time(to_seconds(time)) == time);
  }));
  EXPECT_TRUE(rc::check("never rounds down by more than rounding error", [] {
    const double seconds = *any_value();
    RC_PRE(seconds < 9e6);
    const double back = to_seconds(to_sim_time(Seconds(seconds))).value();
    RC_ASSERT(back >= seconds * (1 - 1e-15));
    RC_ASSERT(back <= seconds * (1 + 1e-15) + 1.001e-12);
  }));
}

TEST(RandomPropertyTest, EqualSeedsGiveEqualNumbersWithinBounds) {
  EXPECT_TRUE(rc::check("below(n) < n and is reproducible", [](std::uint64_t seed) {
    Random a(seed);
    Random b(seed);
    const std::uint64_t bound = *rc::gen::positive<std::uint64_t>();
    for (int i = 0; i < 20; ++i) {
      const std::uint64_t value = a.below(bound);
      RC_ASSERT(value < bound);
      RC_ASSERT(value == b.below(bound));
    }
    RC_ASSERT(a.normal() == b.normal());
  }));
}

TEST(CsvPropertyTest, QuotedCellsComeBack) {
  EXPECT_TRUE(rc::check("write and read a record", [] {
    const auto character = rc::gen::element<char>('a', ' ', ',', '"', '\n', '\r', ';');
    const auto cells = *rc::gen::container<std::vector<std::string>>(
        3, rc::gen::container<std::string>(character));
    std::string text = "a,b,c\n";
    for (std::size_t i = 0; i < cells.size(); ++i) {
      text += i == 0 ? "\"" : ",\"";
      for (const char c : cells[i]) {
        text += c == '"' ? "\"\"" : std::string(1, c);
      }
      text += '"';
    }
    const CsvTable table = parse_csv(text, "t");
    RC_ASSERT(table.num_rows() == 1U);
    RC_ASSERT(table.cell(0, "a") == trim(cells[0]));
    RC_ASSERT(table.cell(0, "b") == trim(cells[1]));
    RC_ASSERT(table.cell(0, "c") == trim(cells[2]));
  }));
}

TEST(CsvPropertyTest, ParserIsTotal) {
  EXPECT_TRUE(rc::check("tables are read or refused", [] {
    const auto parts = *rc::gen::container<std::vector<std::string>>(
        rc::gen::element<std::string>("a", "b", ",", "\"", "\n", "\r\n", " ", "\xff", "\t"));
    std::string text;
    for (const std::string& part : parts) {
      text += part;
    }
    try {
      const CsvTable table = parse_csv(text, "t");
      RC_ASSERT(!table.header().empty());
    } catch (const Error& error) {
      const std::string message = error.what();
      RC_ASSERT(printable(message, 4000) == message);
    }
  }));
}

TEST(TextPropertyTest, PrintableIsBoundedIdempotentAndValid) {
  EXPECT_TRUE(rc::check("printable", [](const std::string& bytes) {
    const int limit = *rc::gen::inRange(0, 50);
    const std::string text = printable(bytes, limit);
    RC_ASSERT(text.size() <= static_cast<std::size_t>(limit));
    RC_ASSERT(printable(text, limit) == text);
  }));
}

}  // namespace
}  // namespace orrery
