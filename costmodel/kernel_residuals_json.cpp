// SPDX-License-Identifier: Apache-2.0
// Residual sets as text. A row holds the points that differ in their last size only:
// "5120 1536: 16 -12 17 3" is k = 5120, n = 1536 with m = 16 at -0.012 and m = 17 at 0.003.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <mutex>

#include "base/error.hpp"
#include "base/files.hpp"
#include "base/text.hpp"
#include "costmodel/kernel_residuals.hpp"

namespace orrery::costmodel {

namespace {

constexpr std::string_view kResidualsSchema = "orrery-kernel-residuals";
constexpr std::string_view kResidualsFolder = "costmodel/kernels";
constexpr std::array<std::string_view, kNumKernelKinds> kKinds = {
    "gemm", "grouped-gemm", "attention-forward", "attention-backward"};
constexpr std::array<std::string_view, kNumGemmLayouts> kLayouts = {"tn", "nn", "nt"};
constexpr std::array<std::string_view, 2> kLoads = {"burst", "sustained"};
constexpr std::array<int, kNumKernelKinds> kSizes = {3, 4, 8, 8};
constexpr std::int64_t kMaxSize = std::int64_t{1} << 31;
constexpr std::size_t kMaxPoints = 200'000;
constexpr std::size_t kPairsPerRow = 12;

// The whole numbers of one row.
class Numbers {
 public:
  Numbers(const JsonReader& row, std::string_view text) : row_(row), rest_(text) {}
  bool done() {
    rest_ = trim(rest_);
    return rest_.empty();
  }
  std::int64_t next(std::int64_t min, std::int64_t max) {
    rest_ = trim(rest_);
    std::int64_t value = 0;
    const auto [end, error] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), value);
    if (error != std::errc() || value < min || value > max) {
      row_.fail(fmt::format("\"{}\" where a whole number from {} to {} is expected",
                            printable(rest_.substr(0, 20)), min, max),
                "a row is \"SIZES: LAST PERMILLE LAST PERMILLE ...\"");
    }
    rest_.remove_prefix(static_cast<std::size_t>(end - rest_.data()));
    return value;
  }

 private:
  const JsonReader& row_;
  std::string_view rest_;
};

void read_row(const JsonReader& row, int sizes, std::vector<KernelPoint>& points) {
  const std::string text = row.string();
  const std::size_t colon = text.find(':');
  if (colon == std::string::npos) {
    row.fail("a row without a colon", "a row is \"SIZES: LAST PERMILLE LAST PERMILLE ...\"");
  }
  Numbers shared(row, std::string_view(text).substr(0, colon));
  Numbers pairs(row, std::string_view(text).substr(colon + 1));
  KernelPoint point;
  const auto last = static_cast<std::size_t>(sizes - 1);
  for (std::size_t i = 0; i < last; ++i) {
    point.sizes[i] = shared.next(sizes == 3 || sizes == 4 ? 1 : 0, kMaxSize);
  }
  if (!shared.done()) {
    row.fail(fmt::format("more than {} sizes before the colon", last));
  }
  const int limit = static_cast<int>(1000 * std::log(KernelResiduals::kMaxFactor)) + 1;
  while (!pairs.done()) {
    point.sizes[last] = pairs.next(1, kMaxSize);
    point.permille = static_cast<int>(pairs.next(-limit, limit));
    points.push_back(point);
  }
  if (points.size() > kMaxPoints) {
    row.fail(fmt::format("more than {} points", kMaxPoints));
  }
}

template <class Names>
std::size_t index_of(const JsonReader& value, const Names& names) {
  const std::string name = value.one_of(names);
  return static_cast<std::size_t>(std::find(names.begin(), names.end(), name) - names.begin());
}

ResidualSet read_set(const JsonReader& value) {
  ObjectReader object(value);
  ResidualSet set;
  set.key.kind = static_cast<KernelKind>(index_of(object.required("kernel"), kKinds));
  const JsonReader dtype = object.required("dtype");
  set.key.dtype = parse_dtype(dtype.string(), dtype.where());
  set.key.layout = static_cast<GemmLayout>(index_of(object.required("layout"), kLayouts));
  set.key.load = static_cast<Load>(index_of(object.required("load"), kLoads));
  const JsonReader rows = object.required("points");
  for (const JsonReader& row : rows.array()) {
    read_row(row, num_sizes(set.key.kind), set.points);
  }
  const auto by_sizes = [](const KernelPoint& a, const KernelPoint& b) {
    return a.sizes < b.sizes;
  };
  std::sort(set.points.begin(), set.points.end(), by_sizes);
  const auto same = std::adjacent_find(
      set.points.begin(), set.points.end(),
      [](const KernelPoint& a, const KernelPoint& b) { return a.sizes == b.sizes; });
  if (same != set.points.end()) {
    rows.fail("the same shape twice", "give the median of repeated measurements");
  }
  object.finish();
  return set;
}

