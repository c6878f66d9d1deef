// SPDX-License-Identifier: Apache-2.0
#include "sim/engine/fold_colours.hpp"

#include <algorithm>
#include <bit>
#include <numeric>
#include <utility>

namespace orrery::sim {
namespace {

constexpr std::uint64_t kSeparator = ~std::uint64_t{0};

// Data and stream predecessors of a node.
struct Inputs {
  std::vector<std::vector<NodeId>> stream_previous;  // per node, one for each stream that has one
  std::vector<NodeId> order;                         // every node after its predecessors
};

// The order is shorter than the program when there is a cycle.
Inputs find_inputs(const Program& program) {
  const std::size_t n = program.num_nodes();
  Inputs inputs;
  inputs.stream_previous.resize(n);
  std::vector<std::uint32_t> holds(n);
  std::vector<NodeId> next_position(program.num_streams(), 0);
  for (StreamId stream = 0; stream < program.num_streams(); ++stream) {
    const std::span<const NodeId> nodes = program.nodes_of(stream);
    for (std::size_t i = 1; i < nodes.size(); ++i) {
      inputs.stream_previous[nodes[i]].push_back(nodes[i - 1]);
    }
  }
  for (NodeId node = 0; node < n; ++node) {
    holds[node] = static_cast<std::uint32_t>(program.predecessors(node).size() +
                                             program.streams_of(node).size());
  }
  const auto release = [&](NodeId node) {
    if (--holds[node] == 0) {
      inputs.order.push_back(node);
    }
  };
  for (NodeId node = 0; node < n; ++node) {
    if (holds[node] == 0) {
      inputs.order.push_back(node);
    }
  }
  const auto release_head = [&](StreamId stream) {
    if (next_position[stream] < program.nodes_of(stream).size()) {
      release(program.nodes_of(stream)[next_position[stream]++]);
    }
  };
  for (StreamId stream = 0; stream < program.num_streams(); ++stream) {
    release_head(stream);
  }
  for (std::size_t i = 0; i < inputs.order.size(); ++i) {
    const NodeId node = inputs.order[i];
    for (const NodeId successor : program.successors(node)) {
      release(successor);
    }
    for (const StreamId stream : program.streams_of(node)) {
      release_head(stream);
    }
  }
  return inputs;
}

std::vector<CounterGroup> find_counter_groups(const Program& program) {
  std::vector<CounterId> leader(program.counters().size());
  std::iota(leader.begin(), leader.end(), CounterId{0});
  const auto find = [&](CounterId counter) {
    while (leader[counter] != counter) {
      counter = leader[counter] = leader[leader[counter]];
    }
    return counter;
  };
  const auto touched = [&](NodeId node) {
    std::vector<CounterId> counters;
    for (const CounterWait& wait : program.counter_waits(node)) {
      counters.push_back(wait.counter);
    }
    for (const CounterChange& change : program.counter_changes(node)) {
      counters.push_back(change.counter);
    }
    return counters;
  };
  for (NodeId node = 0; node < program.num_nodes(); ++node) {
    const std::vector<CounterId> counters = touched(node);
    for (const CounterId counter : counters) {
      leader[find(counter)] = find(counters.front());
    }
  }
  std::vector<CounterGroup> by_leader(program.counters().size());
  for (NodeId node = 0; node < program.num_nodes(); ++node) {
    const std::vector<CounterId> counters = touched(node);
    if (counters.empty()) {
      continue;
    }
    CounterGroup& group = by_leader[find(counters.front())];
    group.nodes.push_back(node);
    for (const CounterId counter : counters) {
      if (std::find(group.counters.begin(), group.counters.end(), counter) ==
          group.counters.end()) {
        group.counters.push_back(counter);
      }
    }
  }
  std::erase_if(by_leader, [](const CounterGroup& group) { return group.nodes.empty(); });
  return by_leader;
}

void append_sorted_unique(std::vector<std::uint64_t>& values, Signature& signature) {
  std::sort(values.begin(), values.end());
  values.erase(std::unique(values.begin(), values.end()), values.end());
  signature.insert(signature.end(), values.begin(), values.end());
  signature.push_back(kSeparator);
  values.clear();
}

class Refinement {
 public:
  explicit Refinement(const Program& program)
      : program_(program),
        inputs_(find_inputs(program)),
        group_of_(program.num_nodes(), {kNone, 0}) {
    colours_.counter_groups = find_counter_groups(program);
    for (std::uint32_t i = 0; i < colours_.counter_groups.size(); ++i) {
      const std::vector<NodeId>& nodes = colours_.counter_groups[i].nodes;
      for (std::uint32_t position = 0; position < nodes.size(); ++position) {
        group_of_[nodes[position]] = {i, position};
      }
    }
    colours_.node.resize(program.num_nodes());
    colours_.resource.resize(program.resources().size(), 0);
    colours_.counter_group.resize(colours_.counter_groups.size(), 0);
  }

  Colours refine() {
    if (inputs_.order.size() < program_.num_nodes()) {
      std::iota(colours_.node.begin(), colours_.node.end(), 0U);
      colour_resources();
      std::iota(colours_.counter_group.begin(), colours_.counter_group.end(), 0U);
      return std::move(colours_);
    }
    std::size_t before = 0;
    std::size_t now = colour_all();
    while (now > before) {
      before = now;
      now = colour_all();
    }
    return std::move(colours_);
  }

