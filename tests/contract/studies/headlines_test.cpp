// SPDX-License-Identifier: Apache-2.0
// What every headline in studies/headlines/ promises: it can be read, its name is its file's, it
// states its source, and what is judged lies inside its band unless it is known to lie outside.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>

#include "studies/reproduction/headline.hpp"

namespace orrery::studies {
namespace {

bool has_reason(const Headline& headline, const std::string& name) {
  return std::any_of(headline.checks.begin(), headline.checks.end(), [&name](const Check& check) {
    return check.name == name && !check.outside.empty();
  });
}

class Headlines : public testing::TestWithParam<std::string> {};

TEST_P(Headlines, AreSourcedAndReproduced) {
  // Rounding to whole micro-batches keeps 32 stages above one half and one third.
  const std::set<std::string> outside = {"v-schedules-memory-half", "v-schedules-memory-min"};
  const Json document = load_headline(GetParam());
  const Headline headline = read_headline(document, GetParam());
  EXPECT_EQ(headline.name, GetParam());
  EXPECT_NE(headline.source.find("20"), std::string::npos) << "a year or an arXiv number";
  for (const Reproduced& entry : reproduce(headline)) {
    if (entry.verdict == Verdict::Unjudged) {
      EXPECT_FALSE(entry.reason.empty()) << entry.name;
    }
    const bool known = outside.contains(entry.name) || has_reason(headline, entry.name);
    EXPECT_TRUE(entry.verdict != Verdict::Outside || known)
        << entry.name << " = " << entry.simulated;
  }
}

INSTANTIATE_TEST_SUITE_P(All, Headlines, testing::ValuesIn(headline_names()),
                         [](const auto& headline) {
                           std::string name = headline.param;
                           for (char& letter : name) {
                             letter = letter == '-' ? '_' : letter;
                           }
                           return name;
                         });

}  // namespace
}  // namespace orrery::studies
