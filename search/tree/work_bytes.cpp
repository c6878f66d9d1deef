// SPDX-License-Identifier: Apache-2.0
#include "search/tree/work_bytes.hpp"

#include <cmath>

namespace orrery::search {

namespace {

constexpr std::uint32_t kMaxDraws = 1'000'000;

}  // namespace

void write(ByteWriter& out, const Node& node) {
  out.real(node.bound.value());
  out.u64(node.order);
  out.u32(node.group);
  out.u16(node.layout);
  out.u16(node.family);
  out.u16(node.schedule);
  out.u8(static_cast<std::uint8_t>(node.level));
  out.u8(node.zeros);
}

Node read_node(ByteReader& in) {
  Node node;
  node.bound = Seconds(in.real());
  node.order = in.u64();
  node.group = in.u32();
  node.layout = in.u16();
  node.family = in.u16();
  node.schedule = in.u16();
  const std::uint8_t level = in.u8();
  node.zeros = in.u8();
  if (level > static_cast<std::uint8_t>(Level::Plan) || !(node.bound.value() >= 0)) {
    in.fail("holds a node that cannot be");
  }
  node.level = static_cast<Level>(level);
  return node;
}

void write(ByteWriter& out, const Overflow& overflow) {
  out.text(overflow.text);
  out.u64(static_cast<std::uint64_t>(overflow.excess.value()));
  out.u8(overflow.misfit ? 1 : 0);
  if (overflow.misfit) {
    write(out, *overflow.misfit);
    out.u8(overflow.replayed ? 1 : 0);
  }
}

Overflow read_overflow(ByteReader& in) {
  Overflow overflow;
  overflow.text = in.text();
  overflow.excess = ByteCount(static_cast<std::int64_t>(in.u64()));
  if (in.u8() != 0) {
    overflow.misfit = read_node(in);
    overflow.replayed = in.u8() != 0;
  }
  return overflow;
}

void write(ByteWriter& out, const Known& known) {
  out.real(known.cutoff.value());
  out.u8(known.found ? 1 : 0);
  write(out, known.closest);
  out.u32(static_cast<std::uint32_t>(known.interval_draws));
  out.real(known.drawing.value());
  out.u64(static_cast<std::uint64_t>(known.replay_reserve.value()));
}

Known read_known(ByteReader& in) {
  Known known;
  known.cutoff = Seconds(in.real());
  known.found = in.u8() != 0;
  known.closest = read_overflow(in);
  const std::uint32_t draws = in.u32();
  if (draws > kMaxDraws || draws % 2 != 0) {
    in.fail("holds a number of draws that cannot be");
  }
  known.interval_draws = static_cast<int>(draws);
  known.drawing = Seconds(in.real());
  known.replay_reserve = ByteCount(static_cast<std::int64_t>(in.u64()));
  return known;
}

void write(ByteWriter& out, const Outcomes& outcomes) {
  out.u64(outcomes.children.size());
  for (const Node& child : outcomes.children) {
    write(out, child);
  }
  out.u64(outcomes.misfits.size());
  for (const Outcomes::Run& run : outcomes.misfits) {
    out.u64(run.first);
    out.u64(run.count);
    out.u64(run.step);
  }
  write(out, outcomes.overflow);
  out.u8(outcomes.time ? 1 : 0);
  out.real(outcomes.time.value_or(Seconds()).value());
  out.real(outcomes.high.value());
}

Outcomes read_outcomes(ByteReader& in) {
  Outcomes outcomes;
  outcomes.children.resize(in.count(kNodeBytes));
  for (Node& child : outcomes.children) {
    child = read_node(in);
  }
  outcomes.misfits.resize(in.count(24));
  for (Outcomes::Run& run : outcomes.misfits) {
    run.first = in.u64();
    run.count = in.u64();
    run.step = in.u64();
  }
  outcomes.overflow = read_overflow(in);
  const bool timed = in.u8() != 0;
  const Seconds time(in.real());
  outcomes.high = Seconds(in.real());
  if (timed) {
    outcomes.time = time;
  }
  return outcomes;
}

}  // namespace orrery::search
