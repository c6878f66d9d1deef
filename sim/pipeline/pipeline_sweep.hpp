// SPDX-License-Identifier: Apache-2.0
// The dependency-order sweep behind evaluate_pipeline: every device runs its list in order; a pass
// that misses an input makes the producing device run up to it. All state is in flat arrays.
// A "lane" is the series of passes of one virtual stage in one direction
// (sim/pipeline/pass_inputs.hpp); a "pass class" is a kind of pass on one virtual stage
// (sim/pipeline/pass_classes.hpp). Plain orders take a path of their own. Times in picoseconds.
// Deterministic; O(passes run), each pass once.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "sim/pipeline/pass_classes.hpp"
#include "sim/pipeline/pass_inputs.hpp"
#include "sim/pipeline/pipeline.hpp"
#include "sim/pipeline/pipeline_meeting.hpp"

namespace orrery::sim::detail {

// Where idle time is booked.
enum class Phase : std::uint8_t { WarmUp, Steady, CoolDown };

struct DeviceState {
  const Pass* list = nullptr;
  std::size_t length = 0;
  std::size_t position = 0;
  std::int64_t free = 0;
  std::int64_t first_start = 0;
  std::int64_t busy = 0;
  std::int64_t hidden = 0;
  std::array<std::int64_t, 3> idle{};  // by Phase
  std::int64_t waiting = 0;
  std::int64_t live_bytes = 0;
  std::int64_t peak_bytes = 0;
  std::int64_t live_chunks = 0;
  std::int64_t peak_chunks = 0;
  std::int64_t forwards_left = 0;
  std::int64_t idle_left = 0;  // of a run within bounds
  Phase phase = Phase::WarmUp;
  bool demanded = false;  // on the stack of run_to
  // Of the next block: passes whose inputs are all there, sources of the pass after them that are.
  std::size_t passes_ready = 0;
  std::uint32_t sources_done = 0;
};

class PipelineSweep {
 public:
  PipelineSweep(const PipelineOrder& order, const PipelineCosts& costs, bool in_order,
                bool record_spans);

  // Runs one device up to list position `goal`, and of the others exactly the passes this needs.
  // False when a lane turns out not to run its micro-batches in ascending order although the
  // object was made with in_order: the state is then unusable.
  bool run_to(std::size_t device, std::size_t goal);
  bool run_to_end();
  // When the lists end, without booking anything else; nothing once a device has idled, counted
  // from time 0 on, for its `idle_within` or longer. Of plain sweeps not in order, without times
  // added to first and last passes.
  std::optional<SimTime> makespan_within(const std::vector<std::int64_t>& idle_within);
  // One chain, no edges, one duration per kind and virtual stage.
  bool is_plain() const { return inputs_ == nullptr; }
  // Whether a pass does the same for every unit, so that a steady state can be skipped.
  bool can_skip() const { return is_plain() || !readers_.empty(); }

  // Skips `windows` windows of a steady state. In each, every device runs `periods` periods of its
  // list, every lane that runs at all advances by `micro_batches`, and the times of device d grow
  // by shift[d]. Only for sweeps in order; run_phase knows the conditions.
  struct Skip {
    std::int64_t windows;
    std::int64_t periods;
    std::uint32_t micro_batches;
    std::vector<std::int64_t> shift;
    std::vector<std::int64_t> waiting;  // per device: added in one window
    std::vector<std::size_t> period;    // per device: passes
  };
  void skip(const Skip& skip);

  std::size_t num_devices() const { return devices_.size(); }
  std::size_t num_lanes() const { return done_.size(); }
  const DeviceState& device(std::size_t d) const { return devices_[d]; }
  const PassClass& pass_class(const Pass& pass) const {
    return classes_[static_cast<std::size_t>(pass.kind) * num_stages_ + pass.virtual_stage];
  }
  // Of a plain sweep: the lane that reads the ends of another one.
  std::int32_t consumer_of(std::size_t lane) const { return consumer_[lane]; }
  // Whether one of the given lanes reads the ends of a lane; all units from which on somebody does.
  bool is_read_by(std::size_t lane, const std::vector<bool>& lanes) const;
  std::uint32_t first_unread(std::size_t lane) const;
  std::size_t device_of_lane(std::size_t lane) const { return lane_device_[lane]; }
  std::int64_t latency_of(std::size_t lane) const { return lane_latency_[lane]; }
  std::uint32_t done(std::size_t lane) const { return done_[lane]; }
  std::int64_t end_of(std::size_t lane, std::uint32_t j) const { return end_[lane * stride_ + j]; }

  // One more than the last micro-batch of the lane whose pass had to wait for its input.
  std::uint32_t waited_until(std::size_t lane) const { return waited_until_[lane]; }

  PipelineResult result();

