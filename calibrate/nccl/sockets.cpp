// SPDX-License-Identifier: Apache-2.0
#include "calibrate/nccl/sockets.hpp"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <thread>
#include <utility>

#include "base/error.hpp"
#include "base/quantity_text.hpp"
#include "base/text.hpp"

namespace orrery::calibrate {
namespace {

constexpr std::uint32_t kMaxFrameBytes = 16U << 20;
constexpr auto kRetryPause = std::chrono::milliseconds(50);

[[noreturn]] void fail_system(std::string_view action) {
  throw Error(ErrorKind::InputOutput, "rendezvous",
              fmt::format("cannot {}: {}", action, std::strerror(errno)));
}

// Waits for the events; false at the deadline.
bool wait_for(int descriptor, short events, Clock::time_point deadline) {
  while (true) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
    pollfd entry = {descriptor, events, 0};
    const int ready = ::poll(&entry, 1, static_cast<int>(std::clamp<long>(left, 0, 60'000)));
    if (ready > 0) {
      return true;
    }
    if (ready < 0 && errno != EINTR) {
      return true;  // the following call reports what is wrong
    }
    if (left <= 0) {
      return false;
    }
  }
}

ReceiveStatus receive_bytes(int descriptor, char* bytes, std::size_t count,
                            Clock::time_point deadline) {
  while (count > 0) {
    if (!wait_for(descriptor, POLLIN, deadline)) {
      return ReceiveStatus::Late;
    }
    const ssize_t got = ::recv(descriptor, bytes, count, MSG_DONTWAIT);
    if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) {
      return ReceiveStatus::Closed;
    }
    if (got > 0) {
      bytes += got;
      count -= static_cast<std::size_t>(got);
    }
  }
  return ReceiveStatus::Ok;
}

bool send_bytes(int descriptor, const char* bytes, std::size_t count, Clock::time_point deadline) {
  while (count > 0) {
    if (!wait_for(descriptor, POLLOUT, deadline)) {
      return false;
    }
    const ssize_t sent = ::send(descriptor, bytes, count, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent < 0 && errno != EAGAIN && errno != EINTR) {
      return false;
    }
    if (sent > 0) {
      bytes += sent;
      count -= static_cast<std::size_t>(sent);
    }
  }
  return true;
}

void set_no_delay(int descriptor) {
  const int on = 1;
  ::setsockopt(descriptor, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

using AddressList = std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)>;

AddressList resolve(const Address& address) {
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* list = nullptr;
  const std::string port = std::to_string(address.port);
  const int code = ::getaddrinfo(address.host.c_str(), port.c_str(), &hints, &list);
  if (code != 0) {
    throw Error(ErrorKind::InputOutput, "rendezvous",
                fmt::format("host \"{}\": {}", printable(address.host), ::gai_strerror(code)));
  }
  return {list, &::freeaddrinfo};
}

}  // namespace

Socket& Socket::operator=(Socket&& other) noexcept {
  if (this != &other) {
    close();
    descriptor_ = other.release();
  }
  return *this;
}

int Socket::release() { return std::exchange(descriptor_, -1); }

void Socket::close() {
  if (descriptor_ >= 0) {
    ::close(release());
  }
}

Address parse_address(const std::string& text, const std::string& where) {
  const std::size_t colon = text.rfind(':');
  if (colon == std::string::npos || colon == 0) {
    bad_input(where, fmt::format("\"{}\" is no address", printable(text)),
              "write HOST:PORT, for example node1:29500");
  }
  Address address;
  address.host = text.substr(0, colon);
  if (address.host.starts_with('[') && address.host.ends_with(']')) {
    address.host = address.host.substr(1, address.host.size() - 2);
  }
  address.port = static_cast<int>(parse_integer(text.substr(colon + 1), where, 1, 65'535));
  return address;
}

Socket listen_on(int port, bool loopback_only) {
  Socket listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!listener.open()) {
    fail_system("make a socket");
  }
  const int on = 1;
  ::setsockopt(listener.descriptor(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  sockaddr_in name = {};
  name.sin_family = AF_INET;
  name.sin_port = htons(static_cast<std::uint16_t>(port));
  name.sin_addr.s_addr = htonl(loopback_only ? INADDR_LOOPBACK : INADDR_ANY);
  sockaddr generic = {};
  static_assert(sizeof name == sizeof generic);
  std::memcpy(&generic, &name, sizeof generic);
  if (::bind(listener.descriptor(), &generic, sizeof generic) != 0) {
    fail_system(fmt::format("listen on port {}", port));
  }
  if (::listen(listener.descriptor(), SOMAXCONN) != 0) {
    fail_system("listen");
  }
  return listener;
}

int port_of(const Socket& listener) {
  sockaddr generic = {};
  socklen_t size = sizeof generic;
  if (::getsockname(listener.descriptor(), &generic, &size) != 0) {
    fail_system("ask for the port");
  }
  sockaddr_in name = {};
  std::memcpy(&name, &generic, sizeof name);
  return ntohs(name.sin_port);
}

std::optional<Socket> accept_from(const Socket& listener, Clock::time_point deadline) {
  while (wait_for(listener.descriptor(), POLLIN, deadline)) {
    Socket peer(::accept4(listener.descriptor(), nullptr, nullptr, SOCK_CLOEXEC));
    if (peer.open()) {
      set_no_delay(peer.descriptor());
      return peer;
    }
    if (errno != EINTR && errno != ECONNABORTED && errno != EAGAIN) {
      fail_system("accept a connection");
    }
  }
  return std::nullopt;
}

std::optional<Socket> connect_to(const Address& address, Clock::time_point deadline) {
  const AddressList list = resolve(address);
  do {
    for (const addrinfo* entry = list.get(); entry != nullptr; entry = entry->ai_next) {
      Socket peer(::socket(entry->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
      if (!peer.open()) {
        continue;
      }
      if (::connect(peer.descriptor(), entry->ai_addr, entry->ai_addrlen) != 0 &&
          errno != EINPROGRESS) {
        continue;
      }
      int error = 0;
      socklen_t size = sizeof error;
      if (wait_for(peer.descriptor(), POLLOUT, deadline) &&
          ::getsockopt(peer.descriptor(), SOL_SOCKET, SO_ERROR, &error, &size) == 0 && error == 0) {
        set_no_delay(peer.descriptor());
        return peer;
      }
    }
    std::this_thread::sleep_for(kRetryPause);
  } while (Clock::now() < deadline);
  return std::nullopt;
}

ReceiveStatus receive(const Socket& socket, Frame& frame, Clock::time_point deadline) {
  std::array<std::uint32_t, 2> head = {};
  std::array<char, sizeof head> bytes = {};
  ReceiveStatus status = receive_bytes(socket.descriptor(), bytes.data(), bytes.size(), deadline);
  if (status != ReceiveStatus::Ok) {
    return status;
  }
  std::memcpy(head.data(), bytes.data(), sizeof head);
  const std::uint32_t kind = ntohl(head[0]);
  const std::uint32_t length = ntohl(head[1]);
  if (kind < 1 || kind > 3 || length > kMaxFrameBytes) {
    return ReceiveStatus::Garbage;
  }
  frame.kind = static_cast<FrameKind>(kind);
  frame.text.assign(length, '\0');
  status = receive_bytes(socket.descriptor(), frame.text.data(), length, deadline);
  return status;
}

bool send(const Socket& socket, const Frame& frame, Clock::time_point deadline) {
  if (frame.text.size() > kMaxFrameBytes) {
    return false;
  }
  const std::array<std::uint32_t, 2> head = {htonl(static_cast<std::uint32_t>(frame.kind)),
                                             htonl(static_cast<std::uint32_t>(frame.text.size()))};
  std::string bytes(sizeof head, '\0');
  std::memcpy(bytes.data(), head.data(), sizeof head);
  bytes += frame.text;
  return send_bytes(socket.descriptor(), bytes.data(), bytes.size(), deadline);
}

bool is_broken(const Socket& socket) {
  std::array<char, sizeof(std::uint32_t)> bytes = {};
  const ssize_t got =
      ::recv(socket.descriptor(), bytes.data(), bytes.size(), MSG_PEEK | MSG_DONTWAIT);
  if (got < 0) {
    return errno != EAGAIN && errno != EINTR;
  }
  std::uint32_t kind = 0;
  if (got == sizeof kind) {
    std::memcpy(&kind, bytes.data(), sizeof kind);
  }
  return got == 0 || ntohl(kind) == static_cast<std::uint32_t>(FrameKind::Fault);
}

}  // namespace orrery::calibrate
