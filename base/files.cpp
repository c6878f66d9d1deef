// SPDX-License-Identifier: Apache-2.0
#include "base/files.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <filesystem>
#include <system_error>
#include <utility>

#include "base/error.hpp"
#include "base/interrupt.hpp"
#include "base/text.hpp"

namespace orrery {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void fail(std::string_view path, std::string_view action, int error_number) {
  throw Error(ErrorKind::InputOutput, path,
              fmt::format("cannot {}: {}", action,
                          std::error_code(error_number, std::generic_category()).message()));
}

// Closes on every way out; the standard streams stay open.
class Descriptor {
 public:
  explicit Descriptor(int number) : number_(number) {}
  ~Descriptor() { close(); }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;

  int number() const { return number_; }
  bool close() {
    const int number = std::exchange(number_, -1);
    return number <= STDERR_FILENO || ::close(number) == 0;
  }

 private:
  int number_;
};

void check_path(const std::string& path) {
  if (path.empty()) {
    throw Error(ErrorKind::InputOutput, "", "empty file name");
  }
  if (path.find('\0') != std::string::npos) {
    throw Error(ErrorKind::InputOutput, path, "file name with a NUL byte");
  }
}

[[noreturn]] void fail_size(const std::string& path, std::int64_t max_bytes) {
  bad_input(path, fmt::format("larger than {} bytes", max_bytes), "is this the intended file?");
}

void write_all(int number, std::string_view content, const std::string& path) {
  while (!content.empty()) {
    const ssize_t written = ::write(number, content.data(), content.size());
    if (written < 0 && errno == EINTR) {
      continue;
    }
    if (written < 0) {
      fail(path, "write", errno);
    }
    content.remove_prefix(static_cast<std::size_t>(written));
  }
}

constexpr int kLookEvery = 50;  // milliseconds, between two looks whether a wait is to end

// Opening a pipe waits for who reads it, which Ctrl-C may end.
int open_device(const std::string& path, bool is_pipe) {
  int number = ::open(path.c_str(), O_WRONLY | O_CLOEXEC | O_NONBLOCK);
  while (number < 0 && errno == ENXIO && is_pipe) {
    if (interrupted()) {
      fail(path, "open for writing: nobody reads this pipe", EINTR);
    }
    ::poll(nullptr, 0, kLookEvery);
    number = ::open(path.c_str(), O_WRONLY | O_CLOEXEC | O_NONBLOCK);
  }
  if (number >= 0) {
    ::fcntl(number, F_SETFL, ::fcntl(number, F_GETFL) & ~O_NONBLOCK);
  }
  return number;
}

void write_directly(const std::string& path, std::string_view content, bool is_pipe) {
  Descriptor file(open_device(path, is_pipe));
  if (file.number() < 0) {
    fail(path, "open for writing", errno);
  }
  write_all(file.number(), content, path);
  if (!file.close()) {
    fail(path, "write", errno);
  }
}

// Makes the rename durable; best effort, since some file systems cannot flush folders.
void flush_folder(const fs::path& folder) {
  Descriptor descriptor(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (descriptor.number() >= 0) {
    ::fsync(descriptor.number());
  }
}

// In the same folder, so that it can be renamed; short where the name is nearly as long as can be.
std::string temporary_beside(const std::string& target) {
  constexpr std::size_t kLongName = 200;  // of the 255 bytes that file systems take
  static std::atomic<unsigned> counter = 0;
  const fs::path path(target);
  const std::string suffix = fmt::format(".tmp-{}-{}", ::getpid(), counter++);
  return path.filename().string().size() < kLongName ? target + suffix
                                                     : (path.parent_path() / suffix).string();
}

constexpr mode_t kNewFileMode = 0644;  // less the umask

// A file without a name until it is whole: one that is killed before leaves nothing behind. -1
// where the file system has no such files, or /proc, through which they get a name, is missing.
int open_nameless(const fs::path& folder) {
  static const bool has_links = ::access("/proc/self/fd", X_OK) == 0;
  return has_links ? ::open(folder.c_str(), O_WRONLY | O_TMPFILE | O_CLOEXEC, kNewFileMode) : -1;
}

void fill(const Descriptor& file, const std::string& path, std::string_view content,
          mode_t old_mode) {
  write_all(file.number(), content, path);
  if (old_mode != 0 && ::fchmod(file.number(), old_mode) != 0) {
    fail(path, "keep the permissions", errno);
  }
  if (::fsync(file.number()) != 0) {
    fail(path, "write", errno);
  }
}

void rename_or_remove(const std::string& temporary, const std::string& path) {
  if (::rename(temporary.c_str(), path.c_str()) != 0) {
    const int error_number = errno;
    ::unlink(temporary.c_str());
    fail(path, "write", error_number);
  }
}

void write_temporary(const std::string& temporary, const std::string& path,
                     std::string_view content, mode_t old_mode) {
  const int flags = O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC;
  Descriptor file(::open(temporary.c_str(), flags, kNewFileMode));
  if (file.number() < 0) {
    fail(path, "create a file in its folder", errno);
  }
  try {
    fill(file, path, content, old_mode);
    if (!file.close()) {
      fail(path, "write", errno);
    }
  } catch (...) {
    ::unlink(temporary.c_str());
    throw;
  }
  rename_or_remove(temporary, path);
}

// Whether there are files without a name; if not, nothing was written.
bool write_nameless(const fs::path& folder, const std::string& temporary, const std::string& path,
                    std::string_view content, mode_t old_mode) {
  const Descriptor file(open_nameless(folder));
  if (file.number() < 0) {
    return false;
  }
  fill(file, path, content, old_mode);
  // A file that exists is replaced by a rename alone, so that there is another name for a moment.
  const std::string link = fmt::format("/proc/self/fd/{}", file.number());
  if (::linkat(AT_FDCWD, link.c_str(), AT_FDCWD, temporary.c_str(), AT_SYMLINK_FOLLOW) != 0) {
    return false;
  }
  rename_or_remove(temporary, path);
  return true;
}

// Opening a pipe does not wait for who writes it; wait_for_bytes() does.
int open_to_read(const std::string& path) {
  struct stat status = {};
  const bool is_pipe = ::stat(path.c_str(), &status) == 0 && S_ISFIFO(status.st_mode);
  return ::open(path.c_str(), O_RDONLY | O_CLOEXEC | (is_pipe ? O_NONBLOCK : 0));
}

// Of a pipe or a terminal, which Ctrl-C may end.
void wait_for_bytes(int number, const std::string& shown) {
  pollfd file = {number, POLLIN, 0};
  int ready = 0;
  do {
    if (interrupted()) {
      fail(shown, "read", EINTR);
    }
    ready = ::poll(&file, 1, kLookEvery);
  } while (ready == 0 || (ready < 0 && errno == EINTR));
}

// Without the mark that some editors write before UTF-8; what Windows calls Unicode is refused.
std::string utf8_of(std::string content, const std::string& shown) {
  if (content.starts_with("\xFF\xFE") || content.starts_with("\xFE\xFF")) {
    bad_input(shown, "text in UTF-16", "save it as UTF-8");
  }
  return content.starts_with(kByteOrderMark) ? content.substr(kByteOrderMark.size()) : content;
}

}  // namespace

std::string read_file(const std::string& path, std::int64_t max_bytes) {
  check_path(path);
  const bool is_stdin = path == "-";
  const std::string shown = is_stdin ? "standard input" : path;
  const Descriptor file(is_stdin ? STDIN_FILENO : open_to_read(path));
  struct stat status = {};
  if (file.number() < 0 || ::fstat(file.number(), &status) != 0) {
    fail(shown, "read", errno);
  }
  if (S_ISDIR(status.st_mode)) {
    fail(shown, "read", EISDIR);
  }
  if (S_ISREG(status.st_mode) && status.st_size > max_bytes) {
    fail_size(shown, max_bytes);
  }
  constexpr std::size_t kChunk = 1U << 16U;
  std::string content;
  while (true) {
    const std::size_t old_size = content.size();
    if (!S_ISREG(status.st_mode)) {
      wait_for_bytes(file.number(), shown);
    }
    content.resize(old_size + kChunk);
    const ssize_t count = ::read(file.number(), content.data() + old_size, kChunk);
    if (count < 0 && errno != EINTR && errno != EAGAIN) {
      fail(shown, "read", errno);
    }
    content.resize(old_size + static_cast<std::size_t>(std::max<ssize_t>(count, 0)));
    if (static_cast<std::int64_t>(content.size()) > max_bytes) {
      fail_size(shown, max_bytes);
    }
    if (count == 0) {
      return utf8_of(std::move(content), shown);
    }
  }
}

void write_file_atomically(const std::string& path, std::string_view content) {
  check_path(path);
  if (path == "-") {
    write_all(STDOUT_FILENO, content, "standard output");
    return;
  }
  struct stat status = {};
  const bool exists = ::stat(path.c_str(), &status) == 0;
  if (exists && S_ISDIR(status.st_mode)) {
    fail(path, "write", EISDIR);
  }
  if (exists && !S_ISREG(status.st_mode)) {
    write_directly(path, content, S_ISFIFO(status.st_mode));
    return;
  }
  std::error_code ignored;
  const fs::path resolved = exists ? fs::canonical(path, ignored) : fs::path(path);
  const std::string target = resolved.empty() ? path : resolved.string();
  const fs::path parent = fs::path(target).parent_path();
  const fs::path folder = parent.empty() ? fs::path(".") : parent;
  const std::string temporary = temporary_beside(target);
  const mode_t old_mode = exists ? status.st_mode & 0777U : 0U;
  if (!write_nameless(folder, temporary, target, content, old_mode)) {
    write_temporary(temporary, target, content, old_mode);
  }
  flush_folder(folder);
}

void create_folders(const std::string& path) {
  check_path(path);
  std::error_code error;
  fs::create_directories(path, error);
  if (error) {
    fail(path, "create the folder", error.value());
  }
  if (!fs::is_directory(path, error)) {
    fail(path, "create the folder", ENOTDIR);
  }
}

}  // namespace orrery
