// SPDX-License-Identifier: Apache-2.0
#include "plan/importer.hpp"

#include <fmt/format.h>

#include "base/error.hpp"
#include "base/text.hpp"

namespace orrery::plan {

const Importer& find_importer(std::string_view name) {
  std::vector<std::string> names;
  for (const Importer* importer : importer_table()) {
    if (importer->name == name) {
      return *importer;
    }
    names.emplace_back(importer->name);
  }
  bad_input("--from", fmt::format("unknown format \"{}\"", printable(name)),
            nearest_hint(name, names));
}

}  // namespace orrery::plan
