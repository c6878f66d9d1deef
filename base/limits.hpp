// SPDX-License-Identifier: Apache-2.0
// The one table of limits on what is read and built; everything beyond is bad input.
#pragma once

#include <cstdint>

namespace orrery::limits {

inline constexpr std::int64_t kMaxConfigFileBytes = 16LL << 20;
inline constexpr std::int64_t kMaxTableFileBytes = 1LL << 30;  // CSV and log files
inline constexpr int kMaxJsonDepth = 64;
inline constexpr std::int64_t kMaxStringBytes = 64LL << 10;
inline constexpr std::int64_t kMaxArrayLength = 1'000'000;
inline constexpr std::int64_t kMaxObjectMembers = 16'384;  // members are found by linear search
inline constexpr std::int64_t kMaxLineBytes = 64LL << 10;
inline constexpr int kMaxCsvColumns = 256;
inline constexpr std::int64_t kMaxCsvCells = 16'000'000;
inline constexpr int kMaxErrorCharacters = 4000;

inline constexpr double kMaxQuantity = 1e18;  // rates, sizes and times in base units
inline constexpr std::int64_t kMaxLayers = 16'384;
inline constexpr std::int64_t kMaxExperts = 65'536;
inline constexpr double kMaxImbalance = 1000;  // of routed tokens, most over mean
inline constexpr std::int64_t kMaxHeads = 65'536;
inline constexpr std::int64_t kMaxHidden = 1LL << 20;
inline constexpr std::int64_t kMaxFfn = 1LL << 22;
inline constexpr std::int64_t kMaxVocab = 1LL << 31;
inline constexpr std::int64_t kMaxSequence = 1LL << 24;
inline constexpr std::int64_t kMaxBatch = 1LL << 24;
inline constexpr std::int64_t kMaxDevices = 1LL << 20;
inline constexpr std::int64_t kMaxNodesOfCluster = 1LL << 20;
inline constexpr std::int64_t kMaxLinks = 1LL << 24;
inline constexpr std::int64_t kMaxPasses = 50'000'000;  // stages x micro-batches x chunks x kinds
inline constexpr std::int64_t kMaxPlannedPasses = 1'000'000;  // of zero-bubble orders
inline constexpr std::int64_t kMaxDrawnPasses = 1'000'000;    // of plans beside their schedule
inline constexpr std::int64_t kMaxSliceTimes = 1LL << 23;  // quanta^2 x sequences of a micro-batch
inline constexpr std::int64_t kMaxHostListNames = 1'000'000;
inline constexpr int kMaxThreads = 1024;

}  // namespace orrery::limits
