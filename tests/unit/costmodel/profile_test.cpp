// SPDX-License-Identifier: Apache-2.0
#include "costmodel/profile.hpp"

#include <gmock/gmock.h>

#include "tests/unit/base/testing.hpp"

namespace orrery::costmodel {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

topologies::Gpu h100() { return topologies::load_gpu("h100-sxm5-80gb"); }

Json document() { return to_json(load_profile("", h100())); }

std::string message_after(const std::string& path, const std::string& value, bool may_add = false) {
  Json changed = document();
  set_path(changed, path, value, may_add);
  return testing::message_of([&] { read_profile(changed, "p.json", h100()); });
}

TEST(ProfileTest, PicksTheGpuThenTheArchitectureThenTheGenericProfile) {
  EXPECT_EQ(load_profile("", h100()).name, "h100-sxm5-80gb");
  EXPECT_EQ(load_profile("", topologies::load_gpu("h100-pcie-80gb")).name, "default-hopper");
  EXPECT_EQ(load_profile("", topologies::load_gpu("mi355x")).name, "default-cdna3");
  EXPECT_EQ(load_profile("", topologies::load_gpu("mi100-32gb")).name, "default-cdna2");
  EXPECT_EQ(load_profile("", topologies::load_gpu("tpu-v4")).name, "default-generic");
  EXPECT_EQ(load_profile("a100-sxm4-80gb", h100()).name, "a100-sxm4-80gb");
  // Blackwell without HBM is another chip.
  EXPECT_EQ(load_profile("", topologies::load_gpu("rtx-5090-32gb")).name, "default-blackwell-pcie");
  topologies::Gpu other = topologies::load_gpu("b200-sxm-180gb");
  other.name = "my-chip";
  EXPECT_EQ(load_profile("", other).name, "default-blackwell");
}

TEST(ProfileTest, TheEnergyOfAFlopBelongsToTheRealChip) {
  topologies::Gpu faster = h100();
  for (FlopsPerSecond& peak : faster.peak) {
    peak = peak * 2.0;
  }
  EXPECT_EQ(load_profile("", faster).power.reference_peak, h100().peak);
  // The defaults of an architecture serve several chips; each is its own reference.
  topologies::Gpu pcie = topologies::load_gpu("h100-pcie-80gb");
  EXPECT_EQ(load_profile("", pcie).power.reference_peak, pcie.peak);
  pcie.name = "my-chip";
  EXPECT_EQ(load_profile("", pcie).power.reference_peak, PowerParameters().reference_peak);
}

TEST(ProfileTest, DefaultsSpreadWider) {
  const Spreads own = load_profile("", h100()).spread;
  const Spreads shared = load_profile("default-hopper", h100()).spread;
  EXPECT_GT(shared.gemm, own.gemm);
  EXPECT_GT(shared.inter_node_collective, own.inter_node_collective);
}

TEST(ProfileTest, UnknownNamesSuggestTheNearest) {
  EXPECT_THAT(testing::message_of([] { load_profile("default-hoper", h100()); }),
              HasSubstr("default-hopper"));
  EXPECT_THROW(load_profile("/nonexistent/p.json", h100()), Error);
}

TEST(ProfileTest, ReadsBackEqual) {
  const Profile profile = load_profile("", h100());
  EXPECT_EQ(read_profile(to_json(profile), "p.json", h100()), profile);
  EXPECT_EQ(read_profile(parse_json(to_json(profile).dump(), "p"), "p.json", h100()), profile);
}

TEST(ProfileTest, HostileDocumentsAreRefusedWithTheirPlace) {
  EXPECT_THAT(message_after("gemm.bf16.compute_fraction", "1.5"),
              AllOf(HasSubstr("p.json"), HasSubstr("/gemm/bf16/compute_fraction")));
  EXPECT_THAT(message_after("gemm.bf16.compute_fraction", "0"), HasSubstr("compute_fraction"));
  EXPECT_THAT(message_after("gemm.bf16.exponent", "0.2"), HasSubstr("exponent"));
  EXPECT_THAT(message_after("gemm.bf16.exponnt", "2", true), HasSubstr("exponent"));
  EXPECT_THAT(message_after("gemm.bf16.launch", "3"), HasSubstr("/gemm/bf16/launch"));
  EXPECT_THAT(message_after("gemm.bf16.launch", "3 h"), HasSubstr("/gemm/bf16/launch"));
  EXPECT_THAT(message_after("gemm.bf16.launch", "-3 us"), HasSubstr("/gemm/bf16/launch"));
  EXPECT_THAT(message_after("gemm.bf16", "7"), HasSubstr("/gemm/bf16"));
  EXPECT_THAT(message_after("gemm", "[]"), HasSubstr("/gemm"));
  EXPECT_THAT(message_after("memory.norm", "\"fast\""), HasSubstr("/memory/norm"));
  EXPECT_THAT(message_after("collective_sms", "133"), HasSubstr("132"));
  EXPECT_THAT(message_after("collective_sms", "-1"), HasSubstr("collective_sms"));
  EXPECT_THAT(message_after("intra_node.half_size", "4 GB/s"), HasSubstr("half_size"));
  EXPECT_THAT(message_after("sources.gemm", "\"\""), HasSubstr("/sources/gemm"));
  EXPECT_THAT(message_after("schema", "orrery-plan"), HasSubstr("orrery-profile"));
  EXPECT_THAT(message_after("version", "1"), HasSubstr("version"));
  EXPECT_THAT(message_after("sources.color", "\"red\"", true), HasSubstr("color"));
}

TEST(ProfileTest, MissingSectionsAreRefused) {
  const Json whole = document();
  for (const Json::Member& member : whole.as_object()) {
    Json cut = Json::object();
    for (const Json::Member& kept : whole.as_object()) {
      if (kept.first != member.first) {
        cut.set(kept.first, kept.second);
      }
    }
    EXPECT_THAT(testing::message_of([&] { read_profile(cut, "p.json", h100()); }),
                HasSubstr(member.first));
  }
  EXPECT_THROW(read_profile(Json(), "p.json", h100()), Error);
  EXPECT_THROW(read_profile(Json::array(), "p.json", h100()), Error);
}

}  // namespace
}  // namespace orrery::costmodel
