// SPDX-License-Identifier: Apache-2.0
#include "traces/chrome_trace.hpp"

#include <fmt/format.h>

#include <cmath>
#include <iterator>

#include "base/error.hpp"

namespace orrery::traces {
namespace {

std::string quoted(std::string_view text) { return Json(text).dump(-1); }

// Ids start at one: some viewers treat process 0 as "unknown".
std::uint32_t id_of(std::uint32_t index) { return index + 1; }

class Writer {
 public:
  explicit Writer(const Trace& trace) : trace_(trace) {}

  std::string text() {
    out_ = "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[";
    for (std::uint32_t process = 0; process < trace_.processes.size(); ++process) {
      process_names(process);
    }
    for (std::uint32_t track = 0; track < trace_.tracks.size(); ++track) {
      track_names(track);
    }
    for (const Span& span : trace_.spans) {
      complete(span);
    }
    for (const Counter& counter : trace_.counters) {
      sample(counter);
    }
    for (std::uint32_t arrow = 0; arrow < trace_.arrows.size(); ++arrow) {
      flow(trace_.arrows[arrow], arrow);
    }
    out_ += "\n]}\n";
    return std::move(out_);
  }

 private:
  template <typename... Arguments>
  void event(fmt::format_string<Arguments...> format, Arguments&&... arguments) {
    out_ += first_ ? "\n" : ",\n";
    first_ = false;
    fmt::format_to(std::back_inserter(out_), format, std::forward<Arguments>(arguments)...);
  }

  static std::string microseconds(SimTime time) {
    constexpr std::int64_t kPerMicrosecond = 1'000'000;
    const bool negative = time.ps < 0;
    const auto magnitude =
        negative ? 0 - static_cast<std::uint64_t>(time.ps) : static_cast<std::uint64_t>(time.ps);
    return fmt::format("{}{}.{:06}", negative ? "-" : "", magnitude / kPerMicrosecond,
                       magnitude % kPerMicrosecond);
  }

  const Track& track(std::uint32_t index) const {
    ORRERY_CHECK(index < trace_.tracks.size(), "a span on a track that does not exist");
    return trace_.tracks[index];
  }
  const Span& span(std::uint32_t index) const {
    ORRERY_CHECK(index < trace_.spans.size(), "an arrow at a span that does not exist");
    return trace_.spans[index];
  }

  void process_names(std::uint32_t process) {
    event(R"({{"ph":"M","pid":{},"name":"process_name","args":{{"name":{}}}}})", id_of(process),
          quoted(trace_.processes[process]));
    event(R"({{"ph":"M","pid":{},"name":"process_sort_index","args":{{"sort_index":{}}}}})",
          id_of(process), process);
  }

  void track_names(std::uint32_t index) {
    const Track& named = track(index);
    event(R"({{"ph":"M","pid":{},"tid":{},"name":"thread_name","args":{{"name":{}}}}})",
          id_of(named.process), id_of(index), quoted(named.name));
    event(R"({{"ph":"M","pid":{},"tid":{},"name":"thread_sort_index","args":{{"sort_index":{}}}}})",
          id_of(named.process), id_of(index), index);
  }

  void complete(const Span& shown) {
    ORRERY_CHECK(shown.start <= shown.end, "a span that ends before it starts");
    event(R"({{"ph":"X","pid":{},"tid":{},"ts":{},"dur":{},"name":{},"cat":{},"args":{}}})",
          id_of(track(shown.track).process), id_of(shown.track), microseconds(shown.start),
          microseconds(shown.end - shown.start), quoted(shown.name), quoted(shown.category),
          Json(shown.args).dump(-1));
  }

  void sample(const Counter& counter) {
    ORRERY_CHECK(counter.process < trace_.processes.size(), "a counter of no process");
    Json series = Json::object();
    for (const auto& [name, value] : counter.series) {
      ORRERY_CHECK(std::isfinite(value), "a counter that is not finite");
      series.set(name, value);
    }
    event(R"({{"ph":"C","pid":{},"ts":{},"name":{},"args":{}}})", id_of(counter.process),
          microseconds(counter.at), quoted(counter.name), series.dump(-1));
  }

  // Viewers bind both ends of an arrow to the span that is open at the given time, so both ends
  // are written at starts: an end coincides with the start of the next span of its track.
  void flow(const Arrow& arrow, std::uint32_t id) {
    const Span& from = span(arrow.from);
    const Span& to = span(arrow.to);
    event(R"({{"ph":"s","id":{},"pid":{},"tid":{},"ts":{},"name":{},"cat":"transfer"}})", id_of(id),
          id_of(track(from.track).process), id_of(from.track), microseconds(from.start),
          quoted(arrow.name));
    event(R"({{"ph":"f","bp":"e","id":{},"pid":{},"tid":{},"ts":{},"name":{},"cat":"transfer"}})",
          id_of(id), id_of(track(to.track).process), id_of(to.track), microseconds(to.start),
          quoted(arrow.name));
  }

  const Trace& trace_;
  std::string out_;
  bool first_ = true;
};

}  // namespace

void append(Trace& all, Trace more, std::string_view group) {
  const auto processes = static_cast<std::uint32_t>(all.processes.size());
  const auto tracks = static_cast<std::uint32_t>(all.tracks.size());
  const auto spans = static_cast<std::uint32_t>(all.spans.size());
  for (const std::string& name : more.processes) {
    all.add_process(fmt::format("{}: {}", group, name));
  }
  for (Track& track : more.tracks) {
    all.add_track(processes + track.process, std::move(track.name));
  }
  for (Span& span : more.spans) {
    span.track += tracks;
    all.spans.push_back(std::move(span));
  }
  for (Counter& counter : more.counters) {
    counter.process += processes;
    all.counters.push_back(std::move(counter));
  }
  for (Arrow& arrow : more.arrows) {
    all.arrows.push_back({spans + arrow.from, spans + arrow.to, std::move(arrow.name)});
  }
}

std::uint32_t Trace::add_process(std::string name) {
  processes.push_back(std::move(name));
  return static_cast<std::uint32_t>(processes.size() - 1);
}

std::uint32_t Trace::add_track(std::uint32_t process, std::string name) {
  ORRERY_CHECK(process < processes.size(), "a track of a process that does not exist");
  tracks.push_back({process, std::move(name)});
  return static_cast<std::uint32_t>(tracks.size() - 1);
}

std::string chrome_trace_text(const Trace& trace) { return Writer(trace).text(); }

}  // namespace orrery::traces
