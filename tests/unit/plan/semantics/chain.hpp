// SPDX-License-Identifier: Apache-2.0
// Executes a chain of blocks, each with a layout of its own, in the order of a pipeline schedule:
// passes of micro-batches on stages, what they send one another, the conversions between layouts
// (plan/block/relayout.hpp), the sum of the gradients at the end.
#pragma once

#include <deque>
#include <memory>

#include "plan/block/relayout.hpp"
#include "sim/schedule.hpp"
#include "tests/unit/plan/semantics/interpreter_backward.hpp"

namespace orrery::plan::semantics {

// Conversion of a tensor between the meshes and layouts of two blocks. Elements are looked up in
// the global tensor; what a rank does not have is not a number.
class Relayouting {
 public:
  struct Side {
    Mesh mesh;
    Layout layout;
  };
  // `skip`: a collective that is left out.
  static Spread run(const Side& from, const Side& to, const Part& shape, const Spread& spread,
                    int skip = -1) {
    const Spread target = Collectives(to.mesh, {}).distribute(shape, to.layout);
    const std::vector<StreamConversion> steps =
        stream_conversions(from.mesh, from.layout, to.mesh, to.layout);
    std::vector<Eigen::ArrayXd> has;
    const Reader global(shape);
    for (const Part& part : spread) {
      has.push_back(nothing(shape));
      for_each(part, [&](Eigen::Index position, const std::vector<int>& at) {
        has.back()[global.place(at)] = part.data[position];
      });
    }
    for (std::size_t step = 0; step < steps.size(); ++step) {
      if (static_cast<int>(step) != skip) {
        exchange(steps, step, target, global, has);
      }
    }
    Spread result = target;
    for (std::size_t rank = 0; rank < result.size(); ++rank) {
      for_each(target[rank], [&](Eigen::Index position, const std::vector<int>& at) {
        result[rank].data[position] = has[rank][global.place(at)];
      });
    }
    return result;
  }

 private:
  static Eigen::ArrayXd nothing(const Part& shape) {
    return Eigen::ArrayXd::Constant(shape.size(), std::nan(""));
  }

  // Ranks at the same place as this one but for the factors of the collective.
  static std::vector<std::size_t> group(const StreamConversion& step, std::size_t rank) {
    std::vector<std::size_t> members = {rank};
    for (const Extent& factor : step.factors) {
      std::vector<std::size_t> more;
      for (const std::size_t member : members) {
        const auto stride = static_cast<std::size_t>(factor.stride);
        const auto size = static_cast<std::size_t>(factor.size);
        for (std::size_t place = 0; place < size; ++place) {
          more.push_back(member - member / stride % size * stride + place * stride);
        }
      }
      members = std::move(more);
    }
    return members;
  }

  // A rank receives of its group what it needs itself, or those that gather from it later.
  static void exchange(const std::vector<StreamConversion>& steps, std::size_t step,
                       const Spread& target, const Reader& global,
                       std::vector<Eigen::ArrayXd>& has) {
    const std::vector<Eigen::ArrayXd> before = has;
    for (std::size_t rank = 0; rank < has.size(); ++rank) {
      std::vector<std::size_t> needing = {rank};
      if (step + 1 < steps.size()) {
        needing = group(steps[step + 1], rank);
      }
      has[rank].setConstant(std::nan(""));
      for (const std::size_t one : needing) {
        for_each(target[one], [&](Eigen::Index, const std::vector<int>& at) {
          const Eigen::Index place = global.place(at);
          for (const std::size_t member : group(steps[step], rank)) {
            has[rank][place] =
                std::isnan(before[member][place]) ? has[rank][place] : before[member][place];
          }
        });
      }
    }
  }
};

// What goes wrong: the `conversion`th collective between two layouts is left out, or the gradients
// of one block and micro-batch (or slice of one) are added so many times, or those of the copies of
// the model are, or a block's second slices do not know the first ones, forward or backward.
struct ChainFault {
  int conversion = -1;
  int position = -1;
  int micro_batch = -1;
  int times = 1;
  int copies_times = 1;
  int alone_forward = -1;  // positions
  int alone_backward = -1;
};

class ChainProgram {
 public:
  // Layouts by position of the chain, on as many ranks each; `sizes` of one micro-batch.
  ChainProgram(const models::Network& network, std::vector<BlockPlan> layouts, int ranks,
               Sizes sizes, int micro_batches, ChainFault fault = {})
      : network_(network),
        layouts_(std::move(layouts)),
        ranks_(ranks),
        sizes_(sizes),
        fault_(fault),
        runs_(layouts_.size()) {
    for (std::size_t position = 0; position < layouts_.size(); ++position) {
      runs_[position].resize(static_cast<std::size_t>(micro_batches));
    }
  }

