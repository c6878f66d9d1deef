// SPDX-License-Identifier: Apache-2.0
// Copies between host and device: pinned and pageable memory, one way and both ways at once.
#include <cuda_runtime.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "calibrate/cuda/benchmark.hpp"

namespace orrery::calibrate::cuda {
namespace {

constexpr std::int64_t kLargest = 256LL << 20;

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Both directions start together and the stream goes on when both have ended.
struct PinnedCopy {
  PinnedCopy(std::size_t bytes, CopyDirection way)
      : direction(way),
        size(bytes),
        host_in(bytes),
        host_out(bytes),
        device_in(bytes),
        device_out(bytes) {}

  void enqueue(Stream stream) {
    const bool both = direction == CopyDirection::Both;
    if (both) {
      begin.record(stream);
      check(cudaStreamWaitEvent(other.get(), begin.get()), "copy");
    }
    if (direction != CopyDirection::DeviceToHost) {
      check(cudaMemcpyAsync(device_in.data(), host_in.data(), size, cudaMemcpyHostToDevice, stream),
            "copy to the device");
    }
    if (direction != CopyDirection::HostToDevice) {
      check(cudaMemcpyAsync(host_out.data(), device_out.data(), size, cudaMemcpyDeviceToHost,
                            both ? other.get() : stream),
            "copy to the host");
    }
    if (both) {
      end.record(other.get());
      check(cudaStreamWaitEvent(stream, end.get()), "copy");
    }
  }

  CopyDirection direction;
  std::size_t size;
  PinnedBuffer host_in;
  PinnedBuffer host_out;
  DeviceBuffer device_in;
  DeviceBuffer device_out;
  OwnedStream other;
  OwnedEvent begin{false};
  OwnedEvent end{false};
};

// Copies of pageable memory wait for the host, so the host's clock times them.
struct PageableCopy {
  PageableCopy(std::size_t bytes, CopyDirection way)
      : direction(way), host(bytes, std::byte{1}), device(bytes) {}

  double time() {
    const double start = now();
    if (direction == CopyDirection::HostToDevice) {
      check(cudaMemcpy(device.data(), host.data(), host.size(), cudaMemcpyHostToDevice),
            "copy to the device");
    } else {
      check(cudaMemcpy(host.data(), device.data(), host.size(), cudaMemcpyDeviceToHost),
            "copy to the host");
    }
    check(cudaDeviceSynchronize(), "copy");
    return now() - start;
  }

  CopyDirection direction;
  std::vector<std::byte> host;
  DeviceBuffer device;
};

std::vector<Case> copy_cases(const BenchmarkContext&) {
  std::vector<Case> cases;
  for (const std::int64_t bytes : log_sizes(64 << 10, kLargest, 7)) {
    const auto size = static_cast<std::size_t>(bytes);
    for (const CopyDirection direction :
         {CopyDirection::HostToDevice, CopyDirection::DeviceToHost, CopyDirection::Both}) {
      cases.push_back(
          make_case(HostCopySample{bytes, direction, true}, "cudaMemcpyAsync", [size, direction] {
            const auto copy = std::make_shared<PinnedCopy>(size, direction);
            return Launch{.enqueue = [copy](Stream stream) { copy->enqueue(stream); }};
          }));
      if (direction == CopyDirection::Both) {
        continue;
      }
      cases.push_back(
          make_case(HostCopySample{bytes, direction, false}, "cudaMemcpy", [size, direction] {
            const auto copy = std::make_shared<PageableCopy>(size, direction);
            return Launch{.timed = [copy](Stream) { return copy->time(); }};
          }));
    }
  }
  return cases;
}

}  // namespace

extern const Benchmark benchmark_host_copy;
const Benchmark benchmark_host_copy = {
    "host-copy", "host to device and back, pinned and pageable, one and both ways", 1.0,
    copy_cases};

}  // namespace orrery::calibrate::cuda
