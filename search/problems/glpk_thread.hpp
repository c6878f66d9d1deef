// SPDX-License-Identifier: Apache-2.0
// GLPK keeps an environment of about 5 KiB for every thread that calls it, and frees none by
// itself.
#pragma once

#include <functional>

namespace orrery::search {

// Call before any function of GLPK: what it keeps for this thread is freed when the thread ends. No
// problem may outlive the thread that made it.
void free_glpk_with_thread();

// Runs `call`, which calls GLPK and leaves nothing to destroy. False where GLPK meets an error of
// its own, as it does in some factorisations of a singular basis (bflib/sgf.c): by itself it would
// end the process. The problem may still be read, but be neither solved nor deleted; what it takes
// is freed when the thread ends.
bool survives_glpk(const std::function<void()>& call);

}  // namespace orrery::search
