// SPDX-License-Identifier: Apache-2.0
#include "search/space/known_layouts.hpp"

#include <numeric>

#include "base/error.hpp"
#include "plan/block/layout_check.hpp"
#include "plan/block_rules.hpp"

namespace orrery::search {

namespace {

template <typename Check>
std::string error_of(const Check& check) {
  try {
    check();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

}  // namespace

int data_axes(const plan::BlockPlan& layout, int dp) {
  const plan::Mesh mesh = plan::mesh_of(layout, dp);
  return (mesh.of(plan::Axis::Shard) > 1 ? 1 : 0) + (mesh.of(plan::Axis::Replica) > 1 ? 2 : 0);
}

std::int64_t samples_that_matter(std::int64_t micro_batch, int tp) {
  return std::gcd(micro_batch, std::int64_t{tp});
}

void KnownLayouts::set(const plan::BlockPlan& layout, int dp, std::int64_t micro_batch) {
  plan_.dp = dp;
  plan_.micro_batch = micro_batch;
  plan_.blocks = {{static_cast<int>(plan_.network.chain.size()), layout}};
}

std::string KnownLayouts::problem(const plan::BlockPlan& layout, int dp, std::int64_t micro_batch) {
  set(layout, dp, micro_batch);
  return error_of([&] {
    plan::check_tensor_mesh(layout, "");
    plan::check_layouts(plan_, "");
  });
}

bool KnownLayouts::exists(const plan::BlockPlan& layout, int dp, std::int64_t micro_batch) {
  return plan::nests_experts(layout) && divides(layout, dp, micro_batch) &&
         meets(layout, dp, micro_batch);
}

// Whatever the number of data-parallel ranks, each has whole micro-batches; which ranks are
// neighbours does not change how many there are.
bool KnownLayouts::divides(const plan::BlockPlan& layout, int dp, std::int64_t micro_batch) {
  const bool cuts_samples = layout.tensor_parallel != plan::TensorMesh::OneD;
  const auto [slot, is_new] = divides_.try_emplace(
      {layout.tp, layout.cp, layout.ep, layout.expert_tp,
       static_cast<std::int64_t>(layout.tensor_parallel), static_cast<std::int64_t>(layout.context),
       layout.sequence_parallel ? 1 : 0, layout.ulysses_degree,
       cuts_samples ? samples_that_matter(micro_batch, layout.tp) : 1});
  if (is_new) {
    set(layout, dp, micro_batch);
    slot->second = error_of([&] {
                     plan::check_tensor_mesh(layout, "");
                     plan::check_layout_sizes(plan_, "");
                   }).empty();
  }
  return slot->second;
}

// It matters which axes have several ranks, not how many.
bool KnownLayouts::meets(const plan::BlockPlan& layout, int dp, std::int64_t micro_batch) {
  const plan::Mesh mesh = plan::mesh_of(layout, dp);
  int axes = 0;
  for (const plan::Axis axis : plan::kAxes) {
    axes = 2 * axes + (mesh.of(axis) > 1 ? 1 : 0);
  }
  const auto [slot, is_new] = meets_.try_emplace(
      {axes, static_cast<int>(layout.tensor_parallel), static_cast<int>(layout.context),
       layout.sequence_parallel ? 1 : 0, layout.expert_tp, static_cast<int>(mesh.innermost),
       static_cast<int>(mesh.expert_before), plan::tensor_experts(layout).spread > 1 ? 1 : 0,
       plan::context_experts(layout).spread > 1 ? 1 : 0,
       plan::context_experts(layout).copies > 1 ? 1 : 0});
  if (is_new) {
    set(layout, dp, micro_batch);
    slot->second = error_of([&] { plan::check_cut_orders(plan_, ""); }).empty();
  }
  return slot->second;
}

}  // namespace orrery::search
