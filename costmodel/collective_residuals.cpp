// SPDX-License-Identifier: Apache-2.0
#include "costmodel/collective_residuals.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <utility>

namespace orrery::costmodel {

namespace {

constexpr std::array<std::string_view, kNumFabricClasses> kFabricNames = {
    "node", "pcie", "infiniband", "sharp", "roce", "efa", "tcp", "slingshot"};

bool belongs(const ResidualCurve& curve, const ResidualQuery& query) {
  return curve.fabric == query.fabric && curve.kind == query.kind;
}

double distance(int a, int b) {
  return std::abs(std::log2(std::max(1, a)) - std::log2(std::max(1, b)));
}

// The version nearest to the one asked for; the newest when none is.
int nearest_version(const std::vector<ResidualCurve>& curves, const ResidualQuery& query) {
  int best = 0;
  int best_gap = std::numeric_limits<int>::max();
  for (const ResidualCurve& curve : curves) {
    if (!belongs(curve, query)) {
      continue;
    }
    const int gap = query.nccl > 0 ? std::abs(curve.nccl - query.nccl) : -curve.nccl;
    if (gap < best_gap) {
      best_gap = gap;
      best = curve.nccl;
    }
  }
  return best;
}

double value_at(const ResidualCurve& curve, double log2_bytes) {
  const auto count = static_cast<double>(curve.permille.size());
  const double at = log2_bytes - curve.first;
  const auto entry = [&](double index) {
    return curve.permille[static_cast<std::size_t>(index)] / 1000.0;
  };
  const auto faded = [](double beyond) { return std::max(0.0, 1 - beyond / kFadeOctaves); };
  if (at <= 0) {
    return entry(0);
  }
  if (at >= count - 1) {
    return entry(count - 1) * faded(at - (count - 1));
  }
  const double low = std::floor(at);
  return entry(low) + (at - low) * (entry(low + 1) - entry(low));
}

// One curve and its weight in the sum.
struct Part {
  const ResidualCurve* curve = nullptr;
  double weight = 0;
};

// The neighbours of the asked layout: along the ranks inside a node; across nodes along the nodes,
// among the curves whose ranks per node are nearest.
class Neighbours {
 public:
  Neighbours(const std::vector<ResidualCurve>& curves, const ResidualQuery& query)
      : query_(query), version_(nearest_version(curves, query)) {
    double closest = std::numeric_limits<double>::max();
    for (const ResidualCurve& curve : curves) {
      if (counts(curve)) {
        closest = std::min(closest, off_axis(curve));
      }
    }
    for (const ResidualCurve& curve : curves) {
      if (counts(curve) && off_axis(curve) <= closest) {
        place(curve);
      }
    }
    fade_ = std::exp(-closest / kRankReach);
  }

  std::array<Part, 2> parts() const {
    if (low_ == nullptr && high_ == nullptr) {
      return {};
    }
    if (low_ == nullptr || high_ == nullptr) {
      const ResidualCurve* nearest = low_ != nullptr ? low_ : high_;
      return {Part{nearest, fade_ * std::exp(-distance(axis(*nearest), asked()) / kRankReach)}, {}};
    }
    const double span = distance(axis(*low_), axis(*high_));
    const double part = span > 0 ? distance(axis(*low_), asked()) / span : 0;
    return {Part{low_, fade_ * (1 - part)}, Part{high_, fade_ * part}};
  }

 private:
  bool inside() const { return inside_node(query_.fabric); }
  int axis(const ResidualCurve& curve) const {
    return inside() ? curve.ranks_per_node : curve.nodes;
  }
  int asked() const { return inside() ? query_.ranks_per_node : query_.nodes; }
  double off_axis(const ResidualCurve& curve) const {
    return inside() ? 0 : distance(curve.ranks_per_node, query_.ranks_per_node);
  }
  bool counts(const ResidualCurve& curve) const {
    return belongs(curve, query_) && curve.nccl == version_ && !curve.permille.empty();
  }
  void place(const ResidualCurve& curve) {
    if (axis(curve) <= asked() && (low_ == nullptr || axis(curve) > axis(*low_))) {
      low_ = &curve;
    }
    if (axis(curve) >= asked() && (high_ == nullptr || axis(curve) < axis(*high_))) {
      high_ = &curve;
    }
  }

  ResidualQuery query_;
  int version_;
  const ResidualCurve* low_ = nullptr;
  const ResidualCurve* high_ = nullptr;
  double fade_ = 1;
};

}  // namespace

std::string_view to_text(FabricClass fabric) {
  return kFabricNames[static_cast<std::size_t>(fabric)];
}

FabricClass fabric_class(const topologies::ScaleOut& network) {
  if (network.in_network_reduction) {
    return FabricClass::Sharp;
  }
  const std::string& link = network.link;
  return link == "efa"                    ? FabricClass::Efa
         : link == "ethernet"             ? FabricClass::Tcp
         : link == "roce"                 ? FabricClass::Roce
         : link.starts_with("slingshot-") ? FabricClass::Slingshot
                                          : FabricClass::InfiniBand;
}

FabricClass fabric_class(const topologies::ScaleUp& links) {
  return links.wiring == topologies::Wiring::Host ? FabricClass::Pcie : FabricClass::Node;
}

CollectiveResiduals::CollectiveResiduals(std::vector<ResidualCurve> curves)
    : curves_(std::make_shared<const std::vector<ResidualCurve>>(std::move(curves))) {}

const std::vector<ResidualCurve>& CollectiveResiduals::curves() const {
  static const std::vector<ResidualCurve> kNone;
  return curves_ ? *curves_ : kNone;
}

void CollectiveResiduals::fill(const ResidualQuery& query, double first, double step,
                               std::span<double> out) const {
  std::fill(out.begin(), out.end(), 0.0);
  for (const Part& part : Neighbours(curves(), query).parts()) {
    if (part.curve == nullptr) {
      continue;
    }
    for (std::size_t i = 0; i < out.size(); ++i) {
      out[i] += part.weight * value_at(*part.curve, first + step * static_cast<double>(i));
    }
  }
}

}  // namespace orrery::costmodel
