// SPDX-License-Identifier: Apache-2.0
#include "search/problems/split_graph.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

namespace orrery::search {

namespace {

constexpr int kMaxOperators = 10'000;
constexpr int kMaxInputs = 12;

SplitTensor read_tensor(const JsonReader& value) {
  ObjectReader object = value.object();
  SplitTensor tensor;
  tensor.name = object.required("name").string();
  tensor.element_bytes = object.number_or("bytes_per_element", 2, 0.5, 16);
  for (const JsonReader& entry : object.required("dims").array(8)) {
    ObjectReader dim = entry.object();
    tensor.dims.push_back({dim.required("var").string(),
                           static_cast<double>(dim.required("extent").integer(1, 1LL << 40))});
    dim.finish();
  }
  object.finish();
  if (tensor.dims.empty()) {
    value.fail("a tensor without dimensions");
  }
  return tensor;
}

// Variables of an operator, each as long as in the shortest operand, and the last use of these.
void add_operand(int operand, SplitGraph& graph, SplitOperator& op) {
  SplitTensor& tensor = graph.tensors[static_cast<std::size_t>(operand)];
  tensor.last_use = static_cast<int>(graph.operators.size());
  for (const SplitDim& dim : tensor.dims) {
    const auto same = std::find_if(op.vars.begin(), op.vars.end(),
                                   [&](const SplitDim& one) { return one.var == dim.var; });
    if (same == op.vars.end()) {
      op.vars.push_back({dim.var, dim.extent});
    } else {
      same->extent = std::min(same->extent, dim.extent);
    }
  }
}

}  // namespace

SplitGraph read_split_graph(ObjectReader& problem) {
  SplitGraph graph;
  std::map<std::string, int> known;
  graph.training = problem.boolean_or("training", true);
  for (const JsonReader& value : problem.required("tensors").array(4 * kMaxOperators)) {
    SplitTensor tensor = read_tensor(value);
    if (!known.emplace(tensor.name, static_cast<int>(graph.tensors.size())).second) {
      value.fail("a second tensor of this name");
    }
    graph.tensors.push_back(std::move(tensor));
  }
  const auto tensor_of = [&](const JsonReader& name) {
    const auto found = known.find(name.string());
    if (found == known.end()) {
      name.fail("no such tensor");
    }
    return found->second;
  };
  std::set<std::string> operators;
  for (const JsonReader& value : problem.required("operators").array(kMaxOperators)) {
    ObjectReader object = value.object();
    SplitOperator op;
    op.name = object.required("name").string();
    for (const JsonReader& input : object.required("inputs").array(kMaxInputs)) {
      op.inputs.push_back(tensor_of(input));
    }
    op.output = tensor_of(object.required("output"));
    object.finish();
    for (const int input : op.inputs) {
      add_operand(input, graph, op);
    }
    add_operand(op.output, graph, op);
    if (!operators.insert(op.name).second) {
      value.fail("a second operator of this name");
    }
    graph.operators.push_back(std::move(op));
  }
  return graph;
}

}  // namespace orrery::search
