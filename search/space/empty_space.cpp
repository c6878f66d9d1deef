// SPDX-License-Identifier: Apache-2.0
#include "search/space/empty_space.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "base/math.hpp"
#include "plan/slices.hpp"
#include "plan/stage/plan_schedule.hpp"
#include "search/space/layout_fields.hpp"
#include "search/space/space.hpp"
#include "sim/orders/schedule_document.hpp"

namespace orrery::search {

namespace {

bool has_plan(const plan::Plan& base, const Constraints& constraints) {
  const Space space(base, constraints);
  const std::vector<Group> groups = space.groups();
  return std::any_of(groups.begin(), groups.end(),
                     [&](const Group& group) { return space.num_members(group) > 0; });
}

// Not where the fields that are left contradict themselves.
bool has_plan_without(const plan::Plan& base, const Constraints& constraints, std::size_t fixed) {
  try {
    return has_plan(base, constraints.without_fixed(fixed));
  } catch (const Error&) {
    return false;
  }
}

// Model chunks that a schedule is looked at with where none are fixed: the fewest it could take.
int usual_chunks(const ScheduleChoice& choice) {
  if (choice.document) {
    return sim::fewest_chunks(*choice.document);
  }
  return choice.traits.uses_chunks ? 2 : 1;
}

int usual_slices(const ScheduleChoice& choice, int stages) {
  if (choice.document) {
    const auto listed = sim::listed_sizes(*choice.document);
    return listed ? listed->slices : 1;
  }
  return choice.traits.uses_slices ? stages : 1;
}

// Those that the test holds for, if there are any.
template <typename Test>
void prefer(std::vector<Group>& groups, Test test) {
  if (std::any_of(groups.begin(), groups.end(), test)) {
    std::erase_if(groups, [&](const Group& group) { return !test(group); });
  }
}

// Of the groups those that lists are for, or as near to that as there are: in others nothing but
// their sizes would be blamed.
std::vector<Group> groups_for(const Space& space, const ScheduleChoice& choice) {
  std::vector<Group> groups = space.groups();
  if (const auto listed = choice.document ? sim::listed_sizes(*choice.document) : std::nullopt) {
    prefer(groups, [&](const Group& group) { return group.pp == listed->stages; });
    prefer(groups, [&](const Group& group) {
      return group.dp * group.micro_batch * listed->micro_batches == space.base().batch;
    });
  }
  return groups;
}

// What a schedule asks of a plan of a group; "" when it asks for nothing.
std::string schedule_reason(const Space& space, const Constraints& constraints,
                            const ScheduleChoice& choice, const Group& group) {
  plan::Plan plan = space.base();
  plan.schedule = choice.name;
  plan.schedule_document = choice.document;
  plan.pp = group.pp;
  plan.dp = group.dp;
  plan.micro_batch = group.micro_batch;
  plan.activation_cap = space.schedules().cap_of(group.pp);
  plan.chunks = static_cast<int>(constraints.fixed_number("chunks").value_or(usual_chunks(choice)));
  plan.slices =
      static_cast<int>(constraints.fixed_number("slices").value_or(usual_slices(choice, group.pp)));
  if (choice.cut != plan::ModuleCut::OneChain) {
    plan.stage_blocks = space.schedules().stages(plan.pp, std::max(plan.chunks, 2), choice, false);
    plan.chunks = std::max(plan.chunks, choice.traits.uses_chunks ? 2 : 1);
  }
  std::string problem = plan::schedule_problem(plan, "schedule");
  if (problem.empty() && choice.document && plan.sequence % plan.slices != 0) {
    return fmt::format(
        "the {} slices of its lists do not divide the {} tokens of a sequence: set --seq to a "
        "multiple of {}",
        plan.slices, plan.sequence, plan.slices);
  }
  const bool cuts_by_wish = choice.document || constraints.is_fixed("slices");
  if (problem.empty() && (plan.network.spec.encoder.layers > 0 || cuts_by_wish)) {
    problem = plan::slices_problem(plan);
  }
  return problem;
}

// What a schedule asks of the first plan it could be in; "" when it asks for nothing.
std::string schedule_reason(const Space& space, const Constraints& constraints,
                            const ScheduleChoice& choice) {
  for (const Group& group : groups_for(space, choice)) {
    std::string problem = schedule_reason(space, constraints, choice, group);
    if (!problem.empty()) {
      return problem;
    }
  }
  const bool needs_chunks = choice.document == nullptr && choice.traits.uses_chunks &&
                            !choice.registered->own_with_one_chunk;
  return needs_chunks && constraints.fixed_number("pp") == 1
             ? fmt::format("one stage has one chunk, and {} has several on a device", choice.name)
             : "";
}

// The same of the first of the named schedules that asks for something.
std::string schedule_reason(const plan::Plan& base, const Constraints& constraints) {
  const Space space(base, constraints);
  for (const ScheduleChoice& choice : space.schedules().choices()) {
    std::string problem = schedule_reason(space, constraints, choice);
    if (!problem.empty()) {
      return problem;
    }
  }
  return "";
}

// Names of the schedules that no plan has.
std::set<std::string> names_without_plans(const Space& space) {
  const std::vector<ScheduleChoice>& choices = space.schedules().choices();
  std::set<std::string> names;
  for (const ScheduleChoice& choice : choices) {
    names.insert(choice.name);
  }
  for (const Group& group : space.groups()) {
    for (const Family& family : space.families(group)) {
      for (const int schedule : family.schedules) {
        const std::string& name = choices[static_cast<std::size_t>(schedule)].name;
        if (names.contains(name) && space.num_members(group) > 0) {
          names.erase(name);
        }
      }
    }
    if (names.empty()) {
      break;
    }
  }
  return names;
}

// Whether a mesh of tensor ranks or a mix of context ranks is asked for by name.
bool fixes_mesh(const Constraints& constraints) {
  const auto fixes = [&](std::string_view field, std::string_view usual) {
    return constraints.is_fixed(field) && (usual.empty() || !constraints.admits(field, usual));
  };
  const bool mix = constraints.is_fixed("context") && constraints.admits("context", "mix");
  return mix || fixes("tensor_parallel", "1d") || fixes("tp_rows", "") || fixes("tp_depth", "") ||
         fixes("tp_inner", "") || fixes("ulysses_degree", "");
}

// What a fixed mesh or mix breaks wherever it could be, in the group of the largest micro-batch; ""
// when it is not that.
std::string mesh_reason(const plan::Plan& base, const Constraints& constraints) {
  std::string reason;
  std::int64_t micro_batch = 0;
  const Space space(base, constraints);
  for (const Group& group : fixes_mesh(constraints) ? space.groups() : std::vector<Group>()) {
    const std::string problem = space.mesh_problem(group);
    if (problem.empty() && !space.families(group).empty()) {
      return "";
    }
    if (!problem.empty() && group.micro_batch > micro_batch) {
      micro_batch = group.micro_batch;
      reason = problem;
    }
  }
  return reason;
}

// What a plan of the space without the fixed layout field or sharding degree breaks once it has it;
// "" where it is another field, or no such plan breaks anything.
std::string layout_reason(const plan::Plan& base, const Constraints& constraints,
                          std::size_t fixed) {
  const std::string text = constraints.fixed_texts()[fixed];
  const std::string field = text.substr(0, text.find('='));
  const auto degree = field == "shard_degree" ? constraints.fixed_number(field) : std::nullopt;
  if (!degree && !is_layout_field(field)) {
    return "";
  }
  const Constraints others = constraints.without_fixed(fixed);
  const Space space(base, others);
  for (const Group& group : space.groups()) {
    const std::vector<Member> members = space.members(group);
    if (members.empty()) {
      continue;
    }
    plan::Plan plan = base;
    space.configure(group, members.front(), plan);
    for (plan::BlockRun& run : plan.blocks) {
      constraints.apply(run.layout);
      run.layout.shard_degree = degree ? static_cast<int>(*degree) : run.layout.shard_degree;
    }
    try {
      plan::check_plan(plan, "");
    } catch (const Error& error) {
      return error.what();
    }
  }
  return "";
}

// What is forbidden of fields without which there are plans: "without --forbid dp=2, dp=4".
std::vector<std::string> forbidden_culprits(const plan::Plan& base,
                                            const Constraints& constraints) {
  std::vector<std::string> culprits;
  for (const std::string& field : constraints.forbidden_fields()) {
    if (has_plan(base, constraints.without_forbidden(field))) {
      culprits.push_back("without --forbid " + constraints.forbidden_text(field));
    }
  }
  return culprits;
}

std::string culprits_hint(const std::vector<std::string>& culprits) {
  return fmt::format("there are plans {}", fmt::join(culprits, ", or "));
}

// Of a field that groups differ in.
std::optional<std::int64_t> degree_of(const Group& group, std::string_view field) {
  const std::pair<std::string_view, std::int64_t> degrees[] = {
      {"tp", group.tp}, {"cp", group.cp}, {"ep", group.ep},
      {"pp", group.pp}, {"dp", group.dp}, {"micro_batch", group.micro_batch}};
  for (const auto& [name, degree] : degrees) {
    if (name == field) {
      return degree;
    }
  }
  return std::nullopt;
}

// What to do about a fixed field without which there are plans: "with tp=2 instead of tp=3", the
// nearest degree that has some and the smaller of two, or "without zero=3".
std::string relaxed(const plan::Plan& base, const Constraints& constraints, std::size_t fixed) {
  const std::string text = constraints.fixed_texts()[fixed];
  const std::string field = text.substr(0, text.find('='));
  const auto asked = degree_of({}, field) ? constraints.fixed_number(field) : std::nullopt;
  const Constraints others = constraints.without_fixed(fixed);
  const Space space(base, others);
  std::optional<std::int64_t> nearest;
  const auto distance = [&](std::int64_t degree) {
    return std::pair(std::abs(degree - *asked), degree);
  };
  for (const Group& group : asked ? space.groups() : std::vector<Group>()) {
    const auto degree = degree_of(group, field);
    const bool is_nearer = degree && (!nearest || distance(*degree) < distance(*nearest));
    if (is_nearer && space.num_members(group) > 0) {
      nearest = degree;
    }
  }
  return nearest ? fmt::format("with {}={} instead of {}", field, *nearest, text)
                 : "without " + text;
}

std::string several_hint(const Constraints& constraints) {
  return constraints.forbidden_fields().empty()
             ? "no single one of them is to blame: relax several"
             : "no single one of them is to blame: relax several, or --forbid";
}

// Nothing is fixed: what is forbidden is to blame, or the batch, which no number of replicas
// divides.
std::string free_hint(const plan::Plan& base, const Constraints& constraints) {
  if (has_plan(base, Constraints())) {
    const std::vector<std::string> culprits = forbidden_culprits(base, constraints);
    return culprits.empty() ? "relax --forbid" : culprits_hint(culprits);
  }
  std::set<std::int64_t> batches;  // that some number of replicas divides
  for (const std::int64_t replicas : divisors(base.cluster.num_gpus())) {
    batches.insert(round_up(base.batch, replicas));
  }
  for (const std::int64_t batch : batches) {
    plan::Plan other = base;
    other.batch = batch;
    if (has_plan(other, constraints)) {
      return fmt::format("there are plans for batch {}", batch);
    }
  }
  return "relax --forbid, or take another number of GPUs";
}

}  // namespace

std::vector<std::string> schedules_without_plans(const plan::Plan& base,
                                                 const Constraints& constraints) {
  std::vector<std::string> remarks;
  if (constraints.named_schedules().size() < 2 || !has_plan(base, constraints)) {
    return remarks;
  }
  const Space space(base, constraints);
  std::set<std::string> names = names_without_plans(space);
  for (const ScheduleChoice& choice : space.schedules().choices()) {
    if (names.erase(choice.name) == 0) {
      continue;
    }
    std::string reason;
    try {
      reason = schedule_reason(space, constraints, choice);
    } catch (const Error& error) {  // of a document that deadlocks
      reason = error.what();
    }
    remarks.push_back(reason.empty() ? choice.name : fmt::format("{}: {}", choice.name, reason));
  }
  return remarks;
}

void check_forbidden(const Constraints& constraints,
                     const std::function<bool(const Constraints&)>& has_plan,
                     const std::string& problem) {
  const std::vector<std::string> fields = constraints.forbidden_fields();
  if (fields.empty() || !has_plan(constraints.with_forbidden_alone(""))) {
    return;  // what is forbidden is not to blame
  }
  for (const std::string& field : fields) {
    if (!has_plan(constraints.with_forbidden_alone(field))) {
      bad_input("--forbid",
                fmt::format("{} leaves no value of {} for {}", constraints.forbidden_text(field),
                            field, problem),
                "leave out one of these values");
    }
  }
}

void explain_empty_space(const plan::Plan& base, const Constraints& constraints) {
  check_forbidden(
      constraints, [&](const Constraints& some) { return has_plan(base, some); },
      fmt::format("{}, the {} GPUs of {} and batch {}", base.network.spec.name,
                  base.cluster.num_gpus(), base.cluster.name, base.batch));
  const std::vector<std::string> fixed = constraints.fixed_texts();
  if (fixed.empty()) {
    bad_input(
        "search",
        fmt::format("no plan divides {}, the {} GPUs of {} and batch {} as asked",
                    base.network.spec.name, base.cluster.num_gpus(), base.cluster.name, base.batch),
        free_hint(base, constraints));
  }
  std::vector<std::string> culprits;
  std::vector<std::size_t> to_blame;
  for (std::size_t index = 0; index < fixed.size(); ++index) {
    if (has_plan_without(base, constraints, index)) {
      culprits.push_back(relaxed(base, constraints, index));
      to_blame.push_back(index);
    }
  }
  const std::vector<std::string> forbidden = forbidden_culprits(base, constraints);
  culprits.insert(culprits.end(), forbidden.begin(), forbidden.end());
  std::string reason;
  if (!constraints.named_schedules().empty()) {
    reason = schedule_reason(base, constraints);
  }
  if (reason.empty()) {
    reason = mesh_reason(base, constraints);
  }
  for (std::size_t at = 0; at < to_blame.size() && reason.empty(); ++at) {
    reason = layout_reason(base, constraints, to_blame[at]);
  }
  if (!reason.empty()) {
    bad_input("search",
              fmt::format("no plan for batch {} on {} has {}: {}", base.batch, base.cluster.name,
                          fmt::join(fixed, ", "), reason),
              culprits.empty() ? std::string() : culprits_hint(culprits));
  }
  const std::string hint = culprits.empty() ? several_hint(constraints) : culprits_hint(culprits);
  bad_input("search",
            fmt::format("no plan for batch {} on {} has {}", base.batch, base.cluster.name,
                        fmt::join(fixed, ", ")),
            hint);
}

}  // namespace orrery::search
