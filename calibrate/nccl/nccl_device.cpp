// SPDX-License-Identifier: Apache-2.0
// Collectives and multiplications on a real GPU, timed by events on their streams. While the host
// waits it looks after the other ranks and the communicator, so that a dead peer ends the run.
#include <cuda_runtime.h>
#include <fmt/format.h>

#include <algorithm>
#include <thread>

#include "base/error.hpp"
#include "calibrate/cuda/device.hpp"
#include "calibrate/cuda/lt_gemm.hpp"
#include "calibrate/nccl/device.hpp"
#include "calibrate/nccl/nccl_library.hpp"
#include "calibrate/nvml.hpp"

namespace orrery::calibrate {
namespace {

using Events = std::vector<std::unique_ptr<cuda::OwnedEvent>>;

constexpr int kNoPeerAccess = 99;
constexpr int kPollsBetweenChecks = 1000;
constexpr auto kPollPause = std::chrono::microseconds(20);

class NcclDevice : public CollectiveDevice {
 public:
  NcclDevice(int index, Poll poll) : info_(cuda::open_device(index)), poll_(std::move(poll)) {}
  ~NcclDevice() override { nccl_.abort(communicator_); }
  NcclDevice(const NcclDevice&) = delete;
  NcclDevice& operator=(const NcclDevice&) = delete;

  DeviceFacts facts() override {
    return {info_.name, Nvml(info_.bus_id).driver_version(), info_.runtime, nccl_.version()};
  }

  LinkClasses links() override {
    int count = 0;
    cuda::check(cudaGetDeviceCount(&count), "CUDA");
    const auto gpus = static_cast<std::size_t>(count);
    LinkClasses links(gpus, std::vector<int>(gpus, 0));
    for (int a = 0; a < count; ++a) {
      for (int b = 0; b < count; ++b) {
        if (a == b) {
          continue;
        }
        int access = 0;
        int rank = 0;
        cuda::check(cudaDeviceCanAccessPeer(&access, a, b), "peer access");
        cuda::check(cudaDeviceGetP2PAttribute(&rank, cudaDevP2PAttrPerformanceRank, a, b),
                    "peer performance");
        links[static_cast<std::size_t>(a)][static_cast<std::size_t>(b)] =
            access == 1 ? rank : kNoPeerAccess;
      }
    }
    return links;
  }

  void reserve(std::int64_t bytes) override {
    const auto elements = static_cast<std::size_t>(bytes) / sizeof(float);
    send_ = cuda::random_buffer(elements, DType::Fp32, 1);
    receive_ = cuda::DeviceBuffer(static_cast<std::size_t>(bytes));
  }

  std::string new_group_id() override { return nccl_.unique_id(); }

  void join(const std::string& id, int rank, int size) override {
    communicator_ = nccl_.join(id, rank, size, poll_);
    rank_ = rank;
    size_ = size;
  }

  void leave() override { nccl_.leave(std::exchange(communicator_, nullptr), poll_); }

  std::vector<double> time_collective(sim::CommKind kind, std::int64_t bytes, int batches,
                                      int iterations) override {
    enqueue(kind, bytes);  // ranks begin apart; the first operation brings them together
    return time_batches(communication_, batches, iterations, [&] { enqueue(kind, bytes); });
  }

  std::vector<double> time_gemm(const GemmSample& gemm, int batches, int iterations) override {
    const cuda::LtGemm& multiplication = prepared(gemm);
    return time_batches(compute_, batches, iterations,
                        [&] { multiplication.enqueue(compute_.get()); });
  }

  OverlapTimes time_overlap(sim::CommKind kind, std::int64_t bytes, int collectives,
                            const GemmSample& gemm, int gemms) override {
    const cuda::LtGemm& multiplication = prepared(gemm);
    const Events of_collective = events(collectives + 1);
    const Events of_gemm = events(gemms + 1);
    enqueue(kind, bytes);
    const cuda::OwnedEvent start;
    start.record(communication_.get());
    cuda::check(cudaStreamWaitEvent(compute_.get(), start.get(), 0), "stream");
    of_collective.front()->record(communication_.get());
    of_gemm.front()->record(compute_.get());
    // Both are queued at their own pace, so that neither stream runs dry while the host fills the
    // other.
    int gemms_queued = 0;
    for (int done = 1; done <= collectives; ++done) {
      enqueue(kind, bytes);
      of_collective[static_cast<std::size_t>(done)]->record(communication_.get());
      const auto due = static_cast<int>(static_cast<std::int64_t>(gemms) * done / collectives);
      while (gemms_queued < due) {
        multiplication.enqueue(compute_.get());
        of_gemm[static_cast<std::size_t>(++gemms_queued)]->record(compute_.get());
      }
    }
    wait(*of_collective.back());
    wait(*of_gemm.back());
    const double window = std::min(cuda::seconds_between(start, *of_collective.back()),
                                   cuda::seconds_between(start, *of_gemm.back()));
    return {within(start, of_collective, window), within(start, of_gemm, window)};
  }

