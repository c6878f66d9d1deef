// SPDX-License-Identifier: Apache-2.0
// Executes a block as the ranks of a mesh do: every operator on the parts a rank holds, between
// them the conversions that layouts give (layout.hpp), forward and backward, weights from and to
// the way they are stored, and the update of parameters with the collectives of their states. One
// rank is the serial program. Reductions can be dropped or doubled, to show that each is needed
// once.
#pragma once

#include <limits>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "plan/block/steps.hpp"
#include "tests/unit/plan/semantics/rank_operators.hpp"
#include "tests/unit/plan/semantics/rank_states.hpp"

namespace orrery::plan::semantics {

struct Sizes {
  int batch = 0;  // of all ranks together
  int sequence = 0;
  int first = 0;  // of a larger batch, the sample that this one begins with
  int token = 0;  // of a longer sequence, the token that each of this one begins with
};

// A reduction, or gather of parameters, to leave out or to make twice, by number in the order of
// execution; -1: none.
struct Fault {
  int reduction = -1;
  bool doubled = false;
};

// Bytes by forward (true) or backward, kind and axes: what the program communicates in the block.
using Traffic = std::map<std::tuple<bool, sim::CommKind, std::vector<Axis>>, std::int64_t>;

class Interpreter {
 public:
  Interpreter(const Block& block, const BlockPlan& layout, int dp, Sizes sizes, Fault fault = {},
              const Conditions& conditions = {})
      : block_(block),
        layout_(layout),
        mesh_(mesh_of(layout, dp)),
        rules_(ruled(layout, conditions)),
        sizes_(sizes),
        fault_(fault),
        places_of_(conditions.places_of),
        collectives_(
            mesh_, [this](const auto& copy, Axis axis) { return owner_of(copy, axis); },
            conditions.experts_at),
        produced_(produced_layouts(block, rules_)),
        values_(block.tensors.size()),
        gradients_(block.tensors.size()),
        pending_(block.tensors.size()) {
    for (const Operator& op : block.operators) {
      assignments_.push_back(assign(block, op, rules_.of(op)));
      for (const int weight : op.weights) {
        states_.emplace(weight, State{{states_of(block, op, weight, rules_, mesh_, DType::Fp16),
                                       layout, mesh_, conditions},
                                      {},
                                      {},
                                      {},
                                      {}});
      }
    }
  }

  // Inputs, weights and the gradient of the output are drawn from their names, unless given.
  void run() {
    forward();
    backward();
    reduce_gradients();
  }
  void forward();
  void backward();
  // The end of a step: gradients of what passes ran are summed, then every rank updates what is its
  // to update. The next forward gathers it.
  void reduce_gradients();
  void update();

  void give_input(Spread input) { given_input_ = std::move(input); }
  void give_output_gradient(Spread gradient) { given_gradient_ = std::move(gradient); }
  const Spread& output() const { return values_[slot_of(block_.output)]; }
  const Spread& input_gradient() const { return gradients_[slot_of(block_.input)]; }
  // Attention reads the keys and values of these slices of the same sequences, too, and adds to
  // their gradients, before the earlier ones run backward.
  void follow(std::vector<Interpreter*> earlier) { earlier_ = std::move(earlier); }
  void forget_later() { given_by_later_.clear(); }
  // Of another micro-batch, to those of this one.
  void add_gradients_of(const Interpreter& other);
  // The global shape of what the block hands on.
  Part whole_output() const { return whole(block_.output); }

  const Spread& weight_gradients(int weight) const { return states_.at(weight).gradient; }

