// SPDX-License-Identifier: Apache-2.0
// DynaPipe's plan of an iteration (Jiang et al., EuroSys 2024, arXiv 2311.10418, section 5):
// samples of different length, ordered so that neighbours pad little, are cut into contiguous
// micro-batches by a dynamic program for each bound on the longest of them; number partitioning
// deals them to data-parallel replicas; each replica runs clusters of like ones in the order that
// ends soonest.
#pragma once

#include <limits>
#include <string>
#include <vector>

#include "sim/pipeline/pipeline.hpp"

namespace orrery::search {

struct Sample {
  double input = 0;   // tokens
  double target = 0;  // tokens of the decoder; 0 without one
};

// Under one way to recompute: seconds of a stage, both passes, and bytes of activations of a
// micro-batch of n samples padded to its longest.
struct MicroBatchModel {
  std::string recompute;  // its name
  double base = 0;
  double per_token = 0;
  double per_token_squared = 0;
  double bytes_per_token = 0;
  double backward_share = 2.0 / 3;  // of the time
  double time(double n, const Sample& longest) const;
  double bytes(double n, const Sample& longest) const;
};

struct Pipelines {
  int stages = 1;
  int chunks = 1;
  int replicas = 1;
};

struct MicroBatch {
  int first = 0;  // samples
  int last = 0;   // exclusive
  double time = 0;
  double bytes = 0;
  int replica = 0;
};

struct MicroBatches {
  // (stages - 1) longest / chunks + sum / replicas; infinite where a sample does not fit.
  double score = std::numeric_limits<double>::infinity();
  double longest = 0;
  std::size_t mode = 0;  // of the models
  std::vector<MicroBatch> list;
  bool found() const { return score < std::numeric_limits<double>::infinity(); }
};

// By length; with targets by both, so that neighbours pad little in either.
void sort_samples(std::vector<Sample>& samples);

// Of sorted samples. A micro-batch may keep `caps` bytes, tried in turn for each model; the first
// of both with a cut is taken. Bounds on the longest that are less than `gap` apart are tried once.
// O(models x caps x bounds x samples^2).
MicroBatches make_micro_batches(const std::vector<Sample>& samples,
                                const std::vector<MicroBatchModel>& models,
                                const Pipelines& pipelines, const std::vector<double>& caps,
                                double gap);

// Karmarkar-Karp differencing into `parts` sets; the set of each value.
std::vector<int> deal(const std::vector<double>& values, int parts);

// The cluster of each value, 0 the shortest ones: the least sum of squared distances from the means
// of at most `clusters`. O(clusters x values^2).
std::vector<int> cluster(const std::vector<double>& values, int clusters);

// Micro-batches of one replica in an order.
struct OrderedMicroBatches {
  std::vector<int> order;  // numbers in the list
  double makespan = std::numeric_limits<double>::infinity();
  double as_sorted = 0;  // the makespan in the order of the samples
  sim::PipelineOrder lists;
  sim::PipelineResult run;  // with spans
};

struct PipelineModel {
  int stages = 1;
  double memory = 0;  // of a stage, for activations
  double backward_share = 2.0 / 3;
  double send = 0;   // seconds of a transfer
  int clusters = 3;  // at most; fewer where runs have many passes
};

// The order of the samples and every permutation of the clusters by DynaPipe's schedule, which
// admits a forward only if its activations fit; of equal ones the first. Without a micro-batch the
// makespan is 0.
OrderedMicroBatches order_micro_batches(const std::vector<MicroBatch>& list, int replica,
                                        const PipelineModel& model);

}  // namespace orrery::search
