// SPDX-License-Identifier: Apache-2.0
// What frameworks keep in memory, where it is not Megatron-LM's way.
#pragma once

#include "plan/block/memory_facts.hpp"

namespace orrery::studies {

plan::MemoryFacts intern_evo_memory();
plan::MemoryFacts torchtitan_memory();
plan::MemoryFacts deepspeed_memory();
plan::MemoryFacts nanotron_memory();

}  // namespace orrery::studies
