// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "base/error.hpp"
#include "sim/pipeline/list_name.hpp"
#include "sim/pipeline/pass_inputs.hpp"
#include "traces/adapters.hpp"

namespace orrery::traces {
namespace {

using sim::Lane;
using sim::Pass;
using sim::PassKind;
using sim::PassSpan;
using sim::Role;

const char* letters(PassKind kind) {
  switch (kind) {
    case PassKind::Forward:
      return "F";
    case PassKind::WeightGrad:
      return "W";
    case PassKind::Recompute:
      return "R";
    case PassKind::Optimizer:
      return "U";
    default:
      return "B";
  }
}

// What runs beside the stages has names of its own: shards of the output and input layer as in
// docs/schedules.md, frozen layers and services as in pictures.
std::string letters(PassKind kind, Role role) {
  switch (role) {
    case Role::Output:
      return kind == PassKind::Forward ? "S" : "T";
    case Role::Input:
      return std::string("I") + letters(kind);
    case Role::Frozen:
      return std::string("X") + letters(kind);
    case Role::Service:
      return std::string("V") + letters(kind);
    case Role::Layers:
      break;
  }
  return letters(kind);
}

bool hands_on_gradient(PassKind kind) {
  return kind == PassKind::Backward || kind == PassKind::InputGrad;
}

class PipelineTrace {
 public:
  PipelineTrace(const sim::PipelineOrder& order, const sim::PipelineResult& result,
                const PipelineTraceOptions& options)
      : order_(order), inputs_(order), result_(result), options_(options) {}

  Trace build() {
    for (std::size_t device = 0; device < result_.spans.size(); ++device) {
      const std::uint32_t process =
          trace_.add_process(fmt::format("{} {}", sim::list_name(order_, device), device));
      const std::uint32_t track = trace_.add_track(process, "compute");
      for (const PassSpan& span : result_.spans[device]) {
        add_span(track, span);
      }
    }
    for (std::size_t device = 0; device < result_.spans.size(); ++device) {
      for (const PassSpan& span : result_.spans[device]) {
        add_arrow(span.pass);
      }
    }
    if (options_.costs != nullptr && !options_.costs->activation.empty()) {
      add_counters();
    }
    return std::move(trace_);
  }

 private:
  struct Key {
    Lane lane;
    int virtual_stage;
    std::uint32_t micro_batch;
    auto operator<=>(const Key&) const = default;
  };

  SimTime time_of(SimTime time) const { return SimTime{time.ps / options_.time_divisor}; }

  bool sliced() const { return order_.slices > 1; }
  int micro_batch_of(const Pass& pass) const { return inputs_.number_of(pass) / order_.slices; }
  int slice_of(const Pass& pass) const { return inputs_.number_of(pass) % order_.slices; }

  // "F3"; "F3.1" is a slice of it.
  std::string pass_name(const Pass& pass) const {
    const std::string name =
        letters(pass.kind, inputs_.role(pass.virtual_stage)) + std::to_string(micro_batch_of(pass));
    return sliced() ? fmt::format("{}.{}", name, slice_of(pass)) : name;
  }

  std::string travelling(const Pass& pass) const {
    const std::string micro_batch = fmt::format("micro-batch {}", micro_batch_of(pass));
    return sliced() ? fmt::format("slice {} of {}", slice_of(pass), micro_batch) : micro_batch;
  }

  int chunk_of(const Pass& pass) const {
    int chunk = 0;
    const bool copies = sim::has_copies(order_);  // of one chunk
    for (int stage = 0; !copies && stage < pass.virtual_stage; ++stage) {
      const auto device = order_.device_of[static_cast<std::size_t>(stage)];
      chunk += device == order_.device_of[pass.virtual_stage] ? 1 : 0;
    }
    return chunk;
  }

  void add_span(std::uint32_t track, const PassSpan& span) {
    const Pass& pass = span.pass;
    spans_[{sim::lane_of(pass.kind), pass.virtual_stage, pass.micro_batch}] =
        static_cast<std::uint32_t>(trace_.spans.size());
    trace_.spans.push_back({.track = track,
                            .start = time_of(span.start),
                            .end = time_of(span.end),
                            .name = pass_name(pass),
                            .category = std::string(to_text(pass.kind)),
                            .args = {{"micro_batch", micro_batch_of(pass)},
                                     {"virtual_stage", std::int64_t{pass.virtual_stage}},
                                     {"chunk", chunk_of(pass)}}});
    if (sliced()) {
      trace_.spans.back().args.emplace_back("slice", slice_of(pass));
    }
  }