 private:
  struct Place {
    std::uint32_t group;
    std::uint32_t position;
  };

  std::size_t colour_all() { return colour_nodes() + colour_resources() + colour_counter_groups(); }

  void describe(NodeId node, Signature& signature) const {
    const Tag& tag = program_.tag(node);
    signature = {static_cast<std::uint64_t>(program_.kind(node)),
                 static_cast<std::uint64_t>(program_.latency(node).ps),
                 std::bit_cast<std::uint64_t>(program_.work(node)),
                 std::bit_cast<std::uint64_t>(program_.rate_bound(node)),
                 static_cast<std::uint64_t>(tag.pass) << 32 | static_cast<std::uint64_t>(tag.comm),
                 std::uint64_t{tag.chunk} << 32 | std::uint64_t{tag.layer} << 16 | tag.slice,
                 std::uint64_t{tag.micro_batch} << 32 | tag.name};
    const Place place = group_of_[node];
    if (place.group != kNone) {
      signature.push_back(std::uint64_t{colours_.counter_group[place.group]} << 32 |
                          place.position);
    }
    signature.push_back(kSeparator);
  }

  std::size_t colour_nodes() {
    SignatureTable table;
    Signature signature;
    std::vector<std::uint64_t> neighbours;
    for (const NodeId node : inputs_.order) {
      describe(node, signature);
      for (const NodeId producer : program_.predecessors(node)) {
        neighbours.push_back(colours_.node[producer]);
      }
      append_sorted_unique(neighbours, signature);
      for (const NodeId previous : inputs_.stream_previous[node]) {
        neighbours.push_back(colours_.node[previous]);
      }
      append_sorted_unique(neighbours, signature);
      for (const Demand& demand : program_.demands(node)) {
        neighbours.push_back(colours_.resource[demand.resource]);
      }
      append_sorted_unique(neighbours, signature);
      colours_.node[node] = table.number(signature);
    }
    return table.size();
  }

  std::size_t colour_resources() {
    const auto loads = colour_loads(program_, colours_.node);
    SignatureTable table;
    for (ResourceId resource = 0; resource < loads.size(); ++resource) {
      Signature signature = {colours_.resource[resource],
                             std::bit_cast<std::uint64_t>(program_.resources()[resource].capacity)};
      for (const ColourLoad& load : loads[resource]) {
        signature.push_back(load.colour);
        signature.push_back(std::bit_cast<std::uint64_t>(load.amount));
      }
      colours_.resource[resource] = table.number(signature);
    }
    return table.size();
  }

  std::size_t colour_counter_groups() {
    SignatureTable table;
    for (std::size_t i = 0; i < colours_.counter_groups.size(); ++i) {
      colours_.counter_group[i] = table.number(counter_signature(i));
    }
    return table.size();
  }

  Signature counter_signature(std::size_t index) const {
    const CounterGroup& group = colours_.counter_groups[index];
    const auto local = [&](CounterId counter) {
      return static_cast<std::uint64_t>(
          std::find(group.counters.begin(), group.counters.end(), counter) -
          group.counters.begin());
    };
    Signature signature = {colours_.counter_group[index]};
    for (const CounterId counter : group.counters) {
      signature.push_back(static_cast<std::uint64_t>(program_.counters()[counter]));
    }
    signature.push_back(kSeparator);
    for (const NodeId node : group.nodes) {
      signature.push_back(colours_.node[node]);
      for (const CounterWait& wait : program_.counter_waits(node)) {
        signature.push_back(local(wait.counter));
        signature.push_back(static_cast<std::uint64_t>(wait.at_least));
      }
      signature.push_back(kSeparator);
      for (const CounterChange& change : program_.counter_changes(node)) {
        signature.push_back(local(change.counter) << 1 | (change.at_start ? 1U : 0U));
        signature.push_back(static_cast<std::uint64_t>(change.delta));
      }
      signature.push_back(kSeparator);
    }
    return signature;
  }

  const Program& program_;
  Inputs inputs_;
  std::vector<Place> group_of_;
  Colours colours_;
};

}  // namespace

std::vector<std::vector<ColourLoad>> colour_loads(const Program& program,
                                                  const std::vector<std::uint32_t>& node_colour) {
  std::vector<std::vector<ColourLoad>> loads(program.resources().size());
  for (NodeId node = 0; node < program.num_nodes(); ++node) {
    for (const Demand& demand : program.demands(node)) {
      loads[demand.resource].push_back({node_colour[node], demand.amount});
    }
  }
  for (std::vector<ColourLoad>& of_resource : loads) {
    std::sort(of_resource.begin(), of_resource.end(), [](const ColourLoad& a, const ColourLoad& b) {
      return a.colour != b.colour ? a.colour < b.colour : a.amount < b.amount;
    });
    std::size_t last = 0;
    for (std::size_t i = 1; i < of_resource.size(); ++i) {
      if (of_resource[i].colour == of_resource[last].colour) {
        of_resource[last].amount += of_resource[i].amount;
      } else {
        of_resource[++last] = of_resource[i];
      }
    }
    of_resource.resize(std::min(of_resource.size(), last + 1));
  }
  return loads;
}

Colours find_colours(const Program& program) { return Refinement(program).refine(); }

}  // namespace orrery::sim
