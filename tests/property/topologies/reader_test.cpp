// SPDX-License-Identifier: Apache-2.0
// Readers are total (P25): any bytes give a value or an Error; documents survive a round trip.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include "base/error.hpp"
#include "base/limits.hpp"
#include "topologies/cluster.hpp"
#include "topologies/host_list.hpp"
#include "topologies/nccl_xml.hpp"
#include "topologies/slurm.hpp"

namespace orrery::topologies {
namespace {

template <typename Action>
void value_or_error(Action action) {
  try {
    action();
  } catch (const Error& error) {
    RC_ASSERT(std::string(error.what()).size() <= 4000U);
  }
}

// Pieces of a format glued at random, with a few random bytes.
std::string glued(const std::vector<std::string>& pieces) {
  std::string text;
  const int count = *rc::gen::inRange(0, 20);
  for (int i = 0; i < count; ++i) {
    text += *rc::gen::elementOf(pieces);
    if (*rc::gen::inRange(0, 12) == 0) {
      text += *rc::gen::arbitrary<char>();
    }
  }
  return text;
}

TEST(ReaderProperties, HostLists) {
  EXPECT_TRUE(rc::check([] {
    const std::string text = glued({"n", "[", "]", "1", "9", "-", ",", "007", "12345678901234567"});
    value_or_error([&] {
      const auto count = static_cast<std::int64_t>(expand_hosts(text, "t").size());
      RC_ASSERT(count >= 1 && count <= limits::kMaxHostListNames);
    });
  }));
}

TEST(ReaderProperties, SlurmFiles) {
  EXPECT_TRUE(rc::check([] {
    const std::string text =
        glued({"SwitchName=", "Switches=", "Nodes=", "BlockName=", "LinkSpeed=", "a", "b", "c[1-3]",
               " ", "\n", "\\\n", "#", "=", "a\n", "b Nodes=n1\n"});
    value_or_error([&] { parse_slurm_topology(text, "t"); });
  }));
}

TEST(ReaderProperties, NcclFiles) {
  EXPECT_TRUE(rc::check([] {
    const std::string text = glued(
        {"<system>", "<cpu>", "<pci busid=\"1\">", "<pci busid=\"2\" class=\"0x060400\">",
         "<gpu sm=\"90\">", "<gpu sm=\"80\"/>", "<nvlink target=\"1\" count=\"2\"/>", "</gpu>",
         "</pci>", "</cpu>", "</system>", "<nic>", "<net speed=\"100000\"/>", "</nic>"});
    value_or_error([&] { node_document_of_nccl_xml(text, "t"); });
  }));
}

TEST(ReaderProperties, ClusterTextsAndOverrides) {
  EXPECT_TRUE(rc::check([] {
    const std::string text = glued({"dgx-a100", "hgx-h100", ":", "8", "0", "-", "x"});
    const std::string set = glued({"gpu", "node", "fabric", ".", "memory", "scale_out", "nics", "=",
                                   "8", "80 GiB", "null", "{}", "[1]", "\"", "builder"});
    RC_PRE(text.find('/') == std::string::npos);
    value_or_error([&] { load_cluster(text, {set}); });
  }));
}

TEST(ReaderProperties, AnyMemberOfADocumentMayBeWrong) {
  EXPECT_TRUE(rc::check([] {
    Json document = load_cluster("dgx-1v:2").document;
    Json* at = &document;
    while (at->is_object() && !at->as_object().empty() && *rc::gen::inRange(0, 4) != 0) {
      at = &at->as_object()[*rc::gen::inRange<std::size_t>(0, at->as_object().size())].second;
    }
    *at = *rc::gen::element(Json(), Json(-1), Json(true), Json("x"), Json(1e300), Json::array(),
                            Json::object(), Json("1 GB/s"), Json("80 GiB"));
    value_or_error([&] { read_cluster(document, "t"); });
  }));
}

TEST(ReaderProperties, DocumentsSurviveARoundTrip) {
  EXPECT_TRUE(rc::check([] {
    const std::string node = *rc::gen::elementOf(node_names());
    const int nodes = *rc::gen::inRange(1, 64);
    const int bandwidth = *rc::gen::inRange(1, 9999);
    const Cluster cluster =
        load_cluster(fmt::format("{}:{}", node, nodes),
                     {fmt::format("gpu.hbm_bandwidth={} GB/s", bandwidth),
                      fmt::format("node.scale_out.plugin_latency={} ns", bandwidth)});
    const Cluster again = read_cluster(parse_json(cluster.document.dump(), "t"), "t");
    RC_ASSERT(again.document == cluster.document);
    RC_ASSERT(again.gpu.hbm_bandwidth == BytesPerSecond(bandwidth * 1e9));
    RC_ASSERT(again.num_gpus() == cluster.num_gpus());
  }));
}

}  // namespace
}  // namespace orrery::topologies
