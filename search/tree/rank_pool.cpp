// SPDX-License-Identifier: Apache-2.0
#include "search/tree/rank_pool.hpp"

#include <algorithm>

#include "base/parallel.hpp"
#include "search/tree/drawing.hpp"
#include "search/tree/tree_check.hpp"
#include "search/tree/work_bytes.hpp"

namespace orrery::search {

namespace {

constexpr double kLeastShare = 1e-3;  // seconds, for whom has work already

// Another rank: evaluates what a Shared sends.
class HomogeneousService : public Service {
 public:
  HomogeneousService(const plan::Plan& base, const Options& options)
      : options_(options),
        space_(base, options_.constraints),
        groups_(space_.groups()),
        inputs_(input_hashes(space_, groups_, options_)),
        first_order_(first_orders()),
        pool_(tree(), thread_count(options.jobs)) {
    pool_.time_nodes();
  }

  const std::vector<InputHash>& inputs() const override { return inputs_; }
  int jobs() const override { return pool_.jobs(); }

  void evaluate(int thread, ByteReader& in, ByteWriter& out) override {
    const std::uint8_t task = in.u8();
    if (task > static_cast<std::uint8_t>(Task::Replay)) {
      in.fail("holds a task that cannot be");
    }
    const Known known = read_known(in);
    TreeCheck check(tree());
    Drawing drawing(known.drawing);
    const auto stop = [&] { return drawing.is_over(); };
    const std::uint64_t count = in.u64();
    out.u64(count);
    for (std::uint64_t left = count; left > 0; --left) {
      out.u64(in.u64());
      const Node node = read_node(in);
      check.question(in, static_cast<Task>(task), node);
      const Done done = pool_.evaluate(thread, static_cast<Task>(task), node, known, stop);
      out.real(done.cpu.value());
      write(out, *done.outcomes);
    }
  }

 private:
  Tree tree() const { return {space_, groups_, first_order_}; }
  std::vector<std::uint64_t> first_orders() const {
    std::vector<std::uint64_t> first_order;
    std::uint64_t plans = 0;
    for (const Group& group : groups_) {
      first_order.push_back(plans);
      plans += static_cast<std::uint64_t>(space_.num_members(group));
    }
    return first_order;
  }

  const Options options_;
  Space space_;
  std::vector<Group> groups_;
  std::vector<InputHash> inputs_;
  std::vector<std::uint64_t> first_order_;
  WorkerPool pool_;
};

}  // namespace

class RankPool::Shared : public Deliveries {
 public:
  Shared(RankPool& pool, const Batch& batch, const std::function<bool()>& stop)
      : pool_(pool),
        batch_(batch),
        stop_(stop),
        check_(pool.tree_),
        done_(batch.nodes.size()),
        asked_(batch.nodes.size(), false),
        handout_(pool.items(batch), pool.jobs() + static_cast<int>(pool.remote_.size())) {}

  void work_here() override { pool_.work(batch_, handout_, stop_, done_); }
  void stop_here() override { handout_.stop(); }
  bool is_stopped() override { return stop_(); }

  std::string next(std::size_t thread, int under_way) override {
    if (under_way >= kDeliveriesUnderWay ||
        (under_way > 0 && handout_.share() * pool_.seconds_ < kLeastShare)) {
      return {};  // the last nodes go to who has none
    }
    const std::vector<std::size_t> nodes = handout_.take_some(
        pool_.jobs() + static_cast<int>(thread), kDelivery.value() / pool_.seconds_);
    if (nodes.empty()) {
      return {};
    }
    ByteWriter out;
    out.u8(static_cast<std::uint8_t>(batch_.task));
    write(out, batch_.known);
    out.u64(nodes.size());
    pool_.last_[thread] = 0;
    for (const std::size_t node : nodes) {
      out.u64(node);
      asked_[node] = true;
      write(out, batch_.nodes[node]);
      pool_.last_[thread] += pool_.tree_.work_of(batch_.task, batch_.nodes[node]);
    }
    return out.bytes();
  }

  void take(std::size_t thread, ByteReader& in) override {
    double taken = 0;
    std::uint64_t work = 0;
    for (std::uint64_t left = in.u64(); left > 0; --left) {
      const std::uint64_t node = in.u64();
      if (node >= asked_.size() || !asked_[node]) {
        in.fail("answers what it was not asked");
      }
      asked_[node] = false;
      Done& one = done_[node];
      one.cpu = Seconds(in.real());
      one.thread = pool_.jobs() + static_cast<int>(thread);
      one.outcomes = read_outcomes(in);
      check_.answer(in, batch_.task, batch_.nodes[node], *one.outcomes);
      taken += one.cpu.value();
      work += pool_.tree_.work_of(batch_.task, batch_.nodes[node]);
    }
    pool_.seconds_ =
        0.8 * pool_.seconds_ + 0.2 * taken / static_cast<double>(std::max<std::uint64_t>(1, work));
  }

  // Half of what the shortest last delivery takes, so that the next one comes before it ends.
  std::chrono::duration<double> pause() const override {
    double seconds = 2 * kLongestPause.count();
    for (const std::uint64_t work : pool_.last_) {
      seconds = std::min(seconds, static_cast<double>(work) * pool_.seconds_);
    }
    return std::max(kShortestPause, std::chrono::duration<double>(seconds / 2));
  }

  std::vector<Done> done() { return std::move(done_); }

 private:
  RankPool& pool_;
  const Batch& batch_;
  const std::function<bool()>& stop_;
  TreeCheck check_;
  std::vector<Done> done_;
  std::vector<bool> asked_;  // of other ranks, and not answered yet
  Handout handout_;
};

RankPool::RankPool(const Tree& tree, int jobs, Ranks& ranks, const std::vector<InputHash>& inputs)
    : WorkerPool(tree, jobs),
      tree_(tree),
      remote_(ranks, SearchKind::Homogeneous, inputs),
      last_(remote_.size(), 0) {}

std::vector<Done> RankPool::run(const Batch& batch, const std::function<bool()>& stop) {
  Shared shared(*this, batch, stop);
  remote_.run(shared);
  return shared.done();
}

std::unique_ptr<Service> homogeneous_service(const plan::Plan& base, const Options& options) {
  return std::make_unique<HomogeneousService>(base, options);
}

}  // namespace orrery::search
