// SPDX-License-Identifier: Apache-2.0
#include "sim/orders/order_blocks.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <utility>

#include "sim/orders/first_start.hpp"

namespace orrery::sim {

std::vector<std::uint16_t> v_placement(int stages) { return zigzag_placement(stages, 2); }

std::vector<std::uint16_t> zigzag_placement(int stages, int turns) {
  std::vector<std::uint16_t> device_of;
  for (int s = 0; s < stages * turns; ++s) {
    const int along = s % (2 * stages);
    device_of.push_back(
        static_cast<std::uint16_t>(along < stages ? along : 2 * stages - 1 - along));
  }
  return device_of;
}

Refusal check_one_or_two_chunks(const ScheduleParams& params) {
  return params.chunks == 1 || params.chunks == 2
             ? Refusal()
             : refused(fmt::format("1 or 2 model chunks per device are required, not {}",
                                   params.chunks),
                       Size::Chunks, 2);
}

PipelineOrder one_chain(const ScheduleParams& params, std::vector<std::uint16_t> device_of,
                        int kinds) {
  PipelineOrder order = empty_order(params, std::move(device_of), kinds);
  order.slices = params.slices;
  order.micro_batches *= params.slices;
  order.pieces = params.chunks * params.slices;
  return order;
}

int add_chain(PipelineOrder& order, const std::vector<std::uint16_t>& device_of, Chain chain) {
  chain.first = static_cast<int>(order.device_of.size());
  chain.stages = static_cast<int>(device_of.size());
  order.device_of.insert(order.device_of.end(), device_of.begin(), device_of.end());
  order.num_virtual_stages = static_cast<int>(order.device_of.size());
  order.micro_batches = std::max(order.micro_batches, chain.units);
  order.chains.push_back(chain);
  return chain.first;
}

void add_pass(PipelineOrder& order, PassKind kind, int virtual_stage, int unit, bool joined) {
  const auto stage = static_cast<std::uint16_t>(virtual_stage);
  order.passes[device_of(order, lane_of(kind), stage)].emplace_back(
      kind, stage, static_cast<std::uint32_t>(unit), joined);
}

int add_service(PipelineOrder& order, int device, int units) {
  return add_chain(order, {static_cast<std::uint16_t>(device)},
                   {.units = units, .role = Role::Service, .forward_only = true});
}

int add_services(PipelineOrder& order, int first_device, int count, int units) {
  const std::vector<std::uint16_t> devices = device_run(first_device, count);
  const int first =
      add_chain(order, devices, {.units = units, .role = Role::Service, .forward_only = true});
  for (int k = 0; k < count; ++k) {
    append_all(order.passes[devices[static_cast<std::size_t>(k)]], PassKind::Forward, first + k,
               units);
  }
  return first;
}

PipelineOrder bare_order(int lists, int pieces) {
  PipelineOrder order;
  order.passes.resize(static_cast<std::size_t>(lists));
  order.pieces = pieces;
  return order;
}

std::vector<std::uint16_t> device_run(int first, int count) {
  std::vector<std::uint16_t> devices(static_cast<std::size_t>(count));
  std::iota(devices.begin(), devices.end(), static_cast<std::uint16_t>(first));
  return devices;
}

void append_reversed(std::vector<Pass>& forwards) {
  forwards.reserve(2 * forwards.size());
  for (std::size_t k = forwards.size(); k-- > 0;) {
    forwards.emplace_back(PassKind::Backward, forwards[k].virtual_stage, forwards[k].micro_batch);
  }
}

void add_edge(PipelineOrder& order, Lane from_lane, int from, Lane to_lane, int to, int shift) {
  order.edges.push_back({from_lane, static_cast<std::uint16_t>(from), to_lane,
                         static_cast<std::uint16_t>(to), shift});
}

void split_placement(PipelineOrder& order, std::vector<std::uint16_t> gradients,
                     std::vector<std::uint16_t> weight_grads) {
  order.gradient_device_of = std::move(gradients);
  order.weight_grad_device_of = std::move(weight_grads);
  for (int s = 0; s < order.num_virtual_stages; ++s) {
    add_edge(order, Lane::Forward, s, Lane::Gradient, s);
    add_edge(order, Lane::Gradient, s, Lane::WeightGrad, s);
  }
}

std::vector<std::uint16_t> least_largest_runs(const std::vector<std::int64_t>& loads, int parts) {
  std::vector<std::uint16_t> run_of(loads.size());
  const auto cut = [&](std::int64_t most) {
    std::int64_t sum = 0;
    int run = 0;
    for (std::size_t k = 0; k < loads.size(); ++k) {
      const bool one_each = loads.size() - k == static_cast<std::size_t>(parts - 1 - run);
      if (k > 0 && (sum + loads[k] > most || one_each)) {
        ++run;
        sum = 0;
      }
      sum += loads[k];
      run_of[k] = static_cast<std::uint16_t>(std::min(run, parts - 1));
    }
    return run < parts;
  };
  std::int64_t low = *std::max_element(loads.begin(), loads.end());
  std::int64_t high = std::accumulate(loads.begin(), loads.end(), std::int64_t{0});
  while (low < high) {
    const std::int64_t middle = low + (high - low) / 2;
    if (cut(middle)) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  cut(low);
  return run_of;
}

std::vector<DeviceBlock> soonest_blocks(std::vector<int> sizes, int devices) {
  std::stable_sort(sizes.begin(), sizes.end(), std::greater<>());
  std::vector<DeviceBlock> blocks;
  std::vector<int> load(static_cast<std::size_t>(devices), 0);
  const auto busy = [&](int first, int size) {
    return *std::max_element(load.begin() + first, load.begin() + first + size);
  };
  FirstStart free(1);  // of the blocks of one size
  for (const int size : sizes) {
    if (blocks.empty() || blocks.back().size != size) {
      free = FirstStart(static_cast<std::size_t>(devices / size));
      for (int first = 0; first < devices; first += size) {
        free.set(static_cast<std::size_t>(first / size), busy(first, size));
      }
    }
    const std::size_t block = free.first();
    const int first = static_cast<int>(block) * size;
    const int end = busy(first, size) + 1;
    std::fill_n(load.begin() + first, size, end);
    free.set(block, end);
    blocks.push_back({size, first});
  }
  return blocks;
}

Refusal check_block_sizes(const std::vector<int>& sizes, int devices, std::string_view what) {
  const auto wrong = std::find_if(sizes.begin(), sizes.end(), [&](int size) {
    return size < 1 || devices < 1 || devices % size != 0;
  });
  if (wrong == sizes.end() || devices < 1) {
    return {};
  }
  int divisor = std::clamp(*wrong, 1, devices);
  while (devices % divisor != 0) {
    --divisor;
  }
  return refused(
      fmt::format("{} must divide the {} devices, and {} does not", what, devices, *wrong),
      Size::Slices, divisor);
}

}  // namespace orrery::sim
