// SPDX-License-Identifier: Apache-2.0
// What ranks above 0 do: a thread for messages, and workers with a queue each.
#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>

#include "base/error.hpp"
#include "search/tree/build.hpp"
#include "search/tree/remote_threads.hpp"

namespace orrery::search {

namespace {

// Between two looks for messages of a rank that works.
constexpr std::chrono::duration<double> kLongPause{2e-3};

constexpr int kNoThread = -1;

std::string failed(int thread, std::string_view text) {
  ByteWriter out;
  out.u8(static_cast<std::uint8_t>(MessageKind::Failed));
  out.u32(static_cast<std::uint32_t>(thread));
  out.text(text);
  return out.bytes();
}

// The threads of this rank; messages go in by thread and come out as they are done.
class Server {
 public:
  explicit Server(Service& service)
      : service_(service), queues_(static_cast<std::size_t>(service.jobs())) {
    for (int thread = 0; thread < service.jobs(); ++thread) {
      threads_.emplace_back([this, thread] { loop(thread); });
    }
  }
  ~Server() {
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
    if (thread >= queues_.size()) {
      in.fail("asks a thread that is not there");
    }
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
    done_.wait_for(lock, hungry ? kShortestPause : kLongPause, [&] { return !results_.empty(); });
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
    ByteWriter out;
    out.u8(static_cast<std::uint8_t>(MessageKind::Results));
    out.u32(static_cast<std::uint32_t>(thread));
    try {
      service_.evaluate(thread, in, out);
    } catch (const std::exception& error) {
      return failed(thread, error.what());
    }
    return out.bytes();
  }

  Service& service_;
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
    std::this_thread::sleep_for(kShortestPause);
  }
}

MessageKind kind_of(const Message& message) {
  return static_cast<MessageKind>(ByteReader(message.bytes, "rank 0").u8());
}

SearchKind search_of(const Message& begin) {
  ByteReader in(begin.bytes, "rank 0");
  const auto kind = static_cast<MessageKind>(in.u8());
  const std::uint8_t search = in.u8();
  if (kind != MessageKind::Begin || search > static_cast<std::uint8_t>(SearchKind::PerBlock)) {
    in.fail("begins no search that is known");
  }
  return static_cast<SearchKind>(search);
}

// After a failure: whatever else was sent is passed over, until the end of the search or a goodbye.
bool is_asked_again(Ranks& ranks) {
  while (true) {
    const std::string bytes = next_message(ranks).bytes;
    const bool is_end = bytes == std::string(1, static_cast<char>(MessageKind::End));
    if (is_end || bytes == std::string(1, static_cast<char>(MessageKind::Goodbye))) {
      return is_end;
    }
  }
}

// Until the end of the search; false after a goodbye.
bool work_until_end(Ranks& ranks, Service& service) {
  Server server(service);
  while (true) {
    const std::optional<std::string> result = server.take_result();
    if (result) {
      ranks.send(0, *result);
    }
    std::optional<Message> message = ranks.receive();
    if (message && kind_of(*message) == MessageKind::Work) {
      server.put(std::move(message->bytes));
    } else if (message && kind_of(*message) == MessageKind::Stop) {
      service.stop();
    } else if (message) {
      return kind_of(*message) == MessageKind::End;
    } else if (!result) {
      server.wait();
    }
  }
}

}  // namespace

bool serve(Ranks& ranks, const ServiceOf& service_of) {
  try {
    const Message begin = next_message(ranks);
    if (kind_of(begin) == MessageKind::Goodbye) {
      return false;
    }
    const std::unique_ptr<Service> service = service_of(search_of(begin));
    ByteWriter hello;
    hello.u8(static_cast<std::uint8_t>(MessageKind::Hello));
    hello.text(build_text());
    write_inputs(hello, service->inputs());
    hello.u32(static_cast<std::uint32_t>(service->jobs()));
    ranks.send(0, hello.bytes());
    return work_until_end(ranks, *service);
  } catch (const Error& error) {
    ranks.send(0, failed(kNoThread, error.what()));
  }
  return is_asked_again(ranks);
}

}  // namespace orrery::search
