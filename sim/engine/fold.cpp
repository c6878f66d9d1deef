// SPDX-License-Identifier: Apache-2.0
#include "sim/engine/fold.hpp"

#include <algorithm>
#include <map>
#include <utility>

#include "base/error.hpp"
#include "sim/engine/fold_colours.hpp"

namespace orrery::sim {
namespace {

// Colours renumbered in order of the first member, with that member.
struct Classes {
  std::vector<std::uint32_t> of;
  std::vector<std::uint32_t> first;
};

Classes classes_of(const std::vector<std::uint32_t>& colours) {
  Classes classes;
  std::vector<std::uint32_t> renumbered;
  for (std::uint32_t i = 0; i < colours.size(); ++i) {
    if (colours[i] >= renumbered.size()) {
      renumbered.resize(colours[i] + 1, kNone);
    }
    if (renumbered[colours[i]] == kNone) {
      renumbered[colours[i]] = static_cast<std::uint32_t>(classes.first.size());
      classes.first.push_back(i);
    }
    classes.of.push_back(renumbered[colours[i]]);
  }
  return classes;
}

class Folder {
 public:
  explicit Folder(const Program& program)
      : program_(program), colours_(find_colours(program)), nodes_(classes_of(colours_.node)) {}

  Fold fold() {
    for (std::size_t name = 1; name < program_.names().size(); ++name) {
      result_.program.add_name(program_.names()[name]);
    }
    fold_devices();
    add_resources();
    add_nodes();
    add_counters();
    add_buffers();
    result_.node_of = std::move(nodes_.of);
    result_.program.finalize();
    return std::move(result_);
  }

 private:
  // Devices are equal when their streams run equal nodes and their pools hold equal buffers.
  void fold_devices() {
    const std::vector<std::uint32_t> streams = number_streams();
    const std::vector<std::uint32_t> pools = number_pools();
    std::map<std::uint32_t, std::pair<Signature, Signature>> devices;
    for (StreamId stream = 0; stream < streams.size(); ++stream) {
      devices[program_.streams()[stream].device].first.push_back(streams[stream]);
    }
    for (PoolId pool = 0; pool < pools.size(); ++pool) {
      devices[program_.pools()[pool].device].second.push_back(pools[pool]);
    }
    SignatureTable table;
    std::map<std::uint32_t, std::uint32_t> class_of_device;
    for (auto& [device, parts] : devices) {
      std::sort(parts.first.begin(), parts.first.end());
      std::sort(parts.second.begin(), parts.second.end());
      Signature signature = {parts.first.size()};
      signature.insert(signature.end(), parts.first.begin(), parts.first.end());
      signature.insert(signature.end(), parts.second.begin(), parts.second.end());
      class_of_device[device] = table.number(signature);
    }
    SignatureTable folded;
    std::vector<std::uint32_t> colours;
    for (StreamId stream = 0; stream < streams.size(); ++stream) {
      const std::uint32_t device = class_of_device[program_.streams()[stream].device];
      colours.push_back(folded.number({device, streams[stream]}));
    }
    add_streams(classes_of(colours));
    folded = {};
    colours.clear();
    for (PoolId pool = 0; pool < pools.size(); ++pool) {
      const std::uint32_t device = class_of_device[program_.pools()[pool].device];
      colours.push_back(folded.number({device, pools[pool]}));
    }
    pools_ = classes_of(colours);
    result_.pool_of = pools_.of;
  }

  std::vector<std::uint32_t> number_streams() const {
    SignatureTable table;
    std::vector<std::uint32_t> numbers;
    for (StreamId stream = 0; stream < program_.num_streams(); ++stream) {
      Signature signature = {static_cast<std::uint64_t>(program_.streams()[stream].kind)};
      for (const NodeId node : program_.nodes_of(stream)) {
        signature.push_back(nodes_.of[node]);
      }
      numbers.push_back(table.number(signature));
    }
    return numbers;
  }

  std::vector<std::uint32_t> number_pools() const {
    SignatureTable buffers;
    std::vector<Signature> held(program_.pools().size());
    for (BufferId buffer = 0; buffer < program_.buffers().size(); ++buffer) {
      const Buffer& what = program_.buffers()[buffer];
      Signature signature = {static_cast<std::uint64_t>(what.bytes.value()),
                             static_cast<std::uint64_t>(what.category),
                             what.producer == kNone ? kNone : nodes_.of[what.producer]};
      for (const NodeId consumer : folded_consumers(buffer)) {
        signature.push_back(consumer);
      }
      held[what.pool].push_back(buffers.number(signature));
    }
    SignatureTable pools;
    std::vector<std::uint32_t> numbers;
    for (PoolId pool = 0; pool < held.size(); ++pool) {
      std::sort(held[pool].begin(), held[pool].end());
      held[pool].push_back(static_cast<std::uint64_t>(program_.pools()[pool].capacity.value()));
      numbers.push_back(pools.number(held[pool]));
    }
    return numbers;
  }