 private:
  struct Reader {
    std::uint32_t lane;
    std::int32_t shift;  // its unit j reads unit j - shift
  };
  struct Demand {
    std::uint32_t device;
    std::int32_t lane;
    std::uint32_t micro_batch;
  };
  bool is_done(std::int32_t lane, std::uint32_t j) const {
    const auto l = static_cast<std::size_t>(lane);
    return in_order_ ? done_[l] > j : end_[l * stride_ + j] != kNotDone;
  }
  void fill_classes(const PipelineOrder& order, const PipelineCosts& costs);
  // Who reads the ends of the forward and gradient passes of virtual stage `s`, and how much later.
  void join_lanes(bool first, bool last, std::size_t s, const PipelineCosts& costs);
  bool run_times(std::size_t device);
  bool execute(DeviceState& device, const PassClass& pass_class, const Pass& pass);
  // After `earlier` more passes of its lane than have been booked.
  std::int64_t duration_of(const PassClass& pass_class, const Pass& pass,
                           std::uint32_t earlier = 0) const;
  // Books one pass that runs from start to end; its result leaves at `leaves`.
  void book(DeviceState& device, const PassClass& pass_class, const Pass& pass, std::int64_t start,
            std::int64_t end, std::int64_t leaves);
  void book_wait(DeviceState& device, const PassClass& pass_class, const Pass& pass,
                 std::int64_t start, std::int64_t input_end);

  // The same for any order (pipeline_sweep_extended.cpp).
  bool run_extended_to(std::size_t device, std::size_t goal);
  bool has_missing_input(DeviceState& device, const Pass& pass, Demand& missing);
  // The passes at the device's position that start together; false where they are not the next
  // units of their lanes but have to be.
  bool execute_block(DeviceState& device);
  // Puts the start off until the inputs of a pass are there, the end being that of the last one.
  void wait_for_inputs(const Pass& pass, Meetings::Arrival& start);
  void book_block(DeviceState& device, std::size_t length, std::int64_t start);
  std::int64_t unit_duration(const PassClass& pass_class, const Pass& pass,
                             std::uint32_t earlier = 0) const;
  std::int64_t latency_of(const PassClass& pass_class, const Pass& pass) const;
  // Of the pass at a position of a list, in one block with the one before it.
  std::int64_t hidden_in(const DeviceState& device, std::size_t position) const;
  void find_readers(const PipelineOrder& order);
  void count_holds();  // peaks of orders that say where activations are held
  std::size_t block_length(const DeviceState& device) const;

  static constexpr std::int64_t kNotDone = -1;
  const PipelineCosts& costs_;
  std::unique_ptr<PassInputs> inputs_;  // of orders that are not plain
  std::size_t num_stages_;
  std::size_t lanes_;  // kinds of lane in use
  std::size_t stride_;
  std::uint32_t micro_batches_;
  bool in_order_;
  bool record_spans_;
  std::vector<PassClass> classes_;  // by kind and virtual stage
  std::vector<std::int32_t> consumer_;
  std::vector<std::uint32_t> reader_begin_;  // by lane; of orders that are not plain
  std::vector<Reader> readers_;
  std::unique_ptr<Meetings> meetings_;      // null when plain
  std::vector<std::int64_t> lane_latency_;  // of the transfer to the consumer
  std::vector<std::uint32_t> lane_device_;
  std::vector<std::uint32_t> done_;  // passes run, per lane
  std::vector<std::uint32_t> waited_until_;
  std::vector<std::uint32_t> finals_;  // last gradient passes run, per virtual stage
  std::vector<std::uint32_t> units_;   // per virtual stage
  std::vector<std::int64_t> last_backward_end_;
  std::vector<DeviceState> devices_;
  std::vector<Demand> stack_;
  std::unique_ptr<std::int64_t[]> end_;  // by lane and micro-batch; written before it is read
  std::span<const Hold> holds_;
  std::vector<std::int64_t> start_;  // as end_, with holds
  std::vector<std::vector<PassSpan>> spans_;
  std::int64_t evaluated_ = 0;
  std::int64_t skipped_ = 0;  // periods
};

// A stretch of a device's list that repeats: list[x + period] is list[x] with the micro-batch
// `micro_batches` later, for begin <= x < end - period.
struct PeriodicRun {
  std::size_t begin;
  std::size_t end;
  std::size_t period;
  std::uint32_t micro_batches;
};

// Phases of the pipeline, each with one periodic run per device and one common number of
// micro-batches per period; empty when the lists do not repeat. O(passes).
std::vector<std::vector<PeriodicRun>> periodic_phases(const PipelineOrder& order);

// Skips the steady state of one phase where it is found. False as in PipelineSweep::run_to.
bool run_phase(PipelineSweep& sweep, const std::vector<PeriodicRun>& runs);

}  // namespace orrery::sim::detail
