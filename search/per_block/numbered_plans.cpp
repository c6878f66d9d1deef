// SPDX-License-Identifier: Apache-2.0
#include "search/per_block/numbered_plans.hpp"

#include "search/per_block/counts.hpp"

namespace orrery::search {

namespace {

constexpr std::int64_t kMostPlans = 100'000;
constexpr std::int64_t kMostPasses = 50'000'000;  // of stages and micro-batches, of all plans

}  // namespace

NumberedPlans::NumberedPlans(const PerBlockSpace& space, const StageMesh& mesh,
                             const Pipeline& pipeline)
    : positions_(static_cast<int>(space.homogeneous().base().network.chain.size())),
      stages_(static_cast<int>(virtual_stages(mesh, pipeline))),
      strategies_(space.num_strategies(mesh)),
      fixed_cut_(space.has_fixed_cut() ? space.first_cut(mesh, pipeline) : std::vector<int>()),
      size_(product(fixed_cut_.empty() ? combinations(positions_ - 1, stages_ - 1) : 1,
                    power(strategies_, positions_))) {}

bool NumberedPlans::are_few(std::int64_t micro_batches) const {
  const std::int64_t passes = product(product(size_, stages_), micro_batches);
  return size_ >= 0 && size_ <= kMostPlans && passes >= 0 && passes <= kMostPasses;
}

Draft NumberedPlans::at(std::int64_t number) const {
  const std::int64_t of_cut = power(strategies_, positions_);
  Draft draft{cut_at(number / of_cut), {}};
  number %= of_cut;
  for (int position = 0; position < positions_; ++position) {
    draft.strategies.push_back(static_cast<std::uint16_t>(number % strategies_));
    number /= strategies_;
  }
  return draft;
}

void NumberedPlans::advance(Draft& draft) const {
  for (std::uint16_t& strategy : draft.strategies) {
    if (++strategy < strategies_) {
      return;
    }
    strategy = 0;
  }
  // The stage before the last one with a block to spare gets one; those behind it are as small as
  // can be.
  std::vector<int>& cut = draft.stages;
  std::size_t last = cut.size() - 1;
  while (last > 0 && cut[last] == 1) {
    --last;
  }
  if (last > 0) {
    const int rest = cut[last] - 1;
    ++cut[last - 1];
    cut[last] = 1;
    cut.back() = rest;
  }
}

std::vector<int> NumberedPlans::cut_at(std::int64_t number) const {
  if (!fixed_cut_.empty()) {
    return fixed_cut_;
  }
  std::vector<int> cut;
  int left = positions_;
  for (int behind = stages_ - 1; behind > 0; --behind) {
    int blocks = 1;
    std::int64_t alike = combinations(left - blocks - 1, behind - 1);
    while (number >= alike) {
      number -= alike;
      ++blocks;
      alike = combinations(left - blocks - 1, behind - 1);
    }
    cut.push_back(blocks);
    left -= blocks;
  }
  cut.push_back(left);
  return cut;
}

}  // namespace orrery::search
