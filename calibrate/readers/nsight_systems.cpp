// SPDX-License-Identifier: Apache-2.0
// SQLite exports of Nsight Systems (nsys export --type sqlite; tables as described in NVIDIA's
// exporter documentation, created only when there is data). Copies become copy samples, kernels
// named durations; a kernel launched inside an NVTX range that PyTorch's emit_nvtx(record_shapes)
// names ("aten::mm, ..., sizes = [[4096, 1024], [1024, 4096]]") becomes a GEMM. Times are
// nanoseconds. The file is opened read-only and every query is one pass in the order of rows.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sqlite3.h>

#include <charconv>
#include <map>
#include <memory>
#include <set>
#include <vector>

#include "base/error.hpp"
#include "base/text.hpp"
#include "calibrate/gpu_names.hpp"
#include "calibrate/kernel_times.hpp"
#include "calibrate/torch_ops.hpp"

namespace orrery::calibrate {
namespace {

constexpr std::string_view kMagic = "SQLite format 3";
// CUPTI's copy kinds and memory kinds (cupti_activity.h).
constexpr std::int64_t kHostToDevice = 1;
constexpr std::int64_t kDeviceToHost = 2;
constexpr std::int64_t kPinned = 2;
constexpr std::int64_t kMaxStatementSteps = 2'000'000'000;

bool recognises(const FileHead& head) { return head.text.starts_with(kMagic); }

class Database {
 public:
  explicit Database(const std::string& path) : path_(path) {
    sqlite3* handle = nullptr;
    const int code = sqlite3_open_v2(path.c_str(), &handle, SQLITE_OPEN_READONLY, nullptr);
    handle_.reset(handle);
    if (code != SQLITE_OK) {
      fail(sqlite3_errmsg(handle));
    }
    sqlite3_limit(handle, SQLITE_LIMIT_LENGTH, 1 << 20);
    sqlite3_limit(handle, SQLITE_LIMIT_ATTACHED, 0);
  }

  [[noreturn]] void fail(const std::string& message) const {
    bad_input(path_, printable(message), "is it a whole export of nsys?");
  }
  sqlite3* handle() const { return handle_.get(); }

  // Names of the columns of a table; empty when it does not exist.
  std::set<std::string> columns(const std::string& table);

 private:
  struct Close {
    void operator()(sqlite3* handle) const { sqlite3_close(handle); }
  };
  std::string path_;
  std::unique_ptr<sqlite3, Close> handle_;
};

class Query {
 public:
  Query(const Database& database, const std::string& sql) : database_(database) {
    sqlite3_stmt* statement = nullptr;
    const int code = sqlite3_prepare_v2(database.handle(), sql.c_str(), -1, &statement, nullptr);
    statement_.reset(statement);
    if (code != SQLITE_OK) {
      database.fail(sqlite3_errmsg(database.handle()));
    }
  }
  bool next() {
    const int code = sqlite3_step(statement_.get());
    if (code != SQLITE_ROW && code != SQLITE_DONE) {
      database_.fail(sqlite3_errmsg(database_.handle()));
    }
    return code == SQLITE_ROW && ++rows_ < kMaxStatementSteps;
  }
  std::int64_t integer(int column) const { return sqlite3_column_int64(statement_.get(), column); }
  std::string text(int column) const {
    const unsigned char* bytes = sqlite3_column_text(statement_.get(), column);
    std::string result;
    for (int index = 0; bytes != nullptr && index < sqlite3_column_bytes(statement_.get(), column);
         ++index) {
      result += static_cast<char>(bytes[index]);
    }
    return result;
  }

 private:
  struct Finalize {
    void operator()(sqlite3_stmt* statement) const { sqlite3_finalize(statement); }
  };
  const Database& database_;
  std::unique_ptr<sqlite3_stmt, Finalize> statement_;
  std::int64_t rows_ = 0;
};

std::set<std::string> Database::columns(const std::string& table) {
  std::set<std::string> names;
  // No view: what one takes to answer is anybody's guess.
  Query query(*this, fmt::format("SELECT c.name FROM sqlite_master t, pragma_table_info(t.name) c "
                                 "WHERE t.type = 'table' AND t.name = '{}'",
                                 table));
  while (query.next()) {
    names.insert(query.text(0));
  }
  return names;
}

// "aten::mm, op_id = 7, sizes = [[4, 8], [8, 2]]" -> the operator and its input dims.
std::optional<Shape> shape_of_range(const std::string& text) {
  const std::size_t sizes = text.find("sizes = ");
  if (sizes == std::string::npos) {
    return std::nullopt;
  }
  TraceEvent event;
  event.name = text.substr(0, text.find(','));
  int depth = 0;
  for (std::size_t at = sizes + 8; at < text.size();) {
    const char c = text[at];
    if (c == '[') {
      if (++depth == 2) {
        event.input_dims.emplace_back();
      }
    } else if (c == ']') {
      if (--depth == 0) {
        break;
      }
    } else if (c >= '0' && c <= '9' && depth == 2) {
      std::int64_t value = 0;
      const auto [end, error] = std::from_chars(text.data() + at, text.data() + text.size(), value);
      if (error != std::errc()) {
        return std::nullopt;
      }
      event.input_dims.back().push_back(value);
      at = static_cast<std::size_t>(end - text.data());
      continue;
    }
    ++at;
  }
  // Number formats are not part of the range's name; training multiplies in bf16.
  event.input_types.assign(event.input_dims.size(), "bf16");
  std::optional<Shape> shape = torch_shape(event);
  return shape && std::holds_alternative<GemmSample>(*shape) ? shape : std::nullopt;
}

class ExportReader {
 public:
  explicit ExportReader(ReadingBuilder& builder)
      : builder_(builder), times_(builder), database_(builder.path()) {}

