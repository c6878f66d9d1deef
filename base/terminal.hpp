// SPDX-License-Identifier: Apache-2.0
// What shows a stream: a terminal that knows escape codes, and its width.
#pragma once

namespace orrery {

// A terminal at this descriptor that TERM does not call dumb.
bool knows_escape_codes(int descriptor);
// Columns of the terminal at this descriptor now; 80 when it does not say.
int terminal_columns(int descriptor);

}  // namespace orrery
