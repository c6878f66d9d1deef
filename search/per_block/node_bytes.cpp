// SPDX-License-Identifier: Apache-2.0
#include "search/per_block/node_bytes.hpp"

#include <cmath>

namespace orrery::search {

template <typename T>
void PerBlockNodeWriter::Once<T>::write(ByteWriter& out, const std::shared_ptr<const T>& shared) {
  if (!shared) {
    out.u64(0);
    return;
  }
  const auto [place, is_new] = numbers_.emplace(shared.get(), numbers_.size() + 1);
  out.u64(place->second);
  if (is_new) {
    search::write(out, *shared);
  }
}

void PerBlockNodeWriter::write(ByteWriter& out, const PerBlockNode& node) {
  out.real(node.bound);
  out.u64(node.number);
  out.u32(node.mesh);
  out.u8(static_cast<std::uint8_t>(node.stage));
  if (node.stage == PerBlockStage::Mesh) {
    return;
  }
  out.u32(node.pipeline);
  out.u64(static_cast<std::uint64_t>(node.tried));
  search::write(out, node.part.ranges);
  shares_.write(out, node.shares);
  paths_.write(out, node.part.paths);
}

template <typename T>
template <typename Read>
std::shared_ptr<const T> PerBlockNodeReader::Once<T>::read(ByteReader& in, const Owner& owner,
                                                           const Read& read_one) {
  const std::uint64_t number = in.u64();
  if (number == 0) {
    return nullptr;
  }
  if (number > known_.size() + 1) {
    in.fail("refers to what it does not hold");
  }
  if (number == known_.size() + 1) {
    known_.push_back({owner, std::make_shared<const T>(read_one())});
  }
  const auto& [whose, shared] = known_[number - 1];
  if (whose != owner) {
    in.fail("holds a node with another one's bound");
  }
  return shared;
}

PerBlockNode PerBlockNodeReader::read(ByteReader& in) {
  PerBlockNode node;
  node.bound = in.real();
  node.number = in.u64();
  node.mesh = in.u32();
  const std::uint8_t stage = in.u8();
  node.stage = static_cast<PerBlockStage>(stage);
  if (stage > static_cast<std::uint8_t>(PerBlockStage::Done) || std::isnan(node.bound) ||
      node.mesh >= space_.meshes().size()) {
    in.fail("holds a node that is not of this space");
  }
  if (node.stage == PerBlockStage::Mesh) {
    return node;
  }
  node.pipeline = in.u32();
  node.tried = static_cast<std::int64_t>(in.u64());
  const std::vector<Pipeline>& pipelines = pipelines_of(node.mesh);
  if (node.pipeline >= pipelines.size() || node.tried < 0) {
    in.fail("holds a node that is not of this space");
  }
  const Pipeline& pipeline = pipelines[node.pipeline];
  const std::size_t stages = virtual_stages(space_.meshes()[node.mesh], pipeline);
  const std::size_t all = stages * (pipeline.placement.two_directions ? 2 : 1);
  node.part.ranges = read_ranges(in, stages);
  const Owner owner(node.mesh, node.pipeline);
  node.shares =
      shares_.read(in, owner, [&] { return read_shares(in, stages, costs_of_(node.mesh)); });
  node.part.paths = paths_.read(in, owner, [&] { return read_paths(in, all); });
  return node;
}

const std::vector<Pipeline>& PerBlockNodeReader::pipelines_of(std::uint32_t mesh) {
  const auto [place, is_new] = pipelines_.try_emplace(mesh);
  if (is_new) {
    const StageMesh& shape = space_.meshes()[mesh];
    place->second =
        admitted_ == Pipelines::All ? space_.all_pipelines(shape) : space_.pipelines(shape);
  }
  return place->second;
}

}  // namespace orrery::search
