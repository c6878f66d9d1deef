// SPDX-License-Identifier: Apache-2.0
// Replay of PyTorch's caching allocator for device memory on a sequence of allocations and
// releases, so that allocated and reserved peaks both come out. The rules are those of
// pytorch/pytorch c10/cuda/CUDACachingAllocator.cpp: sizes rounded up to 512 bytes; a small pool
// (up to 1 MiB, segments of 2 MiB) and a large one (segments of 20 MiB below 10 MiB, else the size
// rounded up to 2 MiB); best fit within pool and stream; a block is split when at least 512 bytes
// (small pool) or more than 1 MiB (large pool) remain; free neighbours of a segment merge; when
// the device is full, segments without a live block are given back and the request is tried again.
// With expandable segments each pool and stream is one segment that grows at its end by 2 MiB
// (small) or 20 MiB (large) pages. Deterministic; O(log n) comparisons for n free blocks.
#pragma once

#include <compare>
#include <cstdint>
#include <vector>

namespace orrery::sim {

struct AllocatorOptions {
  bool expandable_segments = false;
  std::int64_t capacity = 0;  // bytes the device can give; 0: no limit
};

class CachingAllocator {
 public:
  using BlockId = std::int32_t;

  explicit CachingAllocator(const AllocatorOptions& options = {}) : options_(options) {}

  // Zero bytes take no memory (id -1). Past the capacity the request is still served, and
  // `over_capacity` says so.
  BlockId allocate(std::int64_t bytes, int stream = 0);
  void release(BlockId block);
  void empty_cache();

  std::int64_t allocated() const { return allocated_; }
  std::int64_t reserved() const { return reserved_; }
  std::int64_t peak_allocated() const { return peak_allocated_; }
  std::int64_t peak_reserved() const { return peak_reserved_; }
  bool over_capacity() const { return over_capacity_; }

 private:
  struct Block {
    std::int64_t size = 0;
    std::int64_t address = 0;
    BlockId previous = -1;  // neighbours within the segment
    BlockId next = -1;
    int pool = 0;  // stream x {large, small}
    bool free = false;
  };
  struct FreeBlock {
    std::int64_t size = 0;
    std::int64_t address = 0;
    BlockId id = -1;
    auto operator<=>(const FreeBlock&) const = default;
  };
  // Sorted, in runs of bounded length: few blocks are free at a time, so that a flat array beats a
  // tree, but where thousands are, not all of them move when one comes or goes.
  class FreeList {
   public:
    void add(const FreeBlock& block);
    void remove(const FreeBlock& block);
    BlockId take_fitting(std::int64_t size);  // the least that is large enough; -1: none
    const std::vector<std::vector<FreeBlock>>& runs() const { return runs_; }

   private:
    // The first run that ends no earlier.
    std::size_t run_of(const FreeBlock& block) const;
    void erase(std::size_t run, std::vector<FreeBlock>::iterator block);

    std::vector<std::vector<FreeBlock>> runs_;  // none is empty
  };

  BlockId new_block(const Block& block);
  FreeList& free_list(int pool);
  void add_free(BlockId id);
  void remove_free(BlockId id);
  BlockId find_fit(int pool, std::int64_t size);
  BlockId new_segment(int pool, std::int64_t size);
  BlockId grow(int pool, std::int64_t size);
  void reserve(std::int64_t bytes);
  void split(BlockId id, std::int64_t size);
  void absorb_next(BlockId id);

  AllocatorOptions options_;
  std::vector<Block> blocks_;
  std::vector<BlockId> unused_;
  std::vector<BlockId> tails_;  // last block of the expandable segment of each pool
  std::vector<FreeList> free_;  // of each pool
  std::int64_t next_address_ = 0;
  std::int64_t allocated_ = 0;
  std::int64_t reserved_ = 0;
  std::int64_t peak_allocated_ = 0;
  std::int64_t peak_reserved_ = 0;
  bool over_capacity_ = false;
};

}  // namespace orrery::sim
