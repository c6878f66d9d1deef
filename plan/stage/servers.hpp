// SPDX-License-Identifier: Apache-2.0
// Parameter servers in plans (`hetpipe`, `zou-ps-ring`): processes on the hosts of the first
// `servers` nodes (default: of all), which hold equal shards of every tensor. Gradients go there
// and parameters come back instead of being reduced over data ranks; a rank moves its gradients and
// its parameters once each. They take the slowest of: the NICs of the workers' nodes and of the
// servers' (what stays in a node does not count), the links of the GPUs to their hosts, and the
// hosts' memory, where gradients are read and added (three times their bytes) and parameters read.
// Workers are alike, so that one pipeline stands for all (hetpipe), or a few for many
// (zou-ps-ring).
#pragma once

#include <string>
#include <vector>

#include "plan/stage/stage.hpp"
#include "sim/schedule.hpp"

namespace orrery::plan {

// Server processes, one a node.
int num_servers(const Plan& plan);
// "" when the plan's fields suit its schedule, else the smallest change.
std::string servers_problem(const Plan& plan);

// What the schedule is told: workers and servers that are simulated, and the clock distance.
void tell_servers(const Plan& plan, sim::ScheduleParams& params);
// The clock of the other workers, which are as fast: a wave begins when its own push of the wave
// that it must know has ended.
void wait_for_clock(const Plan& plan, sim::PipelineOrder& order);
// Adds the contents of the other simulated workers, and empty ones for the services.
void add_services(const Plan& plan, std::vector<StageContent>& stages);

// One pass of a service: all gradients and parameters of a wave, or one worker's visit at a server.
SimTime service_time(const Plan& plan, const std::vector<StageCost>& stages,
                     const BlockCosts& costs);
// Updates between the parameters that a minibatch uses and its own, with the waves of others.
int global_staleness(const Plan& plan, int of_worker);

}  // namespace orrery::plan
