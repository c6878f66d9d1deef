// SPDX-License-Identifier: Apache-2.0
#include "cli/fixed_check.hpp"

#include <fmt/format.h>

#include "base/error.hpp"

namespace orrery::cli {
namespace {

constexpr std::string_view kWhere = "--fix";

class FixedCheck {
 public:
  FixedCheck(const plan::Plan& base, const search::Constraints& constraints)
      : base_(base), spec_(base.network.spec), constraints_(constraints) {}

  void check() const {
    check_degrees();
    check_network();
    check_batch();
  }

 private:
  std::int64_t number(std::string_view field) const {
    return constraints_.fixed_number(field).value_or(1);
  }

  // Fixed degrees and their product: "tp x pp = 8 x 5 = 40".
  void check_degrees() const {
    std::string names;
    std::string values;
    std::int64_t product = 1;
    int fixed = 0;
    for (const std::string_view name : {"tp", "cp", "dp", "pp"}) {
      if (const auto value = constraints_.fixed_number(name)) {
        names += fmt::format("{}{}", fixed == 0 ? "" : " x ", name);
        values += fmt::format("{}{}", fixed == 0 ? "" : " x ", *value);
        product = saturated_product(product, *value);
        ++fixed;
      }
    }
    const std::int64_t gpus = base_.cluster.num_gpus();
    const std::string text =
        fixed > 1 ? fmt::format("{} = {} = {}", names, values, product)
                  : fmt::format("{} = {}", names, product);
    if (gpus % product != 0) {
      bad_input(kWhere, fmt::format("{} does not divide the {} GPUs of {}", text, gpus,
                                    base_.cluster.name));
    }
    if (fixed == 4 && product != gpus) {
      bad_input(kWhere, fmt::format("{}, but {} has {} GPUs", text, base_.cluster.name, gpus),
                "leave one degree out to let it follow");
    }
  }

  static std::int64_t saturated_product(std::int64_t a, std::int64_t b) {
    constexpr std::int64_t kLargest = std::int64_t{1} << 40;
    return a > kLargest / b ? kLargest : a * b;
  }

  void divides(std::string_view field, std::int64_t value, std::string_view what) const {
    const std::int64_t fixed = number(field);
    if (value % fixed != 0) {
      bad_input(kWhere, fmt::format("{} = {} does not divide the {} {} of {}", field, fixed, value,
                                    what, spec_.name));
    }
  }

  void check_network() const {
    divides("tp", spec_.heads, "attention heads");
    divides("tp", spec_.ffn_hidden, "columns of the feed-forward layers");
    if (spec_.moe.experts > 0) {
      divides("ep", spec_.moe.experts, "experts");
    } else if (number("ep") > 1) {
      bad_input(kWhere, fmt::format("ep = {}, but {} has no experts", number("ep"), spec_.name));
    }
    const std::int64_t layers = spec_.layers + spec_.encoder_layers;
    const std::int64_t stages = saturated_product(number("pp"), number("chunks"));
    if (stages > layers) {
      bad_input(kWhere, fmt::format("pp x chunks = {} x {} = {} stages, but {} has {} layers",
                                    number("pp"), number("chunks"), stages, spec_.name, layers));
    }
    if (number("chunks") > 1 && layers % stages != 0) {
      bad_input(kWhere,
                fmt::format("pp x chunks = {} x {} = {} does not divide the {} layers of {}",
                            number("pp"), number("chunks"), stages, layers, spec_.name));
    }
  }

  void check_batch() const {
    const std::int64_t step = saturated_product(number("dp"), number("micro_batch"));
    if (base_.batch % step != 0) {
      bad_input(kWhere, fmt::format("dp x micro_batch = {} x {} = {} does not divide the batch {}",
                                    number("dp"), number("micro_batch"), step, base_.batch));
    }
  }

  const plan::Plan& base_;
  const models::NetworkSpec& spec_;
  const search::Constraints& constraints_;
};

}  // namespace

void check_fixed(const plan::Plan& base, const search::Constraints& constraints) {
  FixedCheck(base, constraints).check();
}

}  // namespace orrery::cli
