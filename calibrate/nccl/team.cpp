// SPDX-License-Identifier: Apache-2.0
#include "calibrate/nccl/team.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <thread>

#include "base/error.hpp"
#include "base/files.hpp"
#include "base/quantity_text.hpp"
#include "base/text.hpp"

namespace orrery::calibrate {
namespace {

constexpr std::string_view kFilePrefix = "file:";
constexpr std::string_view kGreeting = "orrery-team 1";
constexpr auto kStrangerPatience = std::chrono::seconds(5);

Clock::time_point after(Seconds time) {
  return Clock::now() +
         std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(time.value()));
}

[[noreturn]] void fail(const std::string& message, std::string_view hint = {}) {
  throw Error(ErrorKind::InputOutput, "rendezvous", message, hint);
}

// Texts of any bytes in one: lengths first.
std::string pack(const std::vector<std::string>& texts) {
  std::string packed;
  for (const std::string& text : texts) {
    packed += fmt::format("{}:", text.size());
    packed += text;
  }
  return packed;
}

std::vector<std::string> unpack(std::string_view packed) {
  std::vector<std::string> texts;
  while (!packed.empty()) {
    const std::size_t colon = packed.find(':');
    if (colon == std::string_view::npos) {
      fail("rank 0 sent something else than agreed");
    }
    const auto length = static_cast<std::size_t>(parse_integer(
        packed.substr(0, colon), "rendezvous", 0, static_cast<std::int64_t>(packed.size())));
    packed.remove_prefix(colon + 1);
    if (length > packed.size()) {
      fail("rank 0 sent something else than agreed");
    }
    texts.emplace_back(packed.substr(0, length));
    packed.remove_prefix(length);
  }
  return texts;
}

}  // namespace

std::string host_name() {
  std::array<char, 256> name = {};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? std::string(name.data()) : "?";
}

Team::Team(const RankIdentity& identity, TeamOptions options)
    : identity_(identity), step_timeout_(options.step_timeout) {
  if (identity_.size == 1) {
    return;
  }
  if (options.address.empty() && !options.listener.open()) {
    bad_input("--rendezvous", fmt::format("{} ranks need an address to meet at", identity_.size),
              "HOST:PORT of rank 0, or file:PATH on shared storage");
  }
  if (identity_.rank == 0) {
    lead(options);
  } else {
    follow(options);
  }
}

Team::~Team() {
  if (!published_.empty()) {
    std::error_code ignored;
    std::filesystem::remove(published_, ignored);
  }
}

void Team::lead(TeamOptions& options) {
  Socket listener = std::move(options.listener);
  if (!listener.open()) {
    const bool by_file = options.address.starts_with(kFilePrefix);
    listener = listen_on(by_file ? 0 : parse_address(options.address, "--rendezvous").port, false);
    if (by_file) {
      published_ = options.address.substr(kFilePrefix.size());
      write_file_atomically(published_, fmt::format("{}:{}\n", host_name(), port_of(listener)));
    }
  }
  const auto others = static_cast<std::size_t>(identity_.size - 1);
  peers_.resize(others);
  peer_names_.resize(others);
  const Clock::time_point deadline = after(options.join_timeout);
  for (std::size_t joined = 0; joined < others;) {
    std::optional<Socket> peer = accept_from(listener, deadline);
    if (!peer) {
      std::string missing;
      for (std::size_t index = 0; index < others && missing.size() < 200; ++index) {
        missing += peers_[index].open() ? "" : fmt::format(" {}", index + 1);
      }
      const std::string text =
          fmt::format("{} of {} ranks came within {}; missing:{}", joined + 1, identity_.size,
                      format_duration(options.join_timeout), missing);
      report_fault(text);
      fail(text, "are they running, and can they reach this host?");
    }
    Frame hello;
    const ReceiveStatus status =
        receive(*peer, hello, std::min(deadline, Clock::now() + kStrangerPatience));
    const std::vector<std::string_view> lines = split(hello.text, '\n');
    if (status != ReceiveStatus::Ok || hello.kind != FrameKind::Hello || lines.size() != 5 ||
        lines[0] != kGreeting || lines[1] != identity_.token) {
      continue;  // not one of ours
    }
    const std::int64_t rank = parse_integer(lines[2], "rendezvous: rank", 0, 1 << 20);
    const std::int64_t size = parse_integer(lines[3], "rendezvous: size", 1, 1 << 20);
    const std::size_t index = static_cast<std::size_t>(rank) - 1;
    std::string refusal;
    if (size != identity_.size || rank < 1 || rank >= identity_.size) {
      refusal = fmt::format("rank {} of {} meets a run of {}", rank, size, identity_.size);
    } else if (peers_[index].open()) {
      refusal = fmt::format("two processes say they are rank {}", rank);
    }
    if (!refusal.empty()) {
      (void)send(*peer, {FrameKind::Fault, refusal}, step_deadline());
      report_fault(refusal);
      fail(refusal, "start every rank once");
    }
    peers_[index] = std::move(*peer);
    peer_names_[index] = fmt::format("rank {} ({})", rank, printable(lines[4]));
    ++joined;
  }
}

