// SPDX-License-Identifier: Apache-2.0
#include "topologies/slurm.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/error.hpp"
#include "base/limits.hpp"
#include "base/quantity_text.hpp"
#include "base/text.hpp"
#include "topologies/graph.hpp"
#include "topologies/host_list.hpp"

namespace orrery::topologies {
namespace {

constexpr std::int64_t kMaxRadix = 65'536;

struct Entry {
  std::string where;
  std::string name;
  std::vector<std::string> switches;
  std::vector<std::string> nodes;
};

struct Line {
  std::string text;
  std::string where;
};

std::vector<Line> join_lines(std::string_view text, std::string_view name) {
  std::vector<Line> lines;
  bool continues = false;
  int number = 0;
  for (const std::string_view raw : split(text, '\n')) {
    ++number;
    const std::string where = fmt::format("{}:{}", name, number);
    if (static_cast<std::int64_t>(raw.size()) > limits::kMaxLineBytes) {
      bad_input(where, "the line is too long",
                fmt::format("at most {} bytes", limits::kMaxLineBytes));
    }
    const std::string_view line = trim(raw.substr(0, raw.find('#')));
    const bool more = line.ends_with('\\');
    std::string words(trim(line.substr(0, line.size() - (more ? 1 : 0))));
    std::replace(words.begin(), words.end(), '\t', ' ');
    if (continues) {
      lines.back().text += ' ' + words;
    } else if (!words.empty() || more) {
      lines.push_back({std::move(words), where});
    }
    continues = more;
  }
  return lines;
}

std::vector<std::pair<std::string, std::string>> fields(const Line& line) {
  static const std::vector<std::string> kKeys = {"switchname", "switches",  "nodes",
                                                 "linkspeed",  "blockname", "blocksizes"};
  std::vector<std::pair<std::string, std::string>> result;
  for (const std::string_view word : split(line.text, ' ')) {
    const std::string_view field = trim(word);
    if (field.empty()) {
      continue;
    }
    const std::size_t equals = field.find('=');
    if (equals == std::string_view::npos || equals + 1 == field.size()) {
      bad_input(line.where, fmt::format("\"{}\" is not key=value", printable(field)));
    }
    const std::string key = to_lower(field.substr(0, equals));
    if (std::find(kKeys.begin(), kKeys.end(), key) == kKeys.end()) {
      bad_input(line.where, fmt::format("unknown key \"{}\"", printable(key)),
                nearest_hint(key, kKeys));
    }
    for (const auto& [known, value] : result) {
      if (known == key) {
        bad_input(line.where, fmt::format("\"{}\" is given twice", key));
      }
    }
    result.emplace_back(key, std::string(field.substr(equals + 1)));
  }
  return result;
}

Entry parse_entry(const Line& line) {
  Entry entry;
  entry.where = line.where;
  for (const auto& [key, value] : fields(line)) {
    if (key == "switchname" || key == "blockname") {
      entry.name = value;
    } else if (key == "switches") {
      entry.switches = expand_hosts(value, line.where);
    } else if (key == "nodes") {
      if (to_lower(value) == "all") {
        bad_input(line.where, "\"ALL\" are the hosts of slurm.conf, which is not read",
                  "list them: Nodes=node[1-16]");
      }
      entry.nodes = expand_hosts(value, line.where);
    }
  }
  const bool only_sizes = entry.name.empty() && entry.switches.empty() && entry.nodes.empty();
  if (only_sizes) {
    return entry;  // BlockSizes, LinkSpeed alone
  }
  if (entry.name.empty()) {
    bad_input(line.where, "no name", "SwitchName=leaf1 Nodes=node[1-16]");
  }
  if (entry.switches.empty() == entry.nodes.empty()) {
    bad_input(line.where,
              fmt::format("\"{}\" needs either Switches or Nodes", printable(entry.name)));
  }
  return entry;
}

class Tree {
 public:
  explicit Tree(std::vector<Entry> entries) : entries_(std::move(entries)) {
    parents_.assign(entries_.size(), -1);
    for (std::size_t i = 0; i < entries_.size(); ++i) {
      if (!index_.emplace(entries_[i].name, i).second) {
        bad_input(entries_[i].where,
                  fmt::format("\"{}\" is defined twice", printable(entries_[i].name)));
      }
    }
    for (std::size_t i = 0; i < entries_.size(); ++i) {
      adopt(i);
    }
  }

  SlurmTopology topology() {
    SlurmTopology result;
    std::map<std::size_t, int> leaves_below;
    for (std::size_t i = 0; i < entries_.size(); ++i) {
      if (entries_[i].nodes.empty()) {
        continue;
      }
      for (const std::string& node : entries_[i].nodes) {
        if (!nodes_.insert(node).second) {
          bad_input(entries_[i].where,
                    fmt::format("node \"{}\" is on two leaves", printable(node)));
        }
      }
      result.levels = std::max(result.levels, depth(i));
      if (parents_[i] >= 0) {
        result.leaves_per_pod =
            std::max(result.leaves_per_pod, ++leaves_below[static_cast<std::size_t>(parents_[i])]);
      }
      result.leaves.push_back(entries_[i].nodes);
    }
    for (std::size_t i = 0; i < entries_.size(); ++i) {
      depth(i);  // a ring of switches has no leaf above it
    }
    result.leaves_per_pod = result.levels < 3 ? 0 : result.leaves_per_pod;
    return result;
  }

