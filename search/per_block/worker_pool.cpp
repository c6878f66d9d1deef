// SPDX-License-Identifier: Apache-2.0
#include "search/per_block/worker_pool.hpp"

#include <atomic>
#include <optional>
#include <utility>

#include "base/index_loop.hpp"
#include "base/parallel.hpp"
#include "search/per_block/checkpoint.hpp"
#include "search/per_block/work_bytes.hpp"

namespace orrery::search {

namespace {

// Questions take 10 ms to seconds.
constexpr std::chrono::duration<double> kPause{0.5e-3};

// Another rank: answers what a Shared sends.
class PerBlockService : public Service {
 public:
  PerBlockService(const plan::Plan& base, const Options& options)
      : inputs_(per_block_inputs(base, first_options(options))),
        constraints_(per_block_constraints(options.constraints)),
        space_(base, constraints_),
        pool_(space_, options, [this] { return is_stopped_.load(); }) {}

  const std::vector<InputHash>& inputs() const override { return inputs_; }
  int jobs() const override { return pool_.jobs(); }
  void stop() override { is_stopped_ = true; }

  void evaluate(int thread, ByteReader& in, ByteWriter& out) override {
    const auto costs_of = [&](std::uint32_t mesh) -> const MeshCosts& {
      return pool_.costs_of(thread, mesh);
    };
    out.u64(in.u64());
    write(out, pool_.evaluate(thread, read_work(in, space_, costs_of)));
  }

 private:
  std::vector<InputHash> inputs_;
  const Constraints constraints_;
  PerBlockSpace space_;
  std::atomic<bool> is_stopped_ = false;
  PerBlockPool pool_;
};

}  // namespace

class PerBlockPool::Shared : public Deliveries {
 public:
  Shared(PerBlockPool& pool, const std::vector<PerBlockWork>& batch)
      : pool_(pool),
        batch_(batch),
        done_(batch.size()),
        asked_(batch.size(), false),
        loop_(batch.size()) {}

  void work_here() override {
    pool_.workers_.work(loop_, [&](PerBlockWorker& worker, std::size_t index) {
      done_[index] = worker.evaluate(batch_[index]);
    });
    loop_.rethrow();
  }
  void stop_here() override { loop_.end(); }
  bool is_stopped() override { return pool_.stop_(); }

  // A second one waits where all others get one, too.
  std::string next(std::size_t, int under_way) override {
    const std::size_t threads = static_cast<std::size_t>(pool_.jobs()) + pool_.remote_->size();
    if (under_way > 1 || (under_way == 1 && loop_.left() <= threads)) {
      return {};
    }
    const std::optional<std::size_t> index = loop_.take();
    if (!index) {
      return {};
    }
    ByteWriter out;
    asked_[*index] = true;
    out.u64(*index);
    write(out, batch_[*index]);
    return out.bytes();
  }

  void take(std::size_t, ByteReader& in) override {
    const std::uint64_t index = in.u64();
    if (index >= asked_.size() || !asked_[index]) {
      in.fail("answers what it was not asked");
    }
    asked_[index] = false;
    const PerBlockWork& work = batch_[index];
    // Answers with shares are about meshes that were priced before they were asked.
    const auto costs_of = [&](std::uint32_t mesh) -> const MeshCosts& {
      return pool_.leader().costs_of(mesh);
    };
    done_[index] = read_done(in, work, pool_.space_, costs_of);
  }

  std::chrono::duration<double> pause() const override { return kPause; }
  std::vector<PerBlockDone> done() { return std::move(done_); }

 private:
  PerBlockPool& pool_;
  const std::vector<PerBlockWork>& batch_;
  std::vector<PerBlockDone> done_;
  std::vector<bool> asked_;  // of other ranks, and not answered yet
  IndexLoop loop_;
};

PerBlockPool::PerBlockPool(const PerBlockSpace& space, const Options& options,
                           std::function<bool()> stop)
    : space_(space),
      priced_(space),
      stop_(std::move(stop)),
      workers_(thread_count(options.jobs), [&](const PerBlockWorker*) {
        return std::make_unique<PerBlockWorker>(space_, priced_, options, stop_);
      }) {}

void PerBlockPool::join(Ranks& ranks, const std::vector<InputHash>& inputs) {
  remote_ = std::make_unique<RemoteThreads>(ranks, SearchKind::PerBlock, inputs);
}

std::vector<PerBlockDone> PerBlockPool::run(const std::vector<PerBlockWork>& batch) {
  Shared shared(*this, batch);
  if (remote_ && !batch.empty()) {
    remote_->run(shared);
  } else {
    shared.work_here();
  }
  return shared.done();
}

std::unique_ptr<Service> per_block_service(SearchKind kind, const plan::Plan& base,
                                           const Options& options) {
  if (kind == SearchKind::Homogeneous) {
    return homogeneous_service(base, first_options(options));
  }
  return std::make_unique<PerBlockService>(base, options);
}

}  // namespace orrery::search
