// SPDX-License-Identifier: Apache-2.0
#include "costmodel/mesh_rings.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

namespace orrery::costmodel {

namespace {

using Links = std::array<std::array<int, kMaxMeshGpus>, kMaxMeshGpus>;
using Cycle = std::vector<int>;
constexpr std::size_t kMaxRoutes = 256;
constexpr int kMaxTrials = 1'000'000;  // a DGX-1V takes some hundreds; more only made-up meshes

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

// Directed links: a message between GPUs without a link goes through a third one (PATH_NVB of
// NCCL), on one link of each leg.
using Steps = std::vector<std::pair<int, int>>;

int& step_links(Links& links, const std::pair<int, int>& step) {
  return links[static_cast<std::size_t>(step.first)][static_cast<std::size_t>(step.second)];
}

// Takes the steps that have a link left; false (and none taken) where one has none.
bool take(Links& links, const Steps& steps) {
  for (std::size_t i = 0; i < steps.size(); ++i) {
    if (--step_links(links, steps[i]) < 0) {
      for (std::size_t taken = 0; taken <= i; ++taken) {
        ++step_links(links, steps[taken]);
      }
      return false;
    }
  }
  return true;
}

void give_back(Links& links, const Steps& steps) {
  for (const std::pair<int, int>& step : steps) {
    ++step_links(links, step);
  }
}

// All ways of closing `order` into a ring with `detours` hops through a third GPU.
void routes_of(Links& links, const Cycle& order, std::size_t at, int detours, Steps& steps,
               std::vector<Steps>& routes, int& trials) {
  if (routes.size() >= kMaxRoutes || --trials < 0) {
    return;
  }
  if (at == order.size()) {
    if (detours == 0) {
      routes.push_back(steps);
    }
    return;
  }
  const int from = order[at];
  const int to = order[(at + 1) % order.size()];
  if (step_links(links, {from, to}) > 0) {
    steps.emplace_back(from, to);
    routes_of(links, order, at + 1, detours, steps, routes, trials);
    steps.pop_back();
  } else if (detours > 0) {
    for (const int via : order) {
      const Steps legs = {{from, via}, {via, to}};
      if (via != from && via != to && step_links(links, legs[0]) > 0 &&
          step_links(links, legs[1]) > 0) {
        steps.insert(steps.end(), legs.begin(), legs.end());
        routes_of(links, order, at + 1, detours - 1, steps, routes, trials);
        steps.resize(steps.size() - 2);
      }
    }
  }
}

int most_routes(Links& links, const std::vector<Steps>& routes, std::size_t first, int bound,
                int& trials) {
  int best = 0;
  for (std::size_t i = first; i < routes.size() && best < bound && --trials > 0; ++i) {
    if (take(links, routes[i])) {
      best = std::max(best, 1 + most_routes(links, routes, i, bound - 1, trials));
      give_back(links, routes[i]);
    }
  }
  return best;
}

// Rings in one direction each, with the fewest hops through a third GPU that make one.
int detoured_ring_channels(Links& links, int ranks) {
  Links directed{};
  int bound = kMaxMeshGpus * kMaxMeshGpus;
  for (std::size_t a = 0; a < static_cast<std::size_t>(ranks); ++a) {
    int own = 0;
    for (std::size_t b = 0; b < static_cast<std::size_t>(ranks); ++b) {
      directed[a][b] = links[std::min(a, b)][std::max(a, b)];
      own += directed[a][b];
    }
    bound = std::min(bound, own);
  }
  int trials = kMaxTrials;
  for (int detours = 1; detours <= ranks && bound > 0; ++detours) {
    std::vector<Steps> routes;
    Cycle order(static_cast<std::size_t>(ranks));
    std::iota(order.begin(), order.end(), 0);
    do {
      Steps steps;
      routes_of(directed, order, 0, detours, steps, routes, trials);
    } while (routes.size() < kMaxRoutes && std::next_permutation(order.begin() + 1, order.end()));
    if (const int channels = most_routes(directed, routes, 0, bound, trials); channels > 0) {
      return channels;
    }
  }
  return 0;
}

}  // namespace

int mesh_ring_channels(const std::vector<std::array<int, 3>>& mesh, int ranks, bool detours) {
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
  const int channels = 2 * most_disjoint(links, cycles_of(links, ranks), 0);
  return channels > 0 || !detours ? channels : detoured_ring_channels(links, ranks);
}

}  // namespace orrery::costmodel
