// SPDX-License-Identifier: Apache-2.0
// Files that `orrery schedule` writes of what it ran: SVG pictures and Chrome traces.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli/command/common.hpp"
#include "sim/pipeline/schedule_picture.hpp"
#include "sim/pipeline/schedule_svg.hpp"

namespace orrery::cli {

struct PictureFiles {
  std::string svg;  // "": none
  std::string trace;
  int width = 120;           // columns of time, of the picture in text
  bool whole_lines = false;  // they are those of its lines
  bool any() const { return !svg.empty() || !trace.empty(); }
};

// Of the picture in text: so many columns of time where they are stated, else lines as wide as the
// terminal that shows them.
void set_width(const std::string& stated, PictureFiles& files);
sim::PictureOptions text_picture(const PictureFiles& files, const OutputOptions& output);

// One schedule as it ran. `scale` divides its times.
struct PicturedRun {
  std::string name;
  const sim::PipelineOrder* order = nullptr;
  const sim::PipelineResult* result = nullptr;  // with spans
  std::string title;
  double scale = 1;
  bool synchronous = true;
};

void write_pictures(const PicturedRun& run, const PictureFiles& files, const OutputOptions& output);
// All in one picture, and as groups of processes in one trace.
void write_comparison(const std::vector<PicturedRun>& runs, const std::string& title,
                      const PictureFiles& files, const OutputOptions& output);

}  // namespace orrery::cli
