// SPDX-License-Identifier: Apache-2.0
// How many processes a launch script starts, by what it gives torchrun, torch.distributed.launch or
// the deepspeed launcher: processes a node times nodes. Parsed, never executed; linear in the text.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace orrery::plan {

// nullopt where the script does not tell: no such launcher, counts that the environment or the
// machine sets, an elastic range of nodes, several launches. Error for text that is no shell
// script.
std::optional<std::int64_t> launched_ranks(std::string_view text, const std::string& where);

}  // namespace orrery::plan
