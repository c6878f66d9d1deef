// SPDX-License-Identifier: Apache-2.0
// The partition behind folding: equal colours for nodes, resources and groups of counters that
// behave the same at all times.
#pragma once

#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "base/random.hpp"
#include "sim/engine/program.hpp"

namespace orrery::sim {

using Signature = std::vector<std::uint64_t>;

// Small numbers for distinct signatures, in order of first appearance.
class SignatureTable {
 public:
  std::uint32_t number(const Signature& signature) {
    const auto next = static_cast<std::uint32_t>(numbers_.size());
    return numbers_.try_emplace(signature, next).first->second;
  }
  std::size_t size() const { return numbers_.size(); }

 private:
  struct Hash {
    std::size_t operator()(const Signature& signature) const {
      std::uint64_t hash = signature.size();
      for (const std::uint64_t word : signature) {
        hash = mix64(hash ^ word);
      }
      return hash;
    }
  };
  std::unordered_map<Signature, std::uint32_t, Hash> numbers_;
};

// Counters that some node touches together, and all nodes that touch them, in order of id.
struct CounterGroup {
  std::vector<CounterId> counters;  // in order of first use by `nodes`
  std::vector<NodeId> nodes;
};

struct Colours {
  std::vector<std::uint32_t> node;
  std::vector<std::uint32_t> resource;
  std::vector<std::uint32_t> counter_group;
  std::vector<CounterGroup> counter_groups;
};

Colours find_colours(const Program& program);

// The load that nodes of one colour put on a resource together.
struct ColourLoad {
  std::uint32_t colour;
  double amount;
};
// Per resource, sorted by colour.
std::vector<std::vector<ColourLoad>> colour_loads(const Program& program,
                                                  const std::vector<std::uint32_t>& node_colour);

}  // namespace orrery::sim
