// SPDX-License-Identifier: Apache-2.0
// NCCL topology files (NCCL_TOPO_FILE, NCCL_TOPO_DUMP_FILE; RCCL's too) as a node document:
// <system> holds <cpu>, nested <pci>, <gpu> with <nvlink>, <xgmi> or <c2c>, and <nic> with <net>.
// Link speeds come from the compute capability as NCCL assumes them (src/graph/topo.h); a PCI link
// of width 0 or without speed, as virtual machines show it, is Gen 3 x16 as in NCCL. Elements and
// attributes that do not matter are ignored; wrong numbers, duplicate attributes and nesting beyond
// limits::kMaxJsonDepth are errors that name the line. What the file does not hold (host memory,
// the fabric) is stated as an assumption in the document.
#pragma once

#include <string>
#include <string_view>

#include "base/json.hpp"

namespace orrery::topologies {

// gpu: name of the GPU type; empty: by PCI device, else by compute capability.
Json node_document_of_nccl_xml(std::string_view text, std::string_view name,
                               const std::string& gpu = {});

}  // namespace orrery::topologies
