// SPDX-License-Identifier: Apache-2.0
// Which operators of a layer the words of a row say are recomputed. Linear in the length of the
// text.
#pragma once

#include <string>
#include <string_view>

namespace orrery::studies {

// Of modules and policies in lower case, as plans spell them ("norms+attention-core"); empty where
// the text names none or denies it ("no layernorm").
std::string recomputed_operators(std::string_view text);

// Of a layer that recomputes all but some of them ("except attention", "attention outputs kept")
// the others; empty where the text names none.
std::string operators_but_kept(std::string_view text);

}  // namespace orrery::studies
