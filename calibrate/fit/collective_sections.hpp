// SPDX-License-Identifier: Apache-2.0
// Which factors of a profile a log of collectives speaks of, and what a fit asks of it.
#pragma once

#include <array>
#include <string_view>
#include <vector>

#include "calibrate/fit/collective_logs.hpp"
#include "calibrate/fit/kriging.hpp"
#include "costmodel/profile.hpp"

namespace orrery::calibrate {

// Kinds of fabric whose corrections are one set; the residuals tell them apart.
enum class Section { Node, Verbs, Sharp, Efa, Tcp, Slingshot };
inline constexpr std::array<Section, 6> kSections = {
    Section::Node, Section::Verbs, Section::Sharp, Section::Efa, Section::Tcp, Section::Slingshot};

Section section_of(costmodel::FabricClass fabric);
// Of a profile's document; "" for those among "collectives".
std::string_view to_text(Section section);
// Added where the profile has none of its own.
costmodel::CollectiveParameters& parameters_of(costmodel::Profile& profile, Section section);
// As many digits as a profile shows.
costmodel::CollectiveParameters rounded(const costmodel::CollectiveParameters& exact);

// One GPU a node sends and receives through one adapter and reaches less of it: those logs have
// their say in the residuals, and in the factors only where there are no others.
std::vector<const CollectiveLog*> logs_of_factors(const std::vector<const CollectiveLog*>& logs,
                                                  Section section);

// How many of these it takes: a single log of a kind of network that profiles need not have factors
// of tells its cloud from other networks, not that kind, whose factors stay those of verbs.
std::size_t fewest_logs(Section section);

// Without size and value.
ResidualPoint point_of(const CollectiveLog& log);

}  // namespace orrery::calibrate
