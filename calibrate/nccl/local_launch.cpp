// SPDX-License-Identifier: Apache-2.0
#include "calibrate/nccl/local_launch.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <iterator>
#include <random>
#include <thread>

#include "base/error.hpp"
#include "base/text.hpp"

namespace orrery::calibrate {
namespace {

constexpr Seconds kGrace{3.0};

std::string random_token() {
  std::random_device device;
  return fmt::format("{:08x}{:08x}{:08x}{:08x}", device(), device(), device(), device());
}

std::vector<char*> pointers_to(std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (std::string& text : texts) {
    pointers.push_back(text.data());
  }
  pointers.push_back(nullptr);
  return pointers;
}

class FileActions {
 public:
  FileActions() {
    posix_spawn_file_actions_init(&actions_);
    // Results are rank 0's: the others have no standard output.
    posix_spawn_file_actions_addopen(&actions_, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
    posix_spawn_file_actions_addopen(&actions_, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  }
  ~FileActions() { posix_spawn_file_actions_destroy(&actions_); }
  FileActions(const FileActions&) = delete;
  FileActions& operator=(const FileActions&) = delete;
  const posix_spawn_file_actions_t* get() const { return &actions_; }

 private:
  posix_spawn_file_actions_t actions_;
};

}  // namespace

LocalLaunch::LocalLaunch(const std::string& program, const std::vector<std::string>& arguments,
                         int ranks) {
  listener_ = listen_on(0, true);
  identity_.size = ranks;
  identity_.local_rank = 0;
  identity_.launcher = "orrery";
  identity_.address = fmt::format("127.0.0.1:{}", port_of(listener_));
  identity_.token = random_token();
  const FileActions actions;
  for (int rank = 1; rank < ranks; ++rank) {
    std::vector<std::string> variables = {fmt::format("ORRERY_RANK={}", rank),
                                          fmt::format("ORRERY_WORLD_SIZE={}", ranks),
                                          fmt::format("ORRERY_LOCAL_RANK={}", rank),
                                          fmt::format("ORRERY_RENDEZVOUS={}", identity_.address),
                                          fmt::format("ORRERY_TOKEN={}", identity_.token)};
    for (char** entry = environ; *entry != nullptr; ++entry) {
      variables.emplace_back(*entry);
    }
    std::vector<std::string> words = arguments;
    std::vector<char*> environment_pointers = pointers_to(variables);
    std::vector<char*> argument_pointers = pointers_to(words);
    pid_t process = 0;
    const int code = ::posix_spawn(&process, program.c_str(), actions.get(), nullptr,
                                   argument_pointers.data(), environment_pointers.data());
    if (code != 0) {
      throw Error(ErrorKind::InputOutput, "calibrate nccl",
                  fmt::format("cannot start {}: {}", printable(program), std::strerror(code)));
    }
    processes_.push_back(process);
  }
}

LocalLaunch::~LocalLaunch() {
  (void)wait(kGrace);
  for (const int process : processes_) {
    ::kill(process, SIGKILL);
    ::waitpid(process, nullptr, 0);
  }
}

bool LocalLaunch::wait(Seconds patience) {
  const auto deadline = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                           std::chrono::duration<double>(patience.value()));
  while (!processes_.empty()) {
    std::erase_if(processes_, [&](int process) {
      int status = 0;
      const bool ended = ::waitpid(process, &status, WNOHANG) == process;
      failed_ = failed_ || (ended && status != 0);
      return ended;
    });
    if (processes_.empty() || Clock::now() >= deadline) {
      break;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return processes_.empty() && !failed_;
}

std::vector<std::string> own_arguments() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  std::vector<std::string> arguments;
  for (const std::string_view word : split(text, '\0')) {
    arguments.emplace_back(word);
  }
  if (!arguments.empty() && arguments.back().empty()) {
    arguments.pop_back();
  }
  return arguments;
}

}  // namespace orrery::calibrate
