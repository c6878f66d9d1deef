// SPDX-License-Identifier: Apache-2.0
// Programs are solved on threads that come and go: none leaves memory behind.
#include "search/problems/glpk_thread.hpp"

#include <glpk.h>
#include <gtest/gtest.h>
#include <malloc.h>

#include <cstdio>
#include <string>
#include <thread>

#include "search/per_block/linear_program.hpp"
#include "search/problems/milp.hpp"

namespace orrery::search {
namespace {

// Bytes of all heaps of the process, by glibc. A replaced allocator says 0: there leaks are for the
// leak sanitizer to find.
double heap_bytes() {
  std::string text(1 << 16, '\0');
  std::FILE* file = fmemopen(text.data(), text.size(), "w");
  malloc_info(0, file);
  std::fclose(file);
  const std::string key = "<system type=\"current\" size=\"";
  const std::size_t total = text.rfind(key);
  return total == std::string::npos ? 0 : std::stod(text.substr(total + key.size()));
}

void solve_on_a_thread() {
  std::thread([] {
    LinearProgram program;
    const int x = program.add_variable(1.0, 1.0);
    program.add_row({{x, 1.0}}, 0.5);
    EXPECT_NEAR(program.solve().bound, 0.5, 1e-9);
    Milp whole;
    const int y = whole.add_variable(0, 10, 1, true);
    whole.add_row({{y, 2.0}}, 3, 20);
    const auto answer = whole.solve();
    ASSERT_TRUE(answer.has_value());
    EXPECT_EQ(answer->values.front(), 2);
  }).join();
}

TEST(GlpkThread, LeavesNothingBehind) {
  for (int thread = 0; thread < 20; ++thread) {
    solve_on_a_thread();
  }
  const double before = heap_bytes();
  for (int thread = 0; thread < 400; ++thread) {
    solve_on_a_thread();
  }
  EXPECT_LT(heap_bytes() - before, 1e6);
}

// By itself it ends the process.
TEST(GlpkThread, GoesOnAfterAnErrorOfGlpk) {
  free_glpk_with_thread();
  glp_prob* const broken = glp_create_prob();
  EXPECT_FALSE(survives_glpk([&] { glp_set_obj_coef(broken, 99, 1.0); }));
  EXPECT_TRUE(survives_glpk([] {}));
  LinearProgram program;
  const int x = program.add_variable(1.0, 1.0);
  program.add_row({{x, 1.0}}, 0.5);
  EXPECT_NEAR(program.solve().bound, 0.5, 1e-9);
}

}  // namespace
}  // namespace orrery::search
