// SPDX-License-Identifier: Apache-2.0
#include "plan/serving/batching.hpp"

#include "base/error.hpp"
#include "plan/serving/engine.hpp"

namespace orrery::plan {

BatchRun run_batches(std::span<const Request> requests, const ServingOptions& options,
                     const BatchEngine& engine, const IterationObserver& observe) {
  ORRERY_CHECK(engine.replicas == 1, "requests of several replicas must be routed");
  ServingEngine serving(options, engine, observe);
  for (const Request& request : requests) {
    serving.submit(0, request);
  }
  serving.run();
  return serving.take_run(0);
}

}  // namespace orrery::plan
