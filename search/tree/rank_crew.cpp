// SPDX-License-Identifier: Apache-2.0
#include "search/tree/rank_crew.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>

#include "base/error.hpp"
#include "search/tree/work_bytes.hpp"

namespace orrery::search {

namespace {

// Between two looks for messages. A look and the two switches of threads around it take 10
// microseconds of a core that has work to do, so nobody looks often while all have work.
constexpr auto kPause = std::chrono::microseconds(100);
constexpr double kLongestPause = 3e-3;  // seconds
constexpr double kLeastShare = 1e-3;    // for whom has work already

std::string just(MessageKind kind) { return std::string(1, static_cast<char>(kind)); }

}  // namespace

RankCrew::RankCrew(const Tree& tree, int jobs, Ranks& ranks, const std::vector<InputHash>& inputs)
    : Crew(tree, jobs), ranks_(ranks), tree_(tree) {
  greet(inputs);
}

RankCrew::~RankCrew() {
  for (int rank = 1; rank < ranks_.size(); ++rank) {
    ranks_.send(rank, just(MessageKind::End));
  }
}

void RankCrew::greet(const std::vector<InputHash>& inputs) {
  for (int rank = 1; rank < ranks_.size(); ++rank) {
    ranks_.send(rank, just(MessageKind::Begin));
  }
  std::vector<int> threads(static_cast<std::size_t>(ranks_.size()), 0);
  for (int waiting = ranks_.size() - 1; waiting > 0;) {
    const std::optional<Message> message = ranks_.receive();
    if (!message) {
      std::this_thread::sleep_for(kPause);
      continue;
    }
    ByteReader in(message->bytes, fmt::format("rank {}", message->from));
    if (static_cast<MessageKind>(in.u8()) == MessageKind::Failed) {
      in.fail(in.text());
    }
    const std::string other = difference(inputs, read_inputs(in));
    if (!other.empty()) {
      in.fail("has other inputs than rank 0: " + other);
    }
    threads[static_cast<std::size_t>(message->from)] = static_cast<int>(in.u32());
    --waiting;
  }
  for (int rank = 1; rank < ranks_.size(); ++rank) {
    for (int thread = 0; thread < threads[static_cast<std::size_t>(rank)]; ++thread) {
      lanes_.push_back({rank, thread});
    }
  }
}

std::vector<Done> RankCrew::run(const Batch& batch, const std::function<bool()>& stop) {
  std::vector<Done> done(batch.nodes.size());
  Handout handout(items(batch), jobs() + static_cast<int>(lanes_.size()));
  std::exception_ptr thrown;
  std::mutex mutex;
  std::condition_variable ended;
  bool is_done = false;  // the threads of this rank
  std::thread here([&] {
    try {
      work(batch, handout, stop, done);
    } catch (...) {
      thrown = std::current_exception();
      handout.stop();
    }
    {
      const std::lock_guard lock(mutex);
      is_done = true;
    }
    ended.notify_one();
  });
  for (bool over = false; !over || !is_idle();) {
    const bool fed = !stop() && failure_.empty() && feed(batch, handout);
    const bool any = collect(batch, done);
    std::unique_lock lock(mutex);
    if (is_done && over && !any && !fed) {
      lock.unlock();
      std::this_thread::sleep_for(kPause);  // only others still work
    } else if (!any && !fed) {
      ended.wait_for(lock, pause(), [&] { return is_done; });
    }
    over = is_done;
    if (!failure_.empty()) {
      handout.stop();
    }
  }
  here.join();
  if (thrown) {
    std::rethrow_exception(thrown);
  }
  if (!failure_.empty()) {
    throw Error(ErrorKind::BadInput, "", failure_);
  }
  return done;
}

// Half of what the shortest last delivery takes, so that the next one comes before it ends.
std::chrono::duration<double> RankCrew::pause() const {
  double work = 2 * kLongestPause;
  for (const Lane& lane : lanes_) {
    work = std::min(work, static_cast<double>(lane.work) * seconds_);
  }
  return std::max(std::chrono::duration<double>(kPause), std::chrono::duration<double>(work / 2));
}

// To every remote thread that waits for work, or soon will. Whether anything was sent.
bool RankCrew::feed(const Batch& batch, Handout& handout) {
  bool fed = false;
  for (std::size_t index = 0; index < lanes_.size(); ++index) {
    Lane& lane = lanes_[index];
    if (lane.messages >= kDeliveriesUnderWay ||
        (lane.messages > 0 && handout.share() * seconds_ < kLeastShare)) {
      continue;  // the last nodes go to who has none
    }
    const std::vector<std::size_t> nodes =
        handout.take_some(jobs() + static_cast<int>(index), kDelivery.value() / seconds_);
    if (nodes.empty()) {
      continue;
    }
    ByteWriter out;
    out.u8(static_cast<std::uint8_t>(MessageKind::Work));
    out.u32(static_cast<std::uint32_t>(lane.thread));
    out.u8(static_cast<std::uint8_t>(batch.task));
    write(out, batch.known);
    out.u64(nodes.size());
    lane.work = 0;
    for (const std::size_t node : nodes) {
      out.u64(node);
      write(out, batch.nodes[node]);
      lane.work += tree_.work_of(batch.task, batch.nodes[node]);
    }
    ranks_.send(lane.rank, out.bytes());
    ++lane.messages;
    fed = true;
  }
  return fed;
}

bool RankCrew::collect(const Batch& batch, std::vector<Done>& done) {
  bool any = false;
  while (const std::optional<Message> message = ranks_.receive()) {
    any = true;
    ByteReader in(message->bytes, fmt::format("rank {}", message->from));
    const auto kind = static_cast<MessageKind>(in.u8());
    const auto thread = static_cast<int>(in.u32());
    const auto lane = std::find_if(lanes_.begin(), lanes_.end(), [&](const Lane& some) {
      return some.rank == message->from && some.thread == thread;
    });
    --lane->messages;
    if (kind == MessageKind::Failed) {
      failure_ = fmt::format("rank {}: {}", message->from, in.text());
      continue;
    }
    double taken = 0;
    std::uint64_t work = 0;
    for (std::uint64_t left = in.u64(); left > 0; --left) {
      const std::uint64_t node = in.u64();
      Done& one = done[node];
      one.cpu = Seconds(in.real());
      one.lane = jobs() + static_cast<int>(lane - lanes_.begin());
      one.outcomes = read_outcomes(in);
      taken += one.cpu.value();
      work += tree_.work_of(batch.task, batch.nodes[node]);
    }
    seconds_ = 0.8 * seconds_ + 0.2 * taken / static_cast<double>(std::max<std::uint64_t>(1, work));
  }
  return any;
}

bool RankCrew::is_idle() const {
  return std::all_of(lanes_.begin(), lanes_.end(),
                     [](const Lane& lane) { return lane.messages == 0; });
}

void say_goodbye(Ranks& ranks) {
  for (int rank = 1; rank < ranks.size(); ++rank) {
    ranks.send(rank, just(MessageKind::Goodbye));
  }
}

}  // namespace orrery::search
