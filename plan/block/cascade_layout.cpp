// SPDX-License-Identifier: Apache-2.0
#include "plan/block/cascade_layout.hpp"

#include <fmt/format.h>

#include <string_view>

#include "base/error.hpp"
#include "plan/block_rules.hpp"

namespace orrery::plan {
namespace {

class Checker {
 public:
  Checker(const models::CascadeSpec& cascade, const std::string& where)
      : cascade_(cascade), where_(where) {}

  // Of meshes check_layouts() says which tensor does not divide.
  void check_widths(const BlockPlan& layout) const {
    divides("tp", layout.tp, "heads", cascade_.heads);
    divides("tp", layout.tp, "hidden", cascade_.hidden);
    if (layout.tensor_parallel == TensorMesh::OneD) {
      divides("tp", layout.tp, "ffn_hidden", cascade_.ffn_hidden);
    }
  }

  void check_tokens(const BlockPlan& layout, bool causal) const {
    const std::int64_t cp = layout.cp;
    if (layout.sequence_parallel && layout.tp > 1) {
      divides("tp x cp (sequence_parallel)", layout.tp * cp, "tokens", cascade_.tokens);
    }
    if (causal && balances_causal(layout)) {
      divides("2 x cp (zigzag)", 2 * cp, "tokens", cascade_.tokens);
    } else {
      divides("cp", cp, "tokens", cascade_.tokens);
    }
  }

  void check_exchange(const BlockPlan& layout) const {
    if (layout.cp > 1 && layout.context == ContextParallel::Ulysses) {
      // Columns alone of a mesh cut heads.
      const std::int64_t parts = std::int64_t{tensor_factors(layout).columns} * layout.cp;
      divides("tp x cp (Ulysses)", parts, "heads", cascade_.heads);
    }
  }

 private:
  void divides(std::string_view ranks, std::int64_t parts, std::string_view field,
               std::int64_t value) const {
    if (value % parts != 0) {
      bad_input(where_, fmt::format("cascade.{} = {} is not divisible by {} = {}", field, value,
                                    ranks, parts));
    }
  }

  const models::CascadeSpec& cascade_;
  const std::string& where_;
};

}  // namespace

bool splits_tokens(const models::NetworkSpec& spec, std::int64_t sequence, std::int64_t cp) {
  return cp == 1 || (sequence % (2 * cp) == 0 && spec.cascade.tokens % (2 * cp) == 0);
}

void check_cascade_layout(const models::NetworkSpec& spec, const BlockPlan& layout,
                          const std::string& where) {
  if (spec.cascade.layers == 0) {
    return;
  }
  const Checker checker(spec.cascade, where);
  checker.check_tokens(layout, spec.causal);
  if (layout.tensor_shares.empty()) {  // else check_layouts() knows what each rank holds
    checker.check_widths(layout);
    checker.check_exchange(layout);
  }
}

}  // namespace orrery::plan
