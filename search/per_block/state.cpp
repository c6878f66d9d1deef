// SPDX-License-Identifier: Apache-2.0
#include "search/per_block/state.hpp"

#include <cmath>
#include <utility>

#include "search/tree/checkpoint.hpp"

namespace orrery::search {

namespace {

constexpr std::size_t kNodeBytes = 8 + 8 + 4 + 1;  // at least
constexpr std::size_t kMostText = 4000;

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
  out.u8(looked_beside ? 1 : 0);
  out.real(result.homogeneous.value());
  for (const std::int64_t count : {result.outcome.simulated, result.meshes, result.pipelines,
                                   result.drafted, result.parts, result.tried}) {
    out.u64(static_cast<std::uint64_t>(count));
  }
  out.text(result.outcome.closest_overflow);
  out.u64(numbered);
  out.u64(open.size());
  PerBlockNodeWriter nodes;
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
  looked_beside = in.u8() != 0;
  result.homogeneous = Seconds(in.real());
  for (std::int64_t* count : {&result.outcome.simulated, &result.meshes, &result.pipelines,
                              &result.drafted, &result.parts, &result.tried}) {
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
  PerBlockNodeReader nodes(space, costs_of);
  for (std::size_t left = in.count(kNodeBytes); left > 0; --left) {
    open.push(nodes.read(in));
  }
}

}  // namespace orrery::search
