// SPDX-License-Identifier: Apache-2.0
// xoshiro256** seeded by SplitMix64 (Blackman and Vigna, https://prng.di.unimi.it); Marsaglia's
// polar method for normal numbers.
#include "base/random.hpp"

#include <bit>
#include <cmath>

#include "base/error.hpp"

namespace orrery {
namespace {

constexpr std::uint64_t kGoldenGamma = 0x9E3779B97F4A7C15;

// The C library's log may differ in the last bit between platforms; this one uses only exactly
// rounded operations. For x in (0, 1], to about 1e-16 relative.
double portable_log(double x) {
  constexpr double kLn2 = 0.69314718055994530942;
  int exponent = 0;
  double mantissa = std::frexp(x, &exponent);
  if (mantissa < 0.70710678118654752440) {
    mantissa *= 2.0;
    --exponent;
  }
  // log(m) = 2 atanh(t), and |t| <= 0.172, so that twelve terms reach double precision.
  const double t = (mantissa - 1.0) / (mantissa + 1.0);
  const double t2 = t * t;
  double sum = 0.0;
  for (int k = 23; k >= 1; k -= 2) {
    sum = sum * t2 + 1.0 / k;
  }
  return 2.0 * t * sum + kLn2 * exponent;
}

}  // namespace

std::uint64_t mix64(std::uint64_t value) {
  value = (value ^ (value >> 30U)) * 0xBF58476D1CE4E5B9U;
  value = (value ^ (value >> 27U)) * 0x94D049BB133111EBU;
  return value ^ (value >> 31U);
}

Random::Random(std::uint64_t seed) : state_{} {
  for (std::uint64_t& word : state_) {
    seed += kGoldenGamma;
    word = mix64(seed);
  }
}

std::uint64_t Random::next() {
  const std::uint64_t result = std::rotl(state_[1] * 5, 7) * 9;
  const std::uint64_t shifted = state_[1] << 17U;
  state_[2] ^= state_[0];
  state_[3] ^= state_[1];
  state_[1] ^= state_[2];
  state_[0] ^= state_[3];
  state_[2] ^= shifted;
  state_[3] = std::rotl(state_[3], 45);
  return result;
}

std::uint64_t Random::below(std::uint64_t bound) {
  ORRERY_CHECK(bound > 0, "random number below zero");
  // The first 2^64 mod bound values would be over-represented.
  const std::uint64_t rejected = (0 - bound) % bound;
  while (true) {
    const std::uint64_t value = next();
    if (value >= rejected) {
      return value % bound;
    }
  }
}

double Random::uniform() { return static_cast<double>(next() >> 11U) * 0x1p-53; }

double Random::normal() {
  while (true) {
    const double u = 2.0 * uniform() - 1.0;
    const double v = 2.0 * uniform() - 1.0;
    const double s = u * u + v * v;
    if (s > 0.0 && s < 1.0) {
      return u * std::sqrt(-2.0 * portable_log(s) / s);
    }
  }
}

}  // namespace orrery
