// SPDX-License-Identifier: Apache-2.0
#include "search/crew.hpp"

#include <time.h>

#include <algorithm>
#include <map>

#include "base/parallel.hpp"
#include "base/random.hpp"

namespace orrery::search {

Seconds thread_time() {
  timespec now = {};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return Seconds(static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec));
}

Handout::Handout(const std::vector<std::uint64_t>& classes, int lanes)
    : left_(classes.size()), lanes_(lanes) {
  std::map<std::uint64_t, std::size_t> slots;
  for (std::size_t index = classes.size(); index-- > 0;) {
    const auto [slot, is_new] = slots.emplace(classes[index], classes_.size());
    if (is_new) {
      classes_.push_back(
          {{}, static_cast<int>(classes[index] % static_cast<std::uint64_t>(lanes))});
    }
    classes_[slot->second].left.push_back(index);
  }
}

std::optional<std::size_t> Handout::take(int lane) {
  const std::lock_guard lock(mutex_);
  Class* from = nullptr;
  for (Class& some : classes_) {
    if (some.left.empty()) {
      continue;
    }
    if (some.owner == lane) {
      from = &some;
      break;
    }
    if (from == nullptr || some.left.size() > from->left.size()) {
      from = &some;
    }
  }
  if (from == nullptr) {
    return std::nullopt;
  }
  // The owner goes forwards, others take from the end.
  const auto at = from->owner == lane ? from->left.end() - 1 : from->left.begin();
  const std::size_t index = *at;
  from->left.erase(at);
  --left_;
  return index;
}

int Handout::share(int most) {
  const std::lock_guard lock(mutex_);
  const std::size_t half = left_ / (2 * static_cast<std::size_t>(lanes_));
  return static_cast<int>(std::clamp<std::size_t>(half, 1, static_cast<std::size_t>(most)));
}

void Handout::stop() {
  const std::lock_guard lock(mutex_);
  classes_.clear();
  left_ = 0;
}

Crew::Crew(const Space& space, const std::vector<Group>& groups,
           const std::vector<std::uint64_t>& first_order, int jobs)
    : space_(space), groups_(groups) {
  for (int index = 0; index < jobs; ++index) {
    workers_.push_back(std::make_unique<Worker>(space, groups, first_order));
  }
}

// Stages and micro-batches; once it is chosen also the schedule, whose lists cost most.
std::vector<std::uint64_t> Crew::classes(const Batch& batch) const {
  std::vector<std::uint64_t> classes;
  classes.reserve(batch.nodes.size());
  for (const Node& node : batch.nodes) {
    const Group& group = groups_[node.group];
    const std::int64_t micro_batches = space_.base().batch / (group.micro_batch * group.dp);
    std::uint64_t hash = mix64(static_cast<std::uint64_t>(micro_batches) * 65'536 +
                               static_cast<std::uint64_t>(group.pp));
    if (node.level >= Level::Schedule) {
      hash = mix64(hash + node.family * 65'536ULL + node.schedule);
    }
    classes.push_back(hash);
  }
  return classes;
}

Done Crew::evaluate(int lane, Task task, const Node& node, const Known& known) {
  Worker& worker = *workers_[static_cast<std::size_t>(lane)];
  const Seconds begin = thread_time();
  Done done;
  done.lane = lane;
  done.outcomes.emplace();
  switch (task) {
    case Task::TryOut:
      done.outcomes = worker.try_out(node);
      break;
    case Task::Bound:
      done.outcomes->time = worker.bound(groups_[node.group]);
      break;
    case Task::Open:
      done.outcomes = worker.open(node.group, known);
      break;
    case Task::Interval:
      done.outcomes = worker.interval(node, known.interval_draws);
      break;
    case Task::Visit:
      done.outcomes = node.is_plan() ? worker.judge(node) : worker.expand(node, known);
      break;
  }
  done.cpu = thread_time() - begin;
  return done;
}

void Crew::work(const Batch& batch, Handout& handout, const std::function<bool()>& stop,
                std::vector<Done>& done) {
  parallel_for(workers_.size(), jobs(), [&](std::size_t lane) {
    const int self = static_cast<int>(lane);
    while (!stop()) {
      const std::optional<std::size_t> index = handout.take(self);
      if (!index) {
        return;
      }
      done[*index] = evaluate(self, batch.task, batch.nodes[*index], batch.known);
    }
  });
}

std::vector<Done> Crew::run(const Batch& batch, const std::function<bool()>& stop) {
  std::vector<Done> done(batch.nodes.size());
  Handout handout(classes(batch), jobs());
  work(batch, handout, stop, done);
  return done;
}

}  // namespace orrery::search
