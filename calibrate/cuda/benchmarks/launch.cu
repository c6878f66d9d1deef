// SPDX-License-Identifier: Apache-2.0
// What it costs to launch kernels that do nothing: one by one on a stream, and as one graph. The
// host's clock times them, until the host is free again and until the device is done.
#include <chrono>
#include <memory>

#include "calibrate/cuda/benchmark.hpp"

namespace orrery::calibrate::cuda {
namespace {

__global__ void do_nothing() {}

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

void launch_all(Stream stream, int count) {
  for (int i = 0; i < count; ++i) {
    do_nothing<<<1, 32, 0, stream>>>();
  }
}

class Graph {
 public:
  explicit Graph(int count) {
    const OwnedStream stream;
    cudaGraph_t graph = nullptr;
    check(cudaStreamBeginCapture(stream.get(), cudaStreamCaptureModeThreadLocal), "graph capture");
    launch_all(stream.get(), count);
    check(cudaStreamEndCapture(stream.get(), &graph), "graph capture");
    const cudaError_t status = cudaGraphInstantiate(&graph_, graph, 0);
    cudaGraphDestroy(graph);
    check(status, "graph");
  }
  ~Graph() { cudaGraphExecDestroy(graph_); }
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;
  void launch(Stream stream) const { check(cudaGraphLaunch(graph_, stream), "graph launch"); }

 private:
  cudaGraphExec_t graph_ = nullptr;
};

double time_of(const LaunchSample& shape, const Graph* graph, Stream stream) {
  const double start = now();
  if (graph != nullptr) {
    graph->launch(stream);
  } else {
    launch_all(stream, static_cast<int>(shape.count));
    check_launch("empty kernel");
  }
  const double host = now();
  check(cudaStreamSynchronize(stream), "empty kernel");
  return (shape.host_only ? host : now()) - start;
}

std::vector<Case> launch_cases(const BenchmarkContext&) {
  std::vector<Case> cases;
  for (const bool as_graph : {false, true}) {
    // Counts stay below the depth of the launch queue, where the host would wait for the device.
    for (const int count : {1, 10, 100, 500}) {
      for (const bool host_only : {true, false}) {
        const LaunchSample shape = {count, as_graph, host_only};
        cases.push_back(make_case(shape, "orrery", [shape] {
          const auto graph =
              shape.graph ? std::make_shared<Graph>(static_cast<int>(shape.count)) : nullptr;
          return Launch{.timed = [shape, graph](Stream stream) {
            return time_of(shape, graph.get(), stream);
          }};
        }));
      }
    }
  }
  return cases;
}

}  // namespace

extern const Benchmark benchmark_launch;
const Benchmark benchmark_launch = {"launch", "empty kernels by stream and by graph", 0.5,
                                    launch_cases};

}  // namespace orrery::calibrate::cuda