 private:
  static Events events(int count) {
    Events made;
    for (int index = 0; index < count; ++index) {
      made.push_back(std::make_unique<cuda::OwnedEvent>());
    }
    return made;
  }

  // Times between neighbouring events up to the end of the window; the first, which may have
  // started alone, is left out.
  static std::vector<double> within(const cuda::OwnedEvent& start, const Events& marks,
                                    double window) {
    std::vector<double> times;
    for (std::size_t index = 2; index < marks.size(); ++index) {
      if (cuda::seconds_between(start, *marks[index]) > window) {
        break;
      }
      times.push_back(cuda::seconds_between(*marks[index - 1], *marks[index]));
    }
    return times;
  }

  void enqueue(sim::CommKind kind, std::int64_t bytes) const {
    nccl_.enqueue(kind, static_cast<std::size_t>(bytes), {send_.data(), receive_.data()}, rank_,
                  size_, communicator_, communication_.get(), poll_);
  }

  template <class Enqueue>
  std::vector<double> time_batches(const cuda::OwnedStream& stream, int batches, int iterations,
                                   const Enqueue& enqueue_one) {
    const Events marks = events(batches + 1);
    marks.front()->record(stream.get());
    for (int batch = 1; batch <= batches; ++batch) {
      for (int iteration = 0; iteration < iterations; ++iteration) {
        enqueue_one();
      }
      marks[static_cast<std::size_t>(batch)]->record(stream.get());
    }
    wait(*marks.back());
    std::vector<double> times;
    for (std::size_t batch = 1; batch < marks.size(); ++batch) {
      times.push_back(cuda::seconds_between(*marks[batch - 1], *marks[batch]) / iterations);
    }
    return times;
  }

  void wait(const cuda::OwnedEvent& event) const {
    for (int polls = 1;; ++polls) {
      const cudaError_t state = cudaEventQuery(event.get());
      if (state == cudaSuccess) {
        return;
      }
      if (state != cudaErrorNotReady) {
        cuda::check(state, "collective");
      }
      if (polls % kPollsBetweenChecks == 0) {
        poll_();
        if (communicator_ != nullptr) {
          nccl_.check(communicator_);
        }
      }
      std::this_thread::sleep_for(kPollPause);
    }
  }

  const cuda::LtGemm& prepared(const GemmSample& gemm) {
    for (const auto& [shape, multiplication] : gemms_) {
      if (shape == gemm) {
        return *multiplication;
      }
    }
    gemms_.emplace_back(gemm, std::make_unique<cuda::LtGemm>(gemm));
    return *gemms_.back().second;
  }

  cuda::DeviceInfo info_;
  Poll poll_;
  Nccl nccl_;
  cuda::OwnedStream communication_;
  cuda::OwnedStream compute_;
  cuda::DeviceBuffer send_;
  cuda::DeviceBuffer receive_;
  std::vector<std::pair<GemmSample, std::unique_ptr<cuda::LtGemm>>> gemms_;
  ncclComm* communicator_ = nullptr;
  int rank_ = 0;
  int size_ = 1;
};

}  // namespace

int collective_device_count(std::string& why) {
  int count = 0;
  const cudaError_t result = cudaGetDeviceCount(&count);
  if (result != cudaSuccess || count == 0) {
    why = fmt::format("no GPU: {}", cudaGetErrorString(result));
    return 0;
  }
  try {
    (void)Nccl();
  } catch (const Error& error) {
    why = error.what();
    return 0;
  }
  return count;
}

std::unique_ptr<CollectiveDevice> open_collective_device(int index, std::function<void()> poll) {
  return std::make_unique<NcclDevice>(index, std::move(poll));
}

}  // namespace orrery::calibrate
