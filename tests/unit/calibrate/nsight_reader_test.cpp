// SPDX-License-Identifier: Apache-2.0
// Exports of Nsight Systems, databases made here.
#include <gmock/gmock.h>
#include <sqlite3.h>

#include "tests/unit/calibrate/reader_files.hpp"

namespace orrery::calibrate {
namespace {

using testing::HasSubstr;

class NsightReader : public ReaderFiles {
 protected:
  // A database of the statements.
  std::string database(const std::string& name, const std::string& sql) const {
    const std::string path = (folder_ / name).string();
    sqlite3* handle = nullptr;
    EXPECT_EQ(sqlite3_open(path.c_str(), &handle), SQLITE_OK);
    char* message = nullptr;
    EXPECT_EQ(sqlite3_exec(handle, sql.c_str(), nullptr, nullptr, &message), SQLITE_OK) << message;
    sqlite3_close(handle);
    return path;
  }
};

constexpr const char* kTables =
    "CREATE TABLE StringIds (id INTEGER, value TEXT);"
    "INSERT INTO StringIds VALUES (1, 'ampere_gemm'), (2, 'relu');"
    "CREATE TABLE TARGET_INFO_GPU (name TEXT);"
    "INSERT INTO TARGET_INFO_GPU VALUES ('NVIDIA A100-SXM4-80GB');"
    "CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER, \"end\" INTEGER, shortName INTEGER,"
    " correlationId INTEGER);"
    "CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY (start INTEGER, \"end\" INTEGER, bytes INTEGER,"
    " copyKind INTEGER, srcKind INTEGER, dstKind INTEGER);"
    "CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER, \"end\" INTEGER, globalTid INTEGER,"
    " correlationId INTEGER);"
    "CREATE TABLE NVTX_EVENTS (start INTEGER, \"end\" INTEGER, text TEXT, globalTid INTEGER,"
    " textId INTEGER);";

TEST_F(NsightReader, Exports) {
  const std::string path = database(
      "report.sqlite",
      std::string(kTables) +
          "INSERT INTO NVTX_EVENTS VALUES (100, 200, 'aten::mm, op_id = 3, sizes = [[64, 32], "
          "[32, 16]]', 9, NULL);"
          "INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (150, 160, 9, 41), (250, 260, 9, 42);"
          "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (1000, 6000, 1, 41), (7000, 9000, 2, 42);"
          "INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY VALUES (0, 1000, 4096, 2, 0, 1);");
  const Reading reading = read(path);
  const SampleFile& file = reading.files.front();
  EXPECT_EQ(file.header.gpu, "a100-sxm4-80gb");
  ASSERT_EQ(file.samples.size(), 2U);
  EXPECT_EQ(std::get<GemmSample>(file.samples[0].shape), (GemmSample{.m = 64, .n = 16, .k = 32}));
  EXPECT_DOUBLE_EQ(file.samples[0].time.median.value(), 5e-6);
  EXPECT_EQ(
      std::get<HostCopySample>(file.samples[1].shape),
      (HostCopySample{.bytes = 4096, .direction = CopyDirection::DeviceToHost, .pinned = false}));
  ASSERT_EQ(reading.kernels.size(), 1U);
  EXPECT_EQ(reading.kernels.front().name, "relu");
}

// Split-K adds up in a second kernel. Another process numbers its launches alike.
TEST_F(NsightReader, ProductsOfSeveralKernelsAndProcesses) {
  const std::string first = std::to_string(std::int64_t{1} << 24);
  const std::string second = std::to_string(std::int64_t{2} << 24);
  const std::string path = database(
      "processes.sqlite",
      std::string(kTables) +
          "ALTER TABLE CUPTI_ACTIVITY_KIND_KERNEL ADD COLUMN globalPid INTEGER;"
          "INSERT INTO NVTX_EVENTS VALUES (100, 200, 'aten::mm, op_id = 3, sizes = [[64, 32], "
          "[32, 16]]', " +
          first + " + 9, NULL);" + "INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (150, 160, " +
          first + " + 9, 41), (170, 180, " + first + " + 9, 42), (150, 160, " + second +
          " + 9, 41);" + "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (1000, 6000, 1, 41, " +
          first + "), (7000, 9000, 1, 42, " + first + "), (7000, 9000, 2, 41, " + second + ");");
  const Reading reading = read(path);
  ASSERT_EQ(reading.files.front().samples.size(), 1U);
  const Sample& product = reading.files.front().samples.front();
  EXPECT_EQ(std::get<GemmSample>(product.shape), (GemmSample{.m = 64, .n = 16, .k = 32}));
  EXPECT_DOUBLE_EQ(product.time.median.value(), 7e-6);
  ASSERT_EQ(reading.kernels.size(), 1U);
  EXPECT_EQ(reading.kernels.front().name, "relu");
}

TEST_F(NsightReader, Faults) {
  const std::string negative = database(
      "neg.sqlite",
      std::string(kTables) + "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (9000, 7000, 2, 42);");
  EXPECT_THAT(message_of(negative),
              testing::AllOf(HasSubstr("CUPTI_ACTIVITY_KIND_KERNEL row 1"), HasSubstr("possible")));
  EXPECT_THAT(message_of(database("none.sqlite", "CREATE TABLE t (a);")),
              HasSubstr("neither kernels nor copies"));
  EXPECT_THAT(message_of(database("columns.sqlite",
                                  "CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER);")),
              HasSubstr("CUPTI_ACTIVITY_KIND_KERNEL: has no column \"end\""));
  const std::string kinds = database(
      "kinds.sqlite", std::string(kTables) +
                          "INSERT INTO TARGET_INFO_GPU VALUES ('NVIDIA H100 80GB HBM3');"
                          "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (1, 7000, 2, 42);");
  EXPECT_THAT(message_of(kinds), HasSubstr("TARGET_INFO_GPU: GPUs of several kinds"));
  EXPECT_EQ(read(kinds, true).kernels.size(), 1U);
  const std::string whole =
      database("cut.sqlite", std::string(kTables) +
                                 "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (1, 7000, 2, 42);");
  std::filesystem::resize_file(whole, 3000);
  EXPECT_THAT(message_of(whole), HasSubstr("cut.sqlite"));
  EXPECT_THAT(message_of(write("fake.sqlite", "SQLite format 3" + std::string(200, '\x7f'))),
              HasSubstr("fake.sqlite"));
}

}  // namespace
}  // namespace orrery::calibrate
