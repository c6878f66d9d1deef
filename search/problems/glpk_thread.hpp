// SPDX-License-Identifier: Apache-2.0
// GLPK keeps an environment of about 5 KiB for every thread that calls it, and frees none by
// itself.
#pragma once

namespace orrery::search {

// Call before any function of GLPK: what it keeps for this thread is freed when the thread ends. No
// problem may outlive the thread that made it.
void free_glpk_with_thread();

}  // namespace orrery::search
