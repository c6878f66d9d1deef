// SPDX-License-Identifier: Apache-2.0
// Sample documents that were cut off or damaged on the way.
#include "calibrate/cut_json.hpp"

#include <gmock/gmock.h>

#include <algorithm>

#include "tests/unit/calibrate/gemm_samples.hpp"
#include "tests/unit/calibrate/reader_files.hpp"

namespace orrery::calibrate {
namespace {

using testing::Contains;
using testing::HasSubstr;

class CutSamples : public ReaderFiles {
 protected:
  // Brackets and quotes inside strings are none.
  SampleFile whole_{{.device = "Test GPU", .libraries = {{"cuBLAS", "13 [a{\"]"}}},
                    {gemm_of(8, 1e-5, "a{:1"), gemm_of(16, 2e-5, "b]\""), gemm_of(32, 3e-5, "c")}};
};

TEST_F(CutSamples, WholeOnesBeforeTheCut) {
  const std::string lines = sample_text(whole_);
  std::string line = lines;
  std::erase(line, '\n');
  for (const std::string& text : {lines, line}) {
    for (const std::size_t cut : {text.find("\"c\""), text.find("\"kind\"", text.find("b]"))}) {
      const std::string path = write("cut_off.json", text.substr(0, cut));
      const Reading reading = read(path, true);
      EXPECT_EQ(reading.files.front().header, whole_.header);
      EXPECT_EQ(reading.files.front().samples.size(), 2U);
      ASSERT_EQ(reading.remarks.size(), 1U);
      EXPECT_THAT(reading.remarks.front(), HasSubstr("cut_off.json:"));
      EXPECT_THAT(reading.remarks.front(), HasSubstr("; 2 whole samples before it"));
      EXPECT_NE(message_of(path), "");
    }
  }
  const std::string headless = write("none.json", lines.substr(0, lines.find("\"kind\"")));
  EXPECT_THAT(message_of(headless, true), HasSubstr("none.json"));
}

// What follows the damage still looks like samples.
TEST_F(CutSamples, WholeOnesBeforeDamageInTheMiddle) {
  const std::string lines = sample_text(whole_);
  for (const char* const damage : {"?", "{", "}", "]", "\"", ",,", "\t\"x\":"}) {
    std::string text = lines;
    text.insert(text.find("\"m\": 32"), damage);
    const Reading reading = read(write("damaged.json", text), true);
    EXPECT_EQ(reading.files.front().samples.size(), 2U) << damage;
    EXPECT_THAT(reading.remarks, Contains(HasSubstr("; 2 whole samples before it"))) << damage;
  }
  std::string first = lines;
  first.insert(first.find("\"m\": 8"), "?");
  EXPECT_THAT(message_of(write("first.json", first), true), HasSubstr("first.json:"));
}

}  // namespace
}  // namespace orrery::calibrate
