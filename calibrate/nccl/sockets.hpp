// SPDX-License-Identifier: Apache-2.0
// Framed messages over TCP with a deadline on every wait. A frame is a kind, a length and bytes; a
// peer that sends something else, closes or stays silent is an Error, never a hang.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

namespace orrery::calibrate {

using Clock = std::chrono::steady_clock;

class Socket {
 public:
  Socket() = default;
  explicit Socket(int descriptor) : descriptor_(descriptor) {}
  ~Socket() { close(); }
  Socket(Socket&& other) noexcept : descriptor_(other.release()) {}
  Socket& operator=(Socket&& other) noexcept;
  bool open() const { return descriptor_ >= 0; }
  int descriptor() const { return descriptor_; }
  int release();
  void close();

 private:
  int descriptor_ = -1;
};

struct Address {
  std::string host;
  int port = 0;  // 0: any free one, to listen on
};
// "HOST:PORT" or "[IPV6]:PORT".
Address parse_address(const std::string& text, const std::string& where);

// Listens on all interfaces, or on the loopback alone.
Socket listen_on(int port, bool loopback_only);
int port_of(const Socket& listener);
// nullopt when nobody came until the deadline.
std::optional<Socket> accept_from(const Socket& listener, Clock::time_point deadline);
// Retries until the deadline: rank 0 may start last. nullopt when nobody listens.
std::optional<Socket> connect_to(const Address& address, Clock::time_point deadline);

enum class FrameKind : std::uint32_t { Hello = 1, Data = 2, Fault = 3 };
struct Frame {
  FrameKind kind = FrameKind::Data;
  std::string text;
};

enum class ReceiveStatus { Ok, Closed, Late, Garbage };
ReceiveStatus receive(const Socket& socket, Frame& frame, Clock::time_point deadline);
// False when the peer is gone or does not read until the deadline.
bool send(const Socket& socket, const Frame& frame, Clock::time_point deadline);
// Whether the peer closed, or a Fault waits to be read; never blocks.
bool is_broken(const Socket& socket);

}  // namespace orrery::calibrate