 private:
  void adopt(std::size_t parent) {
    const Entry& entry = entries_[parent];
    for (const std::string& name : entry.switches) {
      const auto child = index_.find(name);
      if (child == index_.end()) {
        std::vector<std::string> names;
        for (const Entry& other : entries_) {
          names.push_back(other.name);
        }
        bad_input(entry.where, fmt::format("switch \"{}\" is not defined", printable(name)),
                  nearest_hint(name, names));
      }
      if (parents_[child->second] >= 0) {
        bad_input(entry.where, fmt::format("switch \"{}\" is below two switches", printable(name)));
      }
      parents_[child->second] = static_cast<std::int64_t>(parent);
    }
  }

  int depth(std::size_t entry) const {
    int levels = 1;
    for (std::int64_t at = parents_[entry]; at >= 0; at = parents_[static_cast<std::size_t>(at)]) {
      if (++levels > 16) {
        bad_input(entries_[entry].where,
                  fmt::format("switch \"{}\" is below itself or too deep",
                              printable(entries_[entry].name)),
                  "at most 16 levels");
      }
    }
    return levels;
  }

  std::vector<Entry> entries_;
  std::map<std::string, std::size_t> index_;
  std::vector<std::int64_t> parents_;
  std::set<std::string> nodes_;
};

}  // namespace

std::int64_t SlurmTopology::num_nodes() const {
  std::int64_t nodes = 0;
  for (const std::vector<std::string>& leaf : leaves) {
    nodes += static_cast<std::int64_t>(leaf.size());
  }
  return nodes;
}

SlurmTopology parse_slurm_topology(std::string_view text, std::string_view name) {
  if (static_cast<std::int64_t>(text.size()) > limits::kMaxConfigFileBytes) {
    bad_input(name, "the file is too large",
              fmt::format("at most {} bytes", limits::kMaxConfigFileBytes));
  }
  std::vector<Entry> entries;
  std::int64_t names = 0;
  for (const Line& line : join_lines(text, name)) {
    Entry entry = parse_entry(line);
    if (entry.name.empty()) {
      continue;
    }
    names += static_cast<std::int64_t>(entry.switches.size() + entry.nodes.size()) + 1;
    if (names > limits::kMaxHostListNames) {
      bad_input(line.where, "the file names too many nodes and switches",
                fmt::format("at most {}", limits::kMaxHostListNames));
    }
    entries.push_back(std::move(entry));
  }
  SlurmTopology topology = Tree(std::move(entries)).topology();
  if (topology.leaves.empty()) {
    bad_input(name, "no switch or block has nodes", "SwitchName=leaf1 Nodes=node[1-16]");
  }
  return topology;
}

namespace {

void check_nodes(const SlurmTopology& topology, const Cluster& usual) {
  const std::string where = fmt::format("node \"{}\"", printable(usual.node.name));
  if (usual.node.scale_up.wiring == Wiring::RackCrossbar) {
    bad_input(where, "is a rack of several servers, and the hosts of a SLURM file are servers",
              "a node type that is one server");
  }
  if (usual.node.scale_out.nics == 0 && topology.num_nodes() > 1) {
    bad_input(where, "has no network to join the hosts of a SLURM file", "a node type with NICs");
  }
}

Json fabric_document(const SlurmTopology& topology, const Cluster& usual, std::string_view name) {
  std::size_t largest = 1;
  for (const std::vector<std::string>& leaf : topology.leaves) {
    largest = std::max(largest, leaf.size());
  }
  const std::int64_t down =
      static_cast<std::int64_t>(largest) * std::max(usual.node.scale_out.nics, 1);
  const std::int64_t leaves = static_cast<std::int64_t>(topology.leaves.size());
  if (2 * down > kMaxRadix) {
    bad_input(name, fmt::format("a leaf with {} nodes, of {} NICs", largest, down),
              fmt::format("at most {} NICs", kMaxRadix / 2));
  }
  // What joins blocks is not in the file.
  const int levels = leaves > 1 ? std::clamp(topology.levels, 2, 3) : 1;
  Json fabric = Json::object();
  fabric.set("builder", leaves == 1 ? "single-switch" : "fat-tree");
  fabric.set("radix", 2 * down);
  fabric.set("spine_radix", std::clamp<std::int64_t>(2 * leaves, 2 * down, kMaxRadix));
  fabric.set("nodes_per_leaf", static_cast<std::int64_t>(largest));
  fabric.set("leaves_per_pod", topology.leaves_per_pod);
  fabric.set("levels", levels);
  fabric.set("switch_latency", quantity_text(usual.fabric.switch_latency));
  return fabric;
}

}  // namespace

Json cluster_document_of_slurm(const SlurmTopology& topology, const Cluster& usual,
                               std::string_view name) {
  check_nodes(topology, usual);
  Json cluster = usual.document;
  cluster.set("nodes", topology.num_nodes());
  cluster.set("fabric", fabric_document(topology, usual, name));
  return cluster;
}

}  // namespace orrery::topologies
