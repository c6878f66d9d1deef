// SPDX-License-Identifier: Apache-2.0
// Lists as far as they run, some of their passes out of turn: what is stuck waits in a circle.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "sim/pipeline/pass_inputs.hpp"
#include "sim/schedule.hpp"

namespace orrery::sim {

// Passes of a device that are joined with each other: [begin, end) of its list.
struct Block {
  std::size_t device = 0;
  std::size_t begin = 0;
  std::size_t end = 0;
  bool operator==(const Block&) const = default;
};

// A block that runs as soon as it can, if later, or else where nothing else can.
struct Move {
  Block block;
  bool later = false;
};

Block block_at(const PipelineOrder& order, std::size_t device, std::size_t at);

// O(passes) for few moves, unless devices wait by turns. Keeps references.
class ListRun {
 public:
  // `left`: so many more passes may be looked at; at none it ends where it is.
  ListRun(const PipelineOrder& order, const std::vector<Move>& moves, std::int64_t& left);

  bool is_complete() const { return to_run_ == 0; }
  // By device, as they ran.
  const std::vector<std::vector<Block>>& ran() const { return ran_; }

  // Stuck blocks wait for each other in a circle. Where one does only because of its place in a
  // list, it or the one in front moves: lists that run have made one of these moves at least, or
  // have other blocks. Of lists that came to an end.
  struct Circle {
    std::vector<Block> blocks;
    std::vector<Move> moves;
  };
  Circle circle() const;

 private:
  using Positions = std::vector<std::uint32_t>;

  std::size_t index(std::size_t stage, std::size_t unit) const { return stage * units_ + unit; }
  template <typename Visit>
  void for_each_result(const Pass& pass, Visit visit) const;
  bool may_look(std::size_t passes);
  // How many passes there are to the end of what gives it, in its list; 0: it is not listed.
  std::size_t behind_of(const PassInput& result) const {
    return listed_[static_cast<std::size_t>(result.lane)][index(result.virtual_stage, result.unit)];
  }
  bool is_moved(const Block& block) const;
  // Whether a result stands in a block in front of `end`, a position of the block's list.
  bool is_within(const PassInput& result, const Block& block, std::size_t end) const;
  std::optional<PassInput> missing_input(const Block& block) const;
  std::optional<PassInput> missing_input(const Block& block, std::size_t at) const;
  Block first_stuck() const;
  Block block_with(const PassInput& result) const;
  bool run_next(std::size_t device);
  bool run_moved(bool later);
  bool run(const Block& block);

  const PipelineOrder& order_;
  const std::vector<Move>& moves_;
  std::int64_t& left_;
  PassInputs inputs_;
  std::size_t units_;
  std::size_t to_run_ = 0;             // passes
  std::vector<std::size_t> position_;  // by device, in its list
  std::vector<char> made_;             // by move: whether its block has run
  std::vector<std::vector<Block>> ran_;
  std::array<std::vector<bool>, kNumLanes> done_;
  std::array<Positions, kNumLanes> listed_;  // as behind_of says
};

}  // namespace orrery::sim
