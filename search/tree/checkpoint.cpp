// SPDX-License-Identifier: Apache-2.0
#include "search/tree/checkpoint.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "base/error.hpp"
#include "base/files.hpp"
#include "base/text.hpp"
#include "search/tree/build.hpp"
#include "search/tree/work_bytes.hpp"
#include "sim/orders/schedule_document.hpp"

namespace orrery::search {

namespace {

constexpr std::string_view kMagic = "orrery-search-checkpoint\n";
constexpr std::int64_t kMaxBytes = 1LL << 30;

// Every choice that the space leaves, in its order, and what is the same in all of its plans.
std::uint64_t hash_of_space(const Space& space, const std::vector<Group>& groups,
                            const Constraints& constraints) {
  ByteWriter out;
  std::vector<std::string> fixed = constraints.fixed_texts();
  std::sort(fixed.begin(), fixed.end());
  for (const std::string& text : fixed) {
    out.text(text);
  }
  for (const ScheduleChoice& choice : space.schedules().choices()) {
    out.text(choice.name);
    out.text(choice.document == nullptr ? "" : choice.document->json.dump(-1));
  }
  std::vector<plan::Offload> homes;  // few, met again and again: the text of each once
  for (const Group& group : groups) {
    for (const std::int64_t degree :
         {std::int64_t{group.tp}, std::int64_t{group.cp}, std::int64_t{group.ep},
          std::int64_t{group.pp}, std::int64_t{group.dp}, group.micro_batch,
          std::int64_t{group.expert_tp}}) {
      out.u64(static_cast<std::uint64_t>(degree));
    }
    for (const Member& layout : space.layouts(group)) {
      out.u8(static_cast<std::uint8_t>(layout.recompute));
      out.u32(layout.recomputed.bits());
      out.u8(static_cast<std::uint8_t>(layout.mesh));
      out.u8(static_cast<std::uint8_t>(layout.tp_inner));
      out.u8(static_cast<std::uint8_t>(layout.ep_inside));
      out.u32(static_cast<std::uint32_t>(layout.ulysses_degree));
      out.u8(static_cast<std::uint8_t>(layout.context));
      out.u8(layout.sequence_parallel ? 1 : 0);
      const auto known = std::find(homes.begin(), homes.end(), layout.offload);
      out.u32(static_cast<std::uint32_t>(known - homes.begin()));
      if (known == homes.end()) {
        out.text(plan::to_json(layout.offload).dump(-1));
        homes.push_back(layout.offload);
      }
    }
    for (const int zero : space.zero_stages(group)) {
      out.u8(static_cast<std::uint8_t>(zero));
    }
    for (const Family& family : space.families(group)) {
      out.u32(static_cast<std::uint32_t>(family.chunks));
      out.u8(family.balanced ? 1 : 0);
      out.u32(static_cast<std::uint32_t>(family.slices));
      for (const int schedule : family.schedules) {
        out.u32(static_cast<std::uint32_t>(schedule));
      }
    }
  }
  return hash_of(out.bytes());
}

// Of tables of kernels, which the document of a profile may name alone.
std::uint64_t hash_of_kernels(const costmodel::KernelResiduals& residuals, std::uint64_t profile) {
  ByteWriter out;
  out.u64(profile);
  for (const costmodel::ResidualSet& set : residuals.sets()) {
    out.u8(static_cast<std::uint8_t>(set.key.kind));
    out.u8(static_cast<std::uint8_t>(set.key.dtype));
    out.u8(static_cast<std::uint8_t>(set.key.layout));
    out.u8(static_cast<std::uint8_t>(set.key.load));
    for (const costmodel::KernelPoint& point : set.points) {
      for (int i = 0; i < costmodel::num_sizes(set.key.kind); ++i) {
        out.u32(static_cast<std::uint32_t>(point.sizes[static_cast<std::size_t>(i)]));
      }
      out.u32(static_cast<std::uint32_t>(point.permille));
    }
  }
  return hash_of(out.bytes());
}

}  // namespace

std::vector<InputHash> plan_hashes(plan::Plan plan) {
  plan.stage_blocks.assign(static_cast<std::size_t>(plan.pp), 0);
  plan.blocks = {{static_cast<int>(plan.network.chain.size()), plan::BlockPlan{}}};
  const Json document = plan::to_json(plan);
  std::vector<InputHash> inputs;
  for (const char* name :
       {"network", "cluster", "profile", "workload", "execution", "memory_reserve"}) {
    inputs.push_back({name, hash_of(document.find(name)->dump(-1))});
  }
  inputs[2].hash = hash_of_kernels(plan.profile.kernels.residuals, inputs[2].hash);
  inputs[5].name = "memory reserve";
  return inputs;
}

InputHash asked_hash(const Constraints& constraints) {
  std::vector<std::string> asked;
  for (const Restriction& one : constraints.restrictions()) {
    asked.push_back(one.kind + " " + one.text + "\n");
  }
  std::sort(asked.begin(), asked.end());
  return {"space (--fix, --forbid, --allow, --schedule)",
          hash_of(std::accumulate(asked.begin(), asked.end(), std::string()))};
}

std::vector<InputHash> input_hashes(const Space& space, const std::vector<Group>& groups,
                                    const Options& options) {
  std::vector<InputHash> inputs = plan_hashes(space.base());
  inputs.push_back(
      {"--space", hash_of(options.space == SpaceKind::PerBlock ? "per-block" : "homogeneous")});
  inputs.push_back({"space (--fix, --forbid, --allow, --schedule)",
                    hash_of_space(space, groups, options.constraints)});
  inputs.push_back({"--gap", hash_of(fmt::format("{}", options.gap_fraction))});
  inputs.push_back({"--top", hash_of(fmt::format("{}", options.top))});
  inputs.push_back({"--prove-top", hash_of(options.proves_top ? "yes" : "no")});
  return inputs;
}

std::string difference(const std::vector<InputHash>& ours, const std::vector<InputHash>& theirs) {
  std::string names;
  for (const InputHash& input : ours) {
    if (std::find(theirs.begin(), theirs.end(), input) == theirs.end()) {
      names += (names.empty() ? "" : ", ") + input.name;
    }
  }
  for (const InputHash& input : theirs) {  // what only the other search has
    const bool known = std::any_of(ours.begin(), ours.end(),
                                   [&](const InputHash& one) { return one.name == input.name; });
    names += known ? "" : (names.empty() ? "" : ", ") + input.name;
  }
  return names;
}

void write_inputs(ByteWriter& out, const std::vector<InputHash>& inputs) {
  out.u64(inputs.size());
  for (const InputHash& input : inputs) {
    out.text(input.name);
    out.u64(input.hash);
  }
}

std::vector<InputHash> read_inputs(ByteReader& in) {
  std::vector<InputHash> inputs(in.count(16));
  for (InputHash& input : inputs) {
    input.name = in.text();
    input.hash = in.u64();
  }
  return inputs;
}

void write_checkpoint(const std::string& path, const std::vector<InputHash>& inputs,
                      Progress progress, const std::string& bytes) {
  ByteWriter out;
  out.text(build_text());
  write_inputs(out, inputs);
  out.u8(static_cast<std::uint8_t>(progress));
  const std::string body = out.bytes() + bytes;
  ByteWriter ends;
  ends.u64(hash_of(body));
  const std::string content = std::string(kMagic) + ends.bytes() + body;
  if (static_cast<std::int64_t>(content.size()) > kMaxBytes) {
    throw Error(ErrorKind::InputOutput, path, "the checkpoint would be larger than 1 GiB");
  }
  write_file_atomically(path, content);
}

Progress read_checkpoint(const std::string& path, const std::vector<InputHash>& inputs,
                         std::string& bytes) {
  const std::string content = read_file(path, kMaxBytes);
  if (!content.starts_with(kMagic)) {
    bad_input(path, "is not a checkpoint of a search", "plan --checkpoint writes them");
  }
  ByteReader in(std::string_view(content).substr(kMagic.size()), path);
  const std::uint64_t hash = in.u64();
  if (hash != hash_of(std::string_view(content).substr(content.size() - in.left()))) {
    bad_input(path, "is damaged: its contents are not those that were written");
  }
  const std::string build = in.text();
  if (build != build_text()) {
    bad_input(
        path,
        fmt::format("is a checkpoint of version {}, this is {}", printable(build), build_text()),
        "resume with the program that wrote it, or start again");
  }
  const std::string other = difference(inputs, read_inputs(in));
  if (!other.empty()) {
    bad_input(path, fmt::format("is a checkpoint of a search with another {}", other),
              "resume with the options that it was written with");
  }
  const std::uint8_t progress = in.u8();
  if (progress > static_cast<std::uint8_t>(Progress::Packed)) {
    in.fail("holds a state of no known kind");
  }
  bytes = content.substr(content.size() - in.left());
  return static_cast<Progress>(progress);
}

void write_checkpoint(const std::string& path, const std::vector<InputHash>& inputs,
                      const Frontier* frontier) {
  ByteWriter out;
  if (frontier != nullptr) {
    frontier->write(out);
  }
  write_checkpoint(path, inputs, frontier == nullptr ? Progress::None : Progress::Frontier,
                   out.bytes());
}

bool read_checkpoint(const std::string& path, const std::vector<InputHash>& inputs,
                     Frontier& frontier) {
  std::string bytes;
  const Progress progress = read_checkpoint(path, inputs, bytes);
  ByteReader in(bytes, path);
  if (progress > Progress::Frontier) {
    in.fail("holds the state of a search of another space");
  }
  if (progress == Progress::Frontier) {
    frontier.read(in);
  }
  in.end();
  return progress == Progress::Frontier;
}

}  // namespace orrery::search
