// SPDX-License-Identifier: Apache-2.0
// Seeded random numbers, identical on every platform (xoshiro256**; no std distributions).
#pragma once

#include <array>
#include <cstdint>

namespace orrery {

class Random {
 public:
  explicit Random(std::uint64_t seed);
  std::uint64_t next();
  std::uint64_t below(std::uint64_t bound);  // uniform in [0, bound), bound > 0, unbiased
  double uniform();                          // [0, 1), 53 bits
  double normal();                           // mean 0, standard deviation 1

 private:
  std::array<std::uint64_t, 4> state_;
};

// A well-mixed 64-bit hash of a value (SplitMix64 finaliser).
std::uint64_t mix64(std::uint64_t value);

}  // namespace orrery
