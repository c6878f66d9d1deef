// SPDX-License-Identifier: Apache-2.0
// What all pictures share: text that is safe inside markup and broken into lines that fit, a whole
// document around a body, and colours that stay apart for colour-blind readers (Paul Tol's "bright"
// and "vibrant").
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

namespace orrery {

inline constexpr std::array<std::string_view, 10> kPictureColours = {
    "#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee",
    "#aa3377", "#ee7733", "#009988", "#882255", "#777777"};

// Control characters escaped, cut to 240 bytes, and &, <, >, " as entities.
std::string xml_text(std::string_view text);

// About the width of a text in pixels, in a sans-serif font of the given size. Fonts differ; this
// one is wide.
double text_width(std::string_view text, double font_size);

// The text cut at its spaces into lines of at most this width; a longer word keeps its own line.
std::vector<std::string> text_lines(std::string_view text, double width, double font_size);

// A line of text, made safe, with its start, middle or end at x and its baseline at y. `style`:
// further attributes, each with a blank before it.
std::string svg_text(double x, double y, std::string_view anchor, std::string_view content,
                     std::string_view style = "");

// A picture of the given size in pixels on white, in a sans-serif font of 12 pixels.
std::string svg_document(double width, double height, std::string_view body);

}  // namespace orrery
