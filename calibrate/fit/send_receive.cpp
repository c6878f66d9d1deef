// SPDX-License-Identifier: Apache-2.0
#include "calibrate/fit/send_receive.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <set>

#include "base/quantity_text.hpp"
#include "base/text.hpp"
#include "calibrate/fit/collectives.hpp"
#include "calibrate/fit/folds.hpp"
#include "calibrate/fit/robust_fit.hpp"
#include "calibrate/statistics.hpp"
#include "costmodel/collective_model.hpp"

namespace orrery::calibrate {
namespace {

using costmodel::CollectiveModel;
using costmodel::Profile;

// As of copies to the host: two parameters and two left over to tell their error, and messages
// that take long enough for the rate to show.
constexpr std::size_t kFewestMessages = 4;
constexpr double kLargeMessage = 16 << 20;
// A choice, as for the links of hosts: what clocks and rounded rates may add.
constexpr double kRateTolerance = 1.02;

struct Message {
  double bytes = 0;
  double seconds = 0;
  double beside = 0;  // of the model: what fabric and plug-in add to the latency
  double link = 0;    // bytes a second at most
  bool rated = true;  // the profile has a share of it: meshes, PCIe and Omni-Path state the rate
  std::size_t fold = 0;
};

struct Peer {
  double latency = 0;
  double rate = 0;
};

Seconds time_by(const CollectiveLog& log, const Profile& profile, double bytes) {
  return CollectiveModel(log.system.cluster, profile)
      .send_receive(Bytes(bytes), log.system.group.nodes == 1, 1);
}

// A profile without latencies, so that the model tells what the cluster adds, whose links reach
// this share.
Profile reaching(double share, const Profile& base) {
  Profile profile = base;
  profile.send_receive = {Seconds(), share, Seconds(), share,
                          BytesPerSecond(std::numeric_limits<double>::max())};
  return profile;
}

std::vector<Message> messages_of(std::span<const CollectiveLog* const> logs, const Profile& base) {
  constexpr double kGibi = 1024.0 * 1024 * 1024;
  const Profile whole = reaching(1, base);
  std::vector<Message> messages;
  for (const CollectiveLog* log : logs) {
    const double one = time_by(*log, whole, kGibi).value();
    const double per_byte = (time_by(*log, whole, 2 * kGibi).value() - one) / kGibi;
    const bool rated = time_by(*log, reaching(0.5, base), kGibi).value() > 1.5 * one;
    for (std::size_t i = 0; i < log->times.size(); ++i) {
      const MeasuredTime& measured = log->times[i];
      if (!launch_bound(*log, measured.time)) {
        messages.push_back({measured.size.value(), measured.time.value(), one - kGibi * per_byte,
                            1 / per_byte, rated, i % kFolds});
      }
    }
  }
  return messages;
}

double time_of(const Peer& peer, const Message& message) {
  return peer.latency + message.beside +
         message.bytes / (message.rated ? std::min(peer.rate, message.link) : message.link);
}

double fastest_link(const std::vector<Message>& messages) {
  double link = 0;
  for (const Message& message : messages) {
    link = std::max(link, message.link);
  }
  return link;
}

Peer fitted(const std::vector<Message>& messages) {
  const double link = fastest_link(messages);
  const std::vector<double> values = robust_fit(
      {{.start = 10e-6, .min = 1e-7, .max = 1e-2}, {.start = link / 2, .min = 1e6, .max = link}},
      [&](const std::vector<double>& trial) {
        std::vector<double> residuals;
        for (const Message& message : messages) {
          residuals.push_back(std::log(time_of({trial[0], trial[1]}, message) / message.seconds));
        }
        return residuals;
      });
  return {values[0], values[1]};
}

// Why messages say nothing of their link; "" where they do.
std::string why_silent(const std::vector<Message>& messages) {
  std::set<double> sizes;
  double over = 0;  // times the link
  for (const Message& message : messages) {
    sizes.insert(message.bytes);
    over = std::max(over, message.bytes / message.seconds / message.link);
  }
  if (sizes.size() < kFewestMessages) {
    return fmt::format("{}, where {} are needed",
                       counted(static_cast<std::int64_t>(sizes.size()), "size"), kFewestMessages);
  }
  if (*sizes.rbegin() < kLargeMessage) {
    return fmt::format("none of {} or more", format_bytes(Bytes(kLargeMessage)));
  }
  return over > kRateTolerance ? fmt::format("up to {:.2f} times the rate of the link", over) : "";
}

void set_inside(const Peer& peer, const std::vector<Message>& messages, Profile& profile) {
  profile.send_receive.intra_latency = Seconds(rounded(peer.latency, 1e9));
  if (messages.front().rated) {
    profile.send_receive.intra_fraction = rounded(peer.rate / fastest_link(messages), 1e4);
  }
}

void set_between(const Peer& peer, const std::vector<Message>& messages, Profile& profile) {
  costmodel::SendReceiveParameters& fit = profile.send_receive;
  fit.inter_latency = Seconds(rounded(peer.latency, 1e9));
  if (!messages.front().rated) {
    return;
  }
  const double share = peer.rate / fastest_link(messages);
  if (share < fit.nic_fraction) {
    fit.peer_limit = BytesPerSecond(rounded(peer.rate, 1e-6));
  } else {
    fit.nic_fraction = rounded(share, 1e4);
    fit.peer_limit = std::max(fit.peer_limit, BytesPerSecond(rounded(peer.rate, 1e-6)));
  }
}

void leave_out_folds(const std::vector<Message>& messages, const std::string& name, int logs,
                     SendReceiveFit& fit) {
  std::vector<double> errors;
  for (std::size_t fold = 0; fold < kFolds; ++fold) {
    std::vector<Message> kept;
    std::copy_if(messages.begin(), messages.end(), std::back_inserter(kept),
                 [&](const Message& message) { return message.fold != fold; });
    const Peer without = fitted(kept);
    for (const Message& message : messages) {
      if (message.fold == fold) {
        fit.left_out.push_back({name, message.seconds, time_of(without, message)});
        errors.push_back(std::abs(fit.left_out.back().predicted / message.seconds - 1));
      }
    }
  }
  std::vector<costmodel::CollectiveError>& rows = fit.profile.collectives.left_out;
  std::erase_if(rows, [&](const auto& row) { return row.group == name; });
  rows.push_back({name, rounded(quantile_of(errors, 0.5), 1e4),
                  rounded(quantile_of(errors, 0.9), 1e4), logs, static_cast<int>(errors.size())});
}

}  // namespace

SendReceiveFit fit_send_receive(std::span<const CollectiveLog> peers, const Profile& base) {
  SendReceiveFit fit{base, {}, {}, false};
  for (const bool inside : {true, false}) {
    std::vector<const CollectiveLog*> logs;
    for (const CollectiveLog& log : peers) {
      if ((log.system.group.nodes == 1) == inside) {
        logs.push_back(&log);
      }
    }
    if (logs.empty()) {
      continue;
    }
    const std::string name = inside ? "send-receive" : "send-receive-several-nodes";
    const std::vector<Message> messages = messages_of(logs, base);
    if (const std::string why = why_silent(messages); !why.empty()) {
      fit.remarks.push_back(fmt::format("{}: {}: as in {}", name, why, base.name));
      continue;
    }
    (inside ? set_inside : set_between)(fitted(messages), messages, fit.profile);
    leave_out_folds(messages, name, static_cast<int>(logs.size()), fit);
    fit.is_moved = true;
  }
  return fit;
}

}  // namespace orrery::calibrate
