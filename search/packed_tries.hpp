// SPDX-License-Identifier: Apache-2.0
// Plans for sequences of different length of all layouts, one of each at a time, and those taken of
// them: the fastest that fit when memory is replayed. What is known of every layout is the state of
// such a search in a checkpoint.
#pragma once

#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "search/packed_pipelines.hpp"
#include "search/tree/kept_state.hpp"
#include "search/tree/search.hpp"

namespace orrery::search {

class PackedTries {
 public:
  // The first two stay alive. In pipelines, or on groups of ranks.
  PackedTries(const std::vector<plan::Plan>& layouts, const std::vector<std::int64_t>& lengths,
              bool pipelines);

  // The first plan of each, until `ends(whether any was found)`.
  void begin(int jobs, KeptState& kept, const std::function<bool(bool)>& ends);
  // Takes the fastest of the plans not taken yet whose replay fits. A pipeline whose replay does
  // not has another try, with less in flight. False when no more fit.
  bool take_fastest(ByteCount reserve, int jobs);
  const std::vector<Found>& taken() const { return taken_; }

  std::int64_t unexplored() const;
  // Layouts without a plan that fits, as far as asked.
  std::int64_t infeasible() const;

  void write(ByteWriter& out) const;
  // Into tries that have not begun. Error where it cannot be one of these layouts.
  void read(ByteReader& in);

 private:
  bool has_pipelines() const { return !packs_.empty(); }
  std::vector<std::vector<std::size_t>> like_layouts() const;
  std::optional<Found> read_found(const std::string& text, ByteReader& in) const;

  const std::vector<plan::Plan>& layouts_;
  const std::vector<std::int64_t>& lengths_;
  std::vector<Sample> samples_;
  std::vector<PipelinePacks> packs_;         // of pipelines; empty: groups of ranks
  std::mutex mutex_;                         // of both below, while layouts are asked
  std::vector<std::optional<Found>> found_;  // by layout
  std::vector<char> asked_;                  // the same
  std::vector<Found> taken_;
};

}  // namespace orrery::search
