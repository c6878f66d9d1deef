// SPDX-License-Identifier: Apache-2.0
// SPP on links of any speeds: the order of the devices against all ways to divide them, stages and
// replicas along that order against all cuts, the iteration against its lists written anew.
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "tests/property/search/tiny_chains.hpp"

namespace orrery::search {
namespace {

struct TinyLinks {
  std::vector<std::vector<int>> rate;  // GB/s = MB/ms
  std::vector<int> order;              // of the devices

  // Slowest pair of devices in places [a, b) and [c, d) of the order.
  int slowest(int a, int b, int c, int d) const {
    int least = 1000;
    for (int i = a; i < b; ++i) {
      for (int j = c; j < d; ++j) {
        const auto from = static_cast<std::size_t>(order[static_cast<std::size_t>(i)]);
        const auto to = static_cast<std::size_t>(order[static_cast<std::size_t>(j)]);
        least = i == j ? least : std::min(least, rate[from][to]);
      }
    }
    return least;
  }

  int between(const std::vector<int>& one, const std::vector<int>& other) const {
    int all = 0;
    for (const int i : one) {
      for (const int j : other) {
        all += rate[static_cast<std::size_t>(i)][static_cast<std::size_t>(j)];
      }
    }
    return all;
  }

  // Whether some place divides the devices by a cut of least bandwidth, and so on on either side.
  bool divides_at_least_cuts(const std::vector<int>& devices) const {
    const std::size_t n = devices.size();
    if (n < 2) {
      return true;
    }
    int least = between(devices, devices);
    for (unsigned side = 1; side + 1 < 1U << n; ++side) {
      std::vector<int> sides[2];
      for (std::size_t i = 0; i < n; ++i) {
        sides[side >> i & 1U].push_back(devices[i]);
      }
      least = std::min(least, between(sides[0], sides[1]));
    }
    for (auto at = devices.begin() + 1; at != devices.end(); ++at) {
      const std::vector<int> left(devices.begin(), at);
      const std::vector<int> right(at, devices.end());
      if (between(left, right) == least && divides_at_least_cuts(left) &&
          divides_at_least_cuts(right)) {
        return true;
      }
    }
    return false;
  }
};

TinyLinks random_links(int devices, bool uniform) {
  TinyLinks links;
  const auto n = static_cast<std::size_t>(devices);
  links.rate.assign(n, std::vector<int>(n, 0));
  const int all = evenly(1, 40);
  for (std::size_t i = 0; i < n; ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      links.rate[i][j] = links.rate[j][i] = uniform ? all : evenly(1, 40);
    }
  }
  return links;
}

std::string to_text(const TinyLinks& links) {
  std::string rows;
  for (const std::vector<int>& rates : links.rate) {
    std::string row;
    for (const int rate : rates) {
      row += fmt::format(R"({}"{} GB/s")", row.empty() ? "" : ",", rate);
    }
    rows += fmt::format("{}[{}]", rows.empty() ? "" : ",", row);
  }
  return rows;
}

struct TinyStage {
  int first = 0;
  int last = 0;
  int place = 0;  // of its first device
  int replicas = 1;
};

std::vector<TinyStage> stages_of(const std::vector<int>& ends, const std::vector<int>& shares) {
  std::vector<TinyStage> stages;
  int place = 0;
  for (std::size_t s = 0; s < ends.size(); ++s) {
    stages.push_back({s == 0 ? 0 : ends[s - 1], ends[s], place, shares[s]});
    place += shares[s];
  }
  return stages;
}

// Both ways from the stage before, and its all-reduce, in ms.
double both_ways(const std::vector<Layer>& layers, const TinyStage& from, const TinyStage& to,
                 const TinyLinks& links) {
  return 2.0 * layers[static_cast<std::size_t>(to.first - 1)].output /
         std::max(from.replicas, to.replicas) /
         links.slowest(from.place, to.place, to.place, to.place + to.replicas);
}
double reduction(const std::vector<Layer>& layers, const TinyStage& stage, const TinyLinks& links) {
  const int end = stage.place + stage.replicas;
  const double r = stage.replicas;
  return r == 1 ? 0
                : 2 * (r - 1) / r * sum(layers, stage.first, stage.last, &Layer::parameters) /
                      links.slowest(stage.place, end, stage.place, end);
}

double bottleneck_of(const std::vector<Layer>& layers, const std::vector<TinyStage>& stages,
                     const TinyLinks& links, int micro_batches) {
  double worst = 0;
  for (std::size_t s = 0; s < stages.size(); ++s) {
    const TinyStage& stage = stages[s];
    worst = std::max({worst, sum(layers, stage.first, stage.last, &Layer::time) / stage.replicas,
                      reduction(layers, stage, links) / micro_batches,
                      s == 0 ? 0 : both_ways(layers, stages[s - 1], stage, links)});
  }
  return worst;
}

// Stages and the channels between them each run a list of 1F1B as early as they can: a pass is
// after the one before it in its list and after its input.
double iteration_of(const std::vector<Layer>& layers, const std::vector<TinyStage>& stages,
                    const TinyLinks& links, int micro_batches) {
  std::vector<double> forward;
  std::vector<double> backward;
  for (std::size_t s = 0; s < stages.size(); ++s) {
    if (s > 0) {
      forward.push_back(both_ways(layers, stages[s - 1], stages[s], links) / 2);
      backward.push_back(forward.back());
    }
    const double time =
        sum(layers, stages[s].first, stages[s].last, &Layer::time) / stages[s].replicas;
    forward.push_back(time / 3);
    backward.push_back(time * 2 / 3);
  }
  const std::size_t units = forward.size();
  const auto m = static_cast<std::size_t>(micro_batches);
  std::vector<std::vector<double>> down(units, std::vector<double>(m, 0.0));
  std::vector<std::vector<double>> up = down;
  for (bool changed = true; changed;) {
    changed = false;
    for (std::size_t u = 0; u < units; ++u) {
      double free = 0;
      const auto run = [&](double& end, double input, double time) {
        free = std::max(free, input) + time;
        changed = changed || free != end;
        end = free;
      };
      std::size_t ahead = 0;
      for (std::size_t back = 0; back < m; ++back) {
        for (; ahead < std::min(back + units - u, m); ++ahead) {
          run(down[u][ahead], u == 0 ? 0 : down[u - 1][ahead], forward[u]);
        }
        run(up[u][back], u + 1 == units ? down[u][back] : up[u + 1][back], backward[u]);
      }
    }
  }
  double end = up.front().back();
  for (std::size_t s = 0; s < stages.size(); ++s) {
    end = std::max(end, up[2 * s].back() + reduction(layers, stages[s], links));
  }
  return end;
}

TEST(PlannerTwins, SppEqualsBruteForce) {
  EXPECT_TRUE(rc::check([] {
    const std::vector<Layer> layers = random_layers(8);
    const int devices = evenly(1, 6);
    const int micro_batches = evenly(1, 9);
    TinyLinks links = random_links(devices, evenly(0, 3) == 0);
    const Json answer =
        solve("spp", fmt::format(R"({{"schema": "orrery-problem", "version": 1, "layers": [{}],
                               "bandwidth": [{}], "micro_batches": {}}})",
                                 to_text(layers), to_text(links), micro_batches));
    for (const Json& device : answer.find("device_order")->as_array()) {
      links.order.push_back(static_cast<int>(device.as_integer()));
    }
    std::vector<int> sorted = links.order;
    std::sort(sorted.begin(), sorted.end());
    for (int i = 0; i < devices; ++i) {
      RC_ASSERT(sorted.at(static_cast<std::size_t>(i)) == i);
    }
    RC_ASSERT(links.divides_at_least_cuts(links.order));

    std::vector<double> best(std::min(layers.size(), static_cast<std::size_t>(devices)), kNever);
    all_cuts(static_cast<int>(layers.size()), devices, [&](const std::vector<int>& ends) {
      all_shares(devices, ends.size(), [&](const std::vector<int>& shares) {
        double& least = best[ends.size() - 1];
        least =
            std::min(least, bottleneck_of(layers, stages_of(ends, shares), links, micro_batches));
      });
    });
    const Json::Array& found = answer.find("least_bottleneck_s_by_stages")->as_array();
    RC_ASSERT(found.size() == best.size());
    for (std::size_t s = 0; s < best.size(); ++s) {
      RC_ASSERT(std::abs(found[s].as_number() * 1000 - best[s]) < 1e-9 * best[s]);
    }

    std::vector<int> ends;
    std::vector<int> shares;
    for (const Json& stage : answer.find("stages")->as_array()) {
      ends.push_back(static_cast<int>(stage.find("last")->as_integer()));
      shares.push_back(static_cast<int>(stage.find("replicas")->as_integer()));
    }
    const std::vector<TinyStage> chosen = stages_of(ends, shares);
    const double bottleneck = bottleneck_of(layers, chosen, links, micro_batches);
    RC_ASSERT(std::abs(number(answer, "bottleneck_s") * 1000 - bottleneck) < 1e-9 * bottleneck);
    const double time = iteration_of(layers, chosen, links, micro_batches);
    RC_ASSERT(std::abs(number(answer, "iteration_s") * 1000 - time) < 1e-6 * time);
    // No stage, channel or all-reduce is done sooner.
    RC_ASSERT(time > micro_batches * bottleneck * (1 - 1e-6));
  }));
}

}  // namespace
}  // namespace orrery::search
