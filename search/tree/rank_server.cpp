// SPDX-License-Identifier: Apache-2.0
// What ranks above 0 do: a thread for messages, and workers with a queue each.
#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>

#include "base/error.hpp"
#include "base/parallel.hpp"
#include "search/tree/rank_crew.hpp"
#include "search/tree/work_bytes.hpp"

namespace orrery::search {

namespace {

// Between two looks for messages, of a rank with nothing to do and of one that works.
constexpr auto kPause = std::chrono::microseconds(100);
constexpr auto kLongPause = std::chrono::milliseconds(2);

std::string failed(int thread, std::string_view text) {
  ByteWriter out;
  out.u8(static_cast<std::uint8_t>(MessageKind::Failed));
  if (thread >= 0) {
    out.u32(static_cast<std::uint32_t>(thread));
  }
  out.text(text);
  return out.bytes();
}

// The workers of this rank; messages go in by thread and come out as they are done.
class Server : private Crew {
 public:
  Server(const Tree& tree, int jobs) : Crew(tree, jobs), queues_(static_cast<std::size_t>(jobs)) {
    for (int thread = 0; thread < jobs; ++thread) {
      threads_.emplace_back([this, thread] { loop(thread); });
    }
  }
  ~Server() override {
    {
      const std::lock_guard lock(mutex_);
      ends_ = true;
    }
    changed_.notify_all();
    for (std::thread& thread : threads_) {
      thread.join();
    }
  }

  void put(std::string message) {
    ByteReader in(message, "rank 0");
    (void)in.u8();
    const std::size_t thread = in.u32();
    {
      const std::lock_guard lock(mutex_);
      queues_[thread].push_back(std::move(message));
    }
    changed_.notify_all();
  }

  // Until there is a result, or it is time for another look for messages.
  void wait() {
    std::unique_lock lock(mutex_);
    const bool hungry = idle_ > 0;
    done_.wait_for(lock, hungry ? kPause : kLongPause, [&] { return !results_.empty(); });
  }

  std::optional<std::string> take_result() {
    const std::lock_guard lock(mutex_);
    if (results_.empty()) {
      return std::nullopt;
    }
    std::string result = std::move(results_.front());
    results_.pop_front();
    return result;
  }

 private:
  void loop(int thread) {
    std::deque<std::string>& queue = queues_[static_cast<std::size_t>(thread)];
    while (true) {
      std::unique_lock lock(mutex_);
      ++idle_;
      changed_.wait(lock, [&] { return ends_ || !queue.empty(); });
      --idle_;
      if (ends_) {
        return;
      }
      const std::string message = std::move(queue.front());
      queue.pop_front();
      lock.unlock();
      std::string result = work_on(thread, message);
      lock.lock();
      results_.push_back(std::move(result));
      lock.unlock();
      done_.notify_one();
    }
  }

  std::string work_on(int thread, const std::string& message) {
    ByteReader in(message, "rank 0");
    (void)in.u8();
    (void)in.u32();
    const auto task = static_cast<Task>(in.u8());
    const Known known = read_known(in);
    const std::uint64_t count = in.u64();
    ByteWriter out;
    out.u8(static_cast<std::uint8_t>(MessageKind::Results));
    out.u32(static_cast<std::uint32_t>(thread));
    out.u64(count);
    for (std::uint64_t left = count; left > 0; --left) {
      out.u64(in.u64());
      try {
        const Done done = evaluate(thread, task, read_node(in), known);
        out.real(done.cpu.value());
        write(out, *done.outcomes);
      } catch (const std::exception& error) {
        return failed(thread, error.what());
      }
    }
    return out.bytes();
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::condition_variable done_;
  bool ends_ = false;
  int idle_ = 0;  // threads that wait for work
  std::vector<std::deque<std::string>> queues_;
  std::deque<std::string> results_;
  std::vector<std::thread> threads_;
};

Message next_message(Ranks& ranks) {
  while (true) {
    if (std::optional<Message> message = ranks.receive()) {
      return std::move(*message);
    }
    std::this_thread::sleep_for(kPause);
  }
}

MessageKind kind_of(const Message& message) {
  return static_cast<MessageKind>(message.bytes.front());
}

// Until the end of the search; false after a goodbye.
bool work_until_end(Ranks& ranks, Server& server) {
  while (true) {
    const std::optional<std::string> result = server.take_result();
    if (result) {
      ranks.send(0, *result);
    }
    std::optional<Message> message = ranks.receive();
    if (message && kind_of(*message) == MessageKind::Work) {
      server.put(std::move(message->bytes));
    } else if (message) {
      return kind_of(*message) == MessageKind::End;
    } else if (!result) {
      server.wait();
    }
  }
}

}  // namespace

bool serve(Ranks& ranks, const ProblemOf& problem) {
  if (kind_of(next_message(ranks)) == MessageKind::Goodbye) {
    return false;
  }
  try {
    plan::Plan base;
    Options options;
    problem(base, options);
    const Space space(base, options.constraints);
    const std::vector<Group> groups = space.groups();
    std::vector<std::uint64_t> first_order;
    std::uint64_t plans = 0;
    for (const Group& group : groups) {
      first_order.push_back(plans);
      plans += static_cast<std::uint64_t>(space.num_members(group));
    }
    const int jobs = options.jobs > 0 ? options.jobs : available_cores();
    ByteWriter hello;
    hello.u8(static_cast<std::uint8_t>(MessageKind::Hello));
    write_inputs(hello, input_hashes(space, groups, options));
    hello.u32(static_cast<std::uint32_t>(jobs));
    Server server({space, groups, first_order}, jobs);
    ranks.send(0, hello.bytes());
    return work_until_end(ranks, server);
  } catch (const Error& error) {
    ranks.send(0, failed(-1, error.what()));
  }
  return kind_of(next_message(ranks)) == MessageKind::End;
}

}  // namespace orrery::search
