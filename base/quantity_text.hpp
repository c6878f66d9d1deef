// SPDX-License-Identifier: Apache-2.0
// Quantities as text: "450 GB/s", "400 Gbit/s", "80 GiB", "3.4 us", "989 TFLOP/s", "1.83 GHz",
// "2.69 USD/h". Decimal and binary prefixes are distinct; bits only as bit (Gbit/s, Gb/s). A number
// without a unit is an error whose hint gives the two likely meanings. `where` goes into the Error.
#pragma once

#include <string>
#include <string_view>

#include "base/sim_time.hpp"
#include "base/units.hpp"

namespace orrery {

inline constexpr Seconds kHour(3600.0);  // prices are by the hour

Bytes parse_bytes(std::string_view text, std::string_view where);
BytesPerSecond parse_bandwidth(std::string_view text, std::string_view where);
Seconds parse_duration(std::string_view text, std::string_view where);
FlopsPerSecond parse_flop_rate(std::string_view text, std::string_view where);
Hertz parse_frequency(std::string_view text, std::string_view where);
DollarsPerSecond parse_price(std::string_view text, std::string_view where);
// Plain numbers of options and CSV cells; the whole text must be consumed; finite.
double parse_number(std::string_view text, std::string_view where, double min, double max);
std::int64_t parse_integer(std::string_view text, std::string_view where, std::int64_t min,
                           std::int64_t max);

// For people: three to four significant digits ("12.4 GiB", "3.61 s", "486 GB/s", "312 TFLOP/s"),
// and so many more.
std::string format_bytes(Bytes bytes, int more = 0);  // binary prefixes
std::string format_bandwidth(BytesPerSecond rate);
std::string format_duration(Seconds seconds, int more = 0);
std::string format_flop_rate(FlopsPerSecond rate);
std::string format_count(double count, int more = 0);  // "1.2 M", "70.6 B"

// So many significant digits, but the whole part in full: "1048576", "3.351", "1.2e-05". No
// trailing zeros.
std::string format_number(double number, int digits);

// Exact, for documents: a short text that parses back to the same value ("900 GB/s"),
// with a number in [1, 1000) where that costs at most three characters.
std::string exact_bytes_text(std::int64_t bytes);  // "1234 B": exact at any size
std::string quantity_text(Bytes bytes);
std::string quantity_text(BytesPerSecond rate);
std::string quantity_text(Seconds seconds);
std::string quantity_text(FlopsPerSecond rate);
std::string quantity_text(Hertz frequency);
std::string quantity_text(DollarsPerSecond price);

}  // namespace orrery
