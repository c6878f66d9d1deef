// SPDX-License-Identifier: Apache-2.0
// The corrections of NCCL's formula for collectives: five factors a kind of fabric, residuals on
// top, and the errors that whole logs left out of the fit showed. A section of a profile; written
// by `orrery calibrate fit`, optional in profiles written by hand.
#pragma once

#include <string>
#include <vector>

#include "base/json.hpp"
#include "base/json_reader.hpp"
#include "base/units.hpp"
#include "costmodel/collective_residuals.hpp"

namespace orrery::costmodel {

// Corrections of NCCL's formula, fitted to nccl-tests logs.
struct CollectiveParameters {
  Seconds base;                   // a0
  double low_latency_factor = 1;  // lambda of LL and LL128
  double simple_factor = 1;       // lambda of Simple
  double bandwidth_factor = 1;    // beta
  double in_switch_factor = 1;    // beta of reductions in NVSwitches (NVLS and its trees)
  Bytes half_size;                // s0: bandwidth is reduced by s / (s + s0)
  bool operator==(const CollectiveParameters&) const = default;
};

// Corrections of one kind of network where they differ from those of the profile's sections.
struct FabricParameters {
  FabricClass fabric = FabricClass::InfiniBand;
  CollectiveParameters parameters;
  bool operator==(const FabricParameters&) const = default;
};

// |predicted / measured - 1| over logs that took no part in the fit, or over times that did not
// where the profile is fitted to the logs of one machine.
struct CollectiveError {
  std::string group;  // "one-node", "several-nodes", "all-to-all"
  double median = 0;
  double p90 = 0;
  int logs = 0;
  int points = 0;
  bool operator==(const CollectiveError&) const = default;
};

struct CollectiveFits {
  std::vector<FabricParameters> fabrics;
  CollectiveResiduals residuals;
  std::vector<CollectiveError> left_out;
  bool operator==(const CollectiveFits&) const = default;
  bool empty() const { return fabrics.empty() && residuals.empty() && left_out.empty(); }
};

FabricClass read_fabric_class(const JsonReader& name);
CollectiveResiduals read_residuals(const JsonReader& value);
Json to_json(const CollectiveResiduals& residuals);
std::vector<CollectiveError> read_left_out(const JsonReader& value);
Json to_json(const std::vector<CollectiveError>& left_out);

}  // namespace orrery::costmodel
