// SPDX-License-Identifier: Apache-2.0
#include "search/mixed/checkpoint.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string>

namespace orrery::search {
namespace {

// What two searches have to agree on.
std::vector<InputHash> mixed_inputs(const plan::MixedPlan& base, const Options& options) {
  std::string pools = base.machine->cluster.document.dump(-1);
  std::vector<InputHash> inputs;
  for (std::size_t pool = 0; pool < base.num_pools(); ++pool) {
    inputs = plan_hashes(plan::pool_view(base, pool));
    for (const InputHash& input : inputs) {
      pools += fmt::format(" {:016x}", input.hash);
    }
  }
  std::vector<std::string> asked;
  for (const Restriction& one : options.constraints.restrictions()) {
    asked.push_back(one.kind + " " + one.text);
  }
  std::sort(asked.begin(), asked.end());
  std::string space;
  for (const std::string& one : asked) {
    space += one + "\n";
  }
  inputs.push_back({"cluster and profiles", hash_of(pools)});
  inputs.push_back({"--space", hash_of("mixed")});
  inputs.push_back({"space (--fix, --forbid, --allow, --schedule)", hash_of(space)});
  inputs.push_back({"--gap", hash_of(fmt::format("{}", options.gap_fraction))});
  inputs.push_back({"--top", hash_of(fmt::format("{}", options.top))});
  return inputs;
}

}  // namespace

MixedCheckpoint::MixedCheckpoint(const plan::MixedPlan& base, const Options& options)
    : options_(options) {
  if (!options.checkpoint.empty() || !options.resume.empty()) {
    inputs_ = mixed_inputs(base, options);
  }
}

bool MixedCheckpoint::read(MixedWorker& worker, MixedState& state) {
  if (!options_.resume.empty()) {
    std::string bytes;
    const Progress progress = read_checkpoint(options_.resume, inputs_, bytes);
    ByteReader in(bytes, options_.resume);
    if (progress == Progress::Mixed) {
      state.read(in, worker);
      in.end();
      return true;
    }
    if (progress != Progress::None) {
      in.fail("holds the state of a search of another space");
    }
  }
  if (!options_.checkpoint.empty()) {
    write_checkpoint(options_.checkpoint, inputs_, Progress::None, "");
  }
  return false;
}

void MixedCheckpoint::save(const MixedState& state) {
  if (options_.checkpoint.empty() || is_closed_) {
    return;
  }
  ByteWriter out;
  state.write(out);
  write_checkpoint(options_.checkpoint, inputs_, Progress::Mixed, out.bytes());
  saved_ = std::chrono::steady_clock::now();
}

void MixedCheckpoint::save_when_due(const MixedState& state) {
  const std::chrono::duration<double> since = std::chrono::steady_clock::now() - saved_;
  if (since.count() >= options_.checkpoint_every.value()) {
    save(state);
  }
}

void MixedCheckpoint::cut(const std::vector<MixedNode>& batch, MixedState& state) {
  for (const MixedNode& node : batch) {
    state.heap.push(node);
  }
  save(state);
  close();
  for (std::size_t index = 0; index < batch.size(); ++index) {
    state.heap.pop();  // they come first
  }
}

}  // namespace orrery::search
