// SPDX-License-Identifier: Apache-2.0
// Galvatron's own problem: its leaf strategies and the cost model of its PVLDB artifact (Miao et
// al., PVLDB 16(3), 2022, arXiv 2211.13878; utils/cost_model.py and utils/dp_utils.py of the
// artifact). Units are the artifact's: MiB, milliseconds a sample in the profile, ms/MiB for links;
// times that come out are seconds. fp32 training.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace orrery::search::galvatron {

// A leaf of the decision tree: pipeline, tensor and data degree; `sharded` data parallelism (SDP);
// whether tensor parallelism has the consecutive ranks (only matters where tp and dp exceed 1).
struct Strategy {
  int pp = 1;
  int tp = 1;
  int dp = 1;
  bool sharded = false;
  bool consecutive = false;

  bool both() const { return tp > 1 && dp > 1; }
  bool same_degrees(const Strategy& other) const {
    return pp == other.pp && tp == other.tp && dp == other.dp;
  }
  // "2-2*-2f": the star stands at the degree on consecutive ranks, f marks SDP.
  std::string text() const;
};

enum class Space { Full, Dp, Tp, Pp, Sdp, DpTp, DpPp };

// All leaves of `devices` = 2^n with the pipeline degree `pp`, in the artifact's order.
std::vector<Strategy> leaves(int devices, int pp, Space space);

// A run of equal layers as profiled.
struct LayerType {
  int count = 0;
  double forward_ms = 0;                 // one sample on one device
  double parameters_mib = 0;             // fp32
  std::map<int, double> activation_mib;  // of one sample, by tensor-parallel degree
  double sequence = 0;
  double hidden = 0;
  bool decoder = false;  // cross-attention: six messages a layer instead of four
};

// Number of micro-batches of `per_device` samples: the first rule that matches.
struct MicroBatchRule {
  std::optional<int> pp;
  std::optional<int> tp;
  std::optional<double> equal;  // per_device == equal
  std::optional<double> below;  // per_device < below
  std::optional<double> up_to;  // per_device <= up_to
  double per_sample = 0;
  double constant = 1;
};

struct Problem {
  int devices = 8;
  Space space = Space::Full;
  std::int64_t memory_mib = 0;
  int first_batch = 8;
  int last_batch = 8;
  int batch_step = 8;
  std::vector<LayerType> layers;
  double other_states_mib = 0;      // embedding, head
  double other_activation_mib = 0;  // of one sample
  double extra_overhead_ms = 0;     // of 24 layers, with data parallelism
  double context_mib = 1024;
  double overlap_slowdown = 1.3;
  std::vector<MicroBatchRule> micro_batches;
  // ms/MiB by pipeline degree and by group: "4", "4 strided", "4 consecutive".
  std::map<int, std::map<std::string, double>> links;
  std::string where;  // for errors
};

// max(x, y) + (slowdown - 1) min(x, y): both run `slowdown` times longer while they overlap.
double overlap(double x, double y, double slowdown);
double layer_seconds(const Problem& problem, const LayerType& layer, const Strategy& strategy,
                     int batch);
// Memory of a layer; the planner rounds it up to whole MiB, as the artifact does.
double layer_mib(const LayerType& layer, const Strategy& strategy, int batch);
// Embedding, head and context.
double other_mib(const Problem& problem, int batch, int island);
// Seconds to hand activations over from a layer under `from` to one under `to`.
double switch_seconds(const Problem& problem, const Strategy& from, const Strategy& to, int batch);
// Errors: a link that `problem` does not give.
double link(const Problem& problem, int pp, const std::string& group);

}  // namespace orrery::search::galvatron