  const Mesh& mesh() const { return mesh_; }
  int num_reductions() const { return reductions_; }
  // Whether leaving out a reduction or making it twice changes anything: sums of zeros (the
  // gradient of a key's bias, which shifts all scores of a query alike) do not.
  bool matters(const Fault& fault) const {
    const Effect& effect = effects_[static_cast<std::size_t>(fault.reduction)];
    return fault.doubled ? effect.after : effect.before;
  }
  const Traffic& traffic() const { return traffic_; }
  // What backward() differentiates: the output times its gradient, or the loss.
  double objective() const;
  double weight_gradient(int weight, Eigen::Index element) const {
    return states_.at(weight).gradient.front().data[element];
  }
  // For finite differences.
  void nudge(int weight, Eigen::Index element, double by) { nudges_[weight] = {element, by}; }

  // Of two errors; one that is not a number stays.
  static double larger(double a, double b) {
    return std::isnan(a) || std::isnan(b) ? std::nan("") : std::max(a, b);
  }
  // The largest difference of outputs, input gradients, weight gradients and parameters from a run
  // on one rank; of the last two, what ranks update.
  double distance(const Interpreter& serial) const {
    double largest = larger(distance_of_values(serial), distance_of_states(serial));
    if (block_.input >= 0) {
      const std::size_t slot = slot_of(block_.input);
      largest = larger(difference(gradients_[slot], serial.gradients_[slot]), largest);
    }
    return largest;
  }
  double distance_of_values(const Interpreter& serial) const {
    double largest = 0;
    for (const int tensor : results()) {
      const std::size_t slot = slot_of(tensor);
      largest = larger(difference(values_[slot], serial.values_[slot]), largest);
    }
    return largest;
  }
  double distance_of_states(const Interpreter& serial) const {
    double largest = 0;
    for (const auto& [weight, state] : states_) {
      const State& expected = serial.states_.at(weight);
      for (const auto of : {&State::gradient, &State::parameters}) {
        for (std::size_t rank = 0; rank < (state.*of).size(); ++rank) {
          const Part& part = (state.*of)[rank];
          largest = larger(difference(part, (expected.*of).front(),
                                      [&](Eigen::Index element) {
                                        return state.program.owns(rank, element, part.size());
                                      }),
                           largest);
        }
      }
    }
    return largest;
  }

 private:
  static BlockRules ruled(const BlockPlan& layout, const Conditions& conditions) {
    BlockRules rules = rules_of(layout, true);
    rules.passes_sums = conditions.passes_sums;
    return rules;
  }

  struct Effect {
    bool before;  // something is summed, or read
    bool after;   // the sum is not zero
  };
  struct State {
    WeightStates program;
    Spread parameters;  // as they last
    Spread whole;       // as a pass reads them
    Spread gradient;
    Spread momentum;
  };
  static double largest_of(const Spread& spread) {
    double largest = 0;
    for (const Part& part : spread) {
      largest = part.size() > 0 ? std::max(largest, part.data.abs().maxCoeff()) : largest;
    }
    return largest;
  }

  static std::size_t slot_of(int index) { return static_cast<std::size_t>(index); }
  const models::Tensor& tensor_of(int index) const { return block_.tensors[slot_of(index)]; }
  // The output, or what the loss is made of.
  std::vector<int> results() const {
    return block_.output >= 0 ? std::vector<int>{block_.output} : block_.operators.back().outputs;
  }
  Extents extents() const { return {sizes_.batch, sizes_.sequence}; }

  // Of the elements that count.
  template <typename Counts>
  static double difference(const Part& part, const Part& expected, const Counts& counts) {
    double largest = 0;
    const Reader reader(expected);
    for_each(part, [&](Eigen::Index position, const std::vector<int>& global) {
      if (!counts(position)) {
        return;
      }
      const double error = reader.holds(global) ? std::abs(part.data[position] - reader.at(global))
                                                : std::numeric_limits<double>::infinity();
      largest = larger(largest, error);
    });
    return largest;
  }
  static double difference(const Spread& spread, const Spread& expected) {
    double largest = 0;
    for (const Part& part : spread) {
      largest =
          larger(difference(part, expected.front(), [](Eigen::Index) { return true; }), largest);
    }
    return largest;
  }

