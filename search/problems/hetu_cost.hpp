// SPDX-License-Identifier: Apache-2.0
// The problem and the cost functions of Hetu-Galvatron, Galvatron's open-source successor
// (PKU-DAIR/Hetu-Galvatron, galvatron/core/cost_model and search_engine): for a batch,
// micro-batches ("chunks") and a pipeline degree, every layer takes one of the strategies tensor or Ulysses
// parallelism x ZeRO-2 or -3 x checkpointing: 50 for eight devices. bf16 training, 1F1B with a
// flush, one type of layers, stages of equal depth. Units are the profile's: MiB, ms; times that
// come out are seconds.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace orrery::search::hetu {

struct Strategy {
  int pp = 1;
  int split = 1;  // ranks of a layer: tensor parallelism, or Ulysses
  bool ulysses = false;
  int dp = 1;
  int zero = 0;  // 0 (one data rank), 2 or 3
  bool checkpoint = false;
  int tp() const { return ulysses ? 1 : split; }
  int shards() const { return ulysses ? dp * split : dp; }  // of states
  std::string text() const;  // "1-4*-2f-c": f ZeRO-3, c checkpointed; "u": Ulysses
};

// a x + b
struct Line {
  double slope = 0;
  double constant = 0;
  double at(double x) const { return slope * x + constant; }
};

// Of embedding or head on a stage, by tensor-parallel degree; activations of one sample.
struct EndMemory {
  std::map<int, double> states_mib;
  std::map<int, double> activation_mib;
};

struct Problem {
  int devices = 8;
  int layers = 0;
  double sequence = 0;
  double hidden = 0;
  std::int64_t memory_mib = 0;
  int batch = 0;
  double parameters_mib = 0;             // of a layer, fp32
  Line forward_ms;                       // of a layer over samples
  Line other_forward_ms;                 // of embedding and head
  std::map<int, double> activation_mib;  // of a layer and sample, by split
  double checkpoint_mib = 0;             // of a checkpointed layer and sample
  EndMemory alone, first, last;          // without pipeline; first and last stage with one
  double overlap_slowdown = 1;
  double context_mib = 1024;
  std::map<std::string, double> reduce_bandwidth;  // MB/ms by "ranks_consecutive": "4_0", "8_1"
  std::map<int, double> transfer_bandwidth;        // MB/ms by pipeline degree
  std::map<int, std::map<int, double>> gather_ms;  // by ranks and MiB
  std::map<int, std::map<int, double>> all_to_all_ms;
};

// What is decided beside the layers.
struct Setting {
  int pp = 1;
  int chunks = 1;
  int buffer = 1;  // ranks that share the buffer of gathered activations; 0: no buffer
  Strategy ends;   // of embedding and head; zero and split count
};

// Every strategy of a layer for a pipeline degree: 24, 16, 8 and 2 for pp = 1, 2, 4, 8.
std::vector<Strategy> strategies(const Problem& problem, int pp);
// Those of embedding and head: without checkpointing.
std::vector<Strategy> end_strategies(const Problem& problem, int pp);

struct LayerSeconds {
  double synced = 0;  // with reduction of gradients
  double local = 0;   // of a micro-batch without
};
LayerSeconds layer_seconds(const Problem& problem, const Strategy& s, int chunks);
// Whole MiB of a layer on a stage, as the search engine counts.
std::int64_t layer_mib(const Problem& problem, const Strategy& s, int chunks, int stage);
// Seconds of embedding and head on every stage, without and with reduction of gradients.
std::vector<LayerSeconds> end_seconds(const Problem& problem, const Setting& setting);
// MiB that a stage has for its layers: without the fifth of cards above 20 GiB that the allocator
// keeps, embedding, head, context and the shared buffer.
std::int64_t room_mib(const Problem& problem, const Setting& setting, int stage);
// Of handing over from a layer to the next.
double switch_seconds(const Problem& problem, const Strategy& from, const Strategy& to, int chunks);

// The reported time of a step: `local` and `synced` are sums over the layers of each stage, `local`
// with embedding and head. Rises with each `local` and each `synced`.
double step_seconds(const std::vector<double>& local, const std::vector<double>& synced,
                    int chunks);

}  // namespace orrery::search::hetu
