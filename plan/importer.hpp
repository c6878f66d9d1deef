// SPDX-License-Identifier: Apache-2.0
// Plans from somebody's launch script or configuration, parsed and never executed: one file a
// format in plan/importers/, each one constant `importer_<file name>`.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "plan/plan.hpp"

namespace orrery::plan {

struct Importer {
  std::string_view name;  // "megatron"
  std::string_view description;
  Plan (*parse)(std::string_view text, const std::string& where, const topologies::Cluster& cluster,
                const models::Network* network);
  // How many processes the file starts, where its format can say so (launched_ranks.hpp).
  std::optional<std::int64_t> (*launched_ranks)(std::string_view text,
                                                const std::string& where) = nullptr;

  // `text` is the content of the file called `where`. The cluster comes from the command line,
  // since scripts rarely state it. A network given wins over the file's own, which must agree with
  // it; Error when the format needs one and none is given.
  Plan read(std::string_view text, const std::string& where, const topologies::Cluster& cluster,
            const models::Network* network = nullptr) const {
    return parse(text, where, cluster, network);
  }
};

std::span<const Importer* const> importer_table();  // generated
// Error with the nearest name where none is called so.
const Importer& find_importer(std::string_view name);

}  // namespace orrery::plan
