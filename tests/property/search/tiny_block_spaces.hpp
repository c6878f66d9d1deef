// SPDX-License-Identifier: Apache-2.0
// Spaces of layouts by block that are small enough to simulate every plan: random networks,
// machines, memory and batches; every cut, every strategy of every block.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "search/per_block/space.hpp"
#include "tests/property/drawing.hpp"
#include "tests/unit/search/small_search.hpp"

namespace orrery::search {

struct TinySpace {
  plan::Plan base;
  Constraints constraints;
};

// One strategy and every cut into several chunks of a device: more virtual stages than layers
// divide.
inline TinySpace any_cuts() {
  Shape shape;
  shape.spec = small_spec(pick({3, 4, 5, 6}));
  shape.spec.vocab = pick<std::int64_t>({1000, 32000});
  shape.cluster = "dgx-a100:1";
  shape.overrides = {"gpu.memory=80 GiB"};
  shape.batch = pick<std::int64_t>({4, 8});
  shape.sequence = 512;
  const auto [kind, gpus] =
      pick<std::pair<std::string, std::string>>({{"pp=2,chunks=2,schedule=interleaved", "2"},
                                                 {"pp=2,chunks=2,schedule=breadth-first", "2"},
                                                 {"pp=2,schedule=v-zb", "2"},
                                                 {"pp=4,schedule=1f1b", "4"},
                                                 {"pp=4,schedule=chimera", "4"},
                                                 {"pp=2,chunks=3,schedule=interleaved", "2"}});
  shape.overrides.push_back("node.gpus=" + gpus);
  TinySpace space;
  space.constraints.fix("cp=1,ep=1,tp=1,zero=1,recompute=none,micro_batch=1");
  space.constraints.fix(kind);
  space.base = base_plan(shape);
  return space;
}

// A few hundred plans: two or three strategies a block and cuts, or four strategies and none.
inline TinySpace any_space() {
  if (pick<int>({0, 1, 2, 3}) == 0) {
    return any_cuts();
  }
  Shape shape;
  shape.spec = pick<int>({0, 1, 2}) > 0 ? small_spec(2) : small_mixture();
  shape.spec.tied_embeddings = pick({false, true});
  shape.spec.vocab = pick<std::int64_t>({1000, 32000});  // the head as little or as several layers
  shape.spec.adapters.rank = pick<std::int64_t>({0, 0, 16});
  TinySpace space;
  space.constraints.fix("cp=1,ep=1");
  const int kind = pick<int>({0, 1, 2});
  if (kind == 0) {  // every ZeRO stage in one plan; what a step adds at its ends is large
    shape.cluster = pick<std::string>({"dgx-a100:1", "l40s-8:2", "hgx-h100:4"});
    shape.overrides = {"node.gpus=" + std::string(shape.cluster.back() == '1'   ? "4"
                                                  : shape.cluster.back() == '2' ? "2"
                                                                                : "1")};
    space.constraints.fix("pp=2,tp=1,recompute=none,micro_batch=1");
    space.constraints.fix(pick<std::string>({"schedule=1f1b", "schedule=gpipe", "schedule=zb-h1",
                                             "schedule=chimera", "schedule=dualpipe"}));
  } else if (kind == 1) {  // tp 1 and tp 2 in one plan
    shape.cluster = pick<std::string>({"dgx-a100:1", "l40s-8:1"});
    shape.overrides = {"node.gpus=4"};
    space.constraints.fix("pp=2,zero=1,recompute=none");
    space.constraints.fix(pick<std::string>({"schedule=1f1b", "schedule=gpipe", "schedule=zb-h1"}));
  } else {
    shape.cluster = pick<std::string>({"dgx-a100:1", "hgx-h100:2", "l40s-8:2"});
    const bool two_nodes = shape.cluster.back() == '2';
    shape.overrides = {two_nodes ? "node.gpus=1" : "node.gpus=2"};
    space.constraints.forbid("recompute=selective");
    space.constraints.fix(
        pick<std::string>({"pp=2,zero=1,schedule=1f1b", "pp=2,zero=0,schedule=zb-h2",
                           "pp=2,zero=1,schedule=chimera", "pp=2,zero=1,schedule=dualpipe",
                           "pp=2,zero=1,schedule=zb-1p", "pp=1,tp=1,micro_batch=1,recompute=full",
                           "pp=1,tp=1,zero=3", "pp=1,zero=1,recompute=none"}));
  }
  shape.overrides.push_back(pick<std::string>(
      {"gpu.memory=2200 MiB", "gpu.memory=2500 MiB", "gpu.memory=3 GiB", "gpu.memory=80 GiB"}));
  if (pick<int>({0, 1, 2}) == 0) {  // messages take as long as passes
    shape.overrides.push_back("node.scale_out.nic_bandwidth=0.2 GB/s");
  }
  shape.batch = pick<std::int64_t>({2, 4});
  shape.sequence = pick<std::int64_t>({512, 2048});
  space.base = base_plan(shape);
  space.base.execution.overlap_grad_reduce = pick({true, true, false});
  space.base.execution.overlap_param_gather = pick({true, true, false});
  return space;
}

// Every cut of the chain.
inline std::vector<std::vector<int>> cuts(int positions, int stages) {
  if (stages == 1) {
    return {{positions}};
  }
  std::vector<std::vector<int>> all;
  for (int first = 1; positions - first >= stages - 1; ++first) {
    for (std::vector<int> cut : cuts(positions - first, stages - 1)) {
      cut.insert(cut.begin(), first);
      all.push_back(std::move(cut));
    }
  }
  return all;
}

template <typename Each>
void for_every_plan(const PerBlockSpace& space, Each each) {
  const plan::Plan& base = space.homogeneous().base();
  plan::Plan plan = base;
  const std::size_t positions = base.network.chain.size();
  for (std::size_t mesh = 0; mesh < space.meshes().size(); ++mesh) {
    const StageMesh& shape = space.meshes()[mesh];
    const std::vector<plan::BlockPlan> strategies = space.strategies(shape);
    const std::vector<Pipeline> pipelines = space.pipelines(shape);
    for (std::size_t pipeline = 0; pipeline < pipelines.size(); ++pipeline) {
      const int stages = shape.pp * pipelines[pipeline].chunks;
      for (const std::vector<int>& cut : cuts(static_cast<int>(positions), stages)) {
        Draft draft{cut, std::vector<std::uint16_t>(positions, 0)};
        for (bool more = true; more;) {
          space.configure(shape, pipelines[pipeline], strategies, draft, plan);
          each(mesh, pipeline, plan);
          more = false;
          for (std::uint16_t& strategy : draft.strategies) {  // counts up, position by position
            if (++strategy < strategies.size()) {
              more = true;
              break;
            }
            strategy = 0;
          }
        }
      }
    }
  }
}

}  // namespace orrery::search
