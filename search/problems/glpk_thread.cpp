// SPDX-License-Identifier: Apache-2.0
#include "search/problems/glpk_thread.hpp"

#include <glpk.h>

#include <csetjmp>

namespace orrery::search {

namespace {

// Errors are written even where output is off.
int swallow(void* /*info*/, const char* /*text*/) { return 1; }

[[noreturn]] void leave(void* landing) { std::longjmp(*static_cast<std::jmp_buf*>(landing), 1); }

struct Environment {
  Environment() {
    glp_init_env();
    glp_term_hook(&swallow, nullptr);
  }
  ~Environment() { glp_free_env(); }
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;
};

}  // namespace

void free_glpk_with_thread() { static thread_local const Environment environment; }

bool survives_glpk(const std::function<void()>& call) {
  std::jmp_buf landing;
  glp_error_hook(&leave, &landing);
  const bool returned = setjmp(landing) == 0;
  if (returned) {
    call();
  }
  glp_error_hook(nullptr, nullptr);
  return returned;
}

}  // namespace orrery::search
