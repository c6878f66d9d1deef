// SPDX-License-Identifier: Apache-2.0
#include "search/per_block/state.hpp"

#include <cmath>
#include <map>
#include <memory>
#include <utility>

#include "search/per_block/bytes.hpp"
#include "search/tree/checkpoint.hpp"

namespace orrery::search {

namespace {

constexpr std::size_t kNodeBytes = 8 + 8 + 4 + 1;  // at least
constexpr std::size_t kMostText = 4000;

// What several nodes point to: where it is met first it follows its number.
template <typename T>
class Writer {
 public:
  // Whether it is to follow.
  bool write(ByteWriter& out, const std::shared_ptr<const T>& shared) {
    if (!shared) {
      out.u64(0);
      return false;
    }
    const auto [place, is_new] = numbers_.emplace(shared.get(), numbers_.size() + 1);
    out.u64(place->second);
    return is_new;
  }

 private:
  std::map<const T*, std::uint64_t> numbers_;
};

template <typename T>
class Reader {
 public:
  using Owner = std::pair<std::uint32_t, std::uint32_t>;  // mesh and pipeline
  template <typename Read>
  std::shared_ptr<const T> read(ByteReader& in, const Owner& owner, const Read& read_one) {
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

 private:
  std::vector<std::pair<Owner, std::shared_ptr<const T>>> known_;
};

class NodeWriter {
 public:
  void write(ByteWriter& out, const PerBlockNode& node) {
    out.real(node.bound);
    out.u64(node.number);
    out.u32(node.mesh);
    out.u8(static_cast<std::uint8_t>(node.stage));
    if (node.stage == PerBlockStage::Mesh) {
      return;
    }
    out.u32(node.pipeline);
    search::write(out, node.part.ranges);
    if (shares_.write(out, node.shares)) {
      search::write(out, *node.shares);
    }
    if (paths_.write(out, node.part.paths)) {
      out.u64(node.part.paths->size());
      for (const PassPath& path : *node.part.paths) {
        search::write(out, path);
      }
    }
  }

 private:
  Writer<Shares> shares_;
  Writer<std::vector<PassPath>> paths_;
};

class NodeReader {
 public:
  NodeReader(const PerBlockSpace& space, const PerBlockState::CostsOf& costs_of)
      : space_(space), costs_of_(costs_of) {}

  PerBlockNode read(ByteReader& in) {
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
    const std::vector<Pipeline>& pipelines = pipelines_of(node.mesh);
    if (node.pipeline >= pipelines.size()) {
      in.fail("holds a node that is not of this space");
    }
    const Pipeline& pipeline = pipelines[node.pipeline];
    const auto stages = static_cast<std::size_t>(space_.meshes()[node.mesh].pp * pipeline.chunks);
    const std::size_t all = stages * (pipeline.placement.two_directions ? 2 : 1);
    node.part.ranges = read_ranges(in, stages);
    const std::pair owner(node.mesh, node.pipeline);
    node.shares =
        shares_.read(in, owner, [&] { return read_shares(in, stages, costs_of_(node.mesh)); });
    node.part.paths = paths_.read(in, owner, [&] {
      std::vector<PassPath> paths(in.count(all));
      for (PassPath& path : paths) {
        path = read_path(in, all);
      }
      return paths;
    });
    return node;
  }

 private:
  const std::vector<Pipeline>& pipelines_of(std::uint32_t mesh) {
    const auto [place, is_new] = pipelines_.try_emplace(mesh);
    if (is_new) {
      place->second = space_.pipelines(space_.meshes()[mesh]);
    }
    return place->second;
  }

  const PerBlockSpace& space_;
  const PerBlockState::CostsOf& costs_of_;
  std::map<std::uint32_t, std::vector<Pipeline>> pipelines_;
  Reader<Shares> shares_;
  Reader<std::vector<PassPath>> paths_;
};

// As documents; they have the inputs, too, which must be those of the search.
FoundPlan read_plan(ByteReader& in, const std::vector<InputHash>& inputs) {
  FoundPlan found;
  found.time = Seconds(in.real());
  const std::string text = in.text();
  found.plan = plan::read_plan(parse_json(text, "plan of a checkpoint"), "plan of a checkpoint");
  if (!std::isfinite(found.time.value()) || !(found.time > Seconds(0)) ||
      !difference(inputs, plan_hashes(found.plan)).empty()) {
    in.fail("holds a plan of another search");
  }
  return found;
}

}  // namespace

void PerBlockState::write(ByteWriter& out) const {
  out.u64(found.plans().size());
  for (const FoundPlan& plan : found.plans()) {
    out.real(plan.time.value());
    out.text(plan::to_json(plan.plan).dump(-1));
  }
  out.real(closed);
  out.u8(seeded ? 1 : 0);
  out.real(result.homogeneous.value());
  for (const std::int64_t count :
       {result.outcome.simulated, result.meshes, result.pipelines, result.drafted, result.parts}) {
    out.u64(static_cast<std::uint64_t>(count));
  }
  out.text(result.outcome.closest_overflow);
  out.u64(numbered);
  out.u64(open.size());
  NodeWriter nodes;
  for (auto left = open; !left.empty(); left.pop()) {
    nodes.write(out, left.top());
  }
}

void PerBlockState::read(ByteReader& in, const PerBlockSpace& space, const CostsOf& costs_of) {
  const std::vector<InputHash> inputs = plan_hashes(space.homogeneous().base());
  for (std::size_t left = in.count(16); left > 0; --left) {
    found.keep(read_plan(in, inputs));
  }
  closed = in.real();
  seeded = in.u8() != 0;
  result.homogeneous = Seconds(in.real());
  for (std::int64_t* count : {&result.outcome.simulated, &result.meshes, &result.pipelines,
                              &result.drafted, &result.parts}) {
    *count = static_cast<std::int64_t>(in.u64());
    if (*count < 0) {
      in.fail("holds counts that cannot be");
    }
  }
  result.outcome.closest_overflow = in.text();
  if (std::isnan(closed) || !std::isfinite(result.homogeneous.value()) ||
      result.outcome.closest_overflow.size() > kMostText) {
    in.fail("holds counts that cannot be");
  }
  numbered = in.u64();
  NodeReader nodes(space, costs_of);
  for (std::size_t left = in.count(kNodeBytes); left > 0; --left) {
    open.push(nodes.read(in));
  }
}

}  // namespace orrery::search
