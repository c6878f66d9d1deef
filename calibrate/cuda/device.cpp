// SPDX-License-Identifier: Apache-2.0
#include "calibrate/cuda/device.hpp"

#include <cuda_runtime.h>
#include <fmt/format.h>

#include <array>
#include <utility>

namespace orrery::calibrate::cuda {
namespace {

std::string version_text(int version) {
  return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

[[noreturn]] void missing(std::string_view what, std::string_view message, std::string_view hint) {
  throw Error(ErrorKind::DeviceMissing, what, message, hint);
}

}  // namespace

void check(int code, std::string_view what) {
  const auto error = static_cast<cudaError_t>(code);
  if (error == cudaSuccess) {
    return;
  }
  cudaGetLastError();  // the next call starts clean
  const std::string_view name = cudaGetErrorName(error);
  switch (error) {
    case cudaErrorNoDevice:
    case cudaErrorInsufficientDriver:
    case cudaErrorStubLibrary:
    case cudaErrorInitializationError:
    case cudaErrorSystemNotReady:
    case cudaErrorSystemDriverMismatch:
      missing(what, fmt::format("no CUDA device or driver: {}", cudaGetErrorString(error)),
              "nvidia-smi must list a GPU");
    case cudaErrorMemoryAllocation:
      throw OutOfDeviceMemory(what);
    case cudaErrorECCUncorrectable:
      missing(what, "the GPU reports an uncorrectable memory error (ECC)", "reset or replace it");
    case cudaErrorDevicesUnavailable:
    case cudaErrorDeviceAlreadyInUse:
      missing(what, "the GPU is busy: another process holds it", "exclusive compute mode?");
    case cudaErrorNoKernelImageForDevice:
    case cudaErrorUnsupportedPtxVersion:
      missing(what, fmt::format("this build has no code for the GPU ({})", name),
              "configure with CMAKE_CUDA_ARCHITECTURES=native");
    default:
      missing(what, fmt::format("{}: {}", name, cudaGetErrorString(error)), "");
  }
}

void check_launch(std::string_view kernel) { check(cudaGetLastError(), kernel); }

bool DeviceInfo::has(DType dtype) const {
  switch (dtype) {
    case DType::Nvfp4:
      return false;  // whose scales of blocks the products here do not take
    case DType::Fp8:
      return capability >= 89;
    case DType::Fp32:
      return true;
    case DType::Fp16:
      return capability >= 70;
    default:
      return capability >= 80;
  }
}

DeviceInfo open_device(int index) {
  int count = 0;
  check(cudaGetDeviceCount(&count), "CUDA");
  if (index < 0 || index >= count) {
    missing("--device", fmt::format("there is no device {}", index),
            fmt::format("{} devices, counted from 0", count));
  }
  check(cudaSetDevice(index), fmt::format("device {}", index));
  cudaDeviceProp properties{};
  check(cudaGetDeviceProperties(&properties, index), "device properties");
  DeviceInfo info;
  info.name = properties.name;
  info.l2_bytes = static_cast<std::size_t>(properties.l2CacheSize);
  info.sm_count = properties.multiProcessorCount;
  info.capability = 10 * properties.major + properties.minor;
  check(cudaMemGetInfo(&info.free_bytes, &info.memory_bytes), "device memory");
  std::array<char, 32> bus{};
  check(cudaDeviceGetPCIBusId(bus.data(), static_cast<int>(bus.size()), index), "PCI address");
  info.bus_id = bus.data();
  int version = 0;
  check(cudaDriverGetVersion(&version), "driver version");
  info.driver = version_text(version);
  check(cudaRuntimeGetVersion(&version), "runtime version");
  info.runtime = version_text(version);
  return info;
}

DeviceBuffer::DeviceBuffer(std::size_t bytes) : size_(bytes) {
  check(cudaMalloc(&data_, bytes == 0 ? 1 : bytes), fmt::format("{} bytes", bytes));
}

// Owners cannot throw when they end; the next call reports a device that failed.
DeviceBuffer::~DeviceBuffer() { cudaFree(data_); }

DeviceBuffer::DeviceBuffer(DeviceBuffer&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

DeviceBuffer& DeviceBuffer::operator=(DeviceBuffer&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

PinnedBuffer::PinnedBuffer(std::size_t bytes) {
  check(cudaHostAlloc(&data_, bytes, cudaHostAllocMapped), fmt::format("{} pinned bytes", bytes));
}
PinnedBuffer::~PinnedBuffer() { cudaFreeHost(data_); }

OwnedStream::OwnedStream() {
  check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "stream");
}
OwnedStream::~OwnedStream() { cudaStreamDestroy(stream_); }
void OwnedStream::synchronize() const { check(cudaStreamSynchronize(stream_), "kernel"); }

OwnedEvent::OwnedEvent(bool timing) {
  check(cudaEventCreateWithFlags(&event_, timing ? cudaEventDefault : cudaEventDisableTiming),
        "event");
}
OwnedEvent::~OwnedEvent() { cudaEventDestroy(event_); }
void OwnedEvent::record(Stream stream) const { check(cudaEventRecord(event_, stream), "event"); }
void OwnedEvent::synchronize() const { check(cudaEventSynchronize(event_), "kernel"); }

double seconds_between(const OwnedEvent& start, const OwnedEvent& stop) {
  float milliseconds = 0;
  check(cudaEventElapsedTime(&milliseconds, start.get(), stop.get()), "elapsed time");
  return 1e-3 * static_cast<double>(milliseconds);
}

}  // namespace orrery::calibrate::cuda
