// SPDX-License-Identifier: Apache-2.0
#include "calibrate/collective_row.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "base/dtype.hpp"
#include "base/error.hpp"
#include "base/limits.hpp"
#include "base/quantity_text.hpp"
#include "base/text.hpp"
#include "calibrate/printed.hpp"
#include "calibrate/reading_builder.hpp"

namespace orrery::calibrate {
namespace {

using sim::CommKind;

constexpr double kGigabyte = 1e9;

// Bytes of an element (test_typenames of nccl-tests and rccl-tests); 0 for others.
double element_bytes(std::string_view type) {
  if (const auto dtype = foreign_dtype(type)) {
    return bytes_per_element(*dtype);
  }
  constexpr auto kOthers = std::to_array<std::pair<std::string_view, double>>({{"int8", 1},
                                                                               {"uint8", 1},
                                                                               {"char", 1},
                                                                               {"int32", 4},
                                                                               {"uint32", 4},
                                                                               {"int", 4},
                                                                               {"int64", 8},
                                                                               {"uint64", 8},
                                                                               {"double", 8}});
  const auto* found = std::find_if(kOthers.begin(), kOthers.end(),
                                   [&](const auto& entry) { return entry.first == type; });
  return found == kOthers.end() ? 0 : found->second;
}

// Collectives whose data is divided among the ranks.
bool is_divided(CommKind kind) {
  return kind == CommKind::AllGather || kind == CommKind::ReduceScatter ||
         kind == CommKind::AllToAll;
}

struct Convention {
  double rate = 1;  // algbw x time / size
  double bus = 1;   // busbw / algbw
};

// Of divided data, versions differ in whether the size is the part of one rank, and the first ones
// left the rank's own part out of algbw.
std::vector<Convention> conventions(const CollectiveRow& row) {
  const auto ranks = static_cast<double>(row.ranks);
  const double others = (ranks - 1) / ranks;
  if (row.kind == CommKind::AllReduce) {
    return {{1, 2 * others}};
  }
  if (!is_divided(row.kind)) {
    return {{1, 1}};
  }
  return {{1, others}, {ranks, others}, {1 / ranks, others}, {ranks - 1, 1}, {others, 1}};
}

}  // namespace

std::string size_contradiction(const CollectiveRow& row) {
  const double element = element_bytes(to_lower(row.type));
  if (element == 0 || row.count <= 0) {
    return "";
  }
  const double elements = static_cast<double>(row.count) * element;
  const auto bytes = static_cast<double>(row.bytes);
  if (bytes == elements ||
      (is_divided(row.kind) && bytes == elements * static_cast<double>(row.ranks))) {
    return "";
  }
  return fmt::format(
      "size {}, but {} elements of type {} are {:.0f} bytes{}", row.bytes, row.count,
      printable(row.type), elements,
      is_divided(row.kind) ? fmt::format(" on each of {} ranks", row.ranks) : std::string());
}

std::string rate_contradiction(const CollectiveRow& row, const traces::NcclTiming& timing) {
  const bool has_alg = timing.algbw_rounding.value() > 0;
  const bool has_bus = timing.busbw_rounding.value() > 0;
  const Printed time = Printed::around(timing.time.value(), timing.time_rounding.value());
  const Printed algbw = Printed::around(timing.algbw.value(), timing.algbw_rounding.value());
  const Printed busbw = Printed::around(timing.busbw.value(), timing.busbw_rounding.value());
  // A time that rounding may have taken from zero bounds no rate.
  const auto bytes = static_cast<double>(row.bytes);
  const bool timed = time.low > 0;
  const Printed rate = timed ? Printed{bytes / time.high, bytes / time.low} : Printed{};
  const double apparent = timing.time.value() > 0 ? bytes / timing.time.value() / kGigabyte : 0;
  std::vector<Convention> possible = conventions(row);
  std::erase_if(possible, [&](const Convention& convention) {
    return timed && has_alg && !algbw.meets(rate.times(convention.rate));
  });
  if (possible.empty()) {
    return fmt::format("algbw {:.2f} GB/s, but {} in {:g} s are {:.2f} GB/s",
                       timing.algbw.value() / kGigabyte, format_bytes(Bytes(bytes)),
                       timing.time.value(), apparent);
  }
  const Convention& usual = possible.front();
  const bool sound =
      std::any_of(possible.begin(), possible.end(), [&](const Convention& convention) {
        return has_alg ? busbw.meets(algbw.times(convention.bus))
                       : !timed || busbw.meets(rate.times(convention.rate * convention.bus));
      });
  if (!has_bus || sound) {
    return "";
  }
  const std::string whose = fmt::format("{} on {} ranks", sim::to_text(row.kind), row.ranks);
  return has_alg ? fmt::format("busbw {:.2f} GB/s, but algbw {:.2f} GB/s of {} is {:.2f} GB/s",
                               timing.busbw.value() / kGigabyte, timing.algbw.value() / kGigabyte,
                               whose, timing.algbw.value() * usual.bus / kGigabyte)
                 : fmt::format("busbw {:.2f} GB/s, but {} in {:g} s of {} are {:.2f} GB/s",
                               timing.busbw.value() / kGigabyte, format_bytes(Bytes(bytes)),
                               timing.time.value(), whose, apparent * usual.rate * usual.bus);
}

void check_busbw(const CsvTable& table, std::size_t index, const CollectiveRow& row,
                 std::string_view time_column) {
  constexpr std::string_view kBusbw = "busbw_GBps";
  if (!table.has_column(kBusbw) || table.cell(index, kBusbw).empty()) {
    return;
  }
  const auto number = [&](std::string_view column) {
    return parse_number(table.cell(index, column), table.where(index, column), 0,
                        limits::kMaxQuantity);
  };
  const auto rounding = [&](std::string_view column) {
    return traces::half_of_last_digit(table.cell(index, column));
  };
  traces::NcclTiming timing;
  timing.time = Seconds(number(time_column) * 1e-6);
  timing.time_rounding = Seconds(rounding(time_column) * 1e-6);
  timing.busbw = BytesPerSecond(number(kBusbw) * kGigabyte);
  timing.busbw_rounding = BytesPerSecond(rounding(kBusbw) * kGigabyte);
  if (const std::string wrong = rate_contradiction(row, timing); !wrong.empty()) {
    bad_input(table.where(index, kBusbw), wrong, "columns were confused or the row was edited");
  }
}

}  // namespace orrery::calibrate
