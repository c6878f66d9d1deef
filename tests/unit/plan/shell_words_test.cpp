// SPDX-License-Identifier: Apache-2.0
#include "plan/launch_script/shell_words.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.hpp"

namespace orrery::plan {
namespace {

// The words of the last command.
std::vector<std::string> words(const std::string& text) {
  std::vector<std::string> result;
  const auto commands = read_shell(text, "x.sh");
  if (!commands.empty()) {
    for (const ShellWord& word : commands.back().words) {
      result.push_back(word.text);
    }
  }
  return result;
}

std::string unknown(const std::string& text) {
  const auto commands = read_shell(text, "x.sh");
  return commands.back().words.back().unknown;
}

using Words = std::vector<std::string>;

TEST(ShellWords, QuotesCommentsAndContinuations) {
  EXPECT_EQ(words("a 'b c' \"d e\" f\\ g \\\n  h # i\n"), (Words{"a", "b c", "d e", "f g", "h"}));
  EXPECT_EQ(words("a \"\" ''"), (Words{"a", "", ""}));
  EXPECT_EQ(words("a#b"), (Words{"a#b"}));
  EXPECT_EQ(words("a \"x\\\"y\\n\""), (Words{"a", "x\"y\\n"}));
}

TEST(ShellWords, VariablesSplitUnlessQuoted) {
  EXPECT_EQ(words("A='1 2'\nrun $A \"$A\" ${A}3"), (Words{"run", "1", "2", "1 2", "1", "23"}));
  EXPECT_EQ(words("export A=1 B=2\nrun $A$B"), (Words{"run", "12"}));
  EXPECT_EQ(words("A=1\nA+=2\nrun $A"), (Words{"run", "12"}));
  EXPECT_EQ(words("E=\nrun $E end"), (Words{"run", "end"}));
}

TEST(ShellWords, ArraysKeepTheirElements) {
  const std::string array = "A=(\n --x 1 # one\n \"y z\"\n)\nA+=(--w)\n";
  EXPECT_EQ(words(array + "run \"${A[@]}\""), (Words{"run", "--x", "1", "y z", "--w"}));
  EXPECT_EQ(words(array + "run ${A[@]}"), (Words{"run", "--x", "1", "y", "z", "--w"}));
  EXPECT_EQ(words(array + "run ${A[*]}").size(), 6U);
}

TEST(ShellWords, ArithmeticOnKnownNumbers) {
  EXPECT_EQ(words("A=8\nB=4\nrun $(($A*B + (2-1) % 3))"), (Words{"run", "33"}));
  EXPECT_EQ(words("run $((${X:-3}))").back(), "?");
  EXPECT_EQ(words("run $((7/2))"), (Words{"run", "3"}));
  for (const char* bad : {"$((1/0))", "$((9223372036854775807+1))", "$((A))", "$((1+))",
                          "$((-9223372036854775807*2))", "$((x y))"}) {
    EXPECT_NE(unknown(std::string("run ") + bad), "") << bad;
  }
}

TEST(ShellWords, DefaultsOfUnsetVariables) {
  EXPECT_EQ(words("run ${N:-8} ${M-\"4 5\"} ${K:=2} $K ${1:-first}"),
            (Words{"run", "8", "4", "5", "2", "2", "first"}));
  EXPECT_EQ(words("N=3\nrun ${N:-8} ${N:+yes} ${Z:+no}end"), (Words{"run", "3", "yes", "end"}));
}

TEST(ShellWords, NothingIsExecutedOrGuessed) {
  EXPECT_THAT(unknown("run $(rm -rf /)"), testing::HasSubstr("output of a command"));
  EXPECT_THAT(unknown("run `rm -rf /`"), testing::HasSubstr("output of a command"));
  EXPECT_THAT(unknown("run $HOME"), testing::HasSubstr("$HOME is not set"));
  EXPECT_THAT(unknown("run $1"), testing::HasSubstr("known only when it runs"));
  EXPECT_THAT(unknown("run ${A%%x}"), testing::HasSubstr("not followed"));
  EXPECT_EQ(words("run $@ x"), (Words{"run", "x"}));
}

TEST(ShellWords, UnknownPartsMarkOnlyTheirWord) {
  const auto commands = read_shell("A=\"--layers 4 --data $DATA --split 1\"\nrun $A", "x.sh");
  const auto& result = commands.back().words;
  ASSERT_EQ(result.size(), 7U);
  EXPECT_EQ(result[2].text, "4");
  EXPECT_EQ(result[2].unknown, "");
  EXPECT_NE(result[4].unknown, "");
  EXPECT_EQ(result[6].unknown, "");
}

TEST(ShellWords, KnownConditionsAreFollowed) {
  const std::string script =
      "M=${M:-7}\nif [ $M == 7 ]; then\n L=32\nelif [ $M == 13 ]; then\n L=40\nelse\n L=80\nfi\n"
      "run $L";
  EXPECT_EQ(words(script).back(), "32");
  EXPECT_EQ(words("M=13\n" + script).back(), "40");
  EXPECT_EQ(words("M=70\n" + script).back(), "80");
  EXPECT_EQ(words("A=\nif [ -n \"$A\" ]; then X=1; fi\nrun ${X:-0}").back(), "0");
  EXPECT_EQ(words("if [[ 4 -gt 3 ]]; then X=1; fi\nrun $X").back(), "1");
  EXPECT_EQ(words("X=0\nif ! [ 1 == 1 ]; then X=1; fi\nrun $X").back(), "0");
  EXPECT_EQ(words("A=M\nif [[ \"$A\" == M ]] || [[ $1 == M ]]; then X=1; fi\nrun $X").back(), "1");
  EXPECT_EQ(words("X=0\nif [ -d x ] && [ 1 == 2 ]; then X=1; fi\nrun $X").back(), "0");
  EXPECT_EQ(words("X=0\nif [ -n \"$KEY\" ]; then X=1; fi\nrun $X").back(), "0");  // unset
}

TEST(ShellWords, UnknownConditionsTaint) {
  EXPECT_THAT(unknown("L=1\nif [ $1 == 7 ]; then L=32; fi\nrun $L"),
              testing::HasSubstr("$L depends on a condition (line 2)"));
  EXPECT_THAT(unknown("L=1\n[ -d x ] && L=2\nrun $L"), testing::HasSubstr("condition"));
  EXPECT_THAT(unknown("for i in 1 2; do run $i; done"), testing::HasSubstr("loop variable"));
  EXPECT_THAT(unknown("X=1\nread X\nrun $X"), testing::HasSubstr("when it runs"));
  EXPECT_EQ(words("L=1\nif cmp a b; then L=1; fi\nrun $L").back(), "1");  // the same either way
}

TEST(ShellWords, ConditionalElementsLeaveTheOthersKnown) {
  const auto commands = read_shell("A=(--x 1)\nif [ -d d ]; then A+=(--y); fi\nrun ${A[@]}", "x");
  const auto& result = commands.back().words;
  ASSERT_EQ(result.size(), 4U);
  EXPECT_EQ(result[2].text, "1");
  EXPECT_EQ(result[2].unknown, "");
  EXPECT_THAT(result[3].unknown, testing::HasSubstr("condition"));
}

TEST(ShellWords, RedirectionsAndHereDocumentsAreDropped) {
  EXPECT_EQ(words("run a 2>&1 >log <in b"), (Words{"run", "a", "b"}));
  const auto commands = read_shell("cat <<EOF >x\nA=1\nEOF\nrun 2 | tee log", "x.sh");
  ASSERT_EQ(commands.size(), 3U);
  EXPECT_EQ(commands[1].words.size(), 2U);
  EXPECT_EQ(commands[1].line, 4);
}

TEST(ShellWords, CommandsInsideOneWordAreTakenApart) {
  EXPECT_EQ(words("C=\"train.py --x 1\"\nbash -c \"$C --y\""),
            (Words{"bash", "-c", "train.py", "--x", "1", "--y"}));
}

TEST(ShellWords, BrokenScriptsAreErrorsWithLines) {
  for (const char* text : {"a\nb 'c", "a\nb \"c", "a\nb ${c", "a\nb $(c", "a\nb `c", "a\nB=(c"}) {
    try {
      (void)read_shell(text, "x.sh");
      ADD_FAILURE() << text;
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), testing::HasSubstr("x.sh:2")) << text;
    }
  }
}

TEST(ShellWords, ExponentialExpansionIsBounded) {
  std::string script = "A=xxxxxxxxxx\n";
  for (int i = 0; i < 40; ++i) {
    script += "A=$A$A\n";
  }
  EXPECT_THROW((void)read_shell(script, "x.sh"), Error);
  std::string nested;
  for (int i = 0; i < 10'000; ++i) {
    nested += "${a:-";
  }
  EXPECT_THROW((void)read_shell("run " + nested + std::string(10'000, '}'), "x.sh"), Error);
}

}  // namespace
}  // namespace orrery::plan
