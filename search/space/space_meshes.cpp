// SPDX-License-Identifier: Apache-2.0
// Meshes of tensor ranks and mixes of context ranks that a group of degrees allows.
#include <algorithm>

#include "base/math.hpp"
#include "plan/block_rules.hpp"
#include "search/space/layout_fields.hpp"
#include "search/space/space.hpp"

namespace orrery::search {

std::vector<Member> Space::meshes(const Group& group) const {
  using plan::TensorMesh;
  std::vector<Member> meshes;
  const bool fixed = constraints_.is_fixed("tensor_parallel");
  for (const TensorMesh mesh :
       {TensorMesh::OneD, TensorMesh::TwoD, TensorMesh::TwoAndHalfD, TensorMesh::ThreeD}) {
    const bool possible = mesh == TensorMesh::OneD
                              ? splits_evenly(group.tp, group.expert_tp)
                              : group.tp > 1 && (fixed || constraints_.allows_meshes());
    // Alone, a rank is a mesh of any kind.
    const bool wanted = constraints_.admits("tensor_parallel", plan::to_text(mesh)) ||
                        (group.tp == 1 && mesh == TensorMesh::OneD);
    if (possible && wanted) {
      Member member;
      member.mesh = mesh;
      add_orders(group, member, meshes);
    }
  }
  return with_expert_orders(group, meshes);
}

// One for each inner axis that links tell apart, or that is asked for.
void Space::add_orders(const Group& group, Member mesh, std::vector<Member>& meshes) const {
  using plan::TensorAxis;
  if (mesh.mesh == plan::TensorMesh::OneD) {
    meshes.push_back(mesh);
    return;
  }
  plan::BlockPlan layout = layout_of(group);
  layout.tensor_parallel = mesh.mesh;
  const plan::TensorFactors factors = plan::tensor_factors(layout);
  const bool matters = plan::tensor_order_matters(layout, base_.cluster.node);
  bool found = false;
  for (const TensorAxis axis : {TensorAxis::Columns, TensorAxis::Rows, TensorAxis::Depth}) {
    const bool possible = factors.of(axis) > 1 || axis == TensorAxis::Columns;
    if (possible && (matters || !found) && constraints_.admits("tp_inner", plan::to_text(axis))) {
      mesh.tp_inner = axis;
      meshes.push_back(mesh);
      found = true;
    }
  }
}

// Each with every place of the experts' ranks that is admitted and that links tell apart.
std::vector<Member> Space::with_expert_orders(const Group& group,
                                              const std::vector<Member>& meshes) const {
  using plan::ExpertsInside;
  plan::BlockPlan layout = layout_of(group);
  if (!plan::expert_order_matters(layout, base_.cluster.node)) {
    return meshes;
  }
  std::vector<Member> placed;
  for (Member mesh : meshes) {
    std::vector<int> known;
    for (const ExpertsInside inside :
         {ExpertsInside::Data, ExpertsInside::Context, ExpertsInside::Tensor}) {
      layout.ep_inside = inside;
      const int outside = plan::ranks_outside_experts(layout);
      const bool is_new = std::find(known.begin(), known.end(), outside) == known.end();
      if (is_new && constraints_.admits("ep_inside", plan::to_text(inside))) {
        mesh.ep_inside = outside > 1 ? inside : ExpertsInside::Data;
        placed.push_back(mesh);
        known.push_back(outside);
      }
    }
  }
  return placed;
}

std::vector<int> Space::mix_degrees(const Group& group) const {
  std::vector<int> degrees;
  for (const std::int64_t degree : divisors(group.cp)) {
    if (degree > 1 && degree < group.cp && constraints_.admits("ulysses_degree", degree)) {
      degrees.push_back(static_cast<int>(degree));
    }
  }
  return degrees;
}

std::string Space::mesh_problem(const Group& group) const {
  std::string first;
  if (!checks_layouts_ || families(group).empty()) {
    return first;
  }
  const std::lock_guard<std::mutex> lock(layouts_mutex_);
  for (const Member& shape : shapes(group)) {
    const std::string problem =
        known_layouts_.problem(layout_of(group, shape), group.dp, group.micro_batch);
    if (problem.empty()) {
      return "";
    }
    first = first.empty() ? problem : first;
  }
  return first;
}

Seconds Space::roofline() const {
  const Flops flops = models::model_flops(base_.network, {base_.batch, base_.sequence}, true);
  return flops / (base_.cluster.gpu.peak_of(base_.precision) * base_.cluster.num_gpus());
}

}  // namespace orrery::search
