// SPDX-License-Identifier: Apache-2.0
// The optional section "collectives" of a profile.
#include "costmodel/collective_fits.hpp"

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>

#include "costmodel/collective_model.hpp"
#include "tests/unit/base/testing.hpp"

namespace orrery::costmodel {
namespace {

using sim::CommKind;
using ::testing::HasSubstr;

topologies::Gpu fitted_gpu() { return topologies::load_gpu("h100-sxm5-80gb"); }

Profile with_fits() {
  Profile profile = load_profile("", fitted_gpu());
  CollectiveParameters tcp = profile.inter_node;
  tcp.base = Seconds(30e-6);
  profile.collectives.fabrics = {{FabricClass::Tcp, tcp}};
  profile.collectives.residuals =
      CollectiveResiduals({{FabricClass::Node, CommKind::AllReduce, 229, 8, 1, 10, {-100, 0, 694}},
                           {FabricClass::Roce, CommKind::AllGather, 0, 8, 2, 20, {5}}});
  profile.collectives.left_out = {{"one-node", 0.03, 0.1, 12, 240}};
  std::erase_if(profile.sources,
                [](const auto& source) { return source.section == "collectives"; });
  const auto before =
      std::find_if(profile.sources.begin(), profile.sources.end(),
                   [](const auto& source) { return source.section == "host_copy"; });
  profile.sources.insert(before, {"collectives", "logs"});
  return profile;
}

Json fitted_document() {
  Json json = to_json(with_fits());
  return json;
}

std::string message_of_fits_after(const std::string& path, const std::string& value,
                                  bool may_add = false) {
  Json changed = fitted_document();
  set_path(changed, path, value, may_add);
  return testing::message_of([&] { read_profile(changed, "p.json", fitted_gpu()); });
}

TEST(CollectiveFitsTest, ReadBackEqual) {
  const Profile profile = with_fits();
  const Profile read = read_profile(fitted_document(), "p.json", fitted_gpu());
  EXPECT_EQ(read.collectives, profile.collectives);
  EXPECT_EQ(to_json(read).dump(), fitted_document().dump());
}

TEST(CollectiveFitsTest, BadCurvesAreErrors) {
  const std::string path = "collectives.residuals";
  EXPECT_THAT(message_of_fits_after(path, R"({"node all-reduce 2.29 8x1 2^10": "1 x"})"),
              HasSubstr("not a list of residuals"));
  EXPECT_THAT(message_of_fits_after(path, R"({"node all-reduce 2.29 8x1 2^10": "700"})"),
              HasSubstr("between -694 and 694"));
  for (const char* key :
       {"node all-reduce 2.29 8x1", "moon all-reduce 2.29 8x1 2^10", "node all-hail 2.29 8x1 2^10",
        "node all-reduce two 8x1 2^10", "node all-reduce 2.29 0x1 2^10",
        "node all-reduce 2.29 8x1 3^10", "node all-reduce 2.29 8x1 2^99"}) {
    Json object = Json::object();
    object.set(key, "1");
    EXPECT_THAT(message_of_fits_after(path, object.dump(-1)),
                HasSubstr("not the name of a residual curve"))
        << key;
  }
  EXPECT_THAT(message_of_fits_after("collectives.fabrics", R"({"carrier-pigeon": {}})"),
              HasSubstr("infiniband"));
}

TEST(CollectiveFitsTest, NetworksMayHaveCorrectionsOfTheirOwn) {
  const topologies::Cluster tcp = topologies::load_cluster("a3-mega:2");
  const GroupShape group = make_group(16, 1, 8);
  const CollectiveModel model(tcp, with_fits());
  EXPECT_EQ(model.corrections_of(group).base, Seconds(30e-6));
  const CollectiveModel other(topologies::load_cluster("hgx-h100:2"), with_fits());
  EXPECT_NE(other.corrections_of(group).base, Seconds(30e-6));
}

TEST(CollectiveFitsTest, ResidualsMoveTheirCollectiveAlone) {
  const topologies::Cluster cluster = topologies::load_cluster("hgx-h100:1");
  Profile plain = with_fits();
  plain.collectives.residuals = {};
  const CollectiveModel without(cluster, plain);
  const CollectiveModel with(cluster, with_fits());
  const GroupShape node = make_group(8, 1, 8);
  EXPECT_NEAR(with.time(CommKind::AllReduce, Bytes(1024), node) /
                  without.time(CommKind::AllReduce, Bytes(1024), node),
              std::exp(-0.1), 1e-6);
  EXPECT_EQ(with.time(CommKind::AllGather, Bytes(1024), node),
            without.time(CommKind::AllGather, Bytes(1024), node));
  EXPECT_EQ(with.formula(CommKind::AllReduce, Bytes(1024), node).time,
            without.formula(CommKind::AllReduce, Bytes(1024), node).time);
}

}  // namespace
}  // namespace orrery::costmodel
