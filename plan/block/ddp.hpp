// SPDX-License-Identifier: Apache-2.0
// Data parallelism of a list of gradients (PyTorch DDP; Li et al. 2020, "PyTorch Distributed"): the
// networks that a plan cannot build, as convolutional ones, are the sizes of their gradients in the
// order in which they become ready and the work that precedes each of them.
//
// Buckets (pytorch/pytorch torch/csrc/distributed/c10d/reducer.cpp, torch/nn/parallel/
// distributed.py): a gradient is added to the bucket being filled, which closes once it holds its
// cap, 25 MiB by default. One bucket is smaller, 1 MiB: at first that of the parameters registered
// first, which is reduced last; releases that rebuild buckets in the order of the first backward
// (1.7 on) make it the first to be reduced. Buckets are reduced in order on one stream. Each
// gradient is copied into its bucket and, before the optimizer, back. Before every forward the
// module's buffers (batch normalisation's statistics) are flattened, broadcast from rank 0 and
// copied back one by one (broadcast_buffers, torch/csrc/distributed/c10d/comm.cpp).
#pragma once

#include <string>
#include <vector>

#include "base/json.hpp"
#include "costmodel/collective_model.hpp"
#include "costmodel/device_model.hpp"

namespace orrery::plan {

struct ReadyGradient {
  ByteCount bytes;
  double work = 0;  // of the backward up to it since the one before, in any unit
};

enum class SmallBucket : std::uint8_t { None, First, Last };  // in the order of reduction

struct DdpNetwork {
  std::vector<ReadyGradient> ready;  // in ready order
  int buffers = 0;                   // tensors broadcast before every forward
  ByteCount buffer_bytes;
};

struct DdpOptions {
  ByteCount bucket = ByteCount(25LL << 20);
  ByteCount small_bucket = ByteCount(1LL << 20);
  SmallBucket small = SmallBucket::First;
  bool overlap = true;  // else all reductions wait for the end of the backward
  bool copies = true;   // gradients are copied to buckets and back; not with views of them
  bool processors_shared = true;  // a reduction slows the backward down, and it the reduction
  double gpu_variation = 0;       // range of the GPUs' speeds, see slowest_of
};

// How much longer the slowest of n equal GPUs takes than the mean, for normally distributed times
// whose box-plot whiskers (2.7 standard deviations each side) span `range` of the mean. Synchronous
// data parallelism waits for it. Sinha et al., SC 2022 (arXiv 2208.11035) find 8 % on average over
// clusters of V100 and others.
double slowest_of(int gpus, double range);

// Number of gradients in each bucket, in the order of reduction. `ready` is in ready order.
std::vector<int> assign_buckets(const std::vector<ReadyGradient>& ready, const DdpOptions& options);

// Registration order to ready order: autograd runs backward.
std::vector<ReadyGradient> ready_order(std::vector<ReadyGradient> registered);

struct DdpTime {
  Seconds iteration;
  Seconds backward;    // with what overlap costs it
  Seconds reductions;  // sum of their times alone
  Seconds exposed;     // from the end of the backward to the end of the last reduction
  int buckets = 0;
};

// One iteration of forward, backward and optimizer with `group` ranks.
DdpTime ddp_iteration(const DdpNetwork& network, Seconds forward, Seconds backward,
                      Seconds optimizer, const costmodel::GroupShape& group,
                      const costmodel::DeviceModel& device,
                      const costmodel::CollectiveModel& collectives, const DdpOptions& options);

// A list of fp32 gradients as JSON ("schema": "orrery-gradients"), in registration order.
DdpNetwork read_gradients(const Json& document, const std::string& where);

}  // namespace orrery::plan
