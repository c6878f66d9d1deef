// SPDX-License-Identifier: Apache-2.0
#include "calibrate/gpu_names.hpp"

#include <algorithm>
#include <array>
#include <span>

#include "base/text.hpp"
#include "base/words.hpp"
#include "topologies/documents.hpp"
#include "topologies/words.hpp"

namespace orrery::calibrate {
namespace {

// Clouds and boxes with a node type of their own, by a word of the network's description.
struct NetworkWord {
  std::string_view word;
  std::string_view gpu;
  std::string_view node;
};

// A100 clusters with SHARP that were logged are built like DGX SuperPODs, an adapter a GPU
// (coreweave/nccl-tests, README).
constexpr std::array<NetworkWord, 13> kNetworks = {{{"p4d", "a100-sxm4-40gb", "p4d"},
                                                    {"p4d", "a100-sxm4-80gb", "p4de"},
                                                    {"p5 ", "h100-sxm5-80gb", "p5"},
                                                    {"a3 mega", "h100-sxm5-80gb", "a3-mega"},
                                                    {"a3 ultra", "h200-sxm5-141gb", "a3-ultra"},
                                                    {"gcp a4", "b200-sxm-180gb", "a4"},
                                                    {"azure nd", "a100-sxm4-40gb", "ndv4"},
                                                    {"azure nd", "a100-sxm4-80gb", "ndv4"},
                                                    {"sharp", "a100-sxm4-80gb", "dgx-a100"},
                                                    {"dgx-2", "v100-sxm3-32gb", "dgx-2"},
                                                    {"dgx-1v", "v100-sxm2-32gb", "dgx-1v"},
                                                    {"cube mesh", "v100-sxm2-16gb", "dgx-1v"},
                                                    {"cube mesh", "v100-sxm2-32gb", "dgx-1v"}}};

// The usual box of a GPU that is sold in no other.
struct UsualNode {
  std::string_view gpu;
  std::string_view node;
};
constexpr std::array<UsualNode, 15> kUsualNodes = {{{"a100-sxm4-40gb", "dgx-a100-40"},
                                                    {"a100-sxm4-80gb", "hgx-a100"},
                                                    {"a800-sxm4-80gb", "hgx-a800"},
                                                    {"h100-sxm5-80gb", "hgx-h100"},
                                                    {"h200-sxm5-141gb", "hgx-h200"},
                                                    {"h800-sxm5-80gb", "hgx-h800"},
                                                    {"b200-sxm-180gb", "hgx-b200"},
                                                    {"b300-sxm-288gb", "hgx-b300"},
                                                    {"gb200-186gb", "gb200-nvl72"},
                                                    {"gb300-288gb", "gb300-nvl72"},
                                                    {"l40s", "l40s-8-no-p2p"},
                                                    {"rtx-pro-6000-server", "rtx-pro-6000-8"},
                                                    {"mi250x-gcd", "mi250x-8"},
                                                    {"mi300x", "mi300x-8"},
                                                    {"v100-sxm3-32gb", "dgx-2"}}};

// EFA is the network of one cloud: its nodes of a GPU.
constexpr auto kEfa = std::to_array<std::string_view>({"efa", "efav2", "efav3"});
constexpr std::array<UsualNode, 6> kNodesWithEfa = {{{"v100-sxm2-32gb", "p3dn"},
                                                     {"a100-sxm4-40gb", "p4d"},
                                                     {"a100-sxm4-80gb", "p4de"},
                                                     {"h100-sxm5-80gb", "p5"},
                                                     {"h200-sxm5-141gb", "p5e"},
                                                     {"b200-sxm-180gb", "p6-b200"}}};

// "" where none of the nodes has the GPU.
std::string node_among(std::span<const UsualNode> nodes, std::string_view gpu) {
  const auto found = std::find_if(nodes.begin(), nodes.end(),
                                  [&](const UsualNode& usual) { return usual.gpu == gpu; });
  return found != nodes.end() ? std::string(found->node) : "";
}

}  // namespace

std::string gpu_of(std::string_view text) { return topologies::find_gpu_name(std::string(text)); }

std::string device_of_file(std::string_view path, const std::string& given) {
  const std::string_view file = path.substr(path.find_last_of('/') + 1);
  const std::string named = topologies::similar_gpu(file.substr(0, file.find_last_of('.')));
  const auto model = [](std::string_view gpu) { return gpu.substr(0, gpu.find('-')); };
  return named.empty() || model(named) == model(given) ? given : named;
}

std::string node_of(std::string_view gpu, std::string_view fabric) {
  const std::string words = to_lower(fabric);
  for (const NetworkWord& entry : kNetworks) {
    if (entry.gpu == gpu && words.find(entry.word) != std::string::npos) {
      return std::string(entry.node);
    }
  }
  std::string node = has_word(words, kEfa) ? node_among(kNodesWithEfa, gpu) : "";
  node = node.empty() ? node_among(kUsualNodes, gpu) : node;
  return node.empty() && gpu.starts_with("v100-sxm2") ? "dgx-1v" : node;
}

}  // namespace orrery::calibrate
