// SPDX-License-Identifier: Apache-2.0
#include "search/problems/glpk_thread.hpp"

#include <glpk.h>

namespace orrery::search {

namespace {

struct Environment {
  Environment() { glp_init_env(); }
  ~Environment() { glp_free_env(); }
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;
};

}  // namespace

void free_glpk_with_thread() { static thread_local const Environment environment; }

}  // namespace orrery::search