Json rows_of(const ResidualSet& set) {
  const auto last = static_cast<std::size_t>(num_sizes(set.key.kind) - 1);
  Json rows = Json::array();
  std::string text;
  std::size_t pairs = 0;
  const KernelPoint* previous = nullptr;
  for (const KernelPoint& point : set.points) {
    const bool same =
        previous != nullptr &&
        std::equal(point.sizes.begin(), point.sizes.begin() + last, previous->sizes.begin());
    if (!same || pairs == kPairsPerRow) {
      if (previous != nullptr) {
        rows.push(text);
      }
      text = fmt::format("{}:", fmt::join(point.sizes.begin(), point.sizes.begin() + last, " "));
      pairs = 0;
    }
    text += fmt::format(" {} {}", point.sizes[last], point.permille);
    ++pairs;
    previous = &point;
  }
  if (previous != nullptr) {
    rows.push(text);
  }
  return rows;
}

}  // namespace

std::string_view to_text(KernelKind kind) { return kKinds[static_cast<std::size_t>(kind)]; }
std::string_view to_text(GemmLayout layout) { return kLayouts[static_cast<std::size_t>(layout)]; }
std::string_view to_text(Load load) { return kLoads[static_cast<std::size_t>(load)]; }
int num_sizes(KernelKind kind) { return kSizes[static_cast<std::size_t>(kind)]; }

KernelResiduals read_kernel_residuals(const JsonReader& value, std::string name) {
  ObjectReader object(value);
  object.expect_schema(kResidualsSchema, 1);
  const int sms = static_cast<int>(object.required("sms").integer(1, 65'536));
  std::string source = object.required("source").string();
  std::vector<ResidualSet> sets;
  const JsonReader list = object.required("sets");
  for (const JsonReader& item : list.array(1000)) {
    sets.push_back(read_set(item));
    const auto twice = std::count_if(sets.begin(), sets.end(), [&](const ResidualSet& set) {
      return set.key == sets.back().key;
    });
    if (twice > 1) {
      item.fail("a second set of the same kernel, dtype, layout and load");
    }
  }
  object.finish();
  return {std::move(name), sms, std::move(source), std::move(sets)};
}

Json to_json(const KernelResiduals& residuals) {
  Json document = Json::object();
  document.set("schema", kResidualsSchema);
  document.set("version", 1);
  document.set("sms", residuals.sms());
  document.set("source", residuals.source());
  Json& sets = document.set("sets", Json::array());
  for (const ResidualSet& set : residuals.sets()) {
    Json item = Json::object();
    item.set("kernel", to_text(set.key.kind));
    item.set("dtype", to_text(set.key.dtype));
    item.set("layout", to_text(set.key.layout));
    item.set("load", to_text(set.key.load));
    item.set("points", rows_of(set));
    sets.push(std::move(item));
  }
  return document;
}

KernelResiduals load_kernel_residuals(const std::string& name, const std::string& where) {
  const std::vector<std::string> names = data_names(kResidualsFolder);
  if (std::find(names.begin(), names.end(), name) == names.end()) {
    bad_input(where, fmt::format("no kernel residuals are called \"{}\"", printable(name)),
              nearest_hint(name, names));
  }
  // Read once: every plan and every row of a validation asks for them again.
  static std::mutex mutex;
  static std::map<std::string, KernelResiduals> loaded;
  const std::string path = data_path(fmt::format("{}/{}.json", kResidualsFolder, name));
  const std::scoped_lock lock(mutex);
  auto found = loaded.find(path);
  if (found == loaded.end()) {
    const Json document = read_json_file(path);
    found = loaded.emplace(path, read_kernel_residuals(JsonReader(document, path), name)).first;
  }
  return found->second;
}

}  // namespace orrery::costmodel
