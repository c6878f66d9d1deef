// SPDX-License-Identifier: Apache-2.0
// GPUs and nodes in the words of publications, where neither name nor alias is what they write:
// "A100-64GB-custom", "BM.GPU.H100.8", "8x400Gb IB (DGX H100)".
#pragma once

#include <string>
#include <string_view>

namespace orrery::topologies {

// The GPU whose model the words name, of the form (SXM, PCIe, NVL) and with the memory that they
// state or nearest to it; "" where they name no model. It may be a relative: a 3080 Ti is a 3080.
std::string similar_gpu(std::string_view text);

// Gigabytes that the words state; 0 where they state none.
int stated_gigabytes(std::string_view text);

// The first node that one to four consecutive words name; "" where none do.
std::string find_node_in_words(std::string_view text);

}  // namespace orrery::topologies
