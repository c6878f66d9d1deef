// SPDX-License-Identifier: Apache-2.0
// A chain of layers with profiled costs, as planners cut it into pipeline stages, and the cut
// itself. Sums over ranges are O(1) after reading.
#pragma once

#include <vector>

#include "base/json.hpp"
#include "base/json_reader.hpp"
#include "base/units.hpp"

namespace orrery::search {

struct ChainLayer {
  Seconds forward;  // of one micro-batch on one device
  Seconds backward;
  Bytes parameters;
  Bytes activations;  // kept from forward to backward
  Bytes output;       // sent to the next layer
};

// Layers [first, last) sums. Seconds and bytes as plain doubles: planners mix them in ratios.
class Chain {
 public:
  explicit Chain(std::vector<ChainLayer> layers);

  int size() const { return static_cast<int>(layers_.size()); }
  const ChainLayer& layer(int i) const { return layers_[static_cast<std::size_t>(i)]; }
  double forward(int first, int last) const { return sum(forward_, first, last); }
  double backward(int first, int last) const { return sum(backward_, first, last); }
  double time(int first, int last) const { return forward(first, last) + backward(first, last); }
  double parameters(int first, int last) const { return sum(parameters_, first, last); }
  double activations(int first, int last) const { return sum(activations_, first, last); }
  // Bytes that cross the cut before layer `at`; 0 at both ends.
  double cut(int at) const { return at <= 0 || at >= size() ? 0 : layer(at - 1).output.value(); }

 private:
  static double sum(const std::vector<double>& prefix, int first, int last) {
    return prefix[static_cast<std::size_t>(last)] - prefix[static_cast<std::size_t>(first)];
  }
  std::vector<ChainLayer> layers_;
  std::vector<double> forward_, backward_, parameters_, activations_;
};

// "layers": a list of {"forward", "backward", "parameters", "activations", "output", "count"};
// what is missing is 0, `count` repeats a layer. "state_time_s", "state_parameters_bytes" and
// "state_activations_bytes" are added to the backward time, the parameters and the activations: the
// states of a flattened graph differ by amounts that may be negative. "batch_scale": times,
// activations and outputs are those of so many times the profiled batch. At most `max_layers`
// layers.
Chain read_chain(ObjectReader& problem, int max_layers);

// A stage: layers [first, last) on `replicas` devices.
struct ChainStage {
  int first = 0;
  int last = 0;
  int replicas = 1;
  bool operator==(const ChainStage&) const = default;
};
// [{"first": 0, "last": 17, "replicas": 3}, ...]; `last` is exclusive.
Json to_json(const std::vector<ChainStage>& stages);

}  // namespace orrery::search
