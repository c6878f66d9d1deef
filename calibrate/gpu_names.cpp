// SPDX-License-Identifier: Apache-2.0
#include "calibrate/gpu_names.hpp"

#include <array>
#include <map>

#include "base/text.hpp"
#include "topologies/cluster.hpp"

namespace orrery::calibrate {
namespace {

// Lower-case letters and digits, without what makers put before a product's name.
std::string key_of(std::string_view text) {
  std::string lower = to_lower(text);
  for (const std::string_view maker : {"nvidia", "tesla", "geforce", "amd", "instinct"}) {
    const std::size_t at = lower.find(maker);
    if (at != std::string::npos) {
      lower.erase(at, maker.size());
    }
  }
  std::string key;
  for (const char c : lower) {
    if ((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9')) {
      key += c;
    }
  }
  return key;
}

struct Spelling {
  std::string_view key;
  std::string_view gpu;
};

// As drivers print them and as tables abbreviate them, beyond the aliases of topologies/gpus.
constexpr std::array<Spelling, 27> kSpellings = {
    {{"a10040", "a100-sxm4-40gb"},
     {"a10080", "a100-sxm4-80gb"},
     {"a100sxm", "a100-sxm4-80gb"},
     {"a100pcie40gb", "a100-pcie-40gb"},
     {"a10080gbpcie", "a100-pcie-80gb"},
     {"a800sxm480gb", "a800-sxm4-80gb"},
     {"b200180gb", "b200-sxm-180gb"},
     {"b300sxm6ac", "b300-sxm-288gb"},
     {"gb200sxm", "gb200-186gb"},
     {"gh200480gb", "gh200-96gb"},
     {"h100pcie", "h100-pcie-80gb"},
     {"h100pcie80gb", "h100-pcie-80gb"},
     {"h10080gbhbm3", "h100-sxm5-80gb"},
     {"h100sxm580gb", "h100-sxm5-80gb"},
     {"h800sxm", "h800-sxm5-80gb"},
     {"h800", "h800-sxm5-80gb"},
     {"h200", "h200-sxm5-141gb"},
     {"h200sxm5141gb", "h200-sxm5-141gb"},
     {"p100sxm216gb", "p100-sxm2-16gb"},
     {"rtxpro6000blackwellserveredition", "rtx-pro-6000-server"},
     {"mi250xgcd", "mi250x-gcd"},
     {"v100sxm216gb", "v100-sxm2-16gb"},
     {"v100sxm232gb", "v100-sxm2-32gb"},
     {"v100sxm332gb", "v100-sxm3-32gb"},
     {"v100sxm2dgx1", "v100-sxm2-32gb"},
     {"a100sxm4dgxa100", "a100-sxm4-80gb"},
     {"l40s48gb", "l40s"}}};

std::map<std::string, std::string> known_names() {
  std::map<std::string, std::string> names;
  for (const std::string& name : topologies::gpu_names()) {
    const topologies::Gpu gpu = topologies::load_gpu(name);
    names.emplace(key_of(gpu.name), gpu.name);
    for (const std::string& alias : gpu.aliases) {
      names.emplace(key_of(alias), gpu.name);
    }
  }
  for (const Spelling& spelling : kSpellings) {
    names.emplace(spelling.key, spelling.gpu);
  }
  return names;
}

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
constexpr std::array<Spelling, 15> kUsualNodes = {{{"a100-sxm4-40gb", "dgx-a100-40"},
                                                   {"a100-sxm4-80gb", "hgx-a100"},
                                                   {"a800-sxm4-80gb", "hgx-a800"},
                                                   {"h100-sxm5-80gb", "hgx-h100"},
                                                   {"h200-sxm5-141gb", "hgx-h200"},
                                                   {"h800-sxm5-80gb", "hgx-h800"},
                                                   {"b200-sxm-180gb", "hgx-b200"},
                                                   {"b300-sxm-288gb", "hgx-b300"},
                                                   {"gb200-186gb", "gb200-nvl72"},
                                                   {"gb300-288gb", "gb300-nvl72"},
                                                   {"l40s", "l40s-8"},
                                                   {"rtx-pro-6000-server", "rtx-pro-6000-8"},
                                                   {"mi250x-gcd", "mi250x-8"},
                                                   {"mi300x", "mi300x-8"},
                                                   {"v100-sxm3-32gb", "dgx-2"}}};

}  // namespace

std::string gpu_of(std::string_view text) {
  static const std::map<std::string, std::string> kNames = known_names();
  const auto found = kNames.find(key_of(text));
  return found == kNames.end() ? "" : found->second;
}

std::string node_of(std::string_view gpu, std::string_view fabric) {
  const std::string words = to_lower(fabric);
  for (const NetworkWord& entry : kNetworks) {
    if (entry.gpu == gpu && words.find(entry.word) != std::string::npos) {
      return std::string(entry.node);
    }
  }
  for (const Spelling& usual : kUsualNodes) {
    if (usual.key == gpu) {
      return std::string(usual.gpu);
    }
  }
  return gpu.starts_with("v100-sxm2") ? "dgx-1v" : "";
}

}  // namespace orrery::calibrate
