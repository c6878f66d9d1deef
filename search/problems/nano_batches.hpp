// SPDX-License-Identifier: Apache-2.0
// A layer of serving as two nano-batches whose operations overlap on one device, after NanoFlow
// (arXiv 2408.12757, section 4). Stage I, order(): operations of each class (compute, memory,
// network) run one at a time, with interference-free durations; of all cyclic orders in which the
// second nano-batch is at most a layer behind, those with the least period of a layer, which is the
// maximum cycle ratio of the precedences. Stage II, share(): the order stays; the schedule cuts the
// period into phases, in each of which certain operations run, and a linear program chooses how
// long each phase takes under which shares, with the speeds of the class curves
// (sim/engine/share_curves.hpp). Both are exact. Orders grow as the product over classes of (n + 1)
// binomial(2n, n).
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "sim/engine/share_curves.hpp"

namespace orrery::search {

struct NanoProblem {
  struct Operation {
    std::string name;
    std::size_t kind = 0;    // compute, memory, network
    double time = 0;         // of all tokens, alone
    std::vector<int> after;  // earlier operations of the same layer
  };
  std::vector<Operation> operations;
  std::int64_t tokens = 0;
};

class NanoBatches {
 public:
  // `first`: tokens of the first nano-batch.
  NanoBatches(const NanoProblem& problem, std::int64_t first);

  struct Ordered {
    double period = std::numeric_limits<double>::infinity();
    std::vector<double> start;  // of each nano-operation, in a layer of its own
  };
  // A few orders with the least period; empty when no order exists.
  std::vector<Ordered> order() const;

  struct Phase {
    double time = 0;
    std::vector<int> runs;      // nano-operations
    std::vector<double> share;  // of the device, times the time of the phase
  };
  struct Shared {
    double period = std::numeric_limits<double>::infinity();
    std::vector<Phase> phases;
  };
  Shared share(const Ordered& structure, const sim::SharingCurves& curves) const;

  std::string name(int nano) const;  // "qkv 1"

 private:
  // Part p of operation i is number p x operations + i.
  struct Nano {
    std::size_t kind = 0;
    double time = 0;
  };
  // Precedence of periodic starts: start[to] >= start[from] + time - lag x period.
  struct Edge {
    int from;
    int to;
    double time;
    int lag;
  };
  // One place of a class's order within a period; behind: of the layer before.
  struct Turn {
    int nano;
    int behind;
  };
  using Order = std::vector<Turn>;

  const Nano& nano(int index) const { return nanos_[static_cast<std::size_t>(index)]; }
  void add_chain(int offset);
  std::vector<Order> orders_of(std::size_t kind) const;
  void add_turns(const Order& order, std::vector<Edge>& edges) const;
  bool potentials(const std::vector<Edge>& edges, double period, std::vector<double>& start) const;
  Ordered schedule(const std::vector<Edge>& edges, double busiest, double limit) const;
  std::vector<Phase> phases_of(const Ordered& structure) const;

  const NanoProblem& problem_;
  int count_;
  std::vector<Nano> nanos_;
  std::vector<Edge> edges_;
};

}  // namespace orrery::search