  // Experts are cut like the weights of grouped products: by the outermost axis first.
  int owner_of(const std::vector<int>& copy, Axis axis) const {
    if (axis == Axis::Expert && !places_of_.empty()) {
      const std::vector<int>& places =
          places_of_[slot_of(expert_of(copy, static_cast<int>(block_.experts)))];
      return places[slot_of(copy[0] + copy[1]) % places.size()];
    }
    int inner = static_cast<int>(block_.experts);
    for (auto outer = kAxes.rbegin(); outer != kAxes.rend(); ++outer) {
      const std::vector<Var>& preferred = rules_.other.preference[static_cast<std::size_t>(*outer)];
      if (!preferred.empty() && preferred.front() == Var::Expert) {
        inner /= mesh_.of(*outer);
      }
      if (*outer == axis) {
        break;
      }
    }
    return expert_of(copy, static_cast<int>(block_.experts)) / inner % mesh_.of(axis);
  }

  // The global tensor: small numbers that depend on its name and the place, token ids as they are.
  Part whole(int tensor) const {
    const models::Tensor& described = tensor_of(tensor);
    std::vector<Var> vars;
    std::vector<Indices> index;
    for (const models::Dim& dim : described.dims) {
      vars.push_back(dim.var);
      Indices all(static_cast<std::size_t>(local_extent(dim, Layout(), Mesh(), extents())));
      const int first = dim.var == Var::Batch ? sizes_.first
                        : dim.var == Var::Seq ? sizes_.token
                                              : 0;
      std::iota(all.begin(), all.end(), first);
      index.push_back(std::move(all));
    }
    Part part = part_of(std::move(vars), std::move(index));
    part.dims = described.dims;
    double seed = 0.1;
    for (const char letter : described.name) {
      seed = std::fmod(seed * 1.7 + letter * 0.013, 3.0);
    }
    const bool ids = described.element == models::Element::Int64;
    for_each(part, [&](Eigen::Index position, const std::vector<int>& global) {
      part.data[position] = ids ? (global[0] * 5 + global[1] * 2 + global[0] * global[1]) % 8
                                : 0.6 * std::sin(seed + 1.3 * static_cast<double>(position));
    });
    const auto nudged = nudges_.find(tensor);
    if (nudged != nudges_.end()) {
      part.data[nudged->second.first] += nudged->second.second;
    }
    return part;
  }

  // Counts what is applied to a tensor, or leaves it out or repeats it where that is the fault.
  // `read`: anybody reads the result.
  enum class Twice : std::uint8_t { Same, Other };
  template <typename Apply>
  void apply(Spread& spread, Twice twice, bool read, const Apply& applied) {
    if (static_cast<int>(effects_.size()) == reductions_) {
      Spread reduced = spread;
      applied(reduced);
      effects_.push_back({read, twice == Twice::Other && largest_of(reduced) > 1e-9});
    }
    const bool faulty = reductions_++ == fault_.reduction;
    if (!faulty || fault_.doubled) {
      applied(spread);
    }
    if (faulty && fault_.doubled) {
      applied(spread);
    }
  }
  template <typename Reduce>
  void sum(Spread& spread, const Reduce& reduce) {
    apply(spread, sums_to_zero_ || takes_largest_ ? Twice::Same : Twice::Other,
          largest_of(spread) > 1e-9, reduce);
  }

  // Faults concern what runs for the first time.
  template <typename Run>
  void repeat(const Run& run) {
    const Fault fault = std::exchange(fault_, Fault());
    const int reductions = reductions_;
    run();
    fault_ = fault;
    reductions_ = reductions;
  }

  void reduce(Spread& spread, Axis axis) {
    if (mesh_.of(axis) > 1) {
      sum(spread, [&](Spread& to) { collectives_.reduce(to, axis, takes_largest_); });
    }
  }

