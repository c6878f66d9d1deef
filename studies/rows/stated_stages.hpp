// SPDX-License-Identifier: Apache-2.0
// Pipeline stages of unlike depth, as the remarks of a row name them. O(length of the remarks).
#pragma once

#include <string>
#include <vector>

#include "studies/rows/measurement.hpp"

namespace orrery::studies {

// A pipeline whose first block is the embedding and whose last one is the head.
struct Pipeline {
  int blocks = 0;  // of the network, embedding and head among them
  int stages = 1;
  int chunks = 1;  // of a device; virtual stage c x stages + s is chunk c of device s
};

// Blocks of every virtual stage: "layers per stage: 18/22/22/18",
// "decoder_first_pipeline_num_layers=19", "first and last stage hold one layer fewer"; empty where
// the remarks state nothing that adds up to the network.
std::vector<int> stated_stages(const Measurement& row, const Pipeline& pipeline);

// Remarks on the depth of stages that are not read.
std::vector<std::string> unread_stages(const Measurement& row);

}  // namespace orrery::studies
