// SPDX-License-Identifier: Apache-2.0
// The CUDA runtime with owners and named errors: every return code is checked. No device or driver,
// uncorrectable memory errors and a device that another process holds are Error(DeviceMissing);
// OutOfDeviceMemory and Unsupported end one case, not the run.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "base/dtype.hpp"
#include "base/error.hpp"

struct CUstream_st;
struct CUevent_st;

namespace orrery::calibrate::cuda {

using Stream = CUstream_st*;
using Event = CUevent_st*;

class OutOfDeviceMemory : public Error {
 public:
  explicit OutOfDeviceMemory(std::string_view what)
      : Error(ErrorKind::DeviceMissing, what, "out of device memory") {}
};

// The library at hand has no kernel for a case.
class Unsupported : public Error {
 public:
  Unsupported(std::string_view where, std::string_view message)
      : Error(ErrorKind::DeviceMissing, where, message) {}
};

// `code` is a cudaError_t.
void check(int code, std::string_view what);
// Of the last kernel launch.
void check_launch(std::string_view kernel);

struct DeviceInfo {
  std::string name;
  std::string bus_id;
  std::size_t memory_bytes = 0;
  std::size_t free_bytes = 0;
  std::size_t l2_bytes = 0;
  int sm_count = 0;
  int capability = 0;  // 90 for 9.0
  std::string driver;  // CUDA version the driver supports
  std::string runtime;
  bool has(DType dtype) const;  // as a matrix type of the tensor cores
};

// Makes it the current device. Error(DeviceMissing) without driver or device.
DeviceInfo open_device(int index);

class DeviceBuffer {
 public:
  DeviceBuffer() = default;
  explicit DeviceBuffer(std::size_t bytes);
  ~DeviceBuffer();
  DeviceBuffer(DeviceBuffer&& other) noexcept;
  DeviceBuffer& operator=(DeviceBuffer&& other) noexcept;
  void* data() const { return data_; }
  template <class T>
  T* as() const {
    return static_cast<T*>(data_);
  }
  std::size_t size() const { return size_; }

 private:
  void* data_ = nullptr;
  std::size_t size_ = 0;
};

class PinnedBuffer {
 public:
  explicit PinnedBuffer(std::size_t bytes);
  ~PinnedBuffer();
  PinnedBuffer(const PinnedBuffer&) = delete;
  PinnedBuffer& operator=(const PinnedBuffer&) = delete;
  void* data() const { return data_; }

 private:
  void* data_ = nullptr;
};

class OwnedStream {
 public:
  OwnedStream();
  ~OwnedStream();
  OwnedStream(const OwnedStream&) = delete;
  OwnedStream& operator=(const OwnedStream&) = delete;
  Stream get() const { return stream_; }
  void synchronize() const;

 private:
  Stream stream_ = nullptr;
};

class OwnedEvent {
 public:
  explicit OwnedEvent(bool timing = true);
  ~OwnedEvent();
  OwnedEvent(const OwnedEvent&) = delete;
  OwnedEvent& operator=(const OwnedEvent&) = delete;
  Event get() const { return event_; }
  void record(Stream stream) const;
  void synchronize() const;

 private:
  Event event_ = nullptr;
};

double seconds_between(const OwnedEvent& start, const OwnedEvent& stop);

// Operands with random contents: zeros would draw less power and run at higher clocks than training
// does. Normal values of the type (small integers of index buffers are made by their benchmark).
DeviceBuffer random_buffer(std::size_t elements, DType dtype, unsigned seed);

}  // namespace orrery::calibrate::cuda
