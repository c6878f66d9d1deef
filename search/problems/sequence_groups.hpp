// SPDX-License-Identifier: Apache-2.0
// Sequences of one micro-batch on sequence-parallel groups of different degree, so that the slowest
// group ends soonest and every group holds its tokens (FlexSP). All given multisets of degrees are
// tried, most promising first, each greedily, longest sequence first, to the group that would end
// soonest; then exactly by branch and bound (few sequences), or by moving sequences away from the
// slowest group as long as that helps.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

namespace orrery::search {

// Seconds of a group: (quadratic sum l^2 + linear sum l) / degree + constant + all-to-all.
struct GroupCost {
  double quadratic = 0;
  double linear = 0;
  double constant = 0;
  double all_to_all_bytes = 0;    // per token
  std::vector<double> bandwidth;  // of an all-to-all by log2 of the degree, bytes/s
  double tokens_per_gpu = std::numeric_limits<double>::infinity();  // that memory holds
  double of(double length, int log_degree) const;                   // without the constant
};

struct GroupAssignment {
  double time = std::numeric_limits<double>::infinity();
  std::vector<int> degrees;   // log2, one a group
  std::vector<int> group_of;  // of each sequence, longest first
  bool proven = true;         // no assignment of these sets is faster
};

// The best assignment that is found, or the greedy one alone, nothing moved or searched.
enum class GroupEffort : std::uint8_t { Best, Greedy };
GroupAssignment assign_groups(std::vector<double> lengths, const GroupCost& cost,
                              const std::vector<std::vector<int>>& sets,
                              GroupEffort effort = GroupEffort::Best);

// A batch cut into micro-batches of neighbours by length with the least maximum of tokens, the
// sequences of each assigned; of `least` to `most` micro-batches the number that takes least.
struct BatchAssignment {
  struct Part {
    std::vector<double> lengths;  // longest first, as group_of
    GroupAssignment groups;
  };
  double time = std::numeric_limits<double>::infinity();
  std::vector<Part> micro_batches;
  bool proven = true;  // each assignment is the best for its micro-batch
};
BatchAssignment assign_batch(std::vector<double> lengths, const GroupCost& cost,
                             const std::vector<std::vector<int>>& sets, int least, int most,
                             GroupEffort effort = GroupEffort::Best);

// Multisets of power-of-two degrees (log2, largest first) that use all `gpus`.
std::vector<std::vector<int>> degree_sets(int gpus);

}  // namespace orrery::search
