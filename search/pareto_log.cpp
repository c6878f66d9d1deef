// SPDX-License-Identifier: Apache-2.0
#include "search/pareto_log.hpp"

#include <cmath>

#include "base/bytes.hpp"
#include "base/json.hpp"

namespace orrery::search {
namespace {

constexpr std::size_t kRecordBytes = 49;  // of one without texts

void write_record(const ParetoStep& step, const std::string& plan, ByteWriter& out) {
  out.u8(step.divides ? 1 : 0);
  out.real(step.lower_bound.value());
  out.real(step.gap_fraction);
  out.u64(static_cast<std::uint64_t>(step.plans));
  out.u64(static_cast<std::uint64_t>(step.simulated));
  out.text(step.below);
  out.text(plan);
}

}  // namespace

ParetoLog::ParetoLog(std::string_view kind, const plan::Plan& base, const Options& options)
    : checkpoint_(options.checkpoint),
      interval_draws_(options.interval_draws),
      may_repeat_(options.space == SpaceKind::PerBlock) {
  if (checkpoint_.empty() && options.resume.empty()) {
    return;
  }
  const Space space(base, options.constraints);
  inputs_ = input_hashes(space, space.groups(), options);  // --space is among them
  inputs_.push_back({"--pareto", hash_of(kind)});
  if (!options.resume.empty()) {
    read(options.resume);
  }
  write();
}

void ParetoLog::read(const std::string& path) {
  std::string bytes;
  const Progress progress = read_checkpoint(path, inputs_, bytes);
  ByteReader in(bytes, path);
  if (progress != Progress::Pareto) {
    in.fail("holds no searches of a frontier");
  }
  records_.resize(in.count(kRecordBytes));
  for (Record& record : records_) {
    ParetoStep& step = record.step;
    step.divides = in.u8() != 0;
    step.lower_bound = Seconds(in.real());
    step.gap_fraction = in.real();
    step.plans = static_cast<std::int64_t>(in.u64());
    step.simulated = static_cast<std::int64_t>(in.u64());
    step.below = in.text();
    record.plan = in.text();
    if (!(step.lower_bound.value() >= 0) || !(step.gap_fraction >= 0) || step.gap_fraction > 1 ||
        step.plans < -1 || step.simulated < 0 || (!may_repeat_ && step.simulated > step.plans)) {
      in.fail("holds a search that cannot be");
    }
  }
  in.end();
}

void ParetoLog::write() const {
  if (checkpoint_.empty()) {
    return;
  }
  ByteWriter out;
  out.u64(records_.size());
  for (const Record& record : records_) {
    write_record(record.step, record.plan, out);
  }
  write_checkpoint(checkpoint_, inputs_, Progress::Pareto, out.bytes());
}

std::optional<ParetoStep> ParetoLog::next() {
  if (next_ == records_.size()) {
    return std::nullopt;
  }
  const Record& record = records_[next_++];
  ParetoStep step = record.step;
  if (!record.plan.empty()) {
    Found found{plan::read_plan(parse_json(record.plan, "checkpoint"), "checkpoint"), {}};
    found.simulation = plan::simulate(found.plan, {.interval_draws = interval_draws_});
    step.found = std::move(found);
  }
  return step;
}

void ParetoLog::add(const ParetoStep& step) {
  is_closed_ = is_closed_ || step.ended_early;
  if (checkpoint_.empty() || is_closed_) {
    return;
  }
  Record record{step, step.found ? plan::to_json(step.found->plan).dump(-1) : ""};
  record.step.found.reset();
  records_.push_back(std::move(record));
  next_ = records_.size();
  write();
}

}  // namespace orrery::search
