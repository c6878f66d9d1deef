// SPDX-License-Identifier: Apache-2.0
// Dimensioned doubles for the cost model: a wrong mix of units does not compile.
// Bytes / BytesPerSecond gives Seconds, Flops / FlopsPerSecond gives Seconds; pure ratios decay to
// double. Exact bookkeeping (memory, message sizes) uses ByteCount, simulated time uses SimTime.
#pragma once

#include <compare>
#include <cstdint>

namespace orrery {

// A quantity with integer exponents of bytes, FLOPs, seconds and US dollars.
template <int kBytes, int kFlops, int kSeconds, int kDollars = 0>
class Quantity {
 public:
  constexpr Quantity() = default;
  constexpr explicit Quantity(double value) : value_(value) {}
  constexpr double value() const { return value_; }

  constexpr auto operator<=>(const Quantity&) const = default;
  constexpr Quantity& operator+=(Quantity other) {
    value_ += other.value_;
    return *this;
  }
  constexpr Quantity& operator-=(Quantity other) {
    value_ -= other.value_;
    return *this;
  }
  constexpr Quantity& operator*=(double factor) {
    value_ *= factor;
    return *this;
  }
  friend constexpr Quantity operator+(Quantity a, Quantity b) { return a += b; }
  friend constexpr Quantity operator-(Quantity a, Quantity b) { return a -= b; }
  friend constexpr Quantity operator*(Quantity a, double factor) { return a *= factor; }
  friend constexpr Quantity operator*(double factor, Quantity a) { return a *= factor; }
  friend constexpr Quantity operator/(Quantity a, double divisor) {
    return Quantity(a.value_ / divisor);
  }

 private:
  double value_ = 0.0;
};

template <int B1, int F1, int S1, int D1, int B2, int F2, int S2, int D2>
constexpr auto operator*(Quantity<B1, F1, S1, D1> a, Quantity<B2, F2, S2, D2> b) {
  if constexpr (B1 + B2 == 0 && F1 + F2 == 0 && S1 + S2 == 0 && D1 + D2 == 0) {
    return a.value() * b.value();
  } else {
    return Quantity<B1 + B2, F1 + F2, S1 + S2, D1 + D2>(a.value() * b.value());
  }
}

template <int B1, int F1, int S1, int D1, int B2, int F2, int S2, int D2>
constexpr auto operator/(Quantity<B1, F1, S1, D1> a, Quantity<B2, F2, S2, D2> b) {
  if constexpr (B1 == B2 && F1 == F2 && S1 == S2 && D1 == D2) {
    return a.value() / b.value();
  } else {
    return Quantity<B1 - B2, F1 - F2, S1 - S2, D1 - D2>(a.value() / b.value());
  }
}

using Seconds = Quantity<0, 0, 1>;
using Bytes = Quantity<1, 0, 0>;
using Flops = Quantity<0, 1, 0>;
using BytesPerSecond = Quantity<1, 0, -1>;
using FlopsPerSecond = Quantity<0, 1, -1>;
using Hertz = Quantity<0, 0, -1>;
using Dollars = Quantity<0, 0, 0, 1>;
using DollarsPerSecond = Quantity<0, 0, -1, 1>;

// Exact number of bytes (memory ledgers, message sizes). Overflow is a bug and aborts: every input
// is bounded by limits.hpp so that products stay within int64.
class ByteCount {
 public:
  constexpr ByteCount() = default;
  constexpr explicit ByteCount(std::int64_t value) : value_(value) {}
  constexpr std::int64_t value() const { return value_; }
  constexpr Bytes bytes() const { return Bytes(static_cast<double>(value_)); }

  constexpr auto operator<=>(const ByteCount&) const = default;
  constexpr ByteCount& operator+=(ByteCount other);
  constexpr ByteCount& operator-=(ByteCount other);
  friend constexpr ByteCount operator+(ByteCount a, ByteCount b) { return a += b; }
  friend constexpr ByteCount operator-(ByteCount a, ByteCount b) { return a -= b; }
  friend constexpr ByteCount operator*(ByteCount a, std::int64_t factor);

 private:
  std::int64_t value_ = 0;
};

[[noreturn]] void byte_count_overflow(std::int64_t a, std::int64_t b);

constexpr ByteCount& ByteCount::operator+=(ByteCount other) {
  std::int64_t sum = 0;
  if (__builtin_add_overflow(value_, other.value_, &sum)) {
    byte_count_overflow(value_, other.value_);
  }
  value_ = sum;
  return *this;
}

constexpr ByteCount& ByteCount::operator-=(ByteCount other) {
  std::int64_t difference = 0;
  if (__builtin_sub_overflow(value_, other.value_, &difference)) {
    byte_count_overflow(value_, other.value_);
  }
  value_ = difference;
  return *this;
}

constexpr ByteCount operator*(ByteCount a, std::int64_t factor) {
  std::int64_t product = 0;
  if (__builtin_mul_overflow(a.value(), factor, &product)) {
    byte_count_overflow(a.value(), factor);
  }
  return ByteCount(product);
}

}  // namespace orrery
