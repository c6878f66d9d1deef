// SPDX-License-Identifier: Apache-2.0
#include "costmodel/mesh_rings.hpp"

#include <algorithm>
#include <numeric>

namespace orrery::costmodel {

namespace {

using Links = std::array<std::array<int, kMaxMeshGpus>, kMaxMeshGpus>;
using Cycle = std::vector<int>;

int& links_between(Links& links, const Cycle& cycle, std::size_t i) {
  const int a = cycle[i];
  const int b = cycle[(i + 1) % cycle.size()];
  return links[static_cast<std::size_t>(std::min(a, b))][static_cast<std::size_t>(std::max(a, b))];
}

void add(Links& links, const Cycle& cycle, int count) {
  for (std::size_t i = 0; i < cycle.size(); ++i) {
    links_between(links, cycle, i) += count;
  }
}

bool fits(Links& links, const Cycle& cycle) {
  for (std::size_t i = 0; i < cycle.size(); ++i) {
    if (links_between(links, cycle, i) < 1) {
      return false;
    }
  }
  return true;
}

// Every cycle through GPU 0 once: the two directions of a cycle are the same links.
std::vector<Cycle> cycles_of(Links& links, int ranks) {
  std::vector<Cycle> cycles;
  Cycle order(static_cast<std::size_t>(ranks));
  std::iota(order.begin(), order.end(), 0);
  do {
    if (order[1] < order.back() && fits(links, order)) {
      cycles.push_back(order);
    }
  } while (std::next_permutation(order.begin() + 1, order.end()));
  return cycles;
}

int most_disjoint(Links& links, const std::vector<Cycle>& cycles, std::size_t first) {
  int best = 0;
  for (std::size_t i = first; i < cycles.size(); ++i) {
    if (fits(links, cycles[i])) {
      add(links, cycles[i], -1);
      best = std::max(best, 1 + most_disjoint(links, cycles, i));
      add(links, cycles[i], 1);
    }
  }
  return best;
}

}  // namespace

int mesh_ring_channels(const std::vector<std::array<int, 3>>& mesh, int ranks) {
  if (ranks < 2 || ranks > kMaxMeshGpus) {
    return 0;
  }
  Links links{};
  for (const auto& [a, b, count] : mesh) {
    if (std::min(a, b) >= 0 && std::max(a, b) < ranks && a != b && count > 0) {
      links[static_cast<std::size_t>(std::min(a, b))][static_cast<std::size_t>(std::max(a, b))] +=
          std::min(count, kMaxMeshGpus);
    }
  }
  if (ranks == 2) {
    return links[0][1];  // there and back over the two directions of each link
  }
  return 2 * most_disjoint(links, cycles_of(links, ranks), 0);
}

}  // namespace orrery::costmodel
