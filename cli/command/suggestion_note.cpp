// SPDX-License-Identifier: Apache-2.0
#include "cli/command/suggestion_note.hpp"

namespace orrery::cli {

Json note_suggestions(const plan::Plan& plan, const plan::Simulation& simulation,
                      const OutputOptions& output) {
  Json list = Json::array();
  std::vector<std::string> remarks;
  for (const plan::Suggestion& one : plan::suggestions(plan, simulation)) {
    remarks.push_back("orrery: " + plan::to_text(one, simulation));
    list.push(Json::Object{{"field", "execution." + one.field},
                           {"value", true},
                           {"waited_s", one.waited.value()},
                           {"iteration_time_s", one.iteration_time.value()}});
  }
  note_all(remarks, output);
  return list;
}

}  // namespace orrery::cli
