// SPDX-License-Identifier: Apache-2.0
#include "sim/orders/dual_pipe.hpp"

#include <deque>
#include <utility>

#include "sim/orders/order_blocks.hpp"

namespace orrery::sim {
namespace {

class Steps {
 public:
  Steps(PipelineOrder& order, const std::array<int, 2>& stages) : order_(order), stages_(stages) {}

  void forward(int phase, bool joined = false) {
    add(PassKind::Forward, phase, forwards_[static_cast<std::size_t>(phase)]++, joined);
  }
  void backward(int phase, bool split = false) {
    const int unit = backwards_[static_cast<std::size_t>(phase)]++;
    add(split ? PassKind::InputGrad : PassKind::Backward, phase, unit, false);
    if (split) {
      owed_.emplace_back(phase, unit);
    }
  }
  void weight_grad() {
    const auto [phase, unit] = owed_.front();
    owed_.pop_front();
    add(PassKind::WeightGrad, phase, unit, false);
  }
  // One block.
  void pair(int forward_phase, int backward_phase) {
    forward(forward_phase, true);
    backward(backward_phase);
  }

 private:
  void add(PassKind kind, int phase, int unit, bool joined) {
    add_pass(order_, kind, stages_[static_cast<std::size_t>(phase)], unit, joined);
  }

  PipelineOrder& order_;
  std::array<int, 2> stages_;
  std::array<int, 2> forwards_{};
  std::array<int, 2> backwards_{};
  std::deque<std::pair<int, int>> owed_;
};

}  // namespace

void append_dual_pipe(PipelineOrder& order, const std::array<int, 2>& stages, int half, int q,
                      int units) {
  Steps steps(order, stages);
  const auto repeat = [](int times, auto step) {
    for (int k = 0; k < times; ++k) {
      step(k);
    }
  };
  const int inner = half - q - 1;
  repeat(2 * inner, [&](int) { steps.forward(0); });
  repeat(q + 1, [&](int) {
    steps.forward(0);
    steps.forward(1);
  });
  repeat(inner, [&](int) {
    steps.backward(1, true);
    steps.weight_grad();
    steps.forward(1);
  });
  repeat(units - 2 * half + q + 1, [&](int k) {
    if (k == 0 && inner == 0) {  // in the middle nothing is left to hide at first
      steps.forward(0);
      steps.backward(1);
    } else {
      steps.pair(0, 1);
    }
    steps.pair(1, 0);
  });
  repeat(inner, [&](int) {
    steps.backward(1);
    steps.pair(1, 0);
  });
  const int change = (q + 1) / 2;
  repeat(q + 1, [&](int k) {
    steps.backward(1, k > change || (k == change && q % 2 == 1));
    steps.backward(0, k >= change);
  });
  repeat(inner, [&](int) {
    steps.weight_grad();
    steps.backward(0, true);
  });
  repeat(q + 1, [&](int) { steps.weight_grad(); });
}

}  // namespace orrery::sim
