// SPDX-License-Identifier: Apache-2.0
#include "calibrate/nccl/groups.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "base/error.hpp"

namespace orrery::calibrate {
namespace {

constexpr int kMaxExactGpus = 8;

bool all_alike(const LinkClasses& links, int gpus) {
  for (int a = 0; a < gpus; ++a) {
    for (int b = 0; b < gpus; ++b) {
      if (a != b &&
          links[static_cast<std::size_t>(a)][static_cast<std::size_t>(b)] != links[0][1]) {
        return false;
      }
    }
  }
  return true;
}

// The smallest link table over all orders of the subset: equal for isomorphic subsets alone.
std::vector<int> canonical_form(const LinkClasses& links, std::vector<int> subset) {
  std::vector<int> best;
  std::sort(subset.begin(), subset.end());
  do {
    std::vector<int> table;
    for (std::size_t a = 1; a < subset.size(); ++a) {
      for (std::size_t b = 0; b < a; ++b) {
        table.push_back(
            links[static_cast<std::size_t>(subset[a])][static_cast<std::size_t>(subset[b])]);
      }
    }
    if (best.empty() || table < best) {
      best = std::move(table);
    }
  } while (std::next_permutation(subset.begin(), subset.end()));
  return best;
}

// 2, 4, 8, ... below `most`, then `most`.
std::vector<int> doubling_to(int most) {
  std::vector<int> sizes;
  for (int size = 2; size < most; size *= 2) {
    sizes.push_back(size);
  }
  if (most >= 2) {
    sizes.push_back(most);
  }
  return sizes;
}

class Planner {
 public:
  explicit Planner(const Placement& placement)
      : placement_(placement),
        nodes_(static_cast<int>(placement.nodes.size())),
        per_node_(placement.ranks_per_node()) {}

  std::vector<GroupPlan> plan(const LinkClasses& links) {
    add_in_node(links);
    add_concurrent();
    add_across_nodes();
    return std::move(groups_);
  }

 private:
  int rank(int node, int local) const {
    return placement_.nodes[static_cast<std::size_t>(node)][static_cast<std::size_t>(local)];
  }

  void add(GroupKind kind, std::string name, std::vector<std::vector<int>> communicators,
           int ranks_per_node, int nodes) {
    if (seen_.insert(communicators).second) {
      groups_.push_back({kind, std::move(name), std::move(communicators), ranks_per_node, nodes});
    }
  }

  std::vector<int> ranks_of(const std::vector<int>& locals) const {
    std::vector<int> ranks;
    for (const int local : locals) {
      ranks.push_back(rank(0, local));
    }
    return ranks;
  }

  void add_in_node(const LinkClasses& links) {
    if (placement_.num_ranks() == 1) {  // a check of the machinery, no measurement of links
      add(GroupKind::InNode, "1 GPU", {ranks_of({0})}, 1, 1);
    }
    const bool mesh = !links.empty() && per_node_ > 1 && !all_alike(links, per_node_);
    if (!mesh) {
      for (const int size : doubling_to(per_node_)) {
        std::vector<int> locals(static_cast<std::size_t>(size));
        std::iota(locals.begin(), locals.end(), 0);
        add(GroupKind::InNode, fmt::format("{} GPUs of a node", size), {ranks_of(locals)}, size, 1);
      }
      return;
    }
    for (int size = 2; size <= per_node_; ++size) {
      for (const std::vector<int>& subset : distinct_subsets(links, per_node_, size)) {
        add(GroupKind::Subset, fmt::format("GPUs {} of a node", fmt::join(subset, ",")),
            {ranks_of(subset)}, size, 1);
      }
    }
  }

  // Neighbouring GPUs share a group, as tensor-parallel groups do.
  void add_concurrent() {
    for (const int groups : {2, 4}) {
      const int size = per_node_ / groups;
      if (size < 2 || size * groups != per_node_) {
        continue;
      }
      std::vector<std::vector<int>> communicators(static_cast<std::size_t>(groups));
      for (int local = 0; local < per_node_; ++local) {
        communicators[static_cast<std::size_t>(local / size)].push_back(rank(0, local));
      }
      add(GroupKind::Concurrent, fmt::format("{} groups of {} GPUs at once", groups, size),
          std::move(communicators), size, 1);
    }
  }

