// SPDX-License-Identifier: Apache-2.0
#include "studies/rows/row_cluster.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "base/math.hpp"
#include "base/text.hpp"
#include "base/words.hpp"
#include "studies/rows/gpu_words.hpp"
#include "studies/rows/row_words.hpp"
#include "topologies/documents.hpp"
#include "topologies/network_words.hpp"
#include "topologies/words.hpp"

namespace orrery::studies {
namespace {

using topologies::Cluster;

struct KnownNode {
  std::string name;
  std::string gpu;
  int gpus = 0;
  topologies::Wiring wiring = topologies::Wiring::Crossbar;
  std::string network;
};

// Of the registry, by name.
const std::vector<KnownNode>& known_nodes() {
  static const std::vector<KnownNode> kNodes = [] {
    std::vector<KnownNode> nodes;
    for (const std::string& name : topologies::node_names()) {
      const Cluster cluster = topologies::load_cluster(name + ":1");
      nodes.push_back({name, cluster.gpu.name, cluster.node.gpus, cluster.node.scale_up.wiring,
                       cluster.node.scale_out.link});
    }
    return nodes;
  }();
  return kNodes;
}

// Of a GPU whose usual node has switches the one without that has as many GPUs as each of the
// row's: boards of four. "" where there is none or the row names switches.
std::string board_without_switch(const ClusterRequest& request, const std::string& gpu) {
  const std::string usual_name = usual_node(gpu);
  const auto is_usual = [&](const KnownNode& node) { return node.name == usual_name; };
  const auto usual = std::find_if(known_nodes().begin(), known_nodes().end(), is_usual);
  if (usual == known_nodes().end() || usual->wiring != topologies::Wiring::Crossbar ||
      request.gpus <= request.gpus_per_node || mentions(request.intra_node, "nvswitch")) {
    return {};
  }
  const auto is_board = [&](const KnownNode& node) {
    return node.gpu == gpu && node.gpus == request.gpus_per_node &&
           node.wiring == topologies::Wiring::AllPairs;
  };
  const auto board = std::find_if(known_nodes().begin(), known_nodes().end(), is_board);
  return board == known_nodes().end() ? std::string() : board->name;
}

// The largest equal parts that fit into one node, or into one NVLink domain over several, and hold
// whole groups of so many ranks; 0 where there are none.
int equal_parts(int gpus, int domain, int group) {
  int best = 0;
  for (const std::int64_t part : divisors(gpus)) {
    best = part <= domain && part % group == 0 ? static_cast<int>(part) : best;
  }
  return best;
}

// Of GPUs that fill no whole nodes launchers place ranks of tensors, then of sequences, beside each
// other: 12 with tp 4 are 4 on each of three, not 6 on two. Less than half a node is no such part.
int used_of_node(const ClusterRequest& request, int whole) {
  for (const int group : {request.tp * request.cp, request.tp}) {
    const int part = equal_parts(request.gpus, whole, std::max(1, group));
    if (part == request.gpus || 2 * part >= whole) {
      return part;
    }
  }
  return equal_parts(request.gpus, whole, 1);
}

bool is_domain(const Cluster& cluster) {
  return cluster.node.scale_up.wiring == topologies::Wiring::RackCrossbar;
}

// GPUs of a node, or of an NVLink domain over several, and how many of each the run uses.
struct NodeParts {
  int whole = 0;
  int used = 0;
};

NodeParts node_parts(const ClusterRequest& request, const Cluster& usual) {
  const bool stated = request.gpus_per_node > 0 && !is_domain(usual);
  const int whole = stated ? request.gpus_per_node : usual.node.gpus;
  return {whole, request.gpus % whole == 0 ? whole : used_of_node(request, whole)};
}

// "8x IB (200Gb A100 / 400Gb H100)": of alternatives that each name a GPU the one of this GPU.
std::string network_of(const std::string& gpu, const std::string& text) {
  const std::vector<std::string_view> parts = split(text, '/');
  const std::string architecture = topologies::load_gpu(gpu).architecture;
  std::string_view chosen;
  for (const std::string_view part : parts) {
    const std::string named = topologies::similar_gpu(part);
    if (parts.size() < 2 || named.empty()) {
      return text;
    }
    if (topologies::load_gpu(named).architecture == architecture) {
      chosen = part;
    }
  }
  const std::size_t bracket = parts.front().find('(');
  if (chosen.empty() || chosen.data() == parts.front().data() || bracket == text.npos) {
    return std::string(chosen.empty() ? std::string_view(text) : chosen);
  }
  return std::string(parts.front().substr(0, bracket + 1)).append(chosen);
}

constexpr auto kEfa = std::to_array<std::string_view>({"efa", "efav2", "efav3"});

std::string model_of(const std::string& gpu) { return gpu.substr(0, gpu.find('-')); }

// "p4d" beside an A100 of 80 GB, which its sibling carries.
bool names_node_with_efa(const ClusterRequest& request, const std::string& gpu) {
  const auto texts = std::to_array({&request.gpu, &request.intra_node, &request.inter_node});
  return std::any_of(texts.begin(), texts.end(), [&](const std::string* text) {
    const std::string name = topologies::find_node_in_words(*text);
    return std::any_of(known_nodes().begin(), known_nodes().end(), [&](const KnownNode& node) {
      return node.name == name && node.network == kEfa.front() &&
             model_of(node.gpu) == model_of(gpu);
    });
  });
}

// EFA is the network of one cloud: its node of the GPU. "" where there is none.
std::string node_with_efa(const ClusterRequest& request, const std::string& gpu) {
  const auto has_efa = [&](const KnownNode& node) {
    return node.gpu == gpu && node.network == kEfa.front();
  };
  const auto found = std::find_if(known_nodes().begin(), known_nodes().end(), has_efa);
  const bool stated =
      has_word(to_lower(request.inter_node), kEfa) || names_node_with_efa(request, gpu);
  return stated && found != known_nodes().end() ? found->name : std::string();
}

// The node that the row names, if it carries the GPU, else a board or the usual one.
std::string node_of(const ClusterRequest& request, const std::string& gpu) {
  for (const std::string* text : {&request.gpu, &request.intra_node, &request.inter_node}) {
    std::string node = topologies::find_node_in_words(*text);
    if (!node.empty() && topologies::load_cluster(node + ":1").gpu.name == gpu) {
      return node;
    }
  }
  if (std::string node = node_with_efa(request, gpu); !node.empty()) {
    return node;
  }
  std::string board = board_without_switch(request, gpu);
  return board.empty() ? usual_node(gpu) : board;
}

double gibibytes_of(const topologies::Gpu& gpu) {
  return gpu.memory.bytes().value() / (1024.0 * 1024.0 * 1024.0);
}

// Or the text states none.
bool has_stated_memory(const std::string& text, const topologies::Gpu& gpu) {
  constexpr double kSame = 0.1;
  const double stated = topologies::stated_gigabytes(text);
  return stated == 0 || std::abs(stated / gibibytes_of(gpu) - 1) < kSame;
}

bool is_part(const std::string& text, const topologies::Gpu& gpu) {
  const double stated = topologies::stated_gigabytes(text);
  constexpr auto kSlices = std::to_array<std::string_view>({"mig"});
  return has_word(to_lower(text), kSlices) || (stated > 0 && 2 * stated < gibibytes_of(gpu));
}

// More than this times a GPU's memory is no variant of it but two dies counted as one GPU.
constexpr double kVariant = 1.6;

// "MI250X-128GB", four of them a node: modules, of which software sees two GPUs each.
bool counts_modules(const ClusterRequest& request, const Cluster& usual) {
  return topologies::stated_gigabytes(request.gpu) > kVariant * gibibytes_of(usual.gpu) &&
         request.gpus_per_node > 0 && 2 * request.gpus_per_node <= usual.node.gpus;
}

// A variant of the GPU with other memory than it: an A100 of 64 GB.
std::vector<std::string> memory_overrides(const std::string& text, const topologies::Gpu& gpu) {
  const double stated = topologies::stated_gigabytes(text);
  const bool exact = !topologies::find_gpu_in_words(text).empty();
  if (exact || has_stated_memory(text, gpu) || stated > kVariant * gibibytes_of(gpu)) {
    return {};
  }
  return {fmt::format("gpu.memory={} GiB", stated)};
}

}  // namespace

std::string usual_node(const std::string& gpu_name) {
  if (std::string stated = topologies::load_gpu(gpu_name).usual_node; !stated.empty()) {
    return stated;
  }
  const auto carries = [&](const KnownNode& node) { return node.gpu == gpu_name; };
  const auto found = std::find_if(known_nodes().begin(), known_nodes().end(), carries);
  return found == known_nodes().end() ? std::string() : found->name;
}

namespace {

// "A100 (p4d.24xlarge)", "V100-32GB-SXM (DGX-2)": that of the node which is named beside it, where
// model and memory, as far as they are stated, are its.
std::string gpu_of_named_node(const std::string& text, const std::string& gpu) {
  const std::string node = topologies::find_node_in_words(text);
  if (node.empty()) {
    return "";
  }
  const topologies::Gpu carried = topologies::load_cluster(node + ":1").gpu;
  return has_stated_memory(text, carried) && model_of(carried.name) == model_of(gpu)
             ? carried.name
             : std::string();
}

}  // namespace

// Slices of a GPU ("A100-20GB-MIG") and models of less than half its memory are other GPUs.
std::string stated_gpu(const std::string& text) {
  if (names_several_gpus(text)) {
    return "";
  }
  if (const std::string similar = topologies::similar_gpu(text); !similar.empty()) {
    if (std::string carried = gpu_of_named_node(text, similar); !carried.empty()) {
      return carried;
    }
  }
  const std::string exact = topologies::find_gpu_in_words(text);
  if (!exact.empty()) {
    return exact;
  }
  // "p4d.24xlarge": the node, for the GPU that it carries.
  const std::string node = topologies::find_node_in_words(text);
  if (!node.empty()) {
    return topologies::load_cluster(node + ":1").gpu.name;
  }
  std::string similar = topologies::similar_gpu(text);
  const bool part = similar.empty() || is_part(text, topologies::load_gpu(similar));
  return part ? std::string() : similar;
}

namespace {

// One node as it is sold, of the GPU and the kind that the request names.
tl::expected<Cluster, std::string> usual_cluster(const ClusterRequest& request) {
  const std::string gpu = stated_gpu(request.gpu);
  if (gpu.empty()) {
    return tl::unexpected(request.gpu.empty()
                              ? std::string("gpu is not stated")
                              : fmt::format("unknown GPU \"{}\"{}", printable(request.gpu, 80),
                                            gpu_hint(request.gpu)));
  }
  const std::string node = node_of(request, gpu);
  if (node.empty()) {
    return tl::unexpected(fmt::format("no node type is known for the GPU {}", gpu));
  }
  return topologies::load_cluster(node + ":1");
}

ClusterRequest request_of(const Measurement& row) {
  const auto count = [](const OptionalCount& cell, int blank) {
    return static_cast<int>(cell.value_or(blank));
  };
  return {row.gpu,         count(row.gpus, 0), count(row.gpus_per_node, 0),
          row.intra_node,  row.inter_node,     count(row.tp, 1),
          count(row.cp, 1)};
}

// Rows state the network of a tray, as `gpus_per_node` are: that of the domain's part in use.
topologies::StatedNetwork network_of_domain(topologies::StatedNetwork tray,
                                            const ClusterRequest& request, const Cluster& usual,
                                            int used) {
  const int each = request.gpus_per_node;
  const int trays = each > 0 && used % each == 0 ? used / each : 1;
  tray.nics *= trays;
  if (topologies::is_of_node(tray, usual)) {
    tray.of = topologies::StatedNetwork::RateOf::Node;
    tray.gigabits *= trays;
  }
  return tray;
}

}  // namespace

tl::expected<Cluster, std::string> make_cluster(const ClusterRequest& request) {
  const auto found = usual_cluster(request);
  if (!found) {
    return found;
  }
  const Cluster& usual = *found;
  if (counts_modules(request, usual)) {
    return tl::unexpected(
        fmt::format("{} is a module of two GPUs, each a rank: state {} GPUs, {} a node",
                    printable(request.gpu, 80), 2 * request.gpus, 2 * request.gpus_per_node));
  }
  const auto [whole, per_node] = node_parts(request, usual);
  if (request.gpus > whole && 2 * per_node < whole) {
    return tl::unexpected(
        fmt::format("{} GPUs are not in equal parts on nodes of {}", request.gpus, whole));
  }
  std::vector<std::string> overrides = memory_overrides(request.gpu, usual.gpu);
  std::optional<topologies::StatedNetwork> stated =
      topologies::parse_network(network_of(usual.gpu.name, request.inter_node));
  if (is_domain(usual)) {
    overrides.push_back(fmt::format("node.scale_out.nics={}", per_node));
    if (stated) {
      stated = network_of_domain(*stated, request, usual, per_node);
    }
  }
  if (stated && request.gpus > per_node) {
    const auto network = topologies::network_overrides(*stated, usual, per_node);
    overrides.insert(overrides.end(), network.begin(), network.end());
  }
  if (per_node != usual.node.gpus) {
    overrides.push_back(fmt::format("node.gpus={}", per_node));
  }
  return topologies::load_cluster(fmt::format("{}:{}", usual.node.name, request.gpus / per_node),
                                  overrides);
}

tl::expected<Cluster, std::string> row_cluster(const Measurement& row) {
  if (!row.gpus || *row.gpus == 0) {
    return tl::unexpected(std::string("gpus is not stated"));
  }
  return make_cluster(request_of(row));
}

std::string gpu_of_stated_node(const Measurement& row) {
  constexpr auto kForms = std::to_array<std::string_view>({"mixed", "pci", "nvl"});
  const std::string stated = stated_gpu(row.gpu);
  const bool says_more = stated.empty() || topologies::stated_gigabytes(row.gpu) > 0 ||
                         !topologies::find_node_in_words(row.gpu).empty() ||
                         says_any(to_lower(row.gpu), kForms);
  for (const std::string* text : {&row.intra_node, &row.inter_node}) {
    const std::string node = says_more ? "" : topologies::find_node_in_words(*text);
    const std::string carried = node.empty() ? "" : topologies::load_cluster(node + ":1").gpu.name;
    if (!carried.empty() && carried != stated && model_of(carried) == model_of(stated)) {
      return carried;
    }
  }
  return "";
}

std::vector<std::string> cluster_notes(const Measurement& row) {
  const ClusterRequest request = request_of(row);
  const auto usual = usual_cluster(request);
  if (request.gpus == 0 || !usual) {
    return {};
  }
  std::vector<std::string> notes;
  const auto [whole, used] = node_parts(request, *usual);
  if (request.gpus > whole && used < whole && !is_domain(*usual)) {
    notes.push_back(fmt::format("{} GPUs of every {} in use", used, whole));
  }
  const std::string& words = request.inter_node;
  const bool named = topologies::find_node_in_words(words) == usual->node.name;
  const auto network = topologies::parse_network(network_of(usual->gpu.name, words));
  if (request.gpus > used && !named && !network) {
    notes.push_back(words.empty() ? fmt::format("network of {}", usual->node.name)
                                  : fmt::format("inter_node \"{}\" as the network of {}",
                                                printable(words, 60), usual->node.name));
  }
  if (request.gpus > used && network && network->unread_count) {
    notes.push_back(
        fmt::format("inter_node \"{}\": number of adapters as not stated", printable(words, 60)));
  }
  return notes;
}

}  // namespace orrery::studies
