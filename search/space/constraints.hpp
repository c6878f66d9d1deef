// SPDX-License-Identifier: Apache-2.0
// --fix, --forbid and --allow: which values of a plan's fields the search may use. Fields are the
// degrees and choices of a homogeneous plan (tp, cp, ep, pp, dp, chunks, micro_batch, zero,
// recompute, sequence_parallel, schedule, context, stages, expert_tp, shard_degree, offload_* and
// those of search/space/layout_fields.hpp) and the flags of plan::Execution. A schedule is a name
// or a document (FILE.json).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "plan/plan.hpp"
#include "sim/orders/schedule_document.hpp"

namespace orrery::search {

// One thing that was asked for, and where: "fix", "tp=8", "mine.json: /fix/0".
struct Restriction {
  std::string kind;
  std::string text;
  std::string from;
  std::string file = {};  // that holds it; "" of the command line
};

class Constraints {
 public:
  // "tp=8,pp=4": every value is checked for its field; unknown names suggest the nearest. Usual
  // other names (sp, vpp, mbs, hsdp, zero_stage) are understood. `from` is where it stands: an
  // option, or a place in a file (search/space/restrictions.hpp); errors name it.
  void fix(std::string_view text, std::string_view from = "--fix");
  void forbid(std::string_view text, std::string_view from = "--forbid");
  // Choices that are off by default: "asynchronous" and "lossy" change the training result (stale
  // parameters, traffic in fewer bits), "offload" lets activations and optimizer leave the device,
  // "operators" tries recomputation of chosen operators, "meshes" tensor-parallel meshes of two and
  // three axes and the mix of contexts.
  void allow(std::string_view text, std::string_view from = "--allow");
  static std::vector<std::string> choice_names();

  bool admits(std::string_view field, std::string_view value) const;
  bool admits(std::string_view field, std::int64_t value) const;
  bool is_fixed(std::string_view field) const;
  // --schedule: names or documents (FILE.json), of which a plan has one; may be repeated.
  void choose_schedule(std::string_view text, std::string_view from = "--schedule");
  // Those that were asked for by name, and the documents among them.
  std::vector<std::string> named_schedules() const;
  const std::vector<std::shared_ptr<const sim::ScheduleDocument>>& documents() const {
    return documents_;
  }
  // Error when what changes training is asked for but not allowed: an asynchronous schedule, a
  // delayed update, traffic in fewer bits than products at this precision read.
  void check_allowed(DType precision) const;

  // "tp=8", ... as fixed; and the same constraints without the i-th of them.
  std::vector<std::string> fixed_texts() const;
  Constraints without_fixed(std::size_t index) const;
  // Fields of --forbid, each once; what is forbidden of one ("zero=0, zero=1"); the same
  // constraints without that, and with nothing but that.
  std::vector<std::string> forbidden_fields() const;
  std::string forbidden_text(std::string_view field) const;
  Constraints without_forbidden(std::string_view field) const;
  Constraints with_forbidden_alone(std::string_view field) const;
  // All that was asked for, in its order; what was asked for several times where it stood first.
  const std::vector<Restriction>& restrictions() const { return restrictions_; }
  // Says that the restrictions from the `first`-th on are of this file.
  void set_file(std::size_t first, const std::string& file);
  // Error naming what no plan of any network has at once.
  void check_contradictions() const;
  // The value a number was fixed to.
  std::optional<std::int64_t> fixed_number(std::string_view field) const;
  bool asynchronous() const { return asynchronous_; }
  // Asynchronous schedules are searched apart, never against synchronous ones: when allowed, and
  // either nothing else is asked for by name or these are the constraints of that search.
  bool searches_asynchronous() const;
  Constraints asynchronous_alone() const;
  // Whether plans are left out that asynchronous schedules make synchronous ones: in their search
  // beside another one a single stage, unless it is asked for.
  bool leaves_out_single_stages() const;
  bool allows_offload() const { return offload_; }
  bool allows_operators() const { return operators_; }
  bool allows_meshes() const { return meshes_; }
  bool allows_lossy() const { return lossy_; }
  bool delays_update() const {
    return is_fixed("delayed_update") && !admits("delayed_update", "false");
  }
  // The execution flags that were fixed.
  void apply(plan::Execution& execution) const;
  // The fixed fields of search/space/layout_fields.hpp, the recomputation and expert_tp.
  void apply(plan::BlockPlan& layout) const;
  // Where tensors live in every plan of the space.
  plan::Offload offload() const;

 private:
  struct Entry {
    std::string field;
    std::string value;
    std::string from;
  };
  struct Choice {
    std::string_view name;
    bool Constraints::*allowed;
  };
  static std::span<const Choice> choices();
  std::vector<Entry> parse(std::string_view text, std::string_view from);
  void note(std::string_view kind, const std::string& text, std::string_view from);
  [[noreturn]] void refuse_both(const Entry& fixed) const;
  bool is_asynchronous(const std::string& schedule) const;
  void check_sharding() const;
  // The name of a registered schedule or of a document, which is read and kept.
  std::string schedule_name(std::string_view text, std::string_view where);

  std::vector<Entry> fixed_;
  std::vector<Entry> forbidden_;
  std::vector<std::string> chosen_;  // schedules
  std::vector<std::string> chosen_from_;
  std::vector<Restriction> restrictions_;
  std::vector<std::shared_ptr<const sim::ScheduleDocument>> documents_;
  bool asynchronous_ = false;
  bool asynchronous_alone_ = false;
  bool offload_ = false;
  bool operators_ = false;
  bool meshes_ = false;
  bool lossy_ = false;
};

}  // namespace orrery::search
