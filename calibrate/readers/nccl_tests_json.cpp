// SPDX-License-Identifier: Apache-2.0
// JSON output of nccl-tests (-J; versions 1 to 3 of src/util.cu): an object with `version`, `args`,
// `nccl_version`, `config` (threads, GPUs a thread, one device entry a process) and `results` with
// `out_of_place` and `in_place` (time in us, nwrong). Numbers that are no numbers are strings
// there.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "base/json_reader.hpp"
#include "base/limits.hpp"
#include "base/text.hpp"
#include "calibrate/collective_log.hpp"
#include "calibrate/collective_row.hpp"
#include "calibrate/gpu_names.hpp"
#include "calibrate/reading_builder.hpp"
#include "traces/nccl_lines.hpp"

namespace orrery::calibrate {
namespace {

constexpr std::int64_t kNewestVersion = 3;

bool recognises(const FileHead& head) {
  const std::string_view text = trim(head.text);
  return text.starts_with('{') && text.find("\"nccl_version\"") != std::string_view::npos &&
         text.find("\"args\"") != std::string_view::npos;
}

struct Run {
  SampleHeader header;
  sim::CommKind kind = sim::CommKind::None;
  std::string name;
  std::int64_t ranks = 0;
  std::int64_t nodes = 1;
  std::int64_t groups = 1;  // of ranks that were split (NCCL_TESTS_SPLIT), at once
  bool is_mixed = false;    // GPUs of two kinds
};

// Of ranks on GPUs of two kinds no time is fitted.
void check_same_gpu(const JsonReader& place, const std::string& device, ReadingBuilder& builder,
                    Run& run) {
  const std::string& first = run.header.device;
  if (!device.empty() && device != first &&
      (gpu_of(device) != gpu_of(first) || gpu_of(first).empty())) {
    builder.fault(place.where(),
                  fmt::format("a rank is on a {}, but the first one on a {}", device, first),
                  "times of GPUs of one kind are fitted");
    run.is_mixed = true;
  }
}

void read_config(ObjectReader& document, ReadingBuilder& builder, Run& run) {
  ObjectReader config = document.required("config").object();
  const std::int64_t threads = config.integer_or("nthreads", 1, 1, limits::kMaxDevices);
  const std::int64_t gpus = config.integer_or("ngpus", 1, 1, limits::kMaxDevices);
  std::set<std::string> hosts;
  std::map<std::int64_t, std::pair<std::int64_t, std::set<std::string>>> groups;
  std::int64_t processes = 0;
  for (const JsonReader& value : config.required("devices").array(limits::kMaxDevices)) {
    ObjectReader device = value.object();
    const std::string host = device.string_or("hostname", "");
    hosts.insert(host);
    auto& [own, own_hosts] = groups[device.integer_or("group", 0, 0, std::int64_t{1} << 30)];
    ++own;
    own_hosts.insert(host);
    const std::string name = printable(device.string_or("device_info", ""));
    run.header.device = run.header.device.empty() ? name : run.header.device;
    check_same_gpu(value, name, builder, run);
    device.ignore_rest();
    ++processes;
  }
  config.ignore_rest();
  run.ranks = run.is_mixed ? 0 : processes * threads * gpus;
  run.nodes = std::max<std::int64_t>(static_cast<std::int64_t>(hosts.size()), 1);
  if (groups.size() > 1 && !run.is_mixed) {
    const auto& [own, own_hosts] = groups.begin()->second;
    const bool equal = std::all_of(groups.begin(), groups.end(), [&](const auto& group) {
      return group.second.first == own && group.second.second.size() == own_hosts.size();
    });
    if (!equal) {
      builder.fault(builder.path() + ": /config/devices", "the ranks are split into unequal groups",
                    "times of equal groups are read");
    }
    run.groups = static_cast<std::int64_t>(groups.size());
    run.ranks = equal ? own * threads * gpus : 0;
    run.nodes = std::max<std::int64_t>(static_cast<std::int64_t>(own_hosts.size()), 1);
  }
  set_launch_mode(run.header, threads == 1 && gpus == 1 ? LaunchMode::ProcessPerGpu
                              : gpus == 1               ? LaunchMode::ThreadPerGpu
                                                        : LaunchMode::OneProcess);
}

Run read_run(ObjectReader& document, ReadingBuilder& builder) {
  Run run;
  const std::int64_t version = document.required("version").integer(0, 1'000'000);
  if (version < 1 || version > kNewestVersion) {
    builder.fault(builder.path() + ": /version",
                  fmt::format("version {} of the format is not known", version),
                  fmt::format("versions 1 to {} are read", kNewestVersion));
  }
  for (const JsonReader& argument : document.required("args").array(4096)) {
    const std::string text = argument.string();  // the program comes first
    if (run.name.empty()) {
      run.name = text.substr(text.find_last_of('/') + 1);
      run.name = run.name.substr(0, run.name.rfind("_perf"));
    }
  }
  run.kind = foreign_collective(run.name);
  if (const std::optional<JsonReader> environment = document.optional("env")) {
    for (const JsonReader& entry : environment->array(65'536)) {
      if (const std::string text = entry.string();
          text.starts_with("NCCL_ALGO=") || text.starts_with("NCCL_PROTO=")) {
        run.header.notes.push_back(printable(text));
      }
    }
  }
  const std::int64_t code = document.integer_or("nccl_version", 0, 0, 10'000'000);
  if (code > 0) {
    run.header.libraries.emplace_back(
        "nccl", fmt::format("{}.{}.{}", code / 10'000, code / 100 % 100, code % 100));
  }
  read_config(document, builder, run);
  if (run.header.device.empty()) {
    run.header.device = builder.device().empty() ? "unknown" : builder.device();
  }
  run.header.gpu = gpu_of(run.header.device);
  run.header.node = node_of(run.header.gpu, "");
  if (!run.is_mixed && (run.ranks < 1 || run.ranks % run.nodes != 0)) {
    builder.fault(builder.path() + ": /config/devices",
                  fmt::format("{} ranks on {} nodes", run.ranks, run.nodes));
    run.ranks = 0;
  }
  return run;
}

// Median and quartiles where the times of iterations were recorded (-I 1), else the mean alone.
Timing timing_of_result(ObjectReader& result, std::string_view key, double seconds,
                        ReadingBuilder& builder) {
  // Mean and median of the same iterations are ten times apart where one in ten takes a hundred
  // times as long; confused units put a thousand between them.
  constexpr double kMostApart = 10;
  Timing timing = single_timing(Seconds(seconds));
  const std::optional<JsonReader> member = result.optional(key);
  if (!member) {
    return timing;
  }
  ObjectReader statistics = member->object();
  std::vector<double> times;
  if (const std::optional<JsonReader> list = statistics.optional("times_us")) {
    for (const JsonReader& value : list->array()) {
      times.push_back(value.number(0, limits::kMaxQuantity) * 1e-6);
      if (!check_time(builder, value.where(), times.back())) {
        times.pop_back();
      }
    }
  }
  // Leading iterations that the run was told to leave out of its statistics (-K) are listed, too.
  const std::int64_t skipped =
      statistics.integer_or("skipped_iterations", 0, 0, std::int64_t{1} << 31);
  statistics.ignore_rest();
  times.erase(times.begin(), times.begin() + std::min<std::ptrdiff_t>(skipped, std::ssize(times)));
  if (times.empty()) {
    return timing;
  }
  const Timing of_iterations = timing_of(std::move(times));
  const double ratio = of_iterations.median.value() / seconds;
  if (ratio > kMostApart || ratio < 1 / kMostApart) {
    builder.fault(member->where(),
                  fmt::format("iterations of {:g} us in the median, where the mean "
                              "is {:g} us",
                              of_iterations.median.value() * 1e6, seconds * 1e6));
    return timing;
  }
  return of_iterations;
}

// As the document states it; zeros at the end are lost, which makes the rounding larger.
std::string digits_of(const Json& number) {
  const std::string digits = number.is_integer() ? fmt::format("{}", number.as_integer())
                                                 : fmt::format("{}", number.as_number());
  const bool whole = digits.find_first_of(".e") == std::string::npos;
  return !number.is_integer() && whole ? digits + ".0" : digits;
}

// Bandwidths that are no numbers ("nan") are not checked.
traces::NcclTiming stated_rates(ObjectReader& timing) {
  traces::NcclTiming stated;
  const JsonReader time = timing.required("time");
  stated.time = Seconds(time.number(0, limits::kMaxQuantity) * 1e-6);
  stated.time_rounding = Seconds(traces::half_of_last_digit(digits_of(time.json())) * 1e-6);
  const auto read = [&](std::string_view key, BytesPerSecond& rate, BytesPerSecond& rounding) {
    const std::optional<JsonReader> member = timing.optional(key);
    if (member && member->json().is_number()) {
      rate = BytesPerSecond(member->number(0, limits::kMaxQuantity) * 1e9);
      rounding = BytesPerSecond(traces::half_of_last_digit(digits_of(member->json())) * 1e9);
    }
  };
  read("alg_bw", stated.algbw, stated.algbw_rounding);
  read("bus_bw", stated.busbw, stated.busbw_rounding);
  return stated;
}

void read_timing(ObjectReader& result, const Run& run, const CollectiveRow& row, bool in_place,
                 ReadingBuilder& builder) {
  const std::string_view key = in_place ? "in_place" : "out_of_place";
  const std::optional<JsonReader> member = result.optional(key);
  if (!member) {
    return;
  }
  const std::string where = member->where();
  ObjectReader timing = member->object();
  if (timing.has("cpu_time")) {
    builder.fault(where, "times of the host's calls, not of the collectives", "run without -C 1");
    return;
  }
  const traces::NcclTiming stated = stated_rates(timing);
  const double wrong = timing.number_or("nwrong", 0, 0, limits::kMaxQuantity);
  timing.ignore_rest();
  if (wrong > 0) {
    builder.fault(where, fmt::format("{:g} wrong values in the result", wrong),
                  "a run that computes wrong results says nothing about times");
    return;
  }
  const double seconds = stated.time.value();
  if (!check_time(builder, where, seconds)) {
    return;
  }
  if (const std::string contradiction = rate_contradiction(row, stated); !contradiction.empty()) {
    builder.fault(where, contradiction, "the document was edited");
    return;
  }
  const Timing time = timing_of_result(result, std::string(key) + "_per_iter", seconds, builder);
  builder.add(run.header, {.shape = CollectiveSample{.kind = row.kind,
                                                     .bytes = row.bytes,
                                                     .ranks = run.ranks,
                                                     .ranks_per_node = run.ranks / run.nodes,
                                                     .nodes = run.nodes,
                                                     .in_place = in_place,
                                                     .concurrent_groups = run.groups},
                           .time = time,
                           .implementation = std::string(row.type),
                           .source = builder.source(1),
                           .flags = {}});
}

void read_result(const JsonReader& value, const Run& run, ReadingBuilder& builder) {
  ObjectReader result = value.object();
  const std::int64_t bytes = result.required("size").integer(0, std::int64_t{1} << 60);
  const std::int64_t count = result.integer_or("count", 0, 0, std::int64_t{1} << 60);
  const std::string type = printable(result.string_or("type", ""));
  if (run.kind == sim::CommKind::None || bytes == 0 || run.ranks < 2) {
    builder.left_out(run.kind == sim::CommKind::None ? "collective \"" + printable(run.name) + "\""
                                                     : "row without data or peers");
    result.ignore_rest();
    return;
  }
  const CollectiveRow row{run.kind, run.ranks, bytes, count, type};
  if (const std::string contradiction = size_contradiction(row); !contradiction.empty()) {
    builder.fault(value.where(), contradiction, "the document was edited");
  } else {
    read_timing(result, run, row, false, builder);
    read_timing(result, run, row, true, builder);
  }
  result.ignore_rest();
}

void check_outcome(ObjectReader& document, ReadingBuilder& builder) {
  if (!document.has("end_time")) {
    builder.fault(builder.path(), "the run did not end: no \"end_time\"",
                  "it failed or was killed");
  }
  if (const std::optional<JsonReader> errors = document.optional("errors")) {
    for (const JsonReader& error : errors->array(4096)) {
      if (const std::string text = error.string(); !text.empty()) {
        builder.fault(error.where(), "the run failed: " + printable(text));
      }
    }
  }
  if (const std::optional<JsonReader> outcome = document.optional("out_of_bounds")) {
    ObjectReader values = outcome->object();
    const double wrong = values.number_or("count", 0, 0, limits::kMaxQuantity);
    values.ignore_rest();
    if (wrong > 0) {
      builder.fault(outcome->where(), fmt::format("the run failed: {:g} wrong results", wrong));
    }
  }
}

Reading read(const std::string& path, const ReadOptions& options) {
  ReadingBuilder builder(path, options);
  const Json json = builder.json("results");
  ObjectReader document = JsonReader(json, path).object();
  check_outcome(document, builder);
  const Run run = read_run(document, builder);
  for (const JsonReader& value : document.required("results").array()) {
    builder.part([&] { read_result(value, run, builder); });
  }
  document.ignore_rest();
  return builder.finish();
}

}  // namespace

extern const SampleReader reader_nccl_tests_json = {
    .name = "nccl-tests-json",
    .what = "output of nccl-tests -J (JSON)",
    .recognises = recognises,
    .read = read,
};

}  // namespace orrery::calibrate
