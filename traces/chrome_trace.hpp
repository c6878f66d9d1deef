// SPDX-License-Identifier: Apache-2.0
// Writer of Chrome trace JSON ("traceEvents"), which Perfetto and chrome://tracing open. A Trace is
// a neutral list of tracks, spans, counters and arrows; adapters.hpp fills it from simulations.
// Times are exact: microseconds with six decimals, one picosecond each. Equal traces give equal
// bytes; linear in the number of events. Format: "Trace Event Format" (Google, phases X, C, M, s,
// f).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json.hpp"
#include "base/sim_time.hpp"

namespace orrery::traces {

struct Track {
  std::uint32_t process = 0;  // index into Trace::processes
  std::string name;           // "compute"
};

// Spans of one track must not overlap partially.
struct Span {
  std::uint32_t track = 0;
  SimTime start;
  SimTime end;
  std::string name;
  std::string category;
  Json::Object args;
};

// One sample; the series of a counter are stacked. Each holds from `at` to the next sample.
struct Counter {
  std::uint32_t process = 0;
  SimTime at;
  std::string name;  // "memory"
  std::vector<std::pair<std::string, double>> series;
};

// Drawn from the end of one span to the start of another (indices into Trace::spans).
struct Arrow {
  std::uint32_t from = 0;
  std::uint32_t to = 0;
  std::string name;
};

struct Trace {
  std::vector<std::string> processes;  // in the order shown
  std::vector<Track> tracks;
  std::vector<Span> spans;
  std::vector<Counter> counters;
  std::vector<Arrow> arrows;

  std::uint32_t add_process(std::string name);
  std::uint32_t add_track(std::uint32_t process, std::string name);
};

// Adds another trace after all of `all`, its processes called "GROUP: ...".
void append(Trace& all, Trace more, std::string_view group);

std::string chrome_trace_text(const Trace& trace);

}  // namespace orrery::traces
