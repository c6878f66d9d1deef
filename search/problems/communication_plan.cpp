// SPDX-License-Identifier: Apache-2.0
#include "search/problems/communication_plan.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <tuple>

namespace orrery::search {
namespace {

struct Message {
  SimTime at;  // when its producer ends
  int from = 0;
  int to = 0;
  int micro_batch = 0;
  bool activation() const { return to > from; }
};

// In the order in which all devices enqueue them.
std::vector<Message> messages_of(const sim::PipelineResult& run) {
  const auto devices = static_cast<int>(run.spans.size());
  std::vector<Message> messages;
  for (int device = 0; device < devices; ++device) {
    for (const sim::PassSpan& span : run.spans[static_cast<std::size_t>(device)]) {
      const int to = span.pass.kind == sim::PassKind::Forward ? device + 1 : device - 1;
      if (to >= 0 && to < devices) {
        messages.push_back({span.end, device, to, static_cast<int>(span.pass.micro_batch)});
      }
    }
  }
  std::sort(messages.begin(), messages.end(), [](const Message& a, const Message& b) {
    return std::tie(a.at, a.from, a.to, a.micro_batch) <
           std::tie(b.at, b.from, b.to, b.micro_batch);
  });
  return messages;
}

// The instructions of one device: its messages as their moments come, then its pass.
class Executor {
 public:
  Executor(const std::vector<sim::PassSpan>& spans, int device, int devices)
      : spans_(spans), device_(device), devices_(devices) {}

  std::vector<Instruction> list(const std::vector<Message>& messages) {
    for (const Message& message : messages) {
      if (message.from == device_ || message.to == device_) {
        run_passes_before(message.at);
        enqueue(message);
      }
    }
    run_passes_before(SimTime::max());
    for (const sim::PassSpan& span : spans_) {
      if (span.pass.kind == sim::PassKind::Backward && device_ > 0) {
        add(Action::SendGradientWait, span.pass, device_ - 1);
      }
    }
    list_.push_back({Action::OptimizerStep, -1, -1});
    return std::move(list_);
  }

 private:
  // A message is enqueued behind the passes that began before its moment.
  void run_passes_before(SimTime moment) {
    for (; next_ < spans_.size() && spans_[next_].start < moment; ++next_) {
      const sim::Pass& pass = spans_[next_].pass;
      const bool last = device_ + 1 == devices_;
      if (pass.kind == sim::PassKind::Forward) {
        if (device_ > 0) {
          add(Action::ReceiveActivationWait, pass, device_ - 1);
        }
        add(Action::Forward, pass, -1);
        continue;
      }
      if (!last) {
        add(Action::ReceiveGradientWait, pass, device_ + 1);
        add(Action::SendActivationWait, pass, device_ + 1);
      }
      add(Action::Backward, pass, -1);
    }
  }

  void enqueue(const Message& message) {
    const bool sends = message.from == device_;
    const Action action =
        message.activation()
            ? (sends ? Action::SendActivationStart : Action::ReceiveActivationStart)
            : (sends ? Action::SendGradientStart : Action::ReceiveGradientStart);
    list_.push_back({action, message.micro_batch, sends ? message.to : message.from});
  }

  void add(Action action, const sim::Pass& pass, int peer) {
    list_.push_back({action, static_cast<int>(pass.micro_batch), peer});
  }

  const std::vector<sim::PassSpan>& spans_;
  int device_;
  int devices_;
  std::size_t next_ = 0;
  std::vector<Instruction> list_;
};

}  // namespace

std::string_view to_text(Action action) {
  constexpr std::array<std::string_view, 11> kNames = {"forward",
                                                       "backward",
                                                       "send-activation-start",
                                                       "send-activation-wait",
                                                       "receive-activation-start",
                                                       "receive-activation-wait",
                                                       "send-gradient-start",
                                                       "send-gradient-wait",
                                                       "receive-gradient-start",
                                                       "receive-gradient-wait",
                                                       "optimizer-step"};
  return kNames[static_cast<std::size_t>(action)];
}

std::vector<std::vector<Instruction>> communication_plan(const sim::PipelineResult& run) {
  const std::vector<Message> messages = messages_of(run);
  std::vector<std::vector<Instruction>> lists;
  const auto devices = static_cast<int>(run.spans.size());
  for (int device = 0; device < devices; ++device) {
    lists.push_back(
        Executor(run.spans[static_cast<std::size_t>(device)], device, devices).list(messages));
  }
  return lists;
}

}  // namespace orrery::search
