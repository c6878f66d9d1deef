// SPDX-License-Identifier: Apache-2.0
// Nodes and outcomes from outside - a checkpoint, another process - against the space: whatever
// passes has indices that are there and counts no plan twice, so that nothing read can crash the
// search or make it end with plans that are not of the space. That an outcome is the right one
// only doing the work again would tell.
#pragma once

#include <optional>
#include <vector>

#include "base/bytes.hpp"
#include "search/tree/batch.hpp"

namespace orrery::search {

class TreeCheck {
 public:
  explicit TreeCheck(const Tree& tree) : tree_(tree) {}

  // Errors are those of `in`.
  void node(const ByteReader& in, const Node& node);
  // A node that such a task can be about.
  void question(const ByteReader& in, Task task, const Node& node);
  // A closest misfit.
  void overflow(const ByteReader& in, const Overflow& overflow);
  // What may come of it.
  void answer(const ByteReader& in, Task task, const Node& asked, const Outcomes& outcomes);

 private:
  // What nodes of one group are checked against; kept for the next node, mostly of the same one.
  struct Of {
    std::uint32_t group = 0;
    std::uint64_t layouts = 0;
    std::uint64_t zeros = 0;
    std::uint64_t members = 0;
    const std::vector<Family>* families = nullptr;
  };
  const Of& of(std::uint32_t group);
  std::uint64_t schedules(const Node& node);
  std::uint64_t num_plans(const Node& node);  // below it
  void child(const ByteReader& in, const Node& asked, const Node& child);
  std::uint64_t num_misfits(const ByteReader& in, const Node& asked, const Outcomes& outcomes);

  Tree tree_;
  std::optional<Of> of_;
};

}  // namespace orrery::search
