// SPDX-License-Identifier: Apache-2.0
#include "cli/schedule_pictures.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>

#include "base/error.hpp"
#include "base/terminal.hpp"
#include "cli/command/command.hpp"
#include "cli/schedule_options.hpp"
#include "cli/show/list_names.hpp"
#include "studies/schedule_run.hpp"
#include "traces/adapters.hpp"

namespace orrery::cli {
namespace {

void check_spans(const PicturedRun& run) {
  if (run.result->spans.size() != run.order->passes.size()) {
    const std::int64_t passes = sim::num_passes(*run.order);
    const std::int64_t pieces =
        std::int64_t{run.order->slices} * std::max(1, run.order->iterations);
    const std::int64_t most =
        run.order->micro_batches * studies::kMaxPassesWithSpans / passes / pieces;
    bad_input("schedule " + run.name,
              fmt::format("{} passes are too many for a picture or a trace, which have {} at most",
                          passes, studies::kMaxPassesWithSpans),
              most > 0 ? fmt::format("set --microbatches to {} or fewer", most)
                       : std::string("take fewer stages, chunks or slices"));
  }
}

traces::Trace trace_of(const PicturedRun& run) {
  if (run.scale < 1) {
    bad_input("schedule " + run.name, "a trace ends within 104 days",
              "shorter passes: milliseconds for seconds");
  }
  return traces::trace_of(*run.order, *run.result,
                          {.time_divisor = static_cast<std::int64_t>(run.scale)});
}

}  // namespace

void set_width(const std::string& stated, PictureFiles& files) {
  constexpr int kFewest = 40;
  if (!stated.empty()) {
    files.width = integer_option(stated, "--width", 10'000);
  } else if (::isatty(STDOUT_FILENO) == 1) {
    files.width = std::max(terminal_columns(STDOUT_FILENO), kFewest);
    files.whole_lines = true;
  }
}

sim::PictureOptions text_picture(const PictureFiles& files, const OutputOptions& output) {
  return {.width = files.width, .whole_lines = files.whole_lines, .color = wants_color(output)};
}

void write_pictures(const PicturedRun& run, const PictureFiles& files,
                    const OutputOptions& output) {
  if (files.any()) {
    check_spans(run);
  }
  if (!files.svg.empty()) {
    write_result(files.svg,
                 sim::schedule_svg(*run.order, *run.result, run.title, run.scale,
                                   list_names(run.name, *run.order)),
                 output);
  }
  if (!files.trace.empty()) {
    write_result(files.trace, traces::chrome_trace_text(trace_of(run)), output);
  }
}

void write_comparison(const std::vector<PicturedRun>& runs, const std::string& title,
                      const PictureFiles& files, const OutputOptions& output) {
  std::vector<sim::SchedulePanel> panels;
  for (const PicturedRun& run : runs) {
    if (files.any()) {
      check_spans(run);
    }
    panels.push_back({.order = run.order,
                      .result = run.result,
                      .title = run.title,
                      .time_divisor = run.scale,
                      .synchronous = run.synchronous,
                      .lists = list_names(run.name, *run.order)});
  }
  if (!files.svg.empty()) {
    write_result(files.svg, sim::schedules_svg(panels, title), output);
  }
  if (!files.trace.empty()) {
    traces::Trace all;
    for (const PicturedRun& run : runs) {
      traces::append(all, trace_of(run), run.name);
    }
    write_result(files.trace, traces::chrome_trace_text(all), output);
  }
}

}  // namespace orrery::cli