  // `value`: what the result is the gradient of, which has the same parts.
  void convert(Spread& spread, const Layout& from, const Layout& to, bool gradient = false,
               const Spread* value = nullptr);
  void cut_new(Spread& spread, const Layout& from, const Layout& to, bool before_gathers,
               const Spread* value) const;

  // Enters a conversion of the block, as its steps should have it.
  void count(const models::Tensor& tensor, const Layout& from, const Layout& to, bool forward,
             sim::CommKind kind = sim::CommKind::None) {
    for (const MergedConversion& step : merged_conversions(tensor, from, to, mesh_, extents())) {
      traffic_[{forward, kind == sim::CommKind::None ? step.kind : kind, step.axes}] +=
          step.elements * element_bytes(tensor.element, DType::Fp16);
    }
  }

  void forward_operator(std::size_t index);
  void forward_norm(std::size_t index, const Spread& x, const std::vector<Spread>& weights);
  void backward_operator(std::size_t index);
  void backward_norm(std::size_t index, const Spread& dy, const std::vector<Spread>& weights);
  std::vector<Spread> inputs_of(std::size_t index, bool forward);
  std::vector<Spread> weights_of(std::size_t index, bool forward);
  // A weight as the block stores it, before anything was updated.
  Spread stored_at_first(std::size_t index, int weight) const;
  // Of one expert, by the ranks that hold it.
  void add_copies(Spread& gradient, int expert);
  // Puts the parameters of all weights together for a pass.
  void gather_parameters(bool forward);
  void statistics(std::vector<RowSums>& sums, std::size_t index, bool forward);
  Part shape_of(int tensor, const std::vector<Part>& inputs,
                const std::vector<Part>& weights) const;
  bool is_summed_later(int tensor) const;
  bool changes_when_summed(int tensor) const;
  std::vector<bool> adds_biases(const Operator& op) const;
  // From where a tensor is produced, with its bias between sums and gathers.
  void convert_value(Spread& spread, int tensor, const Layout& to);
  // Gradients of an operator's outputs as those of its biases are made of them: a rank's own part
  // of what was scattered.
  std::vector<Spread> bias_outputs(std::size_t index) const;
  void finish_gradient(int tensor);
  // Of attention, as its output's gradient is: the merged context and the sums of all keys.
  std::pair<Spread, Spread> attention_results(int output);
  void give_gradient(std::size_t index, std::size_t position, Spread spread);
  bool reads_earlier(const Operator& op, std::size_t position) const;
  Spread with_earlier(std::size_t slot) const;
  void give_slices(std::size_t index, std::size_t position, Spread spread);
  void give_weight_gradient(std::size_t index, int weight, Spread spread);

  const Block& block_;
  BlockPlan layout_;
  Mesh mesh_;
  BlockRules rules_;
  Sizes sizes_;
  Fault fault_;
  std::vector<std::vector<int>> places_of_;  // of each expert; empty: cut evenly
  Collectives collectives_;
  std::vector<Layout> produced_;
  std::vector<Assignment> assignments_;
  std::vector<Spread> values_;     // as produced; the last output as the stream
  std::vector<Spread> gradients_;  // as gradient_of(produced)
  // Contributions of the consumers so far, those of one layout added up.
  std::vector<std::vector<std::pair<Layout, Spread>>> pending_;
  std::map<int, Spread> softmax_sums_;  // of attention, by its output and as produced
  std::map<int, State> states_;
  std::vector<Interpreter*> earlier_;
  std::map<std::size_t, Spread> given_by_later_;  // gradients, by tensor
  Spread given_input_;
  Spread given_gradient_;
  std::map<std::size_t, std::vector<Normalised>> norms_;
  std::map<int, std::pair<Eigen::Index, double>> nudges_;
  bool takes_largest_ = false;  // instead of sums
  bool sums_to_zero_ = false;   // over all axes together, if not over the first of them
  int reductions_ = 0;
  std::vector<Effect> effects_;
  Traffic traffic_;
};

}  // namespace orrery::plan::semantics
