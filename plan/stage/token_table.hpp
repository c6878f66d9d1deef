// SPDX-License-Identifier: Apache-2.0
// The token table that blocks share: the embedding's, of which a tied head and the first layer of a
// decoder with an embedding of its own (T5) are uses. A device holds it once, whatever its virtual
// stages use it for; where several devices hold it they add up its gradients after the last
// backward.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/stage/stage.hpp"

namespace orrery::plan {

// Whether the block reads the table of another one.
bool uses_table(const models::Block& block);

// Whether it does, or is the embedding that has it.
bool holds_table(const models::Block& block);

// Whether one that is no head does: the first of a decoder, wherever the cut puts it.
bool layers_use_table(const models::Network& network);

// `stage` is an index into stage_contents(); without devices of the stages they are in turn.
int device_of_stage(const Plan& plan, const std::vector<std::uint16_t>& device_of,
                    std::size_t stage);

// Of every device one piece counts the table: the embedding, or else its first use. Tells the
// others, unless they cut the table in another way and so hold a copy of their own.
void share_table(const Plan& plan, const std::vector<std::uint16_t>& device_of,
                 std::vector<StageContent>& stages);

// The devices that add up the gradients of a whole table, the first ones of both copies of the
// model where there are two: what mirror images have in common the sum of the copies carries. Under
// two: nothing is added. Next to shards of the table on all devices a whole one is of all of them.
std::vector<int> devices_with_table(const Plan& plan, const std::vector<std::uint16_t>& device_of,
                                    const std::vector<StageContent>& stages);

// Gradients of a table are complete where the last of its uses on the device is: by stage.
void wait_for_uses(const Plan& plan, const std::vector<std::uint16_t>& device_of,
                   const std::vector<StageContent>& stages, std::vector<SimTime>& complete);

// Whether devices may have to add up gradients of the table, however the chain is cut.
bool may_sum_tables(const Plan& plan, const std::vector<std::uint16_t>& device_of);

// The ranks of one place on each of several devices, which begin a node.
costmodel::GroupShape group_over(const Plan& plan, const std::vector<int>& devices);

// What a rank adds up: shards where gradients are sharded (ZeRO-2 and 3), of holders that cut the
// table in unlike ways the largest part.
Bytes tied_gradients(const Plan& plan, BlockCosts& costs);

// The sum itself.
Seconds tied_embedding_time(const Plan& plan, const std::vector<int>& devices, BlockCosts& costs);

}  // namespace orrery::plan