Address Team::published_address(const std::string& path, Clock::time_point deadline) const {
  while (Clock::now() < deadline) {
    std::ifstream file(path);
    std::string line;
    if (std::getline(file, line) && !line.empty()) {
      return parse_address(line, path);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  fail(fmt::format("rank 0 did not write its address to {} in time", printable(path)),
       "do all ranks see the same file?");
}

void Team::follow(const TeamOptions& options) {
  const Clock::time_point deadline = after(options.join_timeout);
  const Address address =
      options.address.starts_with(kFilePrefix)
          ? published_address(options.address.substr(kFilePrefix.size()), deadline)
          : parse_address(options.address, "--rendezvous");
  std::optional<Socket> leader = connect_to(address, deadline);
  if (!leader) {
    fail(fmt::format("rank 0 does not listen on {}:{}", printable(address.host), address.port),
         "is it running, and can this host reach it?");
  }
  peers_.push_back(std::move(*leader));
  peer_names_.push_back(fmt::format("rank 0 ({})", printable(address.host)));
  const Frame hello{FrameKind::Hello, fmt::format("{}\n{}\n{}\n{}\n{}", kGreeting, identity_.token,
                                                  identity_.rank, identity_.size, host_name())};
  if (!send(peers_.front(), hello, deadline)) {
    lost(0, "closed the connection");
  }
}

Clock::time_point Team::step_deadline() const { return after(step_timeout_); }

void Team::lost(std::size_t peer, const std::string& why) {
  const std::string text = fmt::format("{} {}", peer_names_[peer], why);
  report_fault(text);
  fail(text, "its own messages say more");
}

std::string Team::receive_from(std::size_t peer) {
  Frame frame;
  switch (receive(peers_[peer], frame, step_deadline())) {
    case ReceiveStatus::Ok:
      break;
    case ReceiveStatus::Closed:
      lost(peer, "left: it ended or was killed");
    case ReceiveStatus::Late:
      lost(peer, fmt::format("did not answer within {}", format_duration(step_timeout_)));
    case ReceiveStatus::Garbage:
      lost(peer, "sent something else than agreed");
  }
  if (frame.kind != FrameKind::Data) {
    const std::string text = frame.text;
    report_fault(text);
    fail(text);
  }
  return std::move(frame.text);
}

void Team::send_to(std::size_t peer, const std::string& text) {
  if (send(peers_[peer], {FrameKind::Data, text}, step_deadline())) {
    return;
  }
  // A peer that failed has said why before it closed.
  Frame last;
  if (receive(peers_[peer], last, Clock::now() + std::chrono::milliseconds(200)) ==
          ReceiveStatus::Ok &&
      last.kind == FrameKind::Fault) {
    report_fault(last.text);
    fail(last.text);
  }
  lost(peer, "left: it ended or was killed");
}

std::vector<std::string> Team::all_gather(const std::string& text) {
  if (size() == 1) {
    return {text};
  }
  if (rank() != 0) {
    send_to(0, text);
    std::vector<std::string> texts = unpack(receive_from(0));
    if (static_cast<int>(texts.size()) != size()) {
      fail("rank 0 sent something else than agreed");
    }
    return texts;
  }
  std::vector<std::string> texts = {text};
  for (std::size_t peer = 0; peer < peers_.size(); ++peer) {
    texts.push_back(receive_from(peer));
  }
  const std::string packed = pack(texts);
  for (std::size_t peer = 0; peer < peers_.size(); ++peer) {
    send_to(peer, packed);
  }
  return texts;
}

std::string Team::broadcast(const std::string& text) {
  if (size() == 1) {
    return text;
  }
  if (rank() != 0) {
    return receive_from(0);
  }
  for (std::size_t peer = 0; peer < peers_.size(); ++peer) {
    send_to(peer, text);
  }
  return text;
}

void Team::check() {
  for (std::size_t peer = 0; peer < peers_.size(); ++peer) {
    if (is_broken(peers_[peer])) {
      (void)receive_from(peer);
      lost(peer, "left: it ended or was killed");
    }
  }
}

void Team::report_fault(const std::string& text) noexcept {
  const Clock::time_point deadline = Clock::now() + std::chrono::seconds(2);
  for (const Socket& peer : peers_) {
    if (peer.open()) {
      (void)send(peer, {FrameKind::Fault, text}, deadline);
    }
  }
}

}  // namespace orrery::calibrate
