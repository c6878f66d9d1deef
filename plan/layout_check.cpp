// SPDX-License-Identifier: Apache-2.0
#include "plan/layout_check.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "base/error.hpp"
#include "plan/block_steps.hpp"

namespace orrery::plan {

namespace {

using models::Block;
using models::Dim;
using models::Operator;
using models::Tensor;

std::string axes_text(const std::vector<Axis>& axes, const Mesh& mesh) {
  std::string text;
  for (const Axis axis : axes) {
    text += fmt::format("{}{} = {}", text.empty() ? "" : " x ", to_text(axis), mesh.of(axis));
  }
  return text;
}

class BlockCheck {
 public:
  BlockCheck(const Plan& plan, int block, const BlockPlan& layout, const std::string& where)
      : block_(plan.network.blocks[static_cast<std::size_t>(block)]),
        mesh_(mesh_of(layout, plan.data_ranks(layout))),
        rules_(rules_of(layout, plan.execution.vocab_parallel)),
        extents_{plan.micro_batch * plan.dp * block_.items,
                 block_.tokens > 0 ? block_.tokens : plan.sequence},
        where_(where) {}

  void check() const {
    const std::vector<Layout> produced = produced_layouts(block_, rules_);
    for (const Operator& op : block_.operators) {
      const Assignment assignment = assign(block_, op, rules_.of(op));
      for (std::size_t position = 0; position < op.inputs.size(); ++position) {
        const Tensor& tensor = tensor_of(op.inputs[position]);
        check(tensor, required_input(op, tensor, static_cast<int>(position), assignment));
      }
      for (const int weight : op.weights) {
        check(tensor_of(weight), stored_weight(op, tensor_of(weight), assignment, rules_.of(op)));
      }
      for (const int output : op.outputs) {
        check(tensor_of(output), produced[static_cast<std::size_t>(output)]);
      }
    }
    check_stream();
  }

 private:
  const Tensor& tensor_of(int index) const {
    return block_.tensors[static_cast<std::size_t>(index)];
  }

  void check(const Tensor& tensor, const Layout& layout) const {
    for (const Dim& dim : tensor.dims) {
      check(tensor, dim, layout);
    }
  }

  void check(const Tensor& tensor, const Dim& dim, const Layout& layout) const {
    std::vector<Axis> axes;
    std::int64_t parts = 1;
    for (const Axis axis : kAxes) {
      const bool cuts =
          mesh_.of(axis) > 1 && layout[axis].is_sharded() && same_dim(layout[axis].var(), dim.var);
      if (cuts) {
        axes.push_back(axis);
        parts *= mesh_.of(axis);
      }
    }
    if (axes.empty() || dim.var == Var::Vocab || dim.var == Var::Choice || dim.scale != 1.0) {
      return;  // a padded vocabulary, and shares of the tokens, round up
    }
    const std::int64_t extent = local_extent(dim, Layout(), mesh_, extents_);
    if (dim.var == Var::KvHead && parts % extent == 0) {
      return;  // key and value heads may be repeated
    }
    const std::string place = fmt::format("block \"{}\", tensor \"{}\": dimension {} = {}",
                                          block_.name, tensor.name, to_text(dim.var), extent);
    if (parts > extent) {
      bad_input(where_, fmt::format("{} is sharded by {}, more than its size", place,
                                    axes_text(axes, mesh_)));
    }
    if (extent % parts != 0) {
      bad_input(where_, fmt::format("{} is not divisible by {}", place, axes_text(axes, mesh_)),
                fmt::format("remainder {}; only the vocabulary may be uneven, padded to the next "
                            "multiple",
                            extent % parts));
    }
  }

  static bool same_dim(Var a, Var b) {
    const auto canonical = [](Var var) { return var == Var::KvHead ? Var::Head : var; };
    return canonical(a) == canonical(b);
  }

  // The stream between blocks must be cut by every rank or shared by all of an axis; an axis that
  // leaves no dimension of it is replicated.
  void check_stream() const {
    const int stream = block_.input >= 0 ? block_.input : block_.output;
    if (stream >= 0) {
      check(tensor_of(stream), stream_layout(rules_));
    }
  }

  const Block& block_;
  Mesh mesh_;
  BlockRules rules_;
  Extents extents_;
  const std::string& where_;
};

}  // namespace

void check_tensor_mesh(const BlockPlan& layout, const std::string& where) {
  const std::string name(to_text(layout.tensor_parallel));
  const bool summa = layout.tensor_parallel == TensorMesh::TwoD ||
                     layout.tensor_parallel == TensorMesh::TwoAndHalfD;
  if (!summa && layout.broadcasts != Broadcasts::Pipelined) {
    bad_input(where, fmt::format("broadcasts = {} belongs to tensor_parallel 2d or 2.5d, not {}",
                                 to_text(layout.broadcasts), name));
  }
  if (layout.tensor_parallel == TensorMesh::OneD) {
    if (layout.tp_rows > 1 || layout.tp_depth > 1) {
      bad_input(where, "tp_rows and tp_depth belong to tensor_parallel 2d, 2.5d or 3d");
    }
    return;
  }
  const TensorFactors factors = tensor_factors(layout);
  if (factors.product() != layout.tp) {
    bad_input(where,
              fmt::format("a {} mesh of {} columns x {} rows x {} does not cover tp = {} ranks",
                          name, factors.columns, factors.rows, factors.depth, layout.tp),
              "state tp_rows and tp_depth, or take a square (3d: a cube)");
  }
  if (layout.tensor_parallel == TensorMesh::TwoD && layout.tp_depth > 1) {
    bad_input(where, "tp_depth belongs to tensor_parallel 2.5d or 3d, not 2d");
  }
  if (layout.sequence_parallel) {
    bad_input(where, fmt::format("sequence_parallel belongs to tensor_parallel 1d; {} splits the "
                                 "stream already",
                                 name));
  }
  if (layout.expert_tp == 1 && layout.tp > 1) {
    bad_input(where, fmt::format("expert_tp = 1 spreads experts over a row of ranks, not over a "
                                 "{} mesh",
                                 name));
  }
}

void check_layouts(const Plan& plan, const std::string& where) {
  std::size_t position = 0;
  for (const BlockRun& run : plan.blocks) {
    std::vector<int> seen;
    for (int count = 0; count < run.count; ++count, ++position) {
      const int block = plan.network.chain[position];
      if (std::find(seen.begin(), seen.end(), block) == seen.end()) {
        seen.push_back(block);
        BlockCheck(plan, block, run.layout, where).check();
      }
    }
  }
}

}  // namespace orrery::plan
