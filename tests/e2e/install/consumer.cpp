// SPDX-License-Identifier: Apache-2.0
// Simulates a plan document through the installed libraries; succeeds when the iteration time is
// exactly the one stated: consumer PLAN SECONDS.
#include <cstdio>
#include <cstdlib>
#include <exception>

#include "base/json.hpp"
#include "plan/plan.hpp"
#include "plan/simulation/simulate.hpp"

int main(int argc, char** argv) {
  if (argc != 3) {
    return 2;
  }
  try {
    const orrery::Json document = orrery::read_json_file(argv[1]);
    const orrery::plan::Simulation simulation =
        orrery::plan::simulate(orrery::plan::read_plan(document, argv[1]));
    const double seconds = simulation.iteration_time.value();
    std::printf("%.17g\n", seconds);
    return seconds == std::strtod(argv[2], nullptr) ? 0 : 1;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
