// SPDX-License-Identifier: Apache-2.0
// Network and cluster as a plan holds them: whole documents, and beside them the record of what
// --set changed in them. The record decides nothing, so one that says something else than its
// document is refused: an edit of it would otherwise be silently without effect.
#pragma once

#include "base/json_reader.hpp"
#include "models/network.hpp"
#include "topologies/cluster.hpp"

namespace orrery::plan {

// Errors name the place in the document, also where the record and the document differ.
models::Network read_embedded_network(const JsonReader& value);
topologies::Cluster read_embedded_cluster(const JsonReader& value);

}  // namespace orrery::plan