  std::vector<NodeId> folded_consumers(BufferId buffer) const {
    std::vector<NodeId> consumers;
    for (const NodeId consumer : program_.consumers(buffer)) {
      consumers.push_back(nodes_.of[consumer]);
    }
    std::sort(consumers.begin(), consumers.end());
    consumers.erase(std::unique(consumers.begin(), consumers.end()), consumers.end());
    return consumers;
  }

  void add_streams(const Classes& classes) {
    std::vector<std::uint32_t> multiplicity(classes.first.size(), 0);
    for (StreamId stream = 0; stream < classes.of.size(); ++stream) {
      multiplicity[classes.of[stream]] += program_.streams()[stream].multiplicity;
    }
    for (std::size_t i = 0; i < classes.first.size(); ++i) {
      const Stream& stream = program_.streams()[classes.first[i]];
      result_.program.add_stream(stream.device, stream.kind, stream.name, multiplicity[i]);
    }
    result_.stream_of = classes.of;
  }

  void add_resources() {
    const Classes classes = classes_of(colours_.resource);
    for (const ResourceId resource : classes.first) {
      result_.program.add_resource(program_.resources()[resource].capacity,
                                   program_.resources()[resource].name);
    }
    demands_.resize(nodes_.first.size());
    const auto loads = colour_loads(program_, nodes_.of);
    for (ResourceId folded = 0; folded < classes.first.size(); ++folded) {
      for (const ColourLoad& load : loads[classes.first[folded]]) {
        demands_[load.colour].push_back({folded, load.amount});
      }
    }
  }

  // A folded node is on the streams of all nodes it stands for and has the inputs of any of them.
  void add_nodes() {
    std::vector<std::vector<StreamId>> streams(nodes_.first.size());
    for (NodeId node = 0; node < program_.num_nodes(); ++node) {
      for (const StreamId stream : program_.streams_of(node)) {
        streams[nodes_.of[node]].push_back(result_.stream_of[stream]);
      }
    }
    for (std::size_t i = 0; i < nodes_.first.size(); ++i) {
      std::sort(streams[i].begin(), streams[i].end());
      streams[i].erase(std::unique(streams[i].begin(), streams[i].end()), streams[i].end());
      result_.program.add_copy(program_, nodes_.first[i], streams[i], demands_[i]);
    }
    std::vector<NodeId> inputs;
    for (NodeId folded = 0; folded < nodes_.first.size(); ++folded) {
      inputs.clear();
      for (const NodeId producer : program_.predecessors(nodes_.first[folded])) {
        inputs.push_back(nodes_.of[producer]);
      }
      std::sort(inputs.begin(), inputs.end());
      inputs.erase(std::unique(inputs.begin(), inputs.end()), inputs.end());
      for (const NodeId producer : inputs) {
        result_.program.depend(folded, producer);
      }
    }
  }

  void add_counters() {
    const Classes groups = classes_of(colours_.counter_group);
    for (const std::uint32_t first : groups.first) {
      const CounterGroup& group = colours_.counter_groups[first];
      std::map<CounterId, CounterId> folded;
      for (const CounterId counter : group.counters) {
        folded[counter] = result_.program.add_counter(program_.counters()[counter]);
      }
      for (const NodeId node : group.nodes) {
        for (const CounterWait& wait : program_.counter_waits(node)) {
          result_.program.wait_for(nodes_.of[node], folded[wait.counter], wait.at_least);
        }
        for (const CounterChange& change : program_.counter_changes(node)) {
          result_.program.adjust(nodes_.of[node], folded[change.counter], change.delta,
                                 change.at_start);
        }
      }
    }
  }

  void add_buffers() {
    for (const PoolId pool : pools_.first) {
      const Pool& what = program_.pools()[pool];
      result_.program.add_pool(what.device, what.capacity, what.name);
    }
    for (BufferId buffer = 0; buffer < program_.buffers().size(); ++buffer) {
      const Buffer& what = program_.buffers()[buffer];
      const PoolId pool = pools_.of[what.pool];
      if (pools_.first[pool] != what.pool) {
        continue;
      }
      const NodeId producer = what.producer == kNone ? kNone : nodes_.of[what.producer];
      const BufferId folded = result_.program.add_buffer(pool, what.bytes, what.category, producer);
      for (const NodeId consumer : folded_consumers(buffer)) {
        result_.program.consume(folded, consumer);
      }
    }
  }

  const Program& program_;
  Colours colours_;
  Classes nodes_;
  Classes pools_;
  std::vector<std::vector<Demand>> demands_;  // per folded node
  Fold result_;
};

}  // namespace

Fold fold(const Program& program) {
  ORRERY_CHECK(program.finalized(), "a program is finalized before it is folded");
  return Folder(program).fold();
}

}  // namespace orrery::sim
