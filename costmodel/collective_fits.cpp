// SPDX-License-Identifier: Apache-2.0
// Residuals as JSON: one member a curve, "fabric collective version ranks-per-node x nodes 2^first"
// with the values in thousandths as its text.
#include "costmodel/collective_fits.hpp"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <cmath>
#include <optional>
#include <utility>

#include "base/limits.hpp"
#include "base/text.hpp"

namespace orrery::costmodel {

namespace {

using sim::CommKind;

constexpr std::size_t kMaxCurves = 1024;
constexpr std::size_t kMaxValues = 64;
constexpr int kMaxLog2Bytes = 60;
constexpr int kMaxVersion = 100'000;
constexpr int kMaxPermille = 694;  // 1000 ln 2, rounded up
constexpr std::string_view kFormat =
    "write \"node all-gather 2.29 8x1 2^10\": \"12 -3 0\", thousandths of ln(measured / formula)";

std::optional<int> whole(std::string_view text, int min, int max) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool read = error == std::errc() && end == text.data() + text.size();
  return read && value >= min && value <= max ? std::optional(value) : std::nullopt;
}

std::optional<FabricClass> fabric_named(std::string_view name) {
  for (int i = 0; i < kNumFabricClasses; ++i) {
    if (to_text(static_cast<FabricClass>(i)) == name) {
      return static_cast<FabricClass>(i);
    }
  }
  return std::nullopt;
}

std::optional<CommKind> kind_named(std::string_view name) {
  for (const CommKind kind : {CommKind::AllReduce, CommKind::AllGather, CommKind::ReduceScatter,
                              CommKind::AllToAll, CommKind::Broadcast}) {
    if (sim::to_text(kind) == name) {
      return kind;
    }
  }
  return std::nullopt;
}

// "2.29", "8x1", "2^10"
std::optional<std::pair<int, int>> pair_of(std::string_view text, char separator, int max) {
  const auto parts = split(text, separator);
  const auto first = parts.size() == 2 ? whole(parts[0], 0, max) : std::nullopt;
  const auto second = first ? whole(parts[1], 0, max) : std::nullopt;
  return second ? std::optional(std::pair(*first, *second)) : std::nullopt;
}

std::optional<ResidualCurve> curve_named(std::string_view key) {
  const auto parts = split(key, ' ');
  if (parts.size() != 5) {
    return std::nullopt;
  }
  const auto fabric = fabric_named(parts[0]);
  const auto kind = kind_named(parts[1]);
  const auto version = pair_of(parts[2], '.', 99);
  const auto layout = pair_of(parts[3], 'x', static_cast<int>(limits::kMaxDevices));
  const auto first = pair_of(parts[4], '^', kMaxLog2Bytes);
  if (!fabric || !kind || !version || !layout || !first || first->first != 2 || layout->first < 1 ||
      layout->second < 1) {
    return std::nullopt;
  }
  ResidualCurve curve;
  curve.fabric = *fabric;
  curve.kind = *kind;
  curve.nccl = std::min(kMaxVersion, version->first * 100 + version->second);
  curve.ranks_per_node = layout->first;
  curve.nodes = layout->second;
  curve.first = first->second;
  return curve;
}

std::string key_of(const ResidualCurve& curve) {
  return fmt::format("{} {} {}.{} {}x{} 2^{}", to_text(curve.fabric), sim::to_text(curve.kind),
                     curve.nccl / 100, curve.nccl % 100, curve.ranks_per_node, curve.nodes,
                     curve.first);
}

}  // namespace

FabricClass read_fabric_class(const JsonReader& name) {
  constexpr std::array<std::string_view, kNumFabricClasses> kNames = {
      "node", "pcie", "infiniband", "sharp", "roce", "efa", "tcp", "slingshot"};
  return *fabric_named(name.one_of(kNames));
}

CollectiveResiduals read_residuals(const JsonReader& value) {
  ObjectReader object(value);
  std::vector<ResidualCurve> curves;
  for (const std::string& key : object.keys()) {
    const JsonReader member = object.required(key);
    std::optional<ResidualCurve> curve = curve_named(key);
    if (!curve || curves.size() >= kMaxCurves) {
      member.fail(curve ? "too many curves" : "not the name of a residual curve", kFormat);
    }
    const std::string text = member.string();
    for (const std::string_view part : split(text, ' ')) {
      const std::optional<int> number = whole(part, -kMaxPermille, kMaxPermille);
      if (!number || curve->permille.size() >= kMaxValues) {
        member.fail("not a list of residuals between -694 and 694", kFormat);
      }
      curve->permille.push_back(static_cast<std::int16_t>(*number));
    }
    curves.push_back(std::move(*curve));
  }
  object.finish();
  return CollectiveResiduals(std::move(curves));
}

Json to_json(const CollectiveResiduals& residuals) {
  Json object = Json::object();
  for (const ResidualCurve& curve : residuals.curves()) {
    object.set(key_of(curve), fmt::format("{}", fmt::join(curve.permille, " ")));
  }
  return object;
}

std::vector<CollectiveError> read_left_out(const JsonReader& value) {
  ObjectReader object(value);
  std::vector<CollectiveError> errors;
  for (const std::string& group : object.keys()) {
    ObjectReader member(object.required(group));
    CollectiveError error;
    error.group = group;
    error.median = member.required("median").number(0, 1e6);
    error.p90 = member.required("p90").number(0, 1e6);
    error.logs = static_cast<int>(member.required("logs").integer(1, 1'000'000));
    error.points = static_cast<int>(member.required("points").integer(1, 1'000'000'000));
    member.finish();
    errors.push_back(std::move(error));
  }
  object.finish();
  return errors;
}

Json to_json(const std::vector<CollectiveError>& left_out) {
  Json object = Json::object();
  for (const CollectiveError& error : left_out) {
    Json& member = object.set(error.group, Json::object());
    member.set("median", error.median);
    member.set("p90", error.p90);
    member.set("logs", error.logs);
    member.set("points", error.points);
  }
  return object;
}

}  // namespace orrery::costmodel
