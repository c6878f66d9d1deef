// SPDX-License-Identifier: Apache-2.0
#include "plan/launch_script/shell_words.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/error.hpp"
#include "plan/launch_script/shell_expand.hpp"

namespace orrery::plan {
namespace {

using shell::Cursor;
using shell::Taken;
using shell::Values;

class ScriptReader {
 public:
  ScriptReader(std::string_view text, const std::string& where)
      : cursor_{text, &where}, expander_(variables_) {}

  std::vector<ShellCommand> read() {
    while (!cursor_.done()) {
      step();
    }
    end_command();
    return std::move(commands_);
  }

 private:
  enum class Connector { None, And, Or, Pipe };  // to the command before

  struct Branch {
    bool is_if = false;
    Taken now = Taken::Maybe;   // of the part being read
    Taken earlier = Taken::No;  // whether a part before was taken
  };

  Taken mode() const {
    Taken taken = after_and_or_ ? Taken::Maybe : Taken::Yes;
    for (const Branch& branch : branches_) {
      taken = std::min(taken, branch.now);
    }
    return taken;
  }

  void step() {
    const char c = cursor_.peek();
    if (shell::is_blank(c)) {
      cursor_.next();
    } else if (cursor_.at("\\\n") || cursor_.at("\\\r\n")) {
      cursor_.skip(cursor_.peek(1) == '\r' ? 3 : 2);
    } else if (c == '#') {
      while (!cursor_.done() && cursor_.peek() != '\n') {
        cursor_.next();
      }
    } else if (c == '<' || c == '>') {
      read_redirection();
    } else if (shell::is_metacharacter(c)) {
      read_operator();
    } else {
      anything_ = true;
      if (!at_command_start() || !read_assignment()) {
        read_command_word();
      }
    }
  }

  // Words such as `export` leave the next word in the place of a command's name.
  bool at_command_start() const { return words_.empty() || declares_; }

  void read_operator() {
    const bool and_or = cursor_.at("&&") || cursor_.at("||");
    const char c = cursor_.next();
    if (and_or) {
      cursor_.next();
    }
    const bool continues = after_and_or_ && !anything_ && c == '\n';  // "a &&" and a new line
    end_command();
    after_and_or_ = and_or || continues;
    if (!continues) {
      connector_ = !and_or ? (c == '|' ? Connector::Pipe : Connector::None)
                           : (c == '&' ? Connector::And : Connector::Or);
    }
    if (c == '\n') {
      skip_here_documents();
    }
  }

  void read_redirection() {
    // "2>": the digits are no argument.
    if (!words_.empty() && cursor_.pos > 0 && last_word_end_ == cursor_.pos &&
        shell::parse_integer(words_.back()).has_value()) {
      words_.pop_back();
      lines_.pop_back();
    }
    if (cursor_.at("<<") && cursor_.peek(2) != '<') {
      cursor_.skip(cursor_.peek(2) == '-' ? 3 : 2);
      skip_blanks();
      Values delimiter;
      expander_.read_word(cursor_, delimiter, false);
      here_documents_.push_back(delimiter.front());
      return;
    }
    while (std::string_view("<>&|").find(cursor_.peek()) != std::string_view::npos &&
           !cursor_.done()) {
      cursor_.next();
    }
    skip_blanks();
    if (cursor_.peek() == '(') {
      cursor_.next();
      cursor_.balanced('(', ')');
      return;
    }
    Values target;
    expander_.read_word(cursor_, target, false);
  }

  void skip_blanks() {
    while (shell::is_blank(cursor_.peek())) {
      cursor_.next();
    }
  }

  void skip_here_documents() {
    for (const std::string& delimiter : here_documents_) {
      while (!cursor_.done()) {
        const std::size_t begin = cursor_.pos;
        while (!cursor_.done() && cursor_.peek() != '\n') {
          cursor_.next();
        }
        std::string_view line = cursor_.text.substr(begin, cursor_.pos - begin);
        cursor_.next();
        line.remove_prefix(std::min(line.find_first_not_of('\t'), line.size()));
        if (line.ends_with('\r')) {
          line.remove_suffix(1);
        }
        if (line == delimiter) {
          break;
        }
      }
    }
    here_documents_.clear();
  }

