// SPDX-License-Identifier: Apache-2.0
#include "search/per_block/checkpoint.hpp"

#include <algorithm>

namespace orrery::search {

// It keeps what neighbours are looked for of; intervals are drawn at the end.
Options first_options(Options options) {
  options.top = std::max(options.top + options.spare, static_cast<int>(FoundPlans::kFastest) - 1);
  options.interval_draws = 0;
  options.space = SpaceKind::PerBlock;
  return options;
}

std::vector<InputHash> per_block_inputs(const plan::Plan& base, const Options& first) {
  const Space space(base, first.constraints);
  const std::vector<Group> groups = space.groups();
  return groups.empty() ? std::vector<InputHash>() : input_hashes(space, groups, first);
}

PerBlockCheckpoint::PerBlockCheckpoint(const Options& first, const PerBlockClock& clock,
                                       const std::vector<InputHash>& inputs)
    : options_(first), clock_(clock), inputs_(inputs) {}

bool PerBlockCheckpoint::read(const PerBlockSpace& space, const CostsOf& costs_of,
                              PerBlockState& state) const {
  std::string bytes;
  if (options_.resume.empty() || inputs_.empty() ||
      read_checkpoint(options_.resume, inputs_, bytes) != Progress::PerBlock) {
    return false;
  }
  ByteReader in(bytes, options_.resume);
  state.read(in, space, costs_of);
  in.end();
  return true;
}

void PerBlockCheckpoint::write(const PerBlockState& state) {
  ByteWriter out;
  state.write(out);
  write_checkpoint(options_.checkpoint, inputs_, Progress::PerBlock, out.bytes());
  saved_ = std::chrono::steady_clock::now();
}

void PerBlockCheckpoint::save(const PerBlockState& state) {
  if (!options_.checkpoint.empty() && !clock_.is_cut()) {
    write(state);
  }
}

void PerBlockCheckpoint::save_when_due(const PerBlockState& state) {
  const std::chrono::duration<double> since = std::chrono::steady_clock::now() - saved_;
  if (since.count() >= options_.checkpoint_every.value()) {
    save(state);
  }
}

void PerBlockCheckpoint::save_before(const std::vector<PerBlockNode>& batch, PerBlockState& state) {
  if (options_.checkpoint.empty() || !clock_.is_cut()) {
    return;
  }
  for (const PerBlockNode& node : batch) {
    state.open.push(node);
  }
  write(state);
  for (std::size_t index = 0; index < batch.size(); ++index) {
    state.open.pop();  // they come first
  }
}

}  // namespace orrery::search