  void add_across_nodes() {
    for (const int count : doubling_to(nodes_)) {
      std::vector<int> everyone;
      std::vector<int> leaders;
      std::vector<std::vector<int>> rails(static_cast<std::size_t>(per_node_));
      for (int node = 0; node < count; ++node) {
        leaders.push_back(rank(node, 0));
        for (int local = 0; local < per_node_; ++local) {
          everyone.push_back(rank(node, local));
          rails[static_cast<std::size_t>(local)].push_back(rank(node, local));
        }
      }
      add(GroupKind::OnePerNode, fmt::format("1 GPU of each of {} nodes", count), {leaders}, 1,
          count);
      add(GroupKind::WholeNodes, fmt::format("{} whole nodes", count), {everyone}, per_node_,
          count);
      add(GroupKind::Rails, fmt::format("all {} rails of {} nodes at once", per_node_, count),
          std::move(rails), 1, count);
    }
    if (nodes_ > 2) {
      add(GroupKind::OnePerNode, "first and last node", {{rank(0, 0), rank(nodes_ - 1, 0)}}, 1, 2);
    }
    add_shared_spine();
  }

  // Two jobs on alternating nodes: their traffic meets on the switches above.
  void add_shared_spine() {
    if (nodes_ < 4 || nodes_ % 2 != 0) {
      return;
    }
    std::vector<std::vector<int>> jobs(2);
    for (int node = 0; node < nodes_; ++node) {
      for (int local = 0; local < per_node_; ++local) {
        jobs[static_cast<std::size_t>(node % 2)].push_back(rank(node, local));
      }
    }
    add(GroupKind::SharedSpine, fmt::format("two jobs of {} alternating nodes", nodes_ / 2),
        std::move(jobs), per_node_, nodes_ / 2);
  }

  const Placement& placement_;
  int nodes_;
  int per_node_;
  std::set<std::vector<std::vector<int>>> seen_;
  std::vector<GroupPlan> groups_;
};

int position(const std::vector<int>& ranks, int rank) {
  const auto found = std::find(ranks.begin(), ranks.end(), rank);
  return found == ranks.end() ? -1 : static_cast<int>(found - ranks.begin());
}

}  // namespace

int Placement::num_ranks() const {
  int count = 0;
  for (const std::vector<int>& node : nodes) {
    count += static_cast<int>(node.size());
  }
  return count;
}

int Placement::ranks_per_node() const {
  int least = 0;
  for (const std::vector<int>& node : nodes) {
    const int size = static_cast<int>(node.size());
    least = least == 0 ? size : std::min(least, size);
  }
  return least;
}

Placement regular_placement(int nodes, int ranks_per_node) {
  Placement placement;
  for (int node = 0; node < nodes; ++node) {
    std::vector<int> ranks(static_cast<std::size_t>(ranks_per_node));
    std::iota(ranks.begin(), ranks.end(), node * ranks_per_node);
    placement.nodes.push_back(std::move(ranks));
  }
  return placement;
}

Placement placement_of(const std::vector<std::string>& host_of_rank) {
  Placement placement;
  std::map<std::string, std::size_t> index;
  for (std::size_t rank = 0; rank < host_of_rank.size(); ++rank) {
    const auto [entry, added] = index.emplace(host_of_rank[rank], placement.nodes.size());
    if (added) {
      placement.nodes.emplace_back();
    }
    placement.nodes[entry->second].push_back(static_cast<int>(rank));
  }
  return placement;
}

int GroupPlan::colour_of(int rank) const {
  for (std::size_t index = 0; index < communicators.size(); ++index) {
    if (position(communicators[index], rank) >= 0) {
      return static_cast<int>(index);
    }
  }
  return -1;
}

int GroupPlan::rank_in_group(int rank) const {
  const int colour = colour_of(rank);
  return colour < 0 ? -1 : position(communicators[static_cast<std::size_t>(colour)], rank);
}

std::vector<GroupPlan> plan_groups(const Placement& placement, const LinkClasses& links) {
  ORRERY_CHECK(placement.ranks_per_node() > 0, "a run without ranks");
  return Planner(placement).plan(links);
}

std::vector<std::vector<int>> distinct_subsets(const LinkClasses& links, int gpus, int size) {
  std::vector<int> first(static_cast<std::size_t>(size));
  std::iota(first.begin(), first.end(), 0);
  if (links.empty() || gpus > kMaxExactGpus || size < 2 || all_alike(links, gpus)) {
    return {first};
  }
  std::vector<std::vector<int>> subsets;
  std::set<std::vector<int>> forms;
  std::vector<bool> chosen(static_cast<std::size_t>(gpus), false);
  std::fill(chosen.begin(), chosen.begin() + size, true);
  do {
    std::vector<int> subset;
    for (int gpu = 0; gpu < gpus; ++gpu) {
      if (chosen[static_cast<std::size_t>(gpu)]) {
        subset.push_back(gpu);
      }
    }
    if (forms.insert(canonical_form(links, subset)).second) {
      subsets.push_back(std::move(subset));
    }
  } while (std::prev_permutation(chosen.begin(), chosen.end()));
  return subsets;
}

}  // namespace orrery::calibrate