  // NAME=value, NAME+=value, NAME=(a b c)
  bool read_assignment() {
    std::size_t length = 0;
    if (!shell::is_name_start(cursor_.peek())) {
      return false;
    }
    while (shell::is_name(cursor_.peek(length))) {
      ++length;
    }
    const bool appends = cursor_.peek(length) == '+' && cursor_.peek(length + 1) == '=';
    if (!appends && cursor_.peek(length) != '=') {
      return false;
    }
    const std::string name(cursor_.text.substr(cursor_.pos, length));
    const int line = cursor_.line;
    cursor_.skip(length + (appends ? 2 : 1));
    const bool array = cursor_.peek() == '(';
    Values values;
    if (array) {
      read_array(values);
    } else {
      expander_.read_word(cursor_, values, false);
    }
    assign(name, std::move(values), appends, array, line);
    return true;
  }

  void read_array(Values& values) {
    const Cursor start = cursor_;
    cursor_.next();
    while (!cursor_.done() && cursor_.peek() != ')') {
      const char c = cursor_.peek();
      if (shell::is_blank(c) || c == '\n') {
        cursor_.next();
      } else if (cursor_.at("\\\n") || cursor_.at("\\\r\n")) {
        cursor_.skip(cursor_.peek(1) == '\r' ? 3 : 2);
      } else if (c == '#') {
        while (!cursor_.done() && cursor_.peek() != '\n') {
          cursor_.next();
        }
      } else if (shell::is_metacharacter(c)) {
        cursor_.fail(fmt::format("unexpected \"{}\" in an array", c));
      } else {
        expander_.read_word(cursor_, values, true);
      }
    }
    if (cursor_.done()) {
      start.fail("array without its \")\"");
    }
    cursor_.next();
  }

  void assign(const std::string& name, Values values, bool appends, bool array, int line) {
    const Taken taken = mode();
    if (taken == Taken::No) {
      return;
    }
    Values& variable = variables_[name];
    Values result = appends ? variable : Values();
    if (appends && !array && !result.empty()) {
      result.front() += values.front();
    } else {
      result.insert(result.end(), values.begin(), values.end());
    }
    if (taken == Taken::Maybe && result != variable) {
      // What an array held before stays known.
      result = appends && array ? variable : Values();
      result.push_back(expander_.mark(
          fmt::format("${} depends on a condition (line {}) that is not known", name, line)));
    }
    variable = std::move(result);
  }

  void read_command_word() {
    const bool first = at_command_start();
    if (words_.empty()) {
      command_line_ = cursor_.line;
    }
    const std::size_t begin = cursor_.pos;
    const std::size_t count = words_.size();
    const int line = cursor_.line;
    expander_.read_word(cursor_, words_, true);
    lines_.resize(words_.size(), line);
    last_word_end_ = cursor_.pos;
    const std::string_view raw = cursor_.text.substr(begin, cursor_.pos - begin);
    if (!first) {
      return;
    }
    constexpr std::array<std::string_view, 5> kDeclarations = {"export", "declare", "local",
                                                               "readonly", "typeset"};
    if (std::ranges::find(kDeclarations, raw) != kDeclarations.end()) {
      declares_ = true;
    } else if (!declares_ && read_keyword(raw)) {
      words_.resize(count);
      lines_.resize(count);
    }
  }

