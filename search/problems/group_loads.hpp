// SPDX-License-Identifier: Apache-2.0
// What every assignment of sequences to groups looks up (sequence_groups.hpp): times and bounds
// that all multisets of degrees share, and loads while sequences are put into groups.
#pragma once

#include <cstddef>
#include <vector>

#include "search/problems/sequence_groups.hpp"

namespace orrery::search {

// Times of all sequences (longest first) on groups of every degree.
class GroupTimes {
 public:
  GroupTimes(const std::vector<double>& lengths, const GroupCost& cost);
  double of(std::size_t sequence, int log_degree) const {
    return times_[sequence * degrees_ + static_cast<std::size_t>(log_degree)];
  }
  int degrees() const { return static_cast<int>(degrees_); }

 private:
  std::size_t degrees_;
  std::vector<double> times_;
};

// Least time that any assignment to groups of some degrees (log2, largest first) can have: the work
// of every sequence on its cheapest degree, shared evenly, and the longest sequence on the group
// that is quickest with it.
class GroupBounds {
 public:
  GroupBounds(const std::vector<double>& lengths, const GroupCost& cost, const GroupTimes& times);
  double of(const std::vector<int>& degrees) const;
  // GPU seconds that each sequence and all that are shorter take at least, then zero.
  const std::vector<double>& work_from(const std::vector<int>& degrees) const {
    return work_from_[pair_of(degrees)];
  }

 private:
  std::size_t pair_of(const std::vector<int>& degrees) const {
    return static_cast<std::size_t>(degrees.back() * degrees_ + degrees.front());
  }

  double constant_;
  int degrees_;
  std::vector<double> least_work_;  // GPU seconds, by the smallest and the largest degree
  std::vector<std::vector<double>> work_from_;
  std::vector<double> longest_;  // seconds by degree; infinite where it does not fit
};

// Loads of groups while sequences are put into them one by one or moved between them.
class GroupLoads {
 public:
  GroupLoads(const std::vector<double>& lengths, const GroupCost& cost, const GroupTimes& times,
             std::vector<int> degrees);
  // Longest first, to the group that ends soonest; false when one fits nowhere before `bound`, or
  // when what is left (GroupBounds::work_from) makes that certain.
  bool fill(double bound, const std::vector<double>& work_from);
  // Moves single sequences away from the slowest group while that makes it less slow.
  void improve();
  GroupAssignment assignment() const;

 private:
  using Class = std::vector<std::size_t>;  // groups of one degree, the least loaded first

  std::vector<Class> classes_of_groups() const;
  std::size_t first_that_holds(std::size_t sequence, const Class& groups) const;
  void sort_in(Class& groups, std::size_t place) const;
  double end_with(std::size_t sequence, std::size_t group) const;
  bool holds(std::size_t sequence, std::size_t group) const;
  void put(std::size_t sequence, std::size_t group);
  bool move_one();

  const std::vector<double>& lengths_;
  const GroupCost& cost_;
  const GroupTimes& times_;
  std::vector<int> degrees_;
  std::vector<double> load_, tokens_;
  std::vector<int> group_of_;
};

}  // namespace orrery::search
