// SPDX-License-Identifier: Apache-2.0
// The parts of an NCCL topology file that describe a node, checked; nccl_xml.hpp says what the
// format is and what is an error.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace orrery::topologies {

struct NcclGpu {
  std::string busid;
  std::string device;
  int sm = 0;
  bool amd = false;
  double pcie = 0;  // GB/s, narrowest link up to the CPU
  int cpu = 0;
  std::string top_switch;
  double c2c = 0;  // GB/s
  int switch_links = 0;
  std::map<std::string, int> links;  // by target
};

struct NcclNet {
  double speed = 0;    // Mbit/s
  double latency = 0;  // us
};

struct NcclSystem {
  std::vector<NcclGpu> gpus;  // at least one
  std::vector<NcclNet> nets;
  std::string cpu_vendor;
  int sockets = 0;
};

NcclSystem read_nccl_system(std::string_view text, std::string_view name);

}  // namespace orrery::topologies
