// SPDX-License-Identifier: Apache-2.0
// What measured collectives take beyond NCCL's formula with its five corrections: the natural
// logarithm of measured over predicted time, on a grid of one point per power of two of the bytes
// for each layout of ranks that a profile knows, per kind of fabric, collective and NCCL version.
//
// Between grid points it is bilinear in log2(bytes) and log2(ranks) (log2(nodes) across nodes).
// Smaller sizes take the first value (latency does not depend on bytes there); beyond the largest
// measured size it fades to nothing over kFadeOctaves; beyond the measured layouts the nearest one
// counts, faded by exp(-distance in log2 / kRankReach). Pure functions of the profile.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "sim/engine/tags.hpp"
#include "topologies/cluster.hpp"

namespace orrery::costmodel {

// Where ranks talk, as far as NCCL behaves differently: inside a node (or NVLink domain) over links
// of its own or over PCIe, over verbs networks, with in-network reduction, over networks with a
// plug-in of their own.
enum class FabricClass : std::uint8_t { Node, Pcie, InfiniBand, Sharp, Roce, Efa, Tcp, Slingshot };
inline constexpr int kNumFabricClasses = 8;

std::string_view to_text(FabricClass fabric);  // "node", "infiniband", ...
FabricClass fabric_class(const topologies::ScaleOut& network);
FabricClass fabric_class(const topologies::ScaleUp& links);  // Node or Pcie
inline bool inside_node(FabricClass fabric) {
  return fabric == FabricClass::Node || fabric == FabricClass::Pcie;
}

// The clamp of a residual: a factor between 1/2 and 2.
inline constexpr double kMaxLogResidual = 0.6931471805599453;
inline constexpr double kFadeOctaves = 6;
inline constexpr double kRankReach = 4;

struct ResidualCurve {
  FabricClass fabric = FabricClass::Node;
  sim::CommKind kind = sim::CommKind::AllReduce;
  int nccl = 0;  // 100 x major + minor
  int ranks_per_node = 1;
  int nodes = 1;
  int first = 0;                       // log2(bytes) of the first value
  std::vector<std::int16_t> permille;  // 1000 x ln(measured / formula)
  bool operator==(const ResidualCurve&) const = default;
};

struct ResidualQuery {
  FabricClass fabric = FabricClass::Node;
  sim::CommKind kind = sim::CommKind::AllReduce;
  int nccl = 0;  // 0: the newest measured
  int ranks_per_node = 1;
  int nodes = 1;
};

// Cheap to copy: profiles, plans and models share the curves.
class CollectiveResiduals {
 public:
  CollectiveResiduals() = default;
  explicit CollectiveResiduals(std::vector<ResidualCurve> curves);

  const std::vector<ResidualCurve>& curves() const;
  bool empty() const { return curves().empty(); }
  bool operator==(const CollectiveResiduals& other) const { return curves() == other.curves(); }

  // ln R at 2^first, 2^(first + step), ... bytes; zeros where nothing is known.
  void fill(const ResidualQuery& query, double first, double step, std::span<double> out) const;

 private:
  std::shared_ptr<const std::vector<ResidualCurve>> curves_;
};

}  // namespace orrery::costmodel
