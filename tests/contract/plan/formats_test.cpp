// SPDX-License-Identifier: Apache-2.0
// What every exporter and importer must keep.
#include <gtest/gtest.h>

#include <set>

#include "base/error.hpp"
#include "base/text.hpp"
#include "plan/exporter.hpp"
#include "plan/importer.hpp"
#include "plan/stages.hpp"
#include "tests/unit/plan/plan_fixture.hpp"

namespace orrery::plan {
namespace {

// One data-parallel rank per GPU, which every framework can express.
Plan plain_plan() {
  Plan plan = small_plan();
  plan.pp = 1;
  plan.dp = 16;
  plan.stage_blocks = even_stages(plan.network, 1);
  plan.blocks.front().layout.tp = 1;
  plan.blocks.front().layout.zero_stage = 3;
  return plan;
}

TEST(Exporters, AreNamedDescribedAndDeterministic) {
  std::set<std::string_view> names;
  for (const Exporter* exporter : exporter_table()) {
    EXPECT_TRUE(is_kebab_case(exporter->name));
    EXPECT_TRUE(names.insert(exporter->name).second);
    EXPECT_FALSE(exporter->description.empty());
    const std::string text = exporter->write(plain_plan());
    EXPECT_EQ(text, exporter->write(plain_plan()));
    EXPECT_TRUE(text.ends_with('\n')) << exporter->name;
    EXPECT_EQ(&find_exporter(exporter->name), exporter);
  }
  EXPECT_GE(names.size(), 3U);
}

TEST(Importers, RejectHostileTextWithBadInput) {
  const models::Network network = small_plan().network;
  const topologies::Cluster cluster = topologies::load_cluster("dgx-a100:2");
  const std::vector<std::string> texts = {"",
                                          "\n",
                                          std::string(1000, '\0'),
                                          std::string(100'000, '('),
                                          std::string(100'000, '['),
                                          std::string(100'000, '{'),
                                          "\xff\xfe\xfd",
                                          "\"",
                                          "'",
                                          "$(",
                                          "`",
                                          "A=(",
                                          "--",
                                          "{\"a\":",
                                          "if if if then fi",
                                          "done done",
                                          std::string(100'000, '\\')};
  for (const Importer* importer : importer_table()) {
    EXPECT_TRUE(is_kebab_case(importer->name));
    EXPECT_EQ(&find_importer(importer->name), importer);
    for (const std::string& text : texts) {
      try {
        (void)importer->read(text, "file", cluster, &network);
        ADD_FAILURE() << importer->name << " accepted " << printable(text, 40);
      } catch (const Error& error) {
        EXPECT_EQ(error.kind(), ErrorKind::BadInput);
      }
    }
  }
}

TEST(Importers, ReadWhatTheExporterOfTheirNameWrites) {
  const Plan plan = plain_plan();
  for (const Importer* importer : importer_table()) {
    const std::string text = find_exporter(importer->name).write(plan);
    const Plan read = importer->read(text, "file", plan.cluster, &plan.network);
    EXPECT_EQ(read.dp, plan.dp) << importer->name;
    EXPECT_EQ(read.micro_batch, plan.micro_batch);
    EXPECT_EQ(read.batch, plan.batch);
    EXPECT_EQ(read.precision, plan.precision);
    EXPECT_EQ(read.layout_of(0).zero_stage, 3);
  }
}

}  // namespace
}  // namespace orrery::plan