  void read() {
    read_strings();
    const std::string name = device();
    const bool kernels = read_kernels();
    const bool copies = read_copies();
    if (!kernels && !copies) {
      builder_.fault(builder_.path(), "neither kernels nor copies in the export",
                     "profile with --trace=cuda");
    }
    SampleHeader header;
    header.device = name;
    header.gpu = gpu_of(header.device);
    header.node = node_of(header.gpu, "");
    times_.finish(header);
  }

 private:
  void read_strings() {
    if (database_.columns("StringIds").empty()) {
      return;
    }
    Query query(database_, "SELECT id, value FROM StringIds");
    while (query.next()) {
      strings_[query.integer(0)] = query.text(1);
    }
  }

  // Which of several kinds of GPUs ran what is not told for sure: the numbers of devices that
  // kernels state are those of CUDA, which each process may order in its own way.
  std::string device() {
    std::set<std::string> names;
    if (database_.columns("TARGET_INFO_GPU").contains("name")) {
      Query query(database_, "SELECT DISTINCT name FROM TARGET_INFO_GPU LIMIT 16");
      while (query.next()) {
        names.insert(printable(query.text(0)));
      }
    }
    names.erase("");
    if (names.size() > 1) {
      builder_.fault(builder_.path() + ": TARGET_INFO_GPU",
                     fmt::format("GPUs of several kinds: {}", fmt::join(names, ", ")),
                     "--partial takes all of it for the GPU of --gpu");
      names.clear();
    }
    if (!names.empty()) {
      return *names.begin();
    }
    const std::string name = builder_.device().empty() ? "unknown" : builder_.device();
    builder_.remark(fmt::format("{}: does not name its GPU (TARGET_INFO_GPU): taken for {}",
                                builder_.path(), name));
    return name;
  }

  struct Range {
    std::int64_t end = 0;
    std::size_t product = 0;  // of products_
  };
  using Ranges = std::multimap<std::int64_t, Range>;  // by start, of one thread
  // A product takes as long as all its kernels (split-K adds up in a second one).
  struct Product {
    Shape shape;
    double seconds = 0;
    bool is_sound = true;
  };
  // Correlation ids are those of a process; both global ids hold it above 24 bits.
  using Launch = std::pair<std::int64_t, std::int64_t>;  // process, correlation id
  static std::int64_t process_of(std::int64_t global_id) { return global_id >> 24; }

  // The ranges that name GEMMs with their sizes.
  std::map<std::int64_t, Ranges> read_ranges() {
    std::map<std::int64_t, Ranges> ranges;
    const std::set<std::string> columns = database_.columns("NVTX_EVENTS");
    if (!columns.contains("start") || !columns.contains("end") || !columns.contains("text") ||
        !columns.contains("globalTid")) {
      return ranges;
    }
    const bool ids = columns.contains("textId");
    Query query(database_,
                fmt::format("SELECT start, \"end\", text, globalTid, {} FROM NVTX_EVENTS",
                            ids ? "textId" : "0"));
    while (query.next()) {
      std::string text = query.text(2);
      if (text.empty() && ids) {
        const auto known = strings_.find(query.integer(4));
        text = known == strings_.end() ? "" : known->second;
      }
      if (std::optional<Shape> shape = shape_of_range(text)) {
        ranges[query.integer(3)].insert({query.integer(0), {query.integer(1), products_.size()}});
        products_.push_back({*shape});
      }
    }
    return ranges;
  }

  // Host launches, where there are ranges to find them in: the product of each.
  std::map<Launch, std::size_t> read_launches(bool has_processes) {
    std::map<Launch, std::size_t> launches;
    const std::map<std::int64_t, Ranges> ranges = read_ranges();
    const std::set<std::string> columns = database_.columns("CUPTI_ACTIVITY_KIND_RUNTIME");
    if (ranges.empty() || !columns.contains("correlationId") || !columns.contains("globalTid")) {
      return launches;
    }
    Query query(database_,
                "SELECT start, globalTid, correlationId FROM CUPTI_ACTIVITY_KIND_RUNTIME");
    while (query.next()) {
      const auto thread = ranges.find(query.integer(1));
      if (thread == ranges.end()) {
        continue;
      }
      // The last range that began before the launch is the innermost one if it is still open.
      auto range = thread->second.upper_bound(query.integer(0));
      if (range != thread->second.begin() && (--range)->second.end >= query.integer(0)) {
        const std::int64_t process = has_processes ? process_of(query.integer(1)) : 0;
        launches[{process, query.integer(2)}] = range->second.product;
      }
    }
    return launches;
  }