  void add_arrow(const Pass& pass) {
    const bool forward = pass.kind == PassKind::Forward;
    if (!forward && !hands_on_gradient(pass.kind)) {
      return;
    }
    if (forward ? inputs_.is_last(pass.virtual_stage) : inputs_.is_first(pass.virtual_stage)) {
      return;
    }
    const int next = pass.virtual_stage + (forward ? 1 : -1);
    const auto to = spans_.find({sim::lane_of(pass.kind), next, pass.micro_batch});
    if (to == spans_.end() ||
        order_.device_of[static_cast<std::size_t>(next)] == order_.device_of[pass.virtual_stage]) {
      return;
    }
    trace_.arrows.push_back(
        {spans_.at({sim::lane_of(pass.kind), pass.virtual_stage, pass.micro_batch}), to->second,
         fmt::format("{} of {}", forward ? "activations" : "gradients", travelling(pass))});
  }

  using Changes = std::map<SimTime, std::int64_t>;  // of the bytes that a device keeps

  std::int64_t bytes_of(int virtual_stage) const {
    return options_.costs->activation[static_cast<std::size_t>(virtual_stage)].value();
  }

  // Activations live from the start of the forward, or of the pass that repeats it, to the end of
  // the last gradient pass.
  void add_by_rule(const std::vector<bool>& held, std::vector<Changes>& changes) const {
    std::map<std::pair<int, std::uint32_t>, std::pair<std::size_t, SimTime>> ends;  // on a device
    for (const auto& [key, index] : spans_) {
      const Span& span = trace_.spans[index];
      const std::size_t device = trace_.tracks[span.track].process;
      const auto stage = static_cast<std::size_t>(key.virtual_stage);
      const auto has = [&](Lane lane) {
        return spans_.contains({lane, key.virtual_stage, key.micro_batch});
      };
      if (held[stage] || key.lane == Lane::Optimizer || !has(Lane::Gradient)) {
        continue;
      }
      if (key.lane == Lane::Gradient || key.lane == Lane::WeightGrad) {
        auto& [on, end] = ends[{key.virtual_stage, key.micro_batch}];
        on = device;
        end = std::max(end, span.end);
      } else if ((key.lane == Lane::Recompute) == has(Lane::Recompute)) {
        changes[device][span.start] += bytes_of(key.virtual_stage);
      }
    }
    for (const auto& [unit, last] : ends) {
      changes[last.first][last.second] -= bytes_of(unit.first);
    }
  }

  void add_hold(const sim::Hold& hold, Changes& changes) const {
    for (auto from = spans_.lower_bound({hold.from_lane, hold.from, 0});
         from != spans_.end() && from->first.lane == hold.from_lane &&
         from->first.virtual_stage == hold.from;
         ++from) {
      const std::uint32_t to = spans_.at({hold.to_lane, hold.to, from->first.micro_batch});
      changes[trace_.spans[from->second].start] += bytes_of(hold.of);
      changes[trace_.spans[to].end] -= bytes_of(hold.of);
    }
  }

  void add_counters() {
    std::vector<bool> held(static_cast<std::size_t>(order_.num_virtual_stages));
    std::vector<Changes> changes(trace_.processes.size());
    for (const sim::Hold& hold : order_.holds) {
      held[hold.of] = true;
      add_hold(hold, changes[hold.device]);
    }
    add_by_rule(held, changes);
    for (std::size_t device = 0; device < changes.size(); ++device) {
      const double resident =
          device < options_.resident.size() ? options_.resident[device].bytes().value() : 0.0;
      std::int64_t live = 0;
      for (const auto& [at, change] : changes[device]) {
        live += change;
        trace_.counters.push_back(
            {static_cast<std::uint32_t>(device),
             at,
             "memory",
             {{"resident", resident}, {"activations", static_cast<double>(live)}}});
      }
    }
  }

  const sim::PipelineOrder& order_;
  sim::PassInputs inputs_;
  const sim::PipelineResult& result_;
  const PipelineTraceOptions& options_;
  std::map<Key, std::uint32_t> spans_;
  Trace trace_;
};

}  // namespace

Trace trace_of(const sim::PipelineOrder& order, const sim::PipelineResult& result,
               const PipelineTraceOptions& options) {
  ORRERY_CHECK(result.spans.size() == order.passes.size(), "evaluate with record_spans");
  return PipelineTrace(order, result, options).build();
}

}  // namespace orrery::traces
