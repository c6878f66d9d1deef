// SPDX-License-Identifier: Apache-2.0
#include "sim/caching_allocator.hpp"

#include <algorithm>
#include <utility>

#include "base/error.hpp"

namespace orrery::sim {
namespace {

constexpr std::int64_t kMiB = std::int64_t{1} << 20;
constexpr std::int64_t kMinBlock = 512;
constexpr std::int64_t kSmallSize = kMiB;  // largest request of the small pool
constexpr std::int64_t kSmallSegment = 2 * kMiB;
constexpr std::int64_t kLargeSegment = 20 * kMiB;
constexpr std::int64_t kMinLargeRequest = 10 * kMiB;  // from here on a segment of its own
constexpr std::int64_t kRoundLarge = 2 * kMiB;
// Segments never touch, so blocks of two of them never merge.
constexpr std::int64_t kSegmentStride = std::int64_t{1} << 44;

std::int64_t round_up(std::int64_t value, std::int64_t unit) {
  return (value + unit - 1) / unit * unit;
}

bool is_small(int pool) { return pool % 2 == 1; }

std::int64_t segment_size(std::int64_t size) {
  if (size <= kSmallSize) {
    return kSmallSegment;
  }
  return size < kMinLargeRequest ? kLargeSegment : round_up(size, kRoundLarge);
}

constexpr std::size_t kLongestRun = 128;  // of free blocks: 3 kB

}  // namespace

std::size_t CachingAllocator::FreeList::run_of(const FreeBlock& block) const {
  const auto found = std::lower_bound(runs_.begin(), runs_.end(), block,
                                      [](const std::vector<FreeBlock>& run,
                                         const FreeBlock& wanted) { return run.back() < wanted; });
  return static_cast<std::size_t>(found - runs_.begin());
}

void CachingAllocator::FreeList::add(const FreeBlock& block) {
  if (runs_.empty()) {
    runs_.push_back({block});
    return;
  }
  const std::size_t at = std::min(run_of(block), runs_.size() - 1);
  std::vector<FreeBlock>& run = runs_[at];
  run.insert(std::lower_bound(run.begin(), run.end(), block), block);
  if (run.size() > kLongestRun) {
    const auto middle = run.begin() + kLongestRun / 2;
    std::vector<FreeBlock> upper(middle, run.end());
    run.erase(middle, run.end());
    runs_.insert(runs_.begin() + static_cast<std::ptrdiff_t>(at) + 1, std::move(upper));
  }
}

void CachingAllocator::FreeList::erase(std::size_t run, std::vector<FreeBlock>::iterator block) {
  runs_[run].erase(block);
  if (runs_[run].empty()) {
    runs_.erase(runs_.begin() + static_cast<std::ptrdiff_t>(run));
  }
}

void CachingAllocator::FreeList::remove(const FreeBlock& block) {
  const std::size_t run = run_of(block);
  erase(run, std::lower_bound(runs_[run].begin(), runs_[run].end(), block));
}

CachingAllocator::BlockId CachingAllocator::FreeList::take_fitting(std::int64_t size) {
  const FreeBlock least{size, -1, -1};
  const std::size_t run = run_of(least);
  if (run == runs_.size()) {
    return -1;
  }
  const auto found = std::lower_bound(runs_[run].begin(), runs_[run].end(), least);
  const BlockId id = found->id;
  erase(run, found);
  return id;
}

CachingAllocator::BlockId CachingAllocator::new_block(const Block& block) {
  if (unused_.empty()) {
    blocks_.push_back(block);
    return static_cast<BlockId>(blocks_.size()) - 1;
  }
  const BlockId id = unused_.back();
  unused_.pop_back();
  blocks_[static_cast<std::size_t>(id)] = block;
  return id;
}

CachingAllocator::FreeList& CachingAllocator::free_list(int pool) {
  const auto slot = static_cast<std::size_t>(pool);
  if (free_.size() <= slot) {
    free_.resize(slot + 1);
  }
  return free_[slot];
}

void CachingAllocator::add_free(BlockId id) {
  Block& block = blocks_[static_cast<std::size_t>(id)];
  block.free = true;
  free_list(block.pool).add({block.size, block.address, id});
}

void CachingAllocator::remove_free(BlockId id) {
  Block& block = blocks_[static_cast<std::size_t>(id)];
  block.free = false;
  free_list(block.pool).remove({block.size, block.address, id});
}

CachingAllocator::BlockId CachingAllocator::find_fit(int pool, std::int64_t size) {
  const BlockId id = free_list(pool).take_fitting(size);
  if (id >= 0) {
    blocks_[static_cast<std::size_t>(id)].free = false;
  }
  return id;
}

void CachingAllocator::reserve(std::int64_t bytes) {
  if (options_.capacity > 0 && reserved_ + bytes > options_.capacity) {
    empty_cache();
    over_capacity_ = over_capacity_ || reserved_ + bytes > options_.capacity;
  }
  reserved_ += bytes;
  peak_reserved_ = std::max(peak_reserved_, reserved_);
}

CachingAllocator::BlockId CachingAllocator::new_segment(int pool, std::int64_t size) {
  const std::int64_t bytes = segment_size(size);
  reserve(bytes);
  next_address_ += kSegmentStride;
  return new_block({.size = bytes, .address = next_address_, .pool = pool});
}

// Maps pages behind the last block of the pool's one segment; a free last block becomes part of
// the new one.
CachingAllocator::BlockId CachingAllocator::grow(int pool, std::int64_t size) {
  const auto slot = static_cast<std::size_t>(pool);
  if (tails_.size() <= slot) {
    tails_.resize(slot + 1, -1);
  }
  const std::int64_t page = is_small(pool) ? kSmallSegment : kLargeSegment;
  BlockId& tail = tails_[slot];
  if (tail < 0) {
    const std::int64_t bytes = round_up(size, page);
    reserve(bytes);
    next_address_ += kSegmentStride;
    tail = new_block({.size = bytes, .address = next_address_, .pool = pool});
    return tail;
  }
  const bool reuse = blocks_[static_cast<std::size_t>(tail)].free;
  if (reuse) {
    remove_free(tail);
  }
  const std::int64_t have = reuse ? blocks_[static_cast<std::size_t>(tail)].size : 0;
  const std::int64_t bytes = round_up(size - have, page);
  reserve(bytes);
  if (reuse) {
    blocks_[static_cast<std::size_t>(tail)].size += bytes;
    return tail;
  }
  const Block& last = blocks_[static_cast<std::size_t>(tail)];
  const BlockId added = new_block(
      {.size = bytes, .address = last.address + last.size, .previous = tail, .pool = pool});
  blocks_[static_cast<std::size_t>(tail)].next = added;
  tail = added;
  return added;
}

void CachingAllocator::split(BlockId id, std::int64_t size) {
  const Block whole = blocks_[static_cast<std::size_t>(id)];
  const BlockId rest = new_block({.size = whole.size - size,
                                  .address = whole.address + size,
                                  .previous = id,
                                  .next = whole.next,
                                  .pool = whole.pool});
  if (whole.next >= 0) {
    blocks_[static_cast<std::size_t>(whole.next)].previous = rest;
  }
  Block& first = blocks_[static_cast<std::size_t>(id)];
  first.size = size;
  first.next = rest;
  const auto slot = static_cast<std::size_t>(whole.pool);
  if (slot < tails_.size() && tails_[slot] == id) {
    tails_[slot] = rest;
  }
  add_free(rest);
}

CachingAllocator::BlockId CachingAllocator::allocate(std::int64_t bytes, int stream) {
  ORRERY_CHECK(bytes >= 0 && stream >= 0, "an allocation of negative size");
  if (bytes == 0) {
    return -1;
  }
  const std::int64_t size = round_up(bytes, kMinBlock);
  const bool small = size <= kSmallSize;
  const int pool = 2 * stream + (small ? 1 : 0);
  BlockId id = find_fit(pool, size);
  if (id < 0) {
    id = options_.expandable_segments ? grow(pool, size) : new_segment(pool, size);
  }
  const std::int64_t remaining = blocks_[static_cast<std::size_t>(id)].size - size;
  const bool fine = small || options_.expandable_segments;
  if (fine ? remaining >= kMinBlock : remaining > kSmallSize) {
    split(id, size);
  }
  allocated_ += blocks_[static_cast<std::size_t>(id)].size;
  peak_allocated_ = std::max(peak_allocated_, allocated_);
  return id;
}

// The block after `id` becomes part of it.
void CachingAllocator::absorb_next(BlockId id) {
  Block& block = blocks_[static_cast<std::size_t>(id)];
  const BlockId next = block.next;
  const Block gone = blocks_[static_cast<std::size_t>(next)];
  block.size += gone.size;
  block.next = gone.next;
  if (gone.next >= 0) {
    blocks_[static_cast<std::size_t>(gone.next)].previous = id;
  }
  const auto slot = static_cast<std::size_t>(block.pool);
  if (slot < tails_.size() && tails_[slot] == next) {
    tails_[slot] = id;
  }
  unused_.push_back(next);
}

void CachingAllocator::release(BlockId id) {
  if (id < 0) {
    return;
  }
  const auto at = [this](BlockId block) -> Block& {
    return blocks_[static_cast<std::size_t>(block)];
  };
  ORRERY_CHECK(!at(id).free, "a block is released twice");
  allocated_ -= at(id).size;
  if (at(id).next >= 0 && at(at(id).next).free) {
    remove_free(at(id).next);
    absorb_next(id);
  }
  const BlockId previous = at(id).previous;
  if (previous >= 0 && at(previous).free) {
    remove_free(previous);
    absorb_next(previous);
    id = previous;
  }
  add_free(id);
}

// Gives back segments without a live block, and the free end of expandable ones.
void CachingAllocator::empty_cache() {
  std::vector<BlockId> whole;
  const auto look_at = [&](const FreeBlock& entry) {
    const Block& block = blocks_[static_cast<std::size_t>(entry.id)];
    if (block.next < 0 && (options_.expandable_segments || block.previous < 0)) {
      whole.push_back(entry.id);
    }
  };
  for (const FreeList& list : free_) {
    for (const std::vector<FreeBlock>& run : list.runs()) {
      std::for_each(run.begin(), run.end(), look_at);
    }
  }
  for (const BlockId id : whole) {
    remove_free(id);
    const Block block = blocks_[static_cast<std::size_t>(id)];
    reserved_ -= block.size;
    if (block.previous >= 0) {
      blocks_[static_cast<std::size_t>(block.previous)].next = -1;
    }
    const auto slot = static_cast<std::size_t>(block.pool);
    if (slot < tails_.size() && tails_[slot] == id) {
      tails_[slot] = block.previous;
    }
    unused_.push_back(id);
  }
}

}  // namespace orrery::sim