  // Whether `raw` is a word of the shell's own grammar; keeps track of the branches.
  bool read_keyword(std::string_view raw) {
    if (raw == "if") {
      branches_.push_back({.is_if = true, .now = Taken::Yes});
      condition_ = Taken::Maybe;
    } else if (raw == "for" || raw == "while" || raw == "until" || raw == "select" ||
               raw == "case") {
      branches_.push_back({});
      loop_variable_ = raw == "for" || raw == "select";
    } else if (raw == "then" && in_if()) {
      Branch& branch = branches_.back();
      branch.now = std::min(condition_, shell::opposite(branch.earlier));
      branch.earlier = std::max(branch.earlier, branch.now);
    } else if (raw == "elif" && in_if()) {
      branches_.back().now = Taken::Yes;
      condition_ = Taken::Maybe;
    } else if (raw == "else" && in_if()) {
      branches_.back().now = shell::opposite(branches_.back().earlier);
    } else if (raw == "fi" || raw == "done" || raw == "esac") {
      if (!branches_.empty()) {
        branches_.pop_back();
      }
    } else if (raw == "!") {
      negated_ = !negated_;
    } else if (raw != "do" && raw != "{" && raw != "}" && raw != "function" && raw != "time") {
      return false;
    }
    return true;
  }
  bool in_if() const { return !branches_.empty() && branches_.back().is_if; }

  void end_command() {
    if (!words_.empty()) {
      combine_condition();
      if (loop_variable_) {
        forget(words_.front(), "is a loop variable");
      } else if (mode() != Taken::No) {
        if (words_.front() == "read") {
          std::ranges::for_each(
              words_, [this](const std::string& name) { forget(name, "is read when it runs"); });
        }
        add_command();
      }
    }
    words_.clear();
    lines_.clear();
    declares_ = false;
    loop_variable_ = false;
    anything_ = false;
  }

  // How the command just read continues "a && b || c".
  void combine_condition() {
    Values words = words_;
    for (std::string& word : words) {
      word = expander_.without_unset(word);
    }
    Taken holds = shell::evaluate_test(words);
    holds = negated_ ? shell::opposite(holds) : holds;
    switch (connector_) {
      case Connector::None:
        condition_ = holds;
        break;
      case Connector::And:
        condition_ = std::min(condition_, holds);
        break;
      case Connector::Or:
        condition_ = std::max(condition_, holds);
        break;
      case Connector::Pipe:
        condition_ = Taken::Maybe;
        break;
    }
    negated_ = false;
  }

  void forget(const std::string& name, std::string_view reason) {
    variables_[name] = {expander_.mark(fmt::format("${} {}", name, reason))};
  }

  // A whole command line in one word, as in `bash -c "... --flag ..."`, is taken apart.
  void add_command() {
    ShellCommand command{.words = {}, .line = command_line_};
    for (std::size_t i = 0; i < words_.size(); ++i) {
      const bool nested = words_[i].find(" --") != std::string::npos;
      std::string_view rest = words_[i];
      while (nested && !rest.empty()) {
        const std::size_t end = std::min(rest.find_first_of(" \t\r\n"), rest.size());
        if (end > 0) {
          command.words.push_back(expander_.to_word(rest.substr(0, end), lines_[i]));
        }
        rest.remove_prefix(std::min(end + 1, rest.size()));
      }
      if (!nested) {
        command.words.push_back(expander_.to_word(rest, lines_[i]));
      }
    }
    commands_.push_back(std::move(command));
  }

  Cursor cursor_;
  shell::Variables variables_;
  shell::Expander expander_;
  std::vector<ShellCommand> commands_;
  std::vector<Branch> branches_;
  std::vector<std::string> here_documents_;
  Values words_;  // of the command being read
  std::vector<int> lines_;
  int command_line_ = 0;
  std::size_t last_word_end_ = 0;
  bool declares_ = false;  // export, local, ...
  bool anything_ = false;  // since the last operator
  bool after_and_or_ = false;
  bool loop_variable_ = false;      // the next command is "NAME in ..."
  Taken condition_ = Taken::Maybe;  // of the list of commands being read
  Connector connector_ = Connector::None;
  bool negated_ = false;
};

}  // namespace

std::vector<ShellCommand> read_shell(std::string_view text, const std::string& where) {
  return ScriptReader(text, where).read();
}

}  // namespace orrery::plan
