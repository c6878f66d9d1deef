// SPDX-License-Identifier: Apache-2.0
// The words and formulas of a row's `flops_convention`: what its source counts as FLOPs.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "studies/rows/measurement.hpp"

namespace orrery::studies {

enum class CountedBase : std::uint8_t {
  Narayanan,   // the formula of 2021
  Parameters,  // 6 of each, for each token
  Network,     // every product of the network
};

// Attention's products: of every pair of positions, of half as a causal mask leaves, of none.
enum class CountedAttention : std::uint8_t { Full, Half, None };

// The forward that is run again: not counted, counted of everything, counted where the run does it.
enum class CountedRecompute : std::uint8_t { None, All, AsRun };

struct FlopCounting {
  CountedBase base = CountedBase::Network;
  CountedAttention attention = CountedAttention::Full;
  CountedRecompute recompute = CountedRecompute::None;
  bool all_experts = false;  // parameters of all of them, not of those that a token uses
};

// By the cell, else by the metric (`mfu`, `hfu`); nothing where neither says how.
std::optional<FlopCounting> flop_counting(const Measurement& row);

// What the cell says and the count leaves out, a line each, of rows that are counted.
std::vector<std::string> unread_counting(const Measurement& row);

}  // namespace orrery::studies
