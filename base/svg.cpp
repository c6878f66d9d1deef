// SPDX-License-Identifier: Apache-2.0
#include "base/svg.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/text.hpp"

namespace orrery {

std::string xml_text(std::string_view text) {
  std::string safe;
  for (const char c : printable(text, 240)) {
    switch (c) {
      case '&':
        safe += "&amp;";
        break;
      case '<':
        safe += "&lt;";
        break;
      case '>':
        safe += "&gt;";
        break;
      case '"':
        safe += "&quot;";
        break;
      default:
        safe += c;
    }
  }
  return safe;
}

double text_width(std::string_view text, double font_size) {
  constexpr double kOfSize = 0.6;  // a character of DejaVu Sans or Verdana
  const auto is_first = [](char c) { return (static_cast<unsigned char>(c) & 0xc0U) != 0x80U; };
  return kOfSize * font_size *
         static_cast<double>(std::count_if(text.begin(), text.end(), is_first));
}

std::vector<std::string> text_lines(std::string_view text, double width, double font_size) {
  std::vector<std::string> lines;
  for (const std::string_view word : split(text, ' ')) {
    if (!lines.empty() &&
        text_width(lines.back(), font_size) + text_width(word, font_size) < width) {
      lines.back() += ' ';
      lines.back() += word;
    } else {
      lines.emplace_back(word);
    }
  }
  return lines;
}

std::string svg_text(double x, double y, std::string_view anchor, std::string_view content,
                     std::string_view style) {
  return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\"{}>{}</text>\n", x, y,
                     anchor, style, xml_text(content));
}

std::string svg_document(double width, double height, std::string_view body) {
  return fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0:.0f}\" height=\"{1:.0f}\" "
      "viewBox=\"0 0 {0:.0f} {1:.0f}\" font-family=\"sans-serif\" font-size=\"12\" "
      "fill=\"#222\">\n<rect width=\"{0:.0f}\" height=\"{1:.0f}\" fill=\"#fff\"/>\n{2}</svg>\n",
      width, height, body);
}

}  // namespace orrery
