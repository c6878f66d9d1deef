// SPDX-License-Identifier: Apache-2.0
// Degrees of parallelism that a row leaves blank, from its remarks and from its other counts.
// Linear in the length of the remarks.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "studies/rows/measurement.hpp"
#include "studies/rows/settings.hpp"

namespace orrery::studies {

using Notes = std::vector<std::string>;

// Fills a cell and says so.
void fill(std::string_view name, OptionalCount& cell, std::int64_t value, Notes& notes);

// A whole number that a remark sets, of none of the nouns (settings.hpp); no value where none does.
OptionalCount count_in_remarks(const Measurement& row, SettingNames names, SettingNames nouns = {});

// "TP=4, PP=4", "Ulysses SP=8".
void read_degrees(Measurement& row);

// Of GPUs that the stated degrees leave over: the parallelism that the row names for them.
void give_leftover_ranks(Measurement& row, Notes& notes);

// All degrees state it where they are all there: some sources print the ranks that share an expert.
// A blank `cp` is what dp leaves over, as long as it may be.
void fill_data_parallel(Measurement& row, bool cp_may_fill, Notes& notes);

// The one degree that is blank is what the others leave over.
void fill_degrees(Measurement& row, Notes& notes);

}  // namespace orrery::studies
