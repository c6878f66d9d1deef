// SPDX-License-Identifier: Apache-2.0
// SLURM host-list expressions: "node[001-128,200],login1", several brackets in a name, leading
// zeros kept. The number of names is computed before any is made (limits::kMaxHostListNames).
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace orrery::topologies {

// Error at a malformed expression or beyond the limit, in the words of `where`.
std::vector<std::string> expand_hosts(std::string_view text, std::string_view where);

}  // namespace orrery::topologies
