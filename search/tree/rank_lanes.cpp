// SPDX-License-Identifier: Apache-2.0
#include "search/tree/rank_lanes.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>

#include "base/error.hpp"

namespace orrery::search {

RankLanes::RankLanes(Ranks& ranks, SearchKind kind, const std::vector<InputHash>& inputs)
    : ranks_(ranks) {
  ByteWriter begin;
  begin.u8(static_cast<std::uint8_t>(MessageKind::Begin));
  begin.u8(static_cast<std::uint8_t>(kind));
  for (int rank = 1; rank < ranks_.size(); ++rank) {
    ranks_.send(rank, begin.bytes());
  }
  std::vector<int> threads(static_cast<std::size_t>(ranks_.size()), 0);
  for (int waiting = ranks_.size() - 1; waiting > 0;) {
    const std::optional<Message> message = ranks_.receive();
    if (!message) {
      std::this_thread::sleep_for(kShortestPause);
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

RankLanes::~RankLanes() { tell(MessageKind::End); }

void RankLanes::tell(MessageKind kind) {
  for (int rank = 1; rank < ranks_.size(); ++rank) {
    ranks_.send(rank, std::string(1, static_cast<char>(kind)));
  }
}

void RankLanes::run(Deliveries& work) {
  std::exception_ptr thrown;
  std::mutex mutex;
  std::condition_variable ended;
  bool is_done = false;  // the threads of this rank
  std::thread here([&] {
    try {
      work.work_here();
    } catch (...) {
      thrown = std::current_exception();
      work.stop_here();
    }
    {
      const std::lock_guard lock(mutex);
      is_done = true;
    }
    ended.notify_one();
  });
  bool told = false;
  for (bool over = false; !over || !is_idle();) {
    const bool stopped = work.is_stopped();
    if (stopped && !told) {
      tell(MessageKind::Stop);
      told = true;
    }
    const bool fed = !stopped && failure_.empty() && feed(work);
    const bool any = collect(work);
    std::unique_lock lock(mutex);
    if (is_done && over && !any && !fed) {
      lock.unlock();
      std::this_thread::sleep_for(kShortestPause);  // only others still work
    } else if (!any && !fed) {
      ended.wait_for(lock, work.pause(), [&] { return is_done; });
    }
    over = is_done;
    if (!failure_.empty()) {
      work.stop_here();
    }
  }
  here.join();
  if (thrown) {
    std::rethrow_exception(thrown);
  }
  if (!failure_.empty()) {
    throw Error(ErrorKind::BadInput, "", failure_);
  }
}

// To every remote thread that waits for work, or soon will. Whether anything was sent.
bool RankLanes::feed(Deliveries& work) {
  bool fed = false;
  for (std::size_t index = 0; index < lanes_.size(); ++index) {
    Lane& lane = lanes_[index];
    const std::string delivery = work.next(index, lane.under_way);
    if (delivery.empty()) {
      continue;
    }
    ByteWriter out;
    out.u8(static_cast<std::uint8_t>(MessageKind::Work));
    out.u32(static_cast<std::uint32_t>(lane.thread));
    ranks_.send(lane.rank, out.bytes() + delivery);
    ++lane.under_way;
    fed = true;
  }
  return fed;
}

bool RankLanes::collect(Deliveries& work) {
  bool any = false;
  while (const std::optional<Message> message = ranks_.receive()) {
    any = true;
    ByteReader in(message->bytes, fmt::format("rank {}", message->from));
    const auto kind = static_cast<MessageKind>(in.u8());
    const auto thread = static_cast<int>(in.u32());
    const auto lane = std::find_if(lanes_.begin(), lanes_.end(), [&](const Lane& some) {
      return some.rank == message->from && some.thread == thread;
    });
    --lane->under_way;
    if (kind == MessageKind::Failed) {
      failure_ = fmt::format("rank {}: {}", message->from, in.text());
      continue;
    }
    work.take(static_cast<std::size_t>(lane - lanes_.begin()), in);
  }
  return any;
}

bool RankLanes::is_idle() const {
  return std::all_of(lanes_.begin(), lanes_.end(),
                     [](const Lane& lane) { return lane.under_way == 0; });
}

void say_goodbye(Ranks& ranks) {
  for (int rank = 1; rank < ranks.size(); ++rank) {
    ranks.send(rank, std::string(1, static_cast<char>(MessageKind::Goodbye)));
  }
}

}  // namespace orrery::search
