// SPDX-License-Identifier: Apache-2.0
// What every source of collective times says of its run beyond the times: NCCL version and launch
// mode. The launch mode decides the small sizes (one process that drives all GPUs pays several
// microseconds a GPU), so it is kept as a note "launch-mode: ..." of the header that a fit can ask.
#pragma once

#include <string_view>

#include "calibrate/samples.hpp"

namespace orrery::calibrate {

enum class LaunchMode { Unknown, ProcessPerGpu, ThreadPerGpu, OneProcess };

std::string_view to_text(LaunchMode mode);  // "process-per-gpu", ...
// From words: "1 GPU per process", "one process, one thread per GPU (-t N)", "8 GPUs in one process
// (-g 8)".
LaunchMode launch_mode_of(std::string_view text);
LaunchMode launch_mode(const SampleHeader& header);  // from the note
void set_launch_mode(SampleHeader& header, LaunchMode mode);

// Version and launch as a log words them; empty or "not stated" adds nothing.
void add_run_facts(SampleHeader& header, std::string_view nccl_version, std::string_view launch);

}  // namespace orrery::calibrate
