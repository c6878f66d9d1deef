// SPDX-License-Identifier: Apache-2.0
// Where the tests' data lie. Functions of main.cpp, so that no other object holds a path of this
// checkout and a compiler cache serves all of them.
#pragma once

#include <filesystem>

namespace orrery {

std::filesystem::path source_folder();
std::filesystem::path test_folder();
// Measurements, tables and specifications beside the checkout; tests skip where there are none.
std::filesystem::path shared_folder();

}  // namespace orrery
