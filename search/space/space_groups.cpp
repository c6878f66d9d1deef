// SPDX-License-Identifier: Apache-2.0
// Degrees that multiply to the cluster and divide the network and the batch.
#include "base/math.hpp"
#include "plan/block/cascade_layout.hpp"
#include "plan/heads.hpp"
#include "search/space/expert_degrees.hpp"
#include "search/space/layout_fields.hpp"
#include "search/space/space.hpp"

namespace orrery::search {

// Columns alone divide heads and widths; of other meshes check_layouts() says what divides.
bool Space::splits_evenly(int tp, int expert_tp) const {
  return plan::cuts_evenly(base_.network.spec, tp, expert_tp > 0 && expert_tp < tp);
}

plan::BlockPlan Space::layout_of(const Group& group) const {
  plan::BlockPlan layout = layout_;
  layout.expert_tp = group.expert_tp;
  return with_degrees(layout, group.tp, group.cp, group.ep);
}

std::vector<int> Space::tensor_degrees() const {
  std::vector<int> degrees;
  const bool any =
      constraints_.allows_meshes() || layout_.tensor_parallel != plan::TensorMesh::OneD;
  for (const std::int64_t degree : divisors(base_.cluster.num_gpus())) {
    const int tp = static_cast<int>(degree);
    const bool splits = splits_evenly(tp, 0) || splits_evenly(tp, 1);
    if ((any || splits) && constraints_.admits("tp", degree)) {
      degrees.push_back(tp);
    }
  }
  return degrees;
}

// Causal ring attention balances by giving every rank two of 2 cp chunks.
std::vector<int> Space::context_degrees(int tp) const {
  std::vector<int> degrees;
  for (const std::int64_t degree : divisors(base_.cluster.num_gpus() / tp)) {
    const bool splits = plan::splits_tokens(base_.network.spec, base_.sequence, degree);
    if (splits && constraints_.admits("cp", degree)) {
      degrees.push_back(static_cast<int>(degree));
    }
  }
  return degrees;
}

std::vector<Group> Space::groups() const {
  std::vector<Group> groups;
  const int gpus = base_.cluster.num_gpus();
  for (const int tp : tensor_degrees()) {
    for (const int cp : context_degrees(tp)) {
      for (const std::int64_t pp : divisors(gpus / tp / cp)) {
        const std::int64_t dp = gpus / tp / cp / pp;
        if (pp > layers_ || base_.batch % dp != 0 || !constraints_.admits("pp", pp) ||
            !constraints_.admits("dp", dp)) {
          continue;
        }
        Group group{.tp = tp, .cp = cp, .pp = static_cast<int>(pp), .dp = static_cast<int>(dp)};
        for (const int expert_tp : expert_tensor_degrees(tp, base_.network.spec, constraints_)) {
          group.expert_tp = expert_tp;
          add_expert_degrees(group, groups);
        }
      }
    }
  }
  return groups;
}

// Columns that cut nothing evenly leave no plan, unless a mesh of another kind may.
void Space::add_expert_degrees(Group group, std::vector<Group>& groups) const {
  const bool any =
      constraints_.allows_meshes() || layout_.tensor_parallel != plan::TensorMesh::OneD;
  if (!any && !splits_evenly(group.tp, group.expert_tp)) {
    return;
  }
  group.ep = 1;
  for (const int ep :
       expert_degrees(layout_of(group), group.dp, base_.network.spec, constraints_)) {
    group.ep = ep;
    for (const std::int64_t micro_batch : divisors(base_.batch / group.dp)) {
      if (constraints_.admits("micro_batch", micro_batch)) {
        group.micro_batch = micro_batch;
        groups.push_back(group);
      }
    }
  }
}

}  // namespace orrery::search
