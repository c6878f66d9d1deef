// SPDX-License-Identifier: Apache-2.0
// What attention's ranks over sequences exchange, in the words of a row: keys and values around a
// ring, heads for sequences, or heads among some of them. Linear in the length of the cells.
#pragma once

#include "studies/rows/measurement.hpp"
#include "studies/rows/table_cells.hpp"

namespace orrery::studies {

// The column `cp`, a number or words ("Ulysses 8 x ring 4").
void read_context_ranks(const Cells& cells, Measurement& row);

// The column `sequence_parallel`; what it states of ranks over sequences goes into `cp`, which is
// read before.
void read_sequence_parallel(const Cells& cells, Measurement& row);

// Whether context ranks exchange heads for sequences, as Ulysses does, in place of a ring.
bool exchanges_heads(const Measurement& row);

// How many of the context ranks do so where rings join such groups ("Ulysses 8 x ring 4"); 0: all
// of them or none.
int ranks_of_heads(const Measurement& row);

}  // namespace orrery::studies
