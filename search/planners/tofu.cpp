// SPDX-License-Identifier: Apache-2.0
// Tofu: partition-n-reduce. In one step every operator splits one variable over k workers, each of
// which gets an index of every operand at least (bytes are those of even parts; extents of one
// variable may differ, as heads of fused projections do): an operand without it is fetched whole,
// an output without it is a sum of partial results; every tensor is stored split along one
// dimension. Operators come as groups of a forward operator and its backward ones, which share the
// choice. The least bytes moved follow by dynamic programming over the operators with the stored
// dimensions of the tensors still needed as the state. Factors of the workers are decided in turn,
// each on what one group of the steps before is left with; the bytes of a step count once for every
// such group. Exact for one step. O(operators x dims^(live tensors)) a step.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/limits.hpp"
#include "base/text.hpp"
#include "search/planner.hpp"
#include "search/problems/split_graph.hpp"

namespace orrery::search {
namespace {

constexpr int kMaxStates = 4096;

using Dim = SplitDim;
using Tensor = SplitTensor;
using Operator = SplitOperator;
using Graph = SplitGraph;

bool has(const Tensor& tensor, const std::string& var) {
  return std::any_of(tensor.dims.begin(), tensor.dims.end(),
                     [&](const Dim& dim) { return dim.var == var; });
}

// Bytes of an operand in the part of an operator that one group has after the steps so far.
double bytes_of(const Operator& op, const Tensor& tensor) {
  double bytes = tensor.element_bytes;
  for (const Dim& dim : tensor.dims) {
    bytes *= dim.extent;
  }
  for (std::size_t step = 0; step < op.split.size(); ++step) {
    bytes /= has(tensor, op.split[step]) ? op.factors[step] : 1.0;
  }
  return bytes;
}

// What k workers together fetch to have an operand they need (or to store a result they make) by
// `var` when it is stored along `stored`: a k-th each of what lies elsewhere, or all of it.
double moved(const Tensor& tensor, double bytes, const std::string& var, const std::string& stored,
             double k) {
  if (!has(tensor, var)) {
    return (k - 1) * bytes;  // gathered whole, or partial sums reduced and scattered
  }
  return var == stored ? 0.0 : (k - 1) / k * bytes;
}

// A group: the forward operator reads its inputs and writes its output; for every input a backward
// operator reads the output's gradient and the other inputs and writes that input's gradient.
double cost(const Graph& graph, const Operator& op, const std::string& var,
            const std::vector<int>& stored, double k) {
  const auto move = [&](int operand) {
    const auto index = static_cast<std::size_t>(operand);
    const Tensor& tensor = graph.tensors[index];
    const Dim& dim = tensor.dims[static_cast<std::size_t>(stored[index])];
    return moved(tensor, bytes_of(op, tensor), var, dim.var, k);
  };
  double bytes = move(op.output);
  for (const int input : op.inputs) {
    bytes += move(input);
  }
  if (!graph.training) {
    return bytes;
  }
  for (const int target : op.inputs) {
    bytes += move(target) + move(op.output);
    for (const int other : op.inputs) {
      bytes += other == target ? 0.0 : move(other);
    }
  }
  return bytes;
}

struct Choice {
  double bytes = HUGE_VAL;
  std::string var;
};

// The best variable of an operator among those that still split.
Choice best_variable(const Graph& graph, const Operator& op, const std::vector<int>& stored,
                     double k) {
  Choice best;
  for (const Dim& dim : op.vars) {
    const double bytes = dim.splits(k) ? cost(graph, op, dim.var, stored, k) : HUGE_VAL;
    if (bytes < best.bytes) {
      best = {bytes, dim.var};
    }
  }
  return best;
}

struct Step {
  double bytes = 0;
  std::vector<std::string> vars;  // by operator
  std::vector<int> stored;        // by tensor: which of its dimensions
};

// What was decided at one operator, and where it followed from.
struct Decision {
  int before = -1;
  std::string var;
  std::vector<std::pair<int, int>> stored;  // tensors that came up here and their dimension
};

struct State {
  double bytes = 0;
  std::vector<std::pair<int, int>> live;  // tensors that later operators ask for
  int decision = -1;
};

// Operands of an operator that no operator before it had.
std::vector<int> new_operands(const Operator& op, std::vector<bool>& seen) {
  std::vector<int> operands;
  const auto add = [&](int operand) {
    if (!seen[static_cast<std::size_t>(operand)]) {
      seen[static_cast<std::size_t>(operand)] = true;
      operands.push_back(operand);
    }
  };
  for (const int input : op.inputs) {
    add(input);
  }
  add(op.output);
  return operands;
}

// Every choice of a dimension for each of the tensors that has an index for each of k workers.
std::vector<std::vector<std::pair<int, int>>> storage_choices(const Graph& graph,
                                                              const std::vector<int>& tensors,
                                                              double k) {
  std::vector<std::vector<std::pair<int, int>>> choices = {{}};
  for (const int tensor : tensors) {
    std::vector<std::vector<std::pair<int, int>>> wider;
    for (const auto& choice : choices) {
      const std::vector<Dim>& dims = graph.tensors[static_cast<std::size_t>(tensor)].dims;
      for (std::size_t dim = 0; dim < dims.size(); ++dim) {
        if (dims[dim].splits(k)) {
          wider.push_back(choice);
          wider.back().emplace_back(tensor, static_cast<int>(dim));
        }
      }
    }
    choices = std::move(wider);
  }
  return choices;
}

Step trace(const Graph& graph, const std::vector<Decision>& decisions, const State& best) {
  Step step{best.bytes, {}, std::vector<int>(graph.tensors.size(), -1)};
  for (int at = best.decision; at >= 0; at = decisions[static_cast<std::size_t>(at)].before) {
    const Decision& decision = decisions[static_cast<std::size_t>(at)];
    step.vars.push_back(decision.var);
    for (const auto& [tensor, dim] : decision.stored) {
      step.stored[static_cast<std::size_t>(tensor)] = dim;
    }
  }
  std::reverse(step.vars.begin(), step.vars.end());
  return step;
}

void check_split(std::string_view what, const std::string& name, const std::vector<Dim>& dims,
                 double k, const JsonReader& where) {
  std::string list;
  for (const Dim& dim : dims) {
    if (dim.splits(k)) {
      return;
    }
    list += fmt::format("{}{} = {} is in {} parts", list.empty() ? "" : ", ", printable(dim.var),
                        dim.extent, dim.parts);
  }
  where.fail(fmt::format("{} \"{}\" cannot be split over {} more workers: {}", what,
                         printable(name), k, list));
}

// Every operator and every tensor that one has must be split.
void check_step(const Graph& graph, double k, const JsonReader& where) {
  for (const Operator& op : graph.operators) {
    check_split("operator", op.name, op.vars, k, where);
  }
  for (const Tensor& tensor : graph.tensors) {
    if (tensor.last_use >= 0) {
      check_split("tensor", tensor.name, tensor.dims, k, where);
    }
  }
}

Step solve_step(const Graph& graph, double k, const JsonReader& where) {
  check_step(graph, k, where);
  std::vector<Decision> decisions;
  std::vector<State> states(1);
  std::vector<bool> seen(graph.tensors.size(), false);
  std::vector<int> stored(graph.tensors.size(), -1);
  const auto set = [&stored](const std::vector<std::pair<int, int>>& dims) {
    for (const auto& [tensor, dim] : dims) {
      stored[static_cast<std::size_t>(tensor)] = dim;
    }
  };
  for (int index = 0; index < static_cast<int>(graph.operators.size()); ++index) {
    const Operator& op = graph.operators[static_cast<std::size_t>(index)];
    const auto choices = storage_choices(graph, new_operands(op, seen), k);
    std::map<std::vector<std::pair<int, int>>, State> next;
    for (const State& state : states) {
      set(state.live);
      for (const auto& choice : choices) {
        set(choice);
        const Choice best = best_variable(graph, op, stored, k);
        std::vector<std::pair<int, int>> live;
        for (const auto* dims : {&state.live, &choice}) {
          std::copy_if(dims->begin(), dims->end(), std::back_inserter(live), [&](const auto& dim) {
            return graph.tensors[static_cast<std::size_t>(dim.first)].last_use > index;
          });
        }
        const double bytes = state.bytes + best.bytes;
        const auto found = next.find(live);
        if (found == next.end() || bytes < found->second.bytes) {
          decisions.push_back({state.decision, best.var, choice});
          next[live] = {bytes, live, static_cast<int>(decisions.size()) - 1};
        }
      }
    }
    if (next.size() > kMaxStates) {
      where.fail("too many tensors wait for later operators");
    }
    states.clear();
    for (auto& [live, state] : next) {
      states.push_back(std::move(state));
    }
  }
  const auto best =
      std::min_element(states.begin(), states.end(),
                       [](const State& a, const State& b) { return a.bytes < b.bytes; });
  return trace(graph, decisions, *best);
}

Json plan(ObjectReader& problem) {
  const JsonReader where = problem.required("operators");
  Graph graph = read_split_graph(problem);
  std::vector<double> factors;
  for (const JsonReader& factor : problem.required("factors").array(16)) {
    factors.push_back(static_cast<double>(factor.integer(2, limits::kMaxDevices)));
  }
  problem.finish();
  double groups = 1;
  double total = 0;
  Json steps = Json::array();
  for (const double k : factors) {
    const Step step = solve_step(graph, k, where);
    Json choices = Json::object();
    for (std::size_t index = 0; index < graph.operators.size(); ++index) {
      Operator& op = graph.operators[index];
      op.split.push_back(step.vars[index]);
      op.factors.push_back(k);
      for (Dim& dim : op.vars) {
        dim.parts *= dim.var == step.vars[index] ? k : 1;
      }
      choices.set(op.name, step.vars[index]);
    }
    Json stored = Json::object();
    for (std::size_t index = 0; index < graph.tensors.size(); ++index) {
      if (step.stored[index] >= 0) {
        Tensor& tensor = graph.tensors[index];
        Dim& dim = tensor.dims[static_cast<std::size_t>(step.stored[index])];
        dim.parts *= k;
        stored.set(tensor.name, dim.var);
      }
    }
    steps.push(Json::Object{{"factor", k},
                            {"group_bytes", step.bytes},
                            {"weighted_bytes", groups * step.bytes},
                            {"split", std::move(choices)},
                            {"stored", std::move(stored)}});
    total += groups * step.bytes;
    groups *= k;
  }
  return Json::Object{{"bytes", total}, {"steps", std::move(steps)}};
}

}  // namespace

extern const Planner planner_tofu = {
    .name = "tofu",
    .description = "one split variable per operator and factor of the workers, least bytes moved",
    .source = "Wang, Huang and Li, Tofu, EuroSys 2019 (arXiv 1807.08887), sections 4 and 5",
    .example = R"({"schema": "orrery-problem", "version": 1, "factors": [2],
  "tensors": [{"name": "x", "dims": [{"var": "m", "extent": 8}, {"var": "k", "extent": 64}]},
              {"name": "w", "dims": [{"var": "k", "extent": 64}, {"var": "n", "extent": 64}]},
              {"name": "y", "dims": [{"var": "m", "extent": 8}, {"var": "n", "extent": 64}]}],
  "operators": [{"name": "fc", "inputs": ["x", "w"], "output": "y"}]})",
    .plan = plan,
};

}  // namespace orrery::search
