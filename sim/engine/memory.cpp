// SPDX-License-Identifier: Apache-2.0
// The memory ledger: buffers become allocations and releases in order of time; a prefix sum over
// each pool gives its peak and the first instant beyond its capacity.
#include "sim/engine/memory.hpp"

#include <algorithm>
#include <cstddef>
#include <utility>

namespace orrery::sim {
namespace {

constexpr std::size_t kMaxOwners = 16;
constexpr std::size_t kNumCategories = static_cast<std::size_t>(MemoryCategory::Other) + 1;

std::vector<BufferId> largest(const Program& program, std::vector<BufferId> buffers) {
  const auto before = [&](BufferId a, BufferId b) {
    const ByteCount size_a = program.buffers()[a].bytes;
    const ByteCount size_b = program.buffers()[b].bytes;
    return size_a != size_b ? size_a > size_b : a < b;
  };
  const std::size_t count = std::min(buffers.size(), kMaxOwners);
  std::partial_sort(buffers.begin(), buffers.begin() + static_cast<std::ptrdiff_t>(count),
                    buffers.end(), before);
  buffers.resize(count);
  return buffers;
}

bool occupies(const Program& program, BufferId buffer, const BufferLife& life, SimTime time) {
  return program.buffers()[buffer].bytes.value() > 0 && life.holds(time);
}

// The level of a pool counts once all changes of an instant are in.
void find_peaks(const Program& program, const std::vector<LedgerEntry>& ledger,
                std::vector<PoolPeak>& peaks, std::optional<OutOfMemory>& out_of_memory) {
  std::vector<ByteCount> live(peaks.size());
  std::vector<PoolId> touched;
  for (std::size_t i = 0; i < ledger.size();) {
    const SimTime now = ledger[i].time;
    touched.clear();
    for (; i < ledger.size() && ledger[i].time == now; ++i) {
      const PoolId pool = program.buffers()[ledger[i].buffer].pool;
      live[pool] += ByteCount(ledger[i].delta);
      touched.push_back(pool);
    }
    std::sort(touched.begin(), touched.end());
    for (const PoolId pool : touched) {
      if (live[pool] > peaks[pool].bytes) {
        peaks[pool].bytes = live[pool];
        peaks[pool].at = now;
      }
      if (!out_of_memory && live[pool] > program.pools()[pool].capacity) {
        out_of_memory = OutOfMemory{pool, now, live[pool], {}};
      }
    }
  }
}

void name_owners(const Program& program, const std::vector<BufferLife>& lives,
                 std::vector<PoolPeak>& peaks) {
  std::vector<std::vector<BufferId>> owners(peaks.size());
  for (BufferId buffer = 0; buffer < lives.size(); ++buffer) {
    const Buffer& what = program.buffers()[buffer];
    PoolPeak& peak = peaks[what.pool];
    if (occupies(program, buffer, lives[buffer], peak.at)) {
      owners[what.pool].push_back(buffer);
      peak.by_category[static_cast<std::size_t>(what.category)] += what.bytes;
    }
  }
  for (PoolId pool = 0; pool < peaks.size(); ++pool) {
    peaks[pool].owners = largest(program, std::move(owners[pool]));
  }
}

}  // namespace

std::vector<BufferLife> buffer_lives(const Program& program, const std::vector<SimTime>& start,
                                     const std::vector<SimTime>& end) {
  std::vector<BufferLife> lives;
  lives.reserve(program.buffers().size());
  for (BufferId buffer = 0; buffer < program.buffers().size(); ++buffer) {
    const NodeId producer = program.buffers()[buffer].producer;
    BufferLife life{producer == kNone ? SimTime{0} : start[producer], SimTime::max()};
    if (life.from.ps < 0) {  // the producer never ran
      life = {SimTime{0}, SimTime{0}};
    } else if (!program.consumers(buffer).empty()) {
      SimTime last{0};
      for (const NodeId consumer : program.consumers(buffer)) {
        last = std::max(last, end[consumer].ps < 0 ? SimTime::max() : end[consumer]);
      }
      life.until = std::max(last, life.from);
    }
    lives.push_back(life);
  }
  return lives;
}

std::vector<LedgerEntry> memory_ledger(const Program& program,
                                       const std::vector<BufferLife>& lives) {
  std::vector<LedgerEntry> ledger;
  ledger.reserve(2 * lives.size());
  for (BufferId buffer = 0; buffer < lives.size(); ++buffer) {
    const BufferLife& life = lives[buffer];
    const std::int64_t bytes = program.buffers()[buffer].bytes.value();
    if (life.from == life.until || bytes == 0) {
      continue;
    }
    ledger.push_back({life.from, buffer, bytes});
    if (life.until != SimTime::max()) {
      ledger.push_back({life.until, buffer, -bytes});
    }
  }
  std::sort(ledger.begin(), ledger.end(), [](const LedgerEntry& a, const LedgerEntry& b) {
    if (a.time != b.time) {
      return a.time < b.time;
    }
    const bool a_releases = a.delta < 0;
    const bool b_releases = b.delta < 0;
    return a_releases != b_releases ? a_releases : a.buffer < b.buffer;
  });
  return ledger;
}

std::vector<PoolPeak> memory_peaks(const Program& program, const std::vector<SimTime>& start,
                                   const std::vector<SimTime>& end,
                                   std::optional<OutOfMemory>& out_of_memory) {
  std::vector<PoolPeak> peaks(program.pools().size());
  for (PoolPeak& peak : peaks) {
    peak.by_category.assign(kNumCategories, ByteCount(0));
  }
  out_of_memory.reset();
  if (program.buffers().empty()) {
    return peaks;
  }
  const std::vector<BufferLife> lives = buffer_lives(program, start, end);
  find_peaks(program, memory_ledger(program, lives), peaks, out_of_memory);
  name_owners(program, lives, peaks);
  if (out_of_memory) {
    std::vector<BufferId> owners;
    for (BufferId buffer = 0; buffer < lives.size(); ++buffer) {
      if (program.buffers()[buffer].pool == out_of_memory->pool &&
          occupies(program, buffer, lives[buffer], out_of_memory->at)) {
        owners.push_back(buffer);
      }
    }
    out_of_memory->owners = largest(program, std::move(owners));
  }
  return peaks;
}

}  // namespace orrery::sim
