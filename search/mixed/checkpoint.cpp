// SPDX-License-Identifier: Apache-2.0
#include "search/mixed/checkpoint.hpp"

#include <fmt/format.h>

#include <optional>
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
  inputs.push_back({"cluster and profiles", hash_of(pools)});
  inputs.push_back({"--space", hash_of("mixed")});
  inputs.push_back(asked_hash(options.constraints));
  inputs.push_back({"--gap", hash_of(fmt::format("{}", options.gap_fraction))});
  inputs.push_back({"--top", hash_of(fmt::format("{}", options.top))});
  return inputs;
}

}  // namespace

MixedCheckpoint::MixedCheckpoint(const plan::MixedPlan& base, const Options& options)
    : where_(options.resume),
      kept_(options, Progress::Mixed, [&] { return mixed_inputs(base, options); }) {}

bool MixedCheckpoint::read(MixedWorker& worker, MixedState& state) {
  const std::optional<std::string> bytes = kept_.read();
  if (bytes) {
    ByteReader in(*bytes, where_);
    state.read(in, worker);
    in.end();
  }
  return bytes.has_value();
}

void MixedCheckpoint::save(const MixedState& state) {
  kept_.save([&](ByteWriter& out) { state.write(out); });
}

void MixedCheckpoint::save_when_due(const MixedState& state) {
  kept_.save_when_due([&](ByteWriter& out) { state.write(out); });
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
