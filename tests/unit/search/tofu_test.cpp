// SPDX-License-Identifier: Apache-2.0
// Tofu's planner against the costs of partition-n-reduce worked by hand and against every
// assignment of variables to operators and factors (Tofu, arXiv 1807.08887).
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "search/planner.hpp"

namespace orrery::search {
namespace {

struct TensorSpec {
  std::vector<std::string> vars;
  std::vector<double> extents;
};
struct OperatorSpec {
  std::vector<std::string> inputs;
  std::string output;
};
struct GraphSpec {
  std::map<std::string, TensorSpec> tensors;
  std::vector<OperatorSpec> operators;
  bool training = true;
};

Json plan_of(const GraphSpec& graph, int steps) {
  std::string tensors;
  for (const auto& [name, tensor] : graph.tensors) {
    std::string dims;
    for (std::size_t dim = 0; dim < tensor.vars.size(); ++dim) {
      dims += fmt::format("{}{{\"var\": \"{}\", \"extent\": {}}}", dims.empty() ? "" : ",",
                          tensor.vars[dim], static_cast<int>(tensor.extents[dim]));
    }
    tensors += fmt::format("{}{{\"name\": \"{}\", \"dims\": [{}]}}", tensors.empty() ? "" : ",",
                           name, dims);
  }
  std::string operators;
  for (std::size_t index = 0; index < graph.operators.size(); ++index) {
    std::string inputs;
    for (const std::string& input : graph.operators[index].inputs) {
      inputs += fmt::format("{}\"{}\"", inputs.empty() ? "" : ",", input);
    }
    operators += fmt::format("{}{{\"name\": \"op{}\", \"inputs\": [{}], \"output\": \"{}\"}}",
                             index == 0 ? "" : ",", index, inputs, graph.operators[index].output);
  }
  std::string factors;
  for (int step = 0; step < steps; ++step) {
    factors += step == 0 ? "2" : ",2";
  }
  const std::string document = fmt::format(
      "{{\"schema\": \"orrery-problem\", \"version\": 1, \"training\": {}, \"factors\": [{}], "
      "\"tensors\": [{}], \"operators\": [{}]}}",
      graph.training, factors, tensors, operators);
  return run_planner(find_planner("tofu", "test"), parse_json(document, "test"), "test");
}

double number(const Json& json, std::string_view key) { return json.find(key)->as_number(); }

std::vector<std::string> vars_of(const GraphSpec& graph, const OperatorSpec& op) {
  std::vector<std::string> vars;
  std::vector<std::string> operands = op.inputs;
  operands.push_back(op.output);
  for (const std::string& operand : operands) {
    for (const std::string& var : graph.tensors.at(operand).vars) {
      if (std::find(vars.begin(), vars.end(), var) == vars.end()) {
        vars.push_back(var);
      }
    }
  }
  return vars;
}

// Bytes that the operator's group moves for one tensor stored along `stored`, every use counted: an
// input is read by the forward, its gradient written, and it is read once for every other input;
// the output is written and its gradient read once for every input.
double moved(const GraphSpec& graph, const OperatorSpec& op, const std::string& name,
             const std::vector<std::string>& before, const std::string& var,
             const std::string& stored) {
  const TensorSpec& tensor = graph.tensors.at(name);
  const auto has = [&](const std::string& which) {
    return std::find(tensor.vars.begin(), tensor.vars.end(), which) != tensor.vars.end();
  };
  double bytes = 2;
  for (const double extent : tensor.extents) {
    bytes *= extent;
  }
  for (const std::string& earlier : before) {
    bytes /= has(earlier) ? 2.0 : 1.0;
  }
  const auto inputs = static_cast<double>(op.inputs.size());
  const double uses = graph.training ? 1 + inputs : 1;
  const double once = !has(var) ? bytes : var == stored ? 0.0 : bytes / 2;
  return uses * once;
}

// The least total over all variables of all operators and steps.
double brute_force(const GraphSpec& graph, int steps) {
  std::vector<std::pair<std::size_t, int>> slots;
  for (int step = 0; step < steps; ++step) {
    for (std::size_t op = 0; op < graph.operators.size(); ++op) {
      slots.emplace_back(op, step);
    }
  }
  std::vector<std::size_t> choice(slots.size(), 0);
  std::vector<std::vector<std::string>> vars;
  for (const OperatorSpec& op : graph.operators) {
    vars.push_back(vars_of(graph, op));
  }
  double best = std::numeric_limits<double>::infinity();
  for (bool more = true; more;) {
    double total = 0;
    double groups = 1;
    std::vector<std::vector<std::string>> before(graph.operators.size());
    for (int step = 0; step < steps && total < best; ++step) {
      const auto var_of = [&](std::size_t op) {
        return vars[op][choice[static_cast<std::size_t>(step) * graph.operators.size() + op]];
      };
      for (const auto& [name, tensor] : graph.tensors) {
        double least = std::numeric_limits<double>::infinity();
        for (const std::string& stored : tensor.vars) {
          double bytes = 0;
          for (std::size_t op = 0; op < graph.operators.size(); ++op) {
            std::vector<std::string> operands = graph.operators[op].inputs;
            operands.push_back(graph.operators[op].output);
            if (std::find(operands.begin(), operands.end(), name) != operands.end()) {
              bytes += moved(graph, graph.operators[op], name, before[op], var_of(op), stored);
            }
          }
          least = std::min(least, bytes);
        }
        total += groups * least;
      }
      for (std::size_t op = 0; op < graph.operators.size(); ++op) {
        before[op].push_back(var_of(op));
      }
      groups *= 2;
    }
    best = std::min(best, total);
    more = false;
    for (std::size_t slot = 0; slot < slots.size() && !more; ++slot) {
      more = ++choice[slot] < vars[slots[slot].first].size();
      choice[slot] = more ? choice[slot] : 0;
    }
  }
  return best;
}

GraphSpec product(double m, double k, double n, bool training) {
  return {{{"x", {{"m", "k"}, {m, k}}}, {"w", {{"k", "n"}, {k, n}}}, {"y", {{"m", "n"}, {m, n}}}},
          {{{"x", "w"}, "y"}},
          training};
}

GraphSpec two_layers(double m, double k, double n, double p) {
  return {{{"x", {{"m", "k"}, {m, k}}},
           {"w1", {{"k", "n"}, {k, n}}},
           {"y", {{"m", "n"}, {m, n}}},
           {"w2", {{"n", "p"}, {n, p}}},
           {"z", {{"m", "p"}, {m, p}}}},
          {{{"x", "w1"}, "y"}, {{"y", "w2"}, "z"}}};
}

TEST(Tofu, OneProductMovesTheOperandWithoutTheVariable) {
  // Split m: w is fetched whole by the other worker; n: x; k: y is reduced.
  EXPECT_DOUBLE_EQ(number(plan_of(product(64, 8, 8, false), 1), "bytes"), 2.0 * 8 * 8);
  EXPECT_DOUBLE_EQ(number(plan_of(product(4, 16, 64, false), 1), "bytes"), 2.0 * 4 * 16);
  EXPECT_DOUBLE_EQ(number(plan_of(product(4, 64, 8, false), 1), "bytes"), 2.0 * 4 * 8);
}

std::vector<std::string> splits(const Json& plan, std::string_view op) {
  std::vector<std::string> vars;
  for (const Json& step : plan.find("steps")->as_array()) {
    vars.push_back(step.find("split")->find(op)->as_string());
  }
  return vars;
}

TEST(Tofu, LargeBatchesAreDataParallelAndSmallOnesTensorParallel) {
  const std::vector<std::string> batch(3, "m");
  EXPECT_EQ(splits(plan_of(two_layers(100000, 64, 64, 64), 3), "op0"), batch);
  EXPECT_EQ(splits(plan_of(two_layers(100000, 64, 64, 64), 3), "op1"), batch);
  // The widths, whichever of them: never the few rows.
  const Json small = plan_of(two_layers(4, 512, 2048, 512), 3);
  for (const std::string_view op : {"op0", "op1"}) {
    for (const std::string& var : splits(small, op)) {
      EXPECT_NE(var, "m");
    }
  }
  // Column, then row in a step: the inner activation never moves.
  EXPECT_EQ(splits(plan_of(two_layers(4, 512, 2048, 512), 1), "op0"),
            std::vector<std::string>(1, "n"));
  EXPECT_EQ(splits(plan_of(two_layers(4, 512, 2048, 512), 1), "op1"),
            std::vector<std::string>(1, "n"));
}

TEST(Tofu, StepsCostMoreInTotalTheLaterTheyCome) {
  const Json plan = plan_of(two_layers(256, 512, 1024, 512), 3);
  double last = 0;
  for (const Json& step : plan.find("steps")->as_array()) {
    EXPECT_GE(number(step, "weighted_bytes"), last);
    last = number(step, "weighted_bytes");
  }
}

TEST(Tofu, OneStepEqualsEveryAssignmentTried) {
  for (const double m : {8.0, 128.0, 4096.0}) {
    const GraphSpec graph = two_layers(m, 64, 256, 32);
    EXPECT_DOUBLE_EQ(number(plan_of(graph, 1), "bytes"), brute_force(graph, 1)) << m;
  }
}

TEST(Tofu, RecursionEqualsEveryAssignmentTried) {
  for (const double m : {8.0, 64.0, 256.0, 1024.0, 65536.0}) {
    for (const GraphSpec& graph : {product(m, 128, 64, true), two_layers(m, 64, 256, 64)}) {
      EXPECT_DOUBLE_EQ(number(plan_of(graph, 3), "bytes"), brute_force(graph, 3)) << m;
    }
  }
}

// Products one behind the other whose widths and rows are drawn.
GraphSpec drawn_chain(int products, std::mt19937& draw) {
  const auto extent = [&draw] { return static_cast<double>(8 << (draw() % 10)); };
  const double rows = extent();
  GraphSpec graph;
  double width = extent();
  graph.tensors["x0"] = {{"rows", "v0"}, {rows, width}};
  for (int at = 0; at < products; ++at) {
    const std::string in = fmt::format("v{}", at);
    const std::string out = fmt::format("v{}", at + 1);
    const double next = extent();
    graph.tensors[fmt::format("w{}", at)] = {{in, out}, {width, next}};
    graph.tensors[fmt::format("x{}", at + 1)] = {{"rows", out}, {rows, next}};
    graph.operators.push_back(
        {{fmt::format("x{}", at), fmt::format("w{}", at)}, fmt::format("x{}", at + 1)});
    width = next;
  }
  return graph;
}

TEST(Tofu, ChainsOfUpToFourProductsEqualEveryAssignmentTried) {
  std::mt19937 draw(7);
  for (const auto& [products, steps] : {std::pair(1, 3), {2, 3}, {3, 2}, {4, 2}}) {
    for (int graphs = 0; graphs < 2; ++graphs) {
      const GraphSpec graph = drawn_chain(products, draw);
      EXPECT_DOUBLE_EQ(number(plan_of(graph, steps), "bytes"), brute_force(graph, steps))
          << products << " products, " << steps << " steps, rows "
          << graph.tensors.at("x0").extents[0];
    }
  }
}

Json solve(const std::string& factors, const std::string& rows, const std::string& more = "") {
  const std::string document = R"({"schema": "orrery-problem", "version": 1, "factors": [)" +
                               factors + R"(], "tensors": [
      {"name": "x", "dims": [{"var": "m", "extent": )" +
                               rows + R"(}, {"var": "k", "extent": 2}]},
      {"name": "w", "dims": [{"var": "k", "extent": 2}, {"var": "n", "extent": 64}]},
      {"name": "y", "dims": [{"var": "m", "extent": 8}, {"var": "n", "extent": 64}]}],
      "operators": [{"name": "fc", "inputs": ["x", "w"], "output": "y"})" +
                               more + "]}";
  return run_planner(find_planner("tofu", "test"), parse_json(document, "test"), "test");
}

std::string split_error(const std::string& factors, const std::string& rows,
                        const std::string& more = "") {
  try {
    solve(factors, rows, more);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

// The shared dimension has two indices: the first step could split it, no later one can again.
TEST(Tofu, NoWorkerIsWithoutAnIndex) {
  const Json answer = solve("2, 2, 2", "8");
  int split = 0;
  for (const Json& step : answer.find("steps")->as_array()) {
    split += step.find("stored")->find("x")->as_string() == "k" ? 1 : 0;
    split += step.find("split")->find("fc")->as_string() == "k" ? 1 : 0;
  }
  EXPECT_LE(split, 2);
  EXPECT_NE(split_error("4, 4", "8")
                .find("tensor \"x\" cannot be split over 4 more workers: m = 8 "
                      "is in 4 parts, k = 2 is in 1 parts"),
            std::string::npos)
      << split_error("4, 4", "8");
  EXPECT_NE(split_error("128", "8").find("operator \"fc\" cannot be split over 128"),
            std::string::npos);
  // x has 16 rows, y 8: more than 8 workers would leave one without a row of y.
  EXPECT_EQ(solve("8", "16").find("steps")->as_array().size(), 1U);
  EXPECT_NE(split_error("16, 8", "16").find("cannot be split over 8 more workers"),
            std::string::npos);
}

TEST(Tofu, NamesWhatIsWrong) {
  EXPECT_NE(split_error("2", "8", R"(, {"name": "fc", "inputs": ["y", "w"], "output": "x"})")
                .find("a second operator of this name"),
            std::string::npos);
}

}  // namespace
}  // namespace orrery::search
