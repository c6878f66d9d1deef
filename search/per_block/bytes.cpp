// SPDX-License-Identifier: Apache-2.0
#include "search/per_block/bytes.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>

namespace orrery::search {

namespace {

constexpr int kBits = 7;            // of a number in each byte; the eighth: more follow
constexpr std::uint8_t kFirst = 1;  // marks of a virtual stage
constexpr std::uint8_t kFinal = 2;
constexpr std::uint64_t kMostSimulated = std::uint64_t{1} << 31;  // of one draft
constexpr int kMostShift = 5 * kBits;                             // numbers are below 2^42

void write_number(ByteWriter& out, std::uint64_t number) {
  for (; number >> kBits != 0; number >>= kBits) {
    out.u8(static_cast<std::uint8_t>(number | 1U << kBits));
  }
  out.u8(static_cast<std::uint8_t>(number));
}

std::uint64_t read_number(ByteReader& in) {
  std::uint64_t number = 0;
  for (int shift = 0;; shift += kBits) {
    const std::uint64_t byte = in.u8();
    if (shift > kMostShift) {
      in.fail("holds a number that is too large");
    }
    number |= (byte & ((1U << kBits) - 1)) << shift;
    if (byte >> kBits == 0) {
      return number;
    }
  }
}

std::uint64_t read_below(ByteReader& in, std::uint64_t end) {
  const std::uint64_t number = read_number(in);
  if (number >= end) {
    in.fail("holds a number that cannot be");
  }
  return number;
}

// Passes are counted in whole numbers.
template <typename Path>
auto counts_of(Path& path) {
  return std::array{&path.forwards, &path.backwards, &path.input_grads, &path.weight_grads,
                    &path.sends};
}

void write(ByteWriter& out, const PassPath& path) {
  for (const std::vector<double>* counts : counts_of(path)) {
    for (const double count : *counts) {
      write_number(out, static_cast<std::uint64_t>(count));
    }
  }
  for (std::size_t stage = 0; stage < path.firsts.size(); ++stage) {
    out.u8(static_cast<std::uint8_t>((path.firsts[stage] ? kFirst : 0U) |
                                     (path.finals[stage] ? kFinal : 0U)));
  }
  out.real(path.seconds);
  write_number(out, path.last_stage);
  out.u8(path.ends_stage ? 1 : 0);
}

PassPath read_path(ByteReader& in, std::size_t all) {
  PassPath path;
  for (std::vector<double>* counts : counts_of(path)) {
    for (std::size_t stage = 0; stage < all; ++stage) {
      counts->push_back(static_cast<double>(read_number(in)));
    }
  }
  for (std::size_t stage = 0; stage < all; ++stage) {
    const std::uint8_t marks = in.u8();
    path.firsts.push_back((marks & kFirst) != 0);
    path.finals.push_back((marks & kFinal) != 0);
  }
  path.seconds = in.real();
  path.last_stage = read_below(in, all);
  path.ends_stage = in.u8() != 0;
  return path;
}

// Names, which ascend. A program takes no notice of those that it lacks.
void write_names(ByteWriter& out, const std::vector<std::uint32_t>& names) {
  write_number(out, names.size());
  for (const std::uint32_t name : names) {
    out.u32(name);
  }
}

std::vector<std::uint32_t> read_names(ByteReader& in) {
  constexpr std::uint64_t kMostNames = std::uint64_t{1} << 20;
  std::vector<std::uint32_t> names;
  for (std::uint64_t left = read_below(in, kMostNames); left > 0; --left) {
    names.push_back(in.u32());
  }
  if (!std::is_sorted(names.begin(), names.end())) {
    in.fail("holds a basis that cannot be");
  }
  return names;
}

}  // namespace

void write(ByteWriter& out, const std::vector<PassPath>& paths) {
  out.u64(paths.size());
  for (const PassPath& path : paths) {
    write(out, path);
  }
}

std::vector<PassPath> read_paths(ByteReader& in, std::size_t all) {
  std::vector<PassPath> paths(in.count(all));
  for (PassPath& path : paths) {
    path = read_path(in, all);
  }
  return paths;
}

void write(ByteWriter& out, const Shares& shares) {
  for (const auto& of_stage : shares.blocks) {
    for (const std::vector<double>& of_block : of_stage) {
      std::uint64_t used = 0;
      for (const double share : of_block) {
        used += share != 0 ? 1 : 0;
      }
      write_number(out, used);
      for (std::size_t choice = 0; choice < of_block.size(); ++choice) {
        if (of_block[choice] != 0) {
          write_number(out, choice);
          out.real(of_block[choice]);
        }
      }
    }
  }
  write_names(out, shares.basis.rows);
  write_names(out, shares.basis.variables);
}

Shares read_shares(ByteReader& in, std::size_t stages, const MeshCosts& costs) {
  Shares shares;
  for (std::size_t stage = 0; stage < stages; ++stage) {
    auto& of_stage = shares.blocks.emplace_back();
    for (const std::vector<BlockChoice>& choices : costs.choices) {
      std::vector<double>& of_block = of_stage.emplace_back(choices.size());
      for (std::uint64_t left = read_number(in); left > 0; --left) {
        double& share = of_block[read_below(in, choices.size())];
        share = in.real();
        if (!std::isfinite(share)) {
          in.fail("holds shares that cannot be");
        }
      }
    }
  }
  shares.basis.rows = read_names(in);
  shares.basis.variables = read_names(in);
  return shares;
}

void write(ByteWriter& out, const std::vector<StageRange>& ranges) {
  write_number(out, ranges.size());
  for (const StageRange& range : ranges) {
    write_number(out, range.stages.size());
    for (const std::size_t stage : range.stages) {
      write_number(out, stage);
    }
    write_number(out, static_cast<std::uint64_t>(range.least));
    write_number(out, static_cast<std::uint64_t>(range.most));
    out.u8(static_cast<std::uint8_t>(range.of));
    write_number(out, range.strategies.size());
    for (const std::uint16_t strategy : range.strategies) {
      out.u16(strategy);
    }
  }
}

std::vector<StageRange> read_ranges(ByteReader& in, std::size_t stages) {
  constexpr std::uint64_t kEnd = std::uint64_t{1} << 31;
  constexpr std::uint64_t kMostRanges = std::uint64_t{1} << 16;
  std::vector<StageRange> ranges(read_below(in, kMostRanges));
  for (StageRange& range : ranges) {
    range.stages.resize(read_below(in, stages + 1));
    for (std::size_t& stage : range.stages) {
      stage = read_below(in, stages);
    }
    range.least = static_cast<int>(read_below(in, kEnd));
    range.most = static_cast<int>(read_below(in, kEnd));
    const std::uint8_t of = in.u8();
    range.of = static_cast<StageRange::Of>(of);
    // One of a set is looked for along paths, which take its stages in order.
    const bool ascends = std::adjacent_find(range.stages.begin(), range.stages.end(),
                                            std::greater_equal<>()) == range.stages.end();
    const bool is_set = !range.stages.empty() && ascends;
    range.strategies.resize(read_below(in, std::uint64_t{1} << 16));
    for (std::uint16_t& strategy : range.strategies) {
      strategy = in.u16();
    }
    const bool needs_set =
        range.of == StageRange::Of::One || range.of == StageRange::Of::Strategies;
    if (of > static_cast<std::uint8_t>(StageRange::Of::Strategies) || (needs_set && !is_set) ||
        !std::is_sorted(range.strategies.begin(), range.strategies.end())) {
      in.fail("holds a range of stages that cannot be");
    }
  }
  return ranges;
}

void write(ByteWriter& out, const Draft& draft) {
  for (const int count : draft.stages) {
    out.u32(static_cast<std::uint32_t>(count));
  }
  for (const std::uint16_t strategy : draft.strategies) {
    out.u16(strategy);
  }
}

Draft read_draft(ByteReader& in, const DraftShape& shape) {
  Draft draft;
  bool can_be = true;
  std::size_t left = shape.positions;
  for (std::size_t stage = 0; stage < shape.stages; ++stage) {
    const std::uint32_t count = in.u32();
    can_be = can_be && count > 0 && count <= left;
    left -= can_be ? count : 0;
    draft.stages.push_back(static_cast<int>(count));
  }
  for (std::size_t position = 0; position < shape.positions; ++position) {
    draft.strategies.push_back(in.u16());
    can_be = can_be && draft.strategies.back() < shape.strategies;
  }
  if (!can_be || left > 0) {
    in.fail("holds a draft that cannot be");
  }
  return draft;
}

void write(ByteWriter& out, const DraftResult& result) {
  write(out, result.draft);
  out.u8(result.fits ? 1 : 0);
  out.real(result.time.value());
  out.u64(static_cast<std::uint64_t>(result.excess.value()));
  out.u64(static_cast<std::uint64_t>(result.simulated));
}

DraftResult read_draft_result(ByteReader& in, const DraftShape& shape) {
  DraftResult result;
  result.draft = read_draft(in, shape);
  result.fits = in.u8() != 0;
  result.time = Seconds(in.real());
  result.excess = ByteCount(static_cast<std::int64_t>(in.u64()));
  const std::uint64_t simulated = in.u64();
  if (simulated > kMostSimulated || (result.fits && !(result.time > Seconds(0)))) {
    in.fail("holds a result that cannot be");
  }
  result.simulated = static_cast<std::int64_t>(simulated);
  return result;
}

}  // namespace orrery::search
