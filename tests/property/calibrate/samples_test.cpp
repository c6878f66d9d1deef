// SPDX-License-Identifier: Apache-2.0
#include "calibrate/samples.hpp"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include "base/error.hpp"

namespace orrery::calibrate {
namespace {

std::int64_t extent() { return *rc::gen::inRange<std::int64_t>(1, 1LL << 20); }
bool coin() { return *rc::gen::arbitrary<bool>(); }
template <class Enum>
Enum one_of_first(int count) {
  return static_cast<Enum>(*rc::gen::inRange(0, count));
}

GemmSample any_gemm() {
  return {extent(),
          extent(),
          extent(),
          *rc::gen::inRange<std::int64_t>(1, 100),
          one_of_first<DType>(kNumDTypes),
          one_of_first<GemmLayout>(3),
          one_of_first<DType>(kNumDTypes),
          coin()};
}

AttentionSample any_attention() {
  const std::int64_t kv_heads = *rc::gen::inRange<std::int64_t>(1, 100);
  return {extent(),
          kv_heads * *rc::gen::inRange<std::int64_t>(1, 9),
          kv_heads,
          extent(),
          extent(),
          *rc::gen::inRange<std::int64_t>(1, 513),
          *rc::gen::inRange<std::int64_t>(1, 513),
          coin(),
          *rc::gen::inRange<std::int64_t>(0, 5000),
          one_of_first<DType>(kNumDTypes),
          coin()};
}

MemorySample any_memory() {
  return {one_of_first<costmodel::MemoryKernel>(costmodel::kNumMemoryKernels),
          "operation",
          extent(),
          extent() - 1,
          extent() - 1,
          extent() - 1,
          one_of_first<DType>(kNumDTypes),
          coin()};
}

CollectiveSample any_collective() {
  const std::int64_t per_node = *rc::gen::inRange<std::int64_t>(1, 9);
  const std::int64_t nodes = *rc::gen::inRange<std::int64_t>(1, 99);
  CollectiveSample sample = {static_cast<sim::CommKind>(*rc::gen::inRange(1, 7)),
                             extent(),
                             per_node * nodes,
                             per_node,
                             nodes,
                             coin(),
                             *rc::gen::inRange<std::int64_t>(1, 9)};
  if (coin()) {
    sample.beside = any_gemm();
    sample.times_gemm = coin();
  }
  return sample;
}

Shape any_shape() {
  switch (*rc::gen::inRange(0, 6)) {
    case 0:
      return any_gemm();
    case 1:
      return any_attention();
    case 2:
      return any_memory();
    case 3:
      return HostCopySample{extent(), one_of_first<CopyDirection>(3), coin()};
    case 4:
      return LaunchSample{extent(), coin(), coin()};
    default:
      return any_collective();
  }
}

SampleFile any_file() {
  SampleFile file;
  file.header.device = "d" + *rc::gen::string<std::string>();
  file.header.sm_clock_mhz = *rc::gen::inRange(0, 9000) / 7.0;
  const int count = *rc::gen::inRange(0, 8);
  for (int i = 0; i < count; ++i) {
    const double median = *rc::gen::inRange(1, 1'000'000) * 1e-7 / 3;
    const double p75 = median * (1 + *rc::gen::inRange(0, 100) / 99.0);
    file.samples.push_back(
        {.shape = any_shape(),
         .time = {Seconds(median), Seconds(median / 1.5), Seconds(p75), extent()},
         .implementation = coin() ? "cublasLt" : "",
         .source = coin() ? "f:1" : "",
         .flags = {coin(), coin(), coin(), coin(), coin()}});
  }
  return file;
}

TEST(SamplesProperty, WritingAndReadingBackIsEqual) {
  EXPECT_TRUE(rc::check([] {
    SampleFile file = any_file();
    // Text that is not UTF-8 is not kept byte for byte by JSON.
    for (char& letter : file.header.device) {
      letter = static_cast<char>(letter & 0x7f);
    }
    const std::string text = sample_text(file);
    RC_ASSERT(read_samples(parse_json(text, "f"), "f") == file);
    RC_ASSERT(text == sample_text(file));
  }));
}

// Whatever a file holds: samples or one Error.
TEST(SamplesProperty, ReaderIsTotal) {
  EXPECT_TRUE(rc::check([] {
    std::string text = sample_text(any_file());
    const int cuts = *rc::gen::inRange(0, 4);
    for (int i = 0; i < cuts; ++i) {
      const auto at = *rc::gen::inRange<std::size_t>(0, text.size());
      const auto length = *rc::gen::inRange<std::size_t>(0, 30);
      text.replace(at, length,
                   *rc::gen::element<std::string>("", "0", "-1", "\"x\"", "{", "]", "1e999", "null",
                                                  "\"kind\": \"gemm\",", "\xff"));
    }
    try {
      const SampleFile file = read_samples(parse_json(text, "f"), "f");
      for (const Sample& sample : file.samples) {
        RC_ASSERT(sample.time.p25.value() > 0);
        RC_ASSERT(sample.time.p25 <= sample.time.median && sample.time.median <= sample.time.p75);
      }
    } catch (const Error& error) {
      RC_ASSERT(error.kind() == ErrorKind::BadInput);
      RC_ASSERT(std::string(error.what()).starts_with("f:"));
    }
  }));
}

}  // namespace
}  // namespace orrery::calibrate