  // The sequences of every micro-batch in slices of so many tokens.
  void cut_into(std::vector<int> slices) {
    slices_ = std::move(slices);
    for (auto& runs : runs_) {
      runs.resize(runs.size() * slices_.size());
    }
  }

  // Every device in the order of its list, as soon as what a pass needs is there; `stages`: blocks
  // of each virtual stage. False: some pass never can start.
  bool run(const sim::PipelineOrder& order, const std::vector<int>& stages) {
    chains_ = sim::chains_of(order);
    sums_.clear();
    for (std::size_t copy = 0; copy < chains_.size(); ++copy) {
      for (std::size_t position = 0; position < layouts_.size(); ++position) {
        sums_.push_back(interpreter(position, sizes_));
      }
    }
    std::vector<std::size_t> next(order.passes.size(), 0);
    bool moves = true;
    while (moves) {
      moves = false;
      for (std::size_t device = 0; device < next.size(); ++device) {
        while (next[device] < order.passes[device].size() &&
               run_pass(order.passes[device][next[device]], stages)) {
          ++next[device];
          moves = true;
        }
      }
    }
    for (std::size_t device = 0; device < next.size(); ++device) {
      if (next[device] < order.passes[device].size()) {
        return false;
      }
    }
    for (const auto& sum : sums_) {
      sum->reduce_gradients();
    }
    add_copies();
    return true;
  }

  int conversions() const { return conversions_; }
  // Of the losses and the gradients, from those of a serial program.
  double distance(const ChainProgram& serial) const {
    double largest = 0;
    for (const Run& run : runs_.back()) {
      largest = Interpreter::larger(
          largest, run.program->distance_of_values(*serial.runs_.back().front().program));
    }
    for (std::size_t sum = 0; sum < sums_.size(); ++sum) {
      const std::size_t position = sum % layouts_.size();
      largest =
          Interpreter::larger(largest, sums_[sum]->distance_of_states(*serial.sums_[position]));
    }
    return largest;
  }
  // Of a block of one copy of the model.
  const Interpreter& sum_of(std::size_t position, std::size_t copy = 0) const {
    return *sums_[copy * layouts_.size() + position];
  }

 private:
  // A block's passes of one micro-batch.
  struct Run {
    std::unique_ptr<Interpreter> program;
    bool forward = false;
    bool backward = false;
    bool added = false;
  };

  const Block& block_at(std::size_t position) const {
    return network_.blocks[static_cast<std::size_t>(network_.chain[position])];
  }
  int dp_of(const BlockPlan& layout) const { return ranks_ / (layout.tp * layout.cp); }
  std::unique_ptr<Interpreter> interpreter(std::size_t position, Sizes sizes) const {
    return std::make_unique<Interpreter>(block_at(position), layouts_[position],
                                         dp_of(layouts_[position]), sizes);
  }
  Relayouting::Side side(std::size_t position) const {
    const BlockPlan& layout = layouts_[position];
    return {mesh_of(layout, dp_of(layout)), stream_layout(rules_of(layout, true))};
  }

  Spread convert(const Spread& spread, std::size_t from, std::size_t to, const Part& shape) {
    const Relayouting::Side a = side(from);
    const Relayouting::Side b = side(to);
    const auto count =
        static_cast<int>(stream_conversions(a.mesh, a.layout, b.mesh, b.layout).size());
    const int skip = fault_.conversion - conversions_;
    conversions_ += count;
    return Relayouting::run(a, b, shape, spread, skip < count ? skip : -1);
  }

  // Both copies of the model add up what they have of a parameter.
  void add_copies() {
    const std::size_t copies = chains_.size();
    for (std::size_t position = 0; copies == 2 && position < layouts_.size(); ++position) {
      Interpreter& one = *sums_[position];
      Interpreter& other = *sums_[layouts_.size() + position];
      for (int times = 0; times < fault_.copies_times; ++times) {
        const std::unique_ptr<Interpreter> before = interpreter(position, sizes_);
        before->add_gradients_of(one);
        one.add_gradients_of(other);
        other.add_gradients_of(*before);
      }
    }
  }

