// SPDX-License-Identifier: Apache-2.0
#include "sim/orders/list_advice.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "sim/orders/document_lists.hpp"
#include "sim/pipeline/pass_inputs.hpp"
#include "sim/pipeline/pipeline.hpp"
#include "sim/pipeline/share_costs.hpp"

namespace orrery::sim {
namespace {

constexpr const char* kGeneral = "list what is waited for earlier";
constexpr std::size_t kMostTried = 64;  // moves, one instead of another
constexpr int kMostMoves = 4;           // one after another
// Passes of all lists that are tried either way: about two seconds.
constexpr std::int64_t kMostPasses = 20'000'000;

// Passes joined with each other: [begin, end) of a device's list.
struct Block {
  std::size_t begin = 0;
  std::size_t end = 0;
};

// A block of a device moves to before another one, or after it.
struct Move {
  std::size_t device = 0;
  Block block;
  Block other;
  bool before = true;
};

// Lists as far as they run.
class Runner {
 public:
  explicit Runner(const PipelineOrder& order)
      : order_(order),
        inputs_(order),
        units_(static_cast<std::size_t>(order.micro_batches)),
        position_(order.passes.size(), 0) {
    const std::size_t passes = static_cast<std::size_t>(order.num_virtual_stages) * units_;
    done_.fill(std::vector<bool>(passes, false));
    listed_.fill(std::vector<bool>(passes, false));
    for (const auto& list : order.passes) {
      for (const Pass& pass : list) {
        mark(listed_, pass);
      }
    }
    for (bool progress = true; progress;) {
      progress = false;
      for (std::size_t d = 0; d < order.passes.size(); ++d) {
        while (run_block(d)) {
          progress = true;
        }
      }
    }
  }

  std::size_t passes_done() const {
    std::size_t done = 0;
    for (const std::size_t position : position_) {
      done += position;
    }
    return done;
  }

  // Device and place of every pass of a stuck block that is joined with the next.
  std::vector<std::pair<std::size_t, std::size_t>> joined_and_stuck() const {
    std::vector<std::pair<std::size_t, std::size_t>> joined;
    for (std::size_t d = 0; d < position_.size(); ++d) {
      for (std::size_t k = position_[d]; k < order_.passes[d].size() && order_.passes[d][k].joined;
           ++k) {
        joined.emplace_back(d, k);
      }
    }
    return joined;
  }

  // What would let a stuck device go on: what it waits for, earlier, or what stands in front of
  // that, later.
  std::vector<Move> moves() const {
    std::vector<Move> moves;
    for (std::size_t d = 0; d < position_.size() && moves.size() < kMostTried; ++d) {
      if (position_[d] == order_.passes[d].size()) {
        continue;
      }
      const Block block = block_at(d, position_[d]);
      for (std::size_t k = block.begin; k < block.end; ++k) {
        const auto missing = missing_input(order_.passes[d][k]);
        if (const auto move = missing ? earlier(*missing) : std::nullopt) {
          moves.push_back(*move);
          moves.push_back({move->device, move->other, move->block, false});
        }
      }
    }
    return moves;
  }

 private:
  using Lanes = std::array<std::vector<bool>, kNumLanes>;

  std::size_t index(std::size_t stage, std::size_t unit) const { return stage * units_ + unit; }
  void mark(Lanes& lanes, const Pass& pass) const {
    lanes[static_cast<std::size_t>(lane_of(pass.kind))]
         [index(pass.virtual_stage, pass.micro_batch)] = true;
    if (pass.kind == PassKind::Backward) {
      lanes[static_cast<std::size_t>(Lane::WeightGrad)]
           [index(pass.virtual_stage, pass.micro_batch)] = true;
    }
  }

  Block block_at(std::size_t device, std::size_t at) const {
    const std::vector<Pass>& list = order_.passes[device];
    Block block{at, at};
    while (block.begin > 0 && list[block.begin - 1].joined) {
      --block.begin;
    }
    while (block.end + 1 < list.size() && list[block.end].joined) {
      ++block.end;
    }
    ++block.end;
    return block;
  }

  // Also of its own device, unlike PassInputs.
  std::optional<PassInput> missing_input(const Pass& pass) const {
    std::optional<PassInput> missing;
    const auto need = [&](const PassInput& input) {
      const auto lane = static_cast<std::size_t>(input.lane);
      if (!missing && listed_[lane][index(input.virtual_stage, input.unit)] &&
          !done_[lane][index(input.virtual_stage, input.unit)]) {
        missing = input;
      }
    };
    const std::uint16_t stage = pass.virtual_stage;
    const std::uint32_t unit = pass.micro_batch;
    const Lane lane = lane_of(pass.kind);
    const auto slices = static_cast<std::uint32_t>(order_.slices);
    if (lane == Lane::WeightGrad) {
      need({Lane::Gradient, stage, unit, kNeighbour});
    }
    if (lane == Lane::Gradient || lane == Lane::Recompute) {
      need({Lane::Forward, stage, unit, kNeighbour});
    }
    if (lane == Lane::Gradient) {
      need({Lane::Recompute, stage, unit, kNeighbour});
      if (unit % slices + 1 < slices) {
        need({Lane::Gradient, stage, unit + 1, kNeighbour});
      }
    }
    if (lane == Lane::Forward && unit % slices > 0) {
      need({Lane::Forward, stage, unit - 1, kNeighbour});
    }
    inputs_.for_each(pass, need);
    return missing;
  }

