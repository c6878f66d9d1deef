// SPDX-License-Identifier: Apache-2.0
#include "search/tree/worker_pool.hpp"

#include <time.h>

#include <memory>

#include "base/random.hpp"
#include "base/sim_time.hpp"
#include "search/tree/kept_costs.hpp"

namespace orrery::search {

Seconds thread_time() {
  timespec now = {};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return Seconds(static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec));
}

WorkerPool::WorkerPool(const Tree& tree, int jobs, KeptCosts* kept)
    : tree_(tree), workers_(jobs, [&, thread = std::size_t{0}](const Worker*) mutable {
        return std::make_unique<Worker>(
            tree.space, tree.groups, tree.first_order,
            kept == nullptr ? nullptr : &kept->of(thread++, tree.space.base()));
      }) {}

// Before a schedule is chosen nodes share the costs of blocks, whose degrees and micro-batch are
// equal; then they share its lists, which cost most, of equal stages and numbers of micro-batches.
std::vector<Handout::Item> WorkerPool::items(const Batch& batch) const {
  std::vector<Handout::Item> items;
  items.reserve(batch.nodes.size());
  for (const Node& node : batch.nodes) {
    const Group& group = tree_.groups[node.group];
    const auto hash_of = [](std::int64_t a, std::int64_t b) {
      return mix64(static_cast<std::uint64_t>(a) * 65'536 + static_cast<std::uint64_t>(b));
    };
    std::uint64_t item_class = 0;
    if (batch.task == Task::Visit && node.level >= Level::Schedule) {
      item_class = mix64(hash_of(tree_.micro_batches(group), group.pp) + node.family * 65'536ULL +
                         node.schedule);
    } else {
      item_class = mix64(hash_of(group.tp, group.cp) +
                         hash_of(2 * group.ep + group.expert_tp, group.micro_batch));
    }
    items.push_back({item_class, tree_.work_of(batch.task, node)});
  }
  return items;
}

Done WorkerPool::evaluate(int thread, Task task, const Node& node, const Known& known,
                          const std::function<bool()>& stop) {
  Worker& worker = workers_.of(thread);
  const Seconds begin = times_nodes_ ? thread_time() : Seconds();
  Done done;
  done.thread = thread;
  done.outcomes.emplace();
  try {
    answer(worker, task, node, known, stop, done);
  } catch (const BeyondSimulatedTime& beyond) {
    if (task == Task::Bound) {
      done.outcomes->time = Seconds();
    } else {
      done.outcomes = worker.refused(node, beyond.what());
    }
  }
  if (times_nodes_) {
    done.cpu = thread_time() - begin;
  }
  return done;
}

void WorkerPool::answer(Worker& worker, Task task, const Node& node, const Known& known,
                        const std::function<bool()>& stop, Done& done) const {
  switch (task) {
    case Task::TryOut:
      done.outcomes = worker.try_out(node);
      break;
    case Task::Bound:
      done.outcomes->time = worker.bound(tree_.groups[node.group]);
      break;
    case Task::Interval:
      done.outcomes = worker.interval(node, known.interval_draws, stop);
      break;
    case Task::Replay:
      if (const plan::MemoryVerdict verdict = worker.replay(node, known.replay_reserve, 1);
          !verdict.fits) {
        done.outcomes->overflow = {verdict.text, verdict.excess};
      }
      break;
    case Task::Visit:
      done.outcomes = node.is_plan() ? worker.judge(node) : worker.expand(node, known);
      break;
  }
}

void WorkerPool::work(const Batch& batch, Handout& handout, const std::function<bool()>& stop,
                      std::vector<Done>& done) {
  workers_.run([&](Worker&, int self) {
    while (!stop()) {
      const std::optional<std::size_t> index = handout.take(self);
      if (!index) {
        return;
      }
      done[*index] = evaluate(self, batch.task, batch.nodes[*index], batch.known, stop);
    }
  });
}

std::vector<Done> WorkerPool::run(const Batch& batch, const std::function<bool()>& stop) {
  std::vector<Done> done(batch.nodes.size());
  Handout handout(items(batch), jobs());
  work(batch, handout, stop, done);
  return done;
}

}  // namespace orrery::search
