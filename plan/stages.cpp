// SPDX-License-Identifier: Apache-2.0
#include "plan/stages.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <utility>

#include "base/error.hpp"
#include "models/network.hpp"

namespace orrery::plan {

// Blocks that are no layers go with the layer after them (embeddings, position embeddings), the
// last ones with the last stage.
std::vector<int> even_stages(const models::Network& network, int num_virtual_stages) {
  ORRERY_CHECK(num_virtual_stages >= 1, "a pipeline has at least one stage");
  std::vector<std::size_t> layers;  // chain positions
  for (std::size_t position = 0; position < network.chain.size(); ++position) {
    const auto block = static_cast<std::size_t>(network.chain[position]);
    if (network.blocks[block].kind == models::BlockKind::Layer) {
      layers.push_back(position);
    }
  }
  const auto num_stages = static_cast<std::size_t>(num_virtual_stages);
  if (num_stages > layers.size()) {
    bad_input(network.spec.name,
              fmt::format("{} layers cannot fill {} virtual stages (stages x chunks)",
                          layers.size(), num_stages),
              fmt::format("at most {}: use fewer pipeline stages or model chunks", layers.size()));
  }
  const std::size_t share = layers.size() / num_stages;
  const std::size_t larger = layers.size() % num_stages;
  std::vector<int> stages(num_stages);
  std::size_t first_layer = 0;
  std::size_t begin = 0;  // chain position
  for (std::size_t stage = 0; stage < num_stages; ++stage) {
    first_layer += share + (stage < larger ? 1 : 0);
    const std::size_t end =
        stage + 1 == num_stages ? network.chain.size() : layers[first_layer - 1] + 1;
    stages[stage] = static_cast<int>(end - begin);
    begin = end;
  }
  return stages;
}

namespace {

// Sums of whole numbers, so that equal stages are equal.
class ChainCutter {
 public:
  ChainCutter(std::span<const std::int64_t> work, std::size_t num_stages)
      : length_(work.size()), num_stages_(num_stages), until_{0}, latest_(num_stages) {
    for (const std::int64_t one : work) {
      until_.push_back(until_.back() + one);
      largest_ = std::max(largest_, one);
    }
  }

  std::vector<int> cut() {
    const std::int64_t most = least_largest();
    std::int64_t low = 0;
    std::int64_t high = until_.back() / static_cast<std::int64_t>(num_stages_);
    std::vector<int> best;
    std::vector<int> trial(num_stages_);
    ORRERY_CHECK(search(low, most, trial),
                 "a chain can be cut into stages of the least largest work");
    best = trial;
    while (low < high) {
      const std::int64_t middle = low + (high - low + 1) / 2;
      if (search(middle, most, trial)) {
        best = trial;
        low = std::max(middle, smallest_);
      } else {
        high = middle - 1;
      }
    }
    return best;
  }

 private:
  std::int64_t work(std::size_t begin, std::size_t end) const {
    return until_[end] - until_[begin];
  }

  // Bisection that steps over sums no stage has.
  std::int64_t least_largest() const {
    const auto stages = static_cast<std::int64_t>(num_stages_);
    std::int64_t low = std::max(largest_, (until_.back() + stages - 1) / stages);
    std::int64_t high = until_.back();
    while (low < high) {
      const std::int64_t middle = low + (high - low) / 2;
      const Filling filling = fill_up_to(middle);
      if (filling.stages <= num_stages_) {
        high = std::max(low, filling.largest);
      } else {
        low = filling.next;
      }
    }
    return high;
  }

  // Stages that are as long as `most` allows: how many, the largest, and the smallest work above
  // `most` that would have let one be longer.
  struct Filling {
    std::size_t stages = 1;
    std::int64_t largest = 0;
    std::int64_t next = 0;
  };
  Filling fill_up_to(std::int64_t most) const {
    Filling filling;
    filling.next = until_.back();
    std::size_t begin = 0;
    for (std::size_t end = 1; end <= length_; ++end) {
      if (work(begin, end) > most) {
        filling.next = std::min(filling.next, work(begin, end));
        filling.largest = std::max(filling.largest, work(begin, end - 1));
        ++filling.stages;
        begin = end - 1;
      }
    }
    filling.largest = std::max(filling.largest, work(begin, length_));
    return filling;
  }

  // Where a stage begins at the latest so that those from it on have `least` each. False where
  // positions are lacking.
  bool find_latest(std::int64_t least) {
    std::size_t end = length_;
    for (std::size_t stage = num_stages_; stage-- > 1;) {
      std::size_t begin = end - 1;
      while (begin > stage && work(begin, end) < least) {
        --begin;
      }
      if (begin < stage || work(begin, end) < least) {
        return false;
      }
      latest_[stage] = end = begin;
    }
    return work(0, end) >= least;
  }