  bool run_pass(const sim::Pass& pass, const std::vector<int>& stages) {
    std::size_t copy = 0;
    while (pass.virtual_stage >= chains_[copy].first + chains_[copy].stages) {
      ++copy;
    }
    const auto own = static_cast<std::size_t>(pass.virtual_stage - chains_[copy].first);
    std::size_t first = 0;
    for (std::size_t stage = 0; stage < own; ++stage) {
      first += static_cast<std::size_t>(stages[stage]);
    }
    const std::size_t end = first + static_cast<std::size_t>(stages[own]);
    const auto unit = static_cast<std::size_t>(chains_[copy].number_of(pass.micro_batch));
    switch (pass.kind) {
      case sim::PassKind::Forward:
        return forward(first, end, unit);
      case sim::PassKind::InputGrad:
        return backward(first, end, unit);
      case sim::PassKind::Backward:
        return backward(first, end, unit) && add_gradients(first, end, unit, copy);
      case sim::PassKind::WeightGrad:
        return add_gradients(first, end, unit, copy);
      default:
        return false;
    }
  }

  bool forward(std::size_t first, std::size_t end, std::size_t unit) {
    const std::size_t slice = unit % slices_.size();
    if ((first > 0 && !runs_[first - 1][unit].forward) ||
        (slice > 0 && !runs_[first][unit - 1].forward)) {
      return false;
    }
    for (std::size_t position = first; position < end; ++position) {
      Run& run = runs_[position][unit];
      Sizes sizes = sizes_;
      sizes.first = static_cast<int>(unit / slices_.size()) * sizes.batch;
      if (slices_.front() > 0) {
        sizes.token =
            std::accumulate(slices_.begin(), slices_.begin() + static_cast<int>(slice), 0);
        sizes.sequence = slices_[slice];
      }
      run.program = interpreter(position, sizes);
      if (fault_.alone_forward != static_cast<int>(position)) {
        run.program->follow(earlier_slices(position, unit));
      }
      if (position > 0) {
        const Interpreter& before = *runs_[position - 1][unit].program;
        run.program->give_input(
            convert(before.output(), position - 1, position, before.whole_output()));
      }
      run.program->forward();
      run.forward = true;
    }
    return true;
  }

  bool backward(std::size_t first, std::size_t end, std::size_t unit) {
    const bool last = (unit + 1) % slices_.size() == 0;
    if (!runs_[first][unit].forward || (end < runs_.size() && !runs_[end][unit].backward) ||
        (!last && !runs_[first][unit + 1].backward)) {
      return false;
    }
    for (std::size_t position = end; position-- > first;) {
      Run& run = runs_[position][unit];
      if (position + 1 < runs_.size()) {
        run.program->give_output_gradient(
            convert(runs_[position + 1][unit].program->input_gradient(), position + 1, position,
                    run.program->whole_output()));
      }
      if (fault_.alone_backward == static_cast<int>(position)) {
        run.program->forget_later();
      }
      run.program->backward();
      run.backward = true;
    }
    return true;
  }

  std::vector<Interpreter*> earlier_slices(std::size_t position, std::size_t unit) {
    std::vector<Interpreter*> earlier;
    for (std::size_t slice = unit - unit % slices_.size(); slice < unit; ++slice) {
      earlier.push_back(runs_[position][slice].program.get());
    }
    return earlier;
  }

  bool add_gradients(std::size_t first, std::size_t end, std::size_t unit, std::size_t copy) {
    if (!runs_[first][unit].backward) {
      return false;
    }
    for (std::size_t position = first; position < end; ++position) {
      const bool faulty = static_cast<int>(position) == fault_.position &&
                          static_cast<int>(unit) == fault_.micro_batch;
      for (int times = 0; times < (faulty ? fault_.times : 1); ++times) {
        sums_[copy * layouts_.size() + position]->add_gradients_of(*runs_[position][unit].program);
      }
    }
    return true;
  }

  const models::Network& network_;
  std::vector<BlockPlan> layouts_;
  int ranks_;
  Sizes sizes_;
  ChainFault fault_;
  std::vector<int> slices_ = {0};  // tokens of each; 0: whole sequences
  std::vector<sim::Chain> chains_;
  std::vector<std::vector<Run>> runs_;              // by position and micro-batch, or its slices
  std::vector<std::unique_ptr<Interpreter>> sums_;  // of gradients, by copy and position
  int conversions_ = 0;
};

}  // namespace orrery::plan::semantics
