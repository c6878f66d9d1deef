// SPDX-License-Identifier: Apache-2.0
// Ctrl-C as a flag that long loops poll.
#pragma once

namespace orrery {

void install_interrupt_handler();  // SIGINT and SIGTERM set the flag; a second one ends the process
bool interrupted();

}  // namespace orrery
