// SPDX-License-Identifier: Apache-2.0
// Words of remarks on overlap that name no kind of communication: denials, "yes", "comm overlap
// off". All texts are in lower case. Linear in the length of the text.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace orrery::studies {

// Clauses end at semicolons, sentences, flags ("--a --b"), commas outside of brackets, and with one
// of several values.
std::vector<std::string_view> overlap_clauses(std::string_view text);
std::vector<std::string_view> overlap_clauses(std::string&& text) = delete;  // views would dangle

// "TP AG/RS overlap via TE UB (bulk)": without how it is done.
std::string_view without_means(std::string_view clause);

// A clause in the form of settings, with the field's short names: "DP all-reduce" as "dp ar".
std::string with_short_collectives(std::string_view clause);

// Whether a clause says that what it names is not hidden, or that it is.
bool denies_overlap(std::string_view clause);
bool says_hidden(std::string_view clause);

// "all communication overlapped", "comm overlap: off", "Y": every kind that is modelled; no value
// for clauses that name one kind.
std::optional<bool> overlap_of_everything(std::string_view clause);

// Where a cell as a whole says that nothing runs beside anything.
bool overlaps_nothing(std::string_view cell);

// Whether a clause has no other words than those for overlap, for all of it and for yes or no.
bool says_overlap_alone(std::string_view clause);

}  // namespace orrery::studies