  // False where the table is not there; a fault where it is, but not as nsys writes it.
  bool has_all(const std::string& table, const std::set<std::string>& columns,
               std::initializer_list<std::string_view> needed) {
    for (const std::string_view column : needed) {
      if (!columns.empty() && !columns.contains(std::string(column))) {
        builder_.fault(fmt::format("{}: {}", builder_.path(), table),
                       fmt::format("has no column \"{}\"", column),
                       "is it an export of this version of nsys?");
        return false;
      }
    }
    return !columns.empty();
  }

  bool read_kernels() {
    const std::string table = "CUPTI_ACTIVITY_KIND_KERNEL";
    const std::set<std::string> columns = database_.columns(table);
    if (!has_all(table, columns, {"start", "end"})) {
      return false;
    }
    const bool has_processes = columns.contains("globalPid");
    const std::map<Launch, std::size_t> launches = read_launches(has_processes);
    const std::string name = columns.contains("shortName")       ? "shortName"
                             : columns.contains("demangledName") ? "demangledName"
                                                                 : "0";
    const std::string correlation = columns.contains("correlationId") ? "correlationId" : "0";
    Query query(database_,
                fmt::format("SELECT start, \"end\", {}, {}, {} FROM CUPTI_ACTIVITY_KIND_KERNEL",
                            name, correlation, has_processes ? "globalPid" : "0"));
    for (std::int64_t row = 1; query.next(); ++row) {
      const double seconds = 1e-9 * static_cast<double>(query.integer(1) - query.integer(0));
      const std::int64_t process = has_processes ? process_of(query.integer(4)) : 0;
      const auto launch = launches.find({process, query.integer(3)});
      Product* product = launch == launches.end() ? nullptr : &products_[launch->second];
      if (!check_time(builder_,
                      fmt::format("{}: CUPTI_ACTIVITY_KIND_KERNEL row {}", builder_.path(), row),
                      seconds)) {
        if (product != nullptr) {
          product->is_sound = false;
        }
        continue;
      }
      if (product != nullptr) {
        product->seconds += seconds;
        continue;
      }
      const auto known = strings_.find(query.integer(2));
      times_.add_named(known == strings_.end() ? "kernel" : known->second, seconds);
    }
    for (const Product& product : products_) {
      if (product.is_sound && product.seconds > 0) {
        times_.add(product.shape, product.seconds);
      }
    }
    return true;
  }

  bool read_copies() {
    const std::string table = "CUPTI_ACTIVITY_KIND_MEMCPY";
    const std::set<std::string> columns = database_.columns(table);
    if (!has_all(table, columns, {"start", "end", "bytes", "copyKind"})) {
      return false;
    }
    const bool kinds = columns.contains("srcKind") && columns.contains("dstKind");
    Query query(database_, fmt::format("SELECT start, \"end\", bytes, copyKind, {} FROM "
                                       "CUPTI_ACTIVITY_KIND_MEMCPY",
                                       kinds ? "srcKind, dstKind" : "0, 0"));
    for (std::int64_t row = 1; query.next(); ++row) {
      const std::int64_t kind = query.integer(3);
      const double seconds = 1e-9 * static_cast<double>(query.integer(1) - query.integer(0));
      if ((kind != kHostToDevice && kind != kDeviceToHost) || query.integer(2) < 1) {
        builder_.left_out(query.integer(2) < 1 ? "copy of unknown size"
                                               : "copy that is not between host and GPU");
        continue;
      }
      if (!check_time(builder_,
                      fmt::format("{}: CUPTI_ACTIVITY_KIND_MEMCPY row {}", builder_.path(), row),
                      seconds)) {
        continue;
      }
      const std::int64_t host = query.integer(kind == kHostToDevice ? 4 : 5);
      times_.add(HostCopySample{.bytes = query.integer(2),
                                .direction = kind == kHostToDevice ? CopyDirection::HostToDevice
                                                                   : CopyDirection::DeviceToHost,
                                .pinned = host == kPinned},
                 seconds);
    }
    return true;
  }

  ReadingBuilder& builder_;
  KernelTimes times_;
  Database database_;
  std::map<std::int64_t, std::string> strings_;
  std::vector<Product> products_;
};

Reading read(const std::string& path, const ReadOptions& options) {
  ReadingBuilder builder(path, options);
  ExportReader(builder).read();
  return builder.finish();
}

}  // namespace

extern const SampleReader reader_nsight_systems = {
    .name = "nsight-systems",
    .what = "exports of Nsight Systems (SQLite)",
    .recognises = recognises,
    .read = read,
};

}  // namespace orrery::calibrate
