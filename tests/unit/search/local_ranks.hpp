// SPDX-License-Identifier: Apache-2.0
// Ranks that are threads of one process, with queues between them.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

#include "base/error.hpp"
#include "search/tree/ranks.hpp"

namespace orrery::search {

// Messages of all ranks of one process.
struct Mail {
  std::mutex mutex;
  std::vector<std::deque<Message>> boxes;
  std::int64_t sent = 0;
};

// What is sent instead of a message, by a rank that cannot be trusted.
using Forgery = std::function<std::string(std::string)>;

class LocalRanks : public Ranks {
 public:
  LocalRanks(Mail& mail, int rank, Forgery forged = {})
      : mail_(mail), rank_(rank), forged_(std::move(forged)) {}
  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(mail_.boxes.size()); }
  void send(int to, std::string_view bytes) override {
    std::string sent(bytes);
    if (forged_) {
      sent = forged_(std::move(sent));
    }
    const std::lock_guard lock(mail_.mutex);
    mail_.boxes[static_cast<std::size_t>(to)].push_back({rank_, std::move(sent)});
    ++mail_.sent;
  }
  std::optional<Message> receive() override {
    const std::lock_guard lock(mail_.mutex);
    std::deque<Message>& box = mail_.boxes[static_cast<std::size_t>(rank_)];
    if (box.empty()) {
      return std::nullopt;
    }
    Message message = std::move(box.front());
    box.pop_front();
    return message;
  }

 private:
  Mail& mail_;
  int rank_;
  Forgery forged_;
};

// What `search` answers, so many times, with `size` ranks; the others do what `theirs` says. Each
// search is served by every rank `parts` times, if that is known. Messages of the others are
// forged.
template <typename Search>
auto searched_by(int size, const Options& options, const ServiceOf& theirs, int searches,
                 Search search, std::optional<int> parts = 1, const Forgery& forged = {}) {
  Mail mail;
  mail.boxes.resize(static_cast<std::size_t>(size));
  std::vector<std::thread> others;
  std::atomic<int> served = 0;
  for (int rank = 1; rank < size; ++rank) {
    others.emplace_back([&, rank] {
      LocalRanks ranks(mail, rank, forged);
      while (serve(ranks, theirs)) {
        ++served;
      }
    });
  }
  LocalRanks ranks(mail, 0);
  Options how = options;
  how.ranks = &ranks;
  std::vector<decltype(search(how))> outcomes;
  std::string failure;
  try {
    for (int count = 0; count < searches; ++count) {
      outcomes.push_back(search(how));
    }
  } catch (const Error& error) {
    failure = error.what();
  }
  say_goodbye(ranks);
  for (std::thread& other : others) {
    other.join();
  }
  if (!failure.empty()) {
    throw Error(ErrorKind::BadInput, "", failure);
  }
  if (parts) {  // else work may be left for one rank alone
    EXPECT_EQ(served, (size - 1) * searches * *parts);
    EXPECT_EQ(mail.sent > size * 3, size > 1);
  }
  return outcomes;
}

}  // namespace orrery::search
