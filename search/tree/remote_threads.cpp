// SPDX-License-Identifier: Apache-2.0
#include "search/tree/remote_threads.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>

#include "base/error.hpp"
#include "base/limits.hpp"
#include "base/text.hpp"
#include "search/tree/build.hpp"

namespace orrery::search {

// The threads of this rank.
struct RemoteThreads::Here {
  std::mutex mutex;
  std::condition_variable ended;
  bool is_done = false;
};

RemoteThreads::RemoteThreads(Ranks& ranks, SearchKind kind, const std::vector<InputHash>& inputs)
    : ranks_(ranks), crew_(2) {
  if (crew_.size() < 2) {
    throw Error(ErrorKind::InputOutput, "", "the system has no thread for messages between ranks");
  }
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
    const auto answer = static_cast<MessageKind>(in.u8());
    int& theirs = threads[static_cast<std::size_t>(message->from)];
    if (answer == MessageKind::Failed) {
      (void)in.u32();  // none of its threads
      in.fail(in.text());
    }
    if (answer != MessageKind::Hello || theirs != 0) {
      in.fail("does not say hello, or twice");
    }
    if (const std::string build = in.text(); build != build_text()) {
      in.fail(fmt::format("runs version {}, rank 0 runs {}", printable(build), build_text()));
    }
    const std::string other = difference(inputs, read_inputs(in));
    if (!other.empty()) {
      in.fail("has other inputs than rank 0: " + other);
    }
    const std::uint32_t count = in.u32();
    if (count < 1 || count > static_cast<std::uint32_t>(limits::kMaxThreads)) {
      in.fail(fmt::format("has {} threads, not 1 to {}", count, limits::kMaxThreads));
    }
    theirs = static_cast<int>(count);
    --waiting;
  }
  for (int rank = 1; rank < ranks_.size(); ++rank) {
    for (int thread = 0; thread < threads[static_cast<std::size_t>(rank)]; ++thread) {
      threads_.push_back({rank, thread});
    }
  }
}

RemoteThreads::~RemoteThreads() { tell(MessageKind::End); }

void RemoteThreads::tell(MessageKind kind) {
  for (int rank = 1; rank < ranks_.size(); ++rank) {
    ranks_.send(rank, std::string(1, static_cast<char>(kind)));
  }
}

void RemoteThreads::run(Deliveries& work) {
  Here here;
  crew_.run([&](int member) {
    std::exception_ptr thrown;
    try {
      member == 0 ? exchange(work, here) : work.work_here();
    } catch (...) {
      thrown = std::current_exception();
      work.stop_here();
    }
    if (member != 0) {
      {
        const std::lock_guard lock(here.mutex);
        here.is_done = true;
      }
      here.ended.notify_one();
    }
    if (thrown) {
      std::rethrow_exception(thrown);
    }
  });
  if (!failure_.empty()) {
    throw Error(ErrorKind::BadInput, "", failure_);
  }
}

// Messages, until nobody works any more.
void RemoteThreads::exchange(Deliveries& work, Here& here) {
  bool told = false;
  for (bool over = false; !over || !is_idle();) {
    const bool stopped = work.is_stopped();
    if (stopped && !told) {
      tell(MessageKind::Stop);
      told = true;
    }
    const bool fed = !stopped && failure_.empty() && feed(work);
    const bool any = collect(work);
    std::unique_lock lock(here.mutex);
    if (here.is_done && over && !any && !fed) {
      lock.unlock();
      std::this_thread::sleep_for(kShortestPause);  // only others still work
    } else if (!any && !fed) {
      here.ended.wait_for(lock, work.pause(), [&] { return here.is_done; });
    }
    over = here.is_done;
    if (!failure_.empty()) {
      work.stop_here();
    }
  }
}

// To every remote thread that waits for work, or soon will. Whether anything was sent.
bool RemoteThreads::feed(Deliveries& work) {
  bool fed = false;
  for (std::size_t index = 0; index < threads_.size(); ++index) {
    RemoteThread& remote = threads_[index];
    const std::string delivery = work.next(index, remote.under_way);
    if (delivery.empty()) {
      continue;
    }
    ByteWriter out;
    out.u8(static_cast<std::uint8_t>(MessageKind::Work));
    out.u32(static_cast<std::uint32_t>(remote.thread));
    ranks_.send(remote.rank, out.bytes() + delivery);
    ++remote.under_way;
    fed = true;
  }
  return fed;
}

bool RemoteThreads::collect(Deliveries& work) {
  bool any = false;
  while (const std::optional<Message> message = ranks_.receive()) {
    any = true;
    ByteReader in(message->bytes, fmt::format("rank {}", message->from));
    const auto kind = static_cast<MessageKind>(in.u8());
    const auto thread = static_cast<int>(in.u32());
    const auto remote =
        std::find_if(threads_.begin(), threads_.end(), [&](const RemoteThread& some) {
          return some.rank == message->from && some.thread == thread;
        });
    if (kind == MessageKind::Failed && remote == threads_.end()) {
      in.fail(in.text());  // none of its threads
    }
    if ((kind != MessageKind::Failed && kind != MessageKind::Results) || remote == threads_.end() ||
        remote->under_way == 0) {
      in.fail("answers what it was not asked");
    }
    --remote->under_way;
    if (kind == MessageKind::Failed) {
      failure_ = fmt::format("rank {}: {}", message->from, in.text());
      continue;
    }
    work.take(static_cast<std::size_t>(remote - threads_.begin()), in);
  }
  return any;
}

bool RemoteThreads::is_idle() const {
  return std::all_of(threads_.begin(), threads_.end(),
                     [](const RemoteThread& remote) { return remote.under_way == 0; });
}

void say_goodbye(Ranks& ranks) {
  for (int rank = 1; rank < ranks.size(); ++rank) {
    ranks.send(rank, std::string(1, static_cast<char>(MessageKind::Goodbye)));
  }
}

}  // namespace orrery::search
