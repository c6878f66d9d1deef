// SPDX-License-Identifier: Apache-2.0
// Kernel times of linkedin/Liger-Kernel (liger_kernel.hpp): median, 20th and 80th percentile.
#include <algorithm>

#include "base/json.hpp"
#include "calibrate/liger_kernel.hpp"
#include "calibrate/table_reader.hpp"

namespace orrery::calibrate {
namespace {

void read_row(const TableRow& row) {
  const std::string& name = row.text("kernel");
  const std::string& pass = row.text("pass_");
  if (pass != "forward" && pass != "backward") {
    row.left_out("time of forward and backward together");
    return;
  }
  const std::optional<MemorySample> sample =
      liger_kernel({name, row.text("impl"), pass, row.text("x_name"), row.count("x"),
                    parse_json(row.text("config"), row.builder().path() + ": config")});
  if (!sample) {
    row.left_out("kernel \"" + name + "\" " + pass);
    return;
  }
  const double median = row.number("time_us_p50");
  const Timing time{.median = Seconds(median * 1e-6),
                    .p25 = Seconds(std::min(row.number("time_us_p20"), median) * 1e-6),
                    .p75 = Seconds(std::max(row.number("time_us_p80"), median) * 1e-6)};
  row.add(*sample, time, row.text("impl"));
}

Reading read(const std::string& path, const ReadOptions& options) {
  return read_table(path, options, read_row);
}

}  // namespace

extern const SampleReader reader_liger = {
    .name = "liger",
    .what = "kernel times (CSV)",
    .columns = "gpu,kernel,impl,pass_,x_name,x,config,time_us_p50,time_us_p20,time_us_p80",
    .read = read,
};

}  // namespace orrery::calibrate