  // The first and the last position at which each stage may begin; the end of the chain is a stage
  // more. False where there is none for one of them.
  bool find_begins(std::int64_t least, std::int64_t most) {
    first_.assign(num_stages_ + 1, 0);
    last_.assign(num_stages_ + 1, 0);
    for (std::size_t stage = 1; stage < num_stages_; ++stage) {
      std::size_t& first = first_[stage];
      first = first_[stage - 1] + 1;
      while (first < length_ && work(first_[stage - 1], first) < least) {
        ++first;
      }
      std::size_t& last = last_[stage];
      last = last_[stage - 1];
      while (last < latest_[stage] && work(last_[stage - 1], last + 1) <= most) {
        ++last;
      }
    }
    first_[num_stages_] = last_[num_stages_] = length_;
    for (std::size_t stage = num_stages_; stage-- > 1;) {
      const std::size_t end = first_[stage + 1];
      std::size_t begin = end;
      while (begin > first_[stage] && work(begin - 1, end) <= most) {
        --begin;
      }
      first_[stage] = begin;
      if (begin > last_[stage]) {
        return false;
      }
    }
    return true;
  }

  // From the last stage to the first, the longest one from every position at which it may begin.
  // The longest from the left alone would not do: where blocks have unlike work it may lead to
  // positions from which there is no cut though there is another one.
  bool search(std::int64_t least, std::int64_t most, std::vector<int>& stages) {
    if (!find_latest(least) || !find_begins(least, most)) {
      return false;
    }
    std::vector<std::vector<std::size_t>> ends(num_stages_);  // by first position; 0: no cut
    for (std::size_t stage = num_stages_; stage-- > 0;) {
      const auto is_cut = [&](std::size_t begin) {
        return stage + 1 == num_stages_ || ends[stage + 1][begin - first_[stage + 1]] > 0;
      };
      std::size_t next = first_[stage + 1];
      std::size_t longest = 0;
      for (std::size_t begin = first_[stage]; begin <= last_[stage]; ++begin) {
        for (; next <= last_[stage + 1] && work(begin, next) <= most; ++next) {
          longest = is_cut(next) ? next : longest;
        }
        const bool enough = longest > begin && work(begin, longest) >= least;
        ends[stage].push_back(enough ? longest : 0);
      }
    }
    smallest_ = until_.back();
    std::size_t begin = 0;
    for (std::size_t stage = 0; stage < num_stages_; ++stage) {
      const std::size_t end = ends[stage][begin - first_[stage]];
      if (end == 0) {
        return false;  // the first stage has none
      }
      smallest_ = std::min(smallest_, work(begin, end));
      stages[stage] = static_cast<int>(end - begin);
      begin = end;
    }
    return true;
  }

  std::size_t length_;
  std::size_t num_stages_;
  std::vector<std::int64_t> until_;  // of all positions before one
  std::vector<std::size_t> latest_;
  std::vector<std::size_t> first_;
  std::vector<std::size_t> last_;
  std::int64_t largest_ = 0;   // of one position
  std::int64_t smallest_ = 0;  // stage of the last cut found
};

}  // namespace

std::vector<int> balanced_stages(std::span<const std::int64_t> work, int num_virtual_stages) {
  ORRERY_CHECK(num_virtual_stages >= 1, "a pipeline has at least one stage");
  const auto num_stages = static_cast<std::size_t>(num_virtual_stages);
  return num_stages > work.size() ? std::vector<int>() : ChainCutter(work, num_stages).cut();
}

namespace {

std::vector<std::int64_t> device_loads(std::span<const std::int64_t> work,
                                       std::span<const std::uint16_t> device_of,
                                       const std::vector<int>& stages) {
  std::vector<std::int64_t> loads(
      device_of.empty() ? stages.size()
                        : *std::max_element(device_of.begin(), device_of.end()) + 1UL);
  std::size_t position = 0;
  for (std::size_t stage = 0; stage < stages.size(); ++stage) {
    std::int64_t& load = loads[device_of.empty() ? stage : device_of[stage]];
    for (int index = 0; index < stages[stage]; ++index) {
      load += work[position++];
    }
  }
  return loads;
}

}  // namespace

std::int64_t largest_load(std::span<const std::int64_t> work,
                          std::span<const std::uint16_t> device_of,
                          const std::vector<int>& stages) {
  const std::vector<std::int64_t> loads = device_loads(work, device_of, stages);
  return *std::max_element(loads.begin(), loads.end());
}

std::vector<int> balance_devices(std::span<const std::int64_t> work,
                                 std::span<const std::uint16_t> device_of,
                                 std::vector<int> stages) {
  std::vector<std::int64_t> loads = device_loads(work, device_of, stages);
  for (std::size_t move = 0; loads.size() < stages.size() && move < stages.size(); ++move) {
    const auto most = std::max_element(loads.begin(), loads.end());
    const auto least = std::min_element(loads.begin(), loads.end());
    int* from = nullptr;
    int* to = nullptr;
    for (std::size_t stage = 0; stage < stages.size(); ++stage) {
      int& count = stages[stage];
      if (device_of[stage] == most - loads.begin() && (from == nullptr || count > *from)) {
        from = &count;
      } else if (device_of[stage] == least - loads.begin() && (to == nullptr || count < *to)) {
        to = &count;
      }
    }
    if (from == nullptr || to == nullptr || *from == 1) {
      break;
    }
    --*from;
    ++*to;
    std::vector<std::int64_t> after = device_loads(work, device_of, stages);
    if (*std::max_element(after.begin(), after.end()) >= *most) {
      ++*from;
      --*to;
      break;
    }
    loads = std::move(after);
  }
  return stages;
}

}  // namespace orrery::plan
