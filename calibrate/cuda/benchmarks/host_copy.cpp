// SPDX-License-Identifier: Apache-2.0
// Copies between host and device: pinned and pageable memory, one way and both ways at once.
#include <cuda_runtime.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <future>
#include <memory>
#include <vector>

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

// Copies of pageable memory wait for the host, so the host's clock times them, and both ways at
// once take two threads.
class PageableCopy {
 public:
  PageableCopy(std::size_t bytes, CopyDirection way)
      : direction_(way),
        host_in_(way == CopyDirection::DeviceToHost ? 0 : bytes, std::byte{1}),
        host_out_(way == CopyDirection::HostToDevice ? 0 : bytes, std::byte{1}),
        device_in_(bytes),
        device_out_(bytes) {
    check(cudaGetDevice(&index_), "device");
  }

  double time() {
    const double start = now();
    if (direction_ == CopyDirection::Both) {
      std::future<void> back = std::async(std::launch::async, [this] {
        check(cudaSetDevice(index_), "device");
        copy_to_host();
      });
      copy_to_device();
      back.get();
    } else if (direction_ == CopyDirection::HostToDevice) {
      copy_to_device();
    } else {
      copy_to_host();
    }
    check(cudaDeviceSynchronize(), "copy");
    return now() - start;
  }

 private:
  // On streams of their own, as copies on the default stream wait for each other.
  void copy_to_device() {
    check(cudaMemcpyAsync(device_in_.data(), host_in_.data(), host_in_.size(),
                          cudaMemcpyHostToDevice, in_.get()),
          "copy to the device");
    in_.synchronize();
  }
  void copy_to_host() {
    check(cudaMemcpyAsync(host_out_.data(), device_out_.data(), host_out_.size(),
                          cudaMemcpyDeviceToHost, out_.get()),
          "copy to the host");
    out_.synchronize();
  }

  CopyDirection direction_;
  int index_ = 0;
  std::vector<std::byte> host_in_;
  std::vector<std::byte> host_out_;
  DeviceBuffer device_in_;
  DeviceBuffer device_out_;
  OwnedStream in_;
  OwnedStream out_;
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
      cases.push_back(
          make_case(HostCopySample{bytes, direction, false}, "cudaMemcpyAsync", [size, direction] {
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