  std::optional<Move> earlier(const PassInput& input) const {
    const std::size_t device = device_of(order_, input.lane, input.virtual_stage);
    const std::vector<Pass>& list = order_.passes[device];
    for (std::size_t k = position_[device]; k < list.size(); ++k) {
      const Lane lane = lane_of(list[k].kind);
      const bool whole = list[k].kind == PassKind::Backward && input.lane == Lane::WeightGrad;
      if (list[k].virtual_stage == input.virtual_stage && list[k].micro_batch == input.unit &&
          (lane == input.lane || whole)) {
        const Block block = block_at(device, k);
        const Block head = block_at(device, position_[device]);
        return block.begin > head.begin ? std::optional(Move{device, block, head}) : std::nullopt;
      }
    }
    return std::nullopt;
  }

  bool run_block(std::size_t device) {
    const std::vector<Pass>& list = order_.passes[device];
    if (position_[device] == list.size()) {
      return false;
    }
    const Block block = block_at(device, position_[device]);
    for (std::size_t k = block.begin; k < block.end; ++k) {
      if (missing_input(list[k])) {
        return false;
      }
    }
    for (; position_[device] < block.end; ++position_[device]) {
      mark(done_, list[position_[device]]);
    }
    return true;
  }

  const PipelineOrder& order_;
  PassInputs inputs_;
  std::size_t units_;
  std::vector<std::size_t> position_;
  Lanes done_;
  Lanes listed_;
};

void make(const Move& move, PipelineOrder& order) {
  const auto list = order.passes[move.device].begin();
  const auto at = [&](std::size_t k) { return list + static_cast<std::ptrdiff_t>(k); };
  if (move.before) {  // the other one is in front of it
    std::rotate(at(move.other.begin), at(move.block.begin), at(move.block.end));
  } else {
    std::rotate(at(move.block.begin), at(move.block.end), at(move.other.end));
  }
}

std::string pass_text(const PipelineOrder& order, const Pass& pass) {
  const std::vector<Chain> chains = chains_of(order);
  std::size_t of = 0;
  while (pass.virtual_stage >= chains[of].first + chains[of].stages) {
    ++of;
  }
  std::string text =
      fmt::format("{} of stage {}", pass_name(pass.kind), pass.virtual_stage - chains[of].first);
  text += chains.size() > 1 ? fmt::format(" of direction {}", of) : "";
  if (pass.kind == PassKind::Optimizer) {
    return text + fmt::format(", update {}", pass.micro_batch);
  }
  const int number = PassInputs(order).number_of(pass);
  text += fmt::format(", micro-batch {}", number / order.slices);
  return order.slices == 1 ? text : text + fmt::format(", slice {}", number % order.slices);
}

std::string move_text(const PipelineOrder& order, const Move& move) {
  const std::vector<Pass>& list = order.passes[move.device];
  const Pass& other = list[move.before ? move.other.begin : move.other.end - 1];
  const bool several = move.block.end - move.block.begin > 1;
  return fmt::format("on device {} list {}{} {} {}", move.device,
                     pass_text(order, list[move.block.begin]),
                     several ? " with all that it is joined with" : "",
                     move.before ? "before" : "after", pass_text(order, other));
}

// The passes of blocks that are stuck, of which one alone need not be joined with the next.
std::string joined_advice(const PipelineOrder& order, std::int64_t left) {
  for (const auto& [device, at] : Runner(order).joined_and_stuck()) {
    PipelineOrder tried = order;
    tried.passes[device][at].joined = false;
    if (left-- > 0 && check_order(tried, tried.micro_batches).empty()) {
      return fmt::format("leave \"joined\" of {} out", pass_text(order, order.passes[device][at]));
    }
  }
  return "";
}

// Moves of passes, one after another, after which the lists run.
std::string moves_advice(const PipelineOrder& order, std::int64_t left) {
  PipelineOrder moved = order;
  std::string text;
  for (int k = 0; k < kMostMoves; ++k) {
    std::optional<Move> best;
    std::size_t most = 0;
    for (const Move& move : Runner(moved).moves()) {
      if (left-- <= 0) {
        return "";
      }
      PipelineOrder tried = moved;
      make(move, tried);
      const std::size_t done = Runner(tried).passes_done();
      if (!best || done > most) {
        most = done;
        best = move;
      }
    }
    if (!best) {
      break;
    }
    text += (text.empty() ? "" : "; then ") + move_text(moved, *best);
    make(*best, moved);
    if (check_order(moved, moved.micro_batches).empty()) {
      return text;
    }
  }
  return "";
}

}  // namespace

std::string list_advice(const PipelineOrder& order) {
  const std::int64_t lists = kMostPasses / std::max<std::int64_t>(num_passes(order), 1);
  std::string advice = moves_advice(order, lists);
  if (advice.empty()) {
    advice = joined_advice(order, lists);
  }
  return advice.empty() ? kGeneral : advice;
}

}  // namespace orrery::sim
