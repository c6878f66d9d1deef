// SPDX-License-Identifier: Apache-2.0
// What foreign files call a GPU or a network -> names of topologies/gpus and topologies/nodes. Only
// names that leave no doubt are translated; others stay empty and the sample keeps the text.
#pragma once

#include <string>
#include <string_view>

namespace orrery::calibrate {

// "NVIDIA H100 80GB HBM3", "A100-SXM4-80GB", "a100_80", "H100 PCIe" -> "h100-sxm5-80gb", ...
std::string gpu_of(std::string_view text);
// The GPU of a file that does not state it: the one that the file's name tells
// ("gemm-h100-sxm-bf16-repeat.csv"), unless that is another form of the `given` one; else that.
std::string device_of_file(std::string_view path, const std::string& given);
// The node type of a GPU on a network as logs describe it ("AWS p4d EFA 4x100Gb/s"); "" if unknown.
std::string node_of(std::string_view gpu, std::string_view fabric);

}  // namespace orrery::calibrate
