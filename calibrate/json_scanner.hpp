// SPDX-License-Identifier: Apache-2.0
// A JSON document of gigabytes as a stream of tokens that the caller asks for one by one, in
// constant memory. What nobody asks for is passed over at the speed of a search for brackets and
// quotes: its brackets and quotes have to come in pairs, nothing else is looked at.
// Throws JsonScanner::Fault where the text is not JSON or nested too deeply, and the Error of the
// stream where it cannot be read.
#pragma once

#include <cstdint>
#include <istream>
#include <string>
#include <vector>

namespace orrery::calibrate {

class JsonScanner {
 public:
  struct Fault {
    std::int64_t line = 1;
    bool too_deep = false;
  };
  // Whole, or else rounded to zero where it fits.
  struct Number {
    double value = 0;
    std::int64_t whole = -1;
  };

  explicit JsonScanner(std::istream& stream);

  // The first character of what follows, blanks passed over; 0 at the end of the document.
  char peek();
  // '{' or '['; then next_key or next_element until they say false.
  void open(char bracket);
  bool next_key(std::string& key);  // and its colon
  bool next_element();
  void skip_rest();  // of the object or list that was opened last
  void skip();       // one value
  // A value of the kind that peek told: '"', a digit or '-', else "true", "false" and "null" as
  // their first letter. Text is cut after kMaxText bytes.
  void string(std::string& text);
  Number number();
  char literal();

  static constexpr std::size_t kMaxText = 4096;

 private:
  [[noreturn]] void fail(bool too_deep = false) const { throw Fault{line_, too_deep}; }
  bool refill();
  char take();  // any character; fails at the end
  void expect(char wanted);
  void escape(std::string& text);
  unsigned hexadecimal();
  void pass_string();  // behind its first quote
  void pass_brackets(int depth);
  bool continues(char end);

  std::istream& stream_;
  std::vector<char> buffer_;
  const char* at_ = nullptr;
  const char* end_ = nullptr;
  std::int64_t line_ = 1;
  std::vector<char> first_;  // of every open bracket: nothing was read in it yet
};

}  // namespace orrery::calibrate
