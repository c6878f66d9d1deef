// SPDX-License-Identifier: Apache-2.0
// The words of one line of nccl-tests output.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace orrery::traces {

std::vector<std::string_view> words_of(std::string_view line);
bool is_number(std::string_view word);  // digits only
// As many words as a row has, a count and nearly all others numbers, but no size in front, or a row
// behind other words.
bool is_damaged_row(const std::vector<std::string_view>& words, std::size_t columns);
// A line without the time, and the stream, that collectors of logs put before it:
// "2025-06-01T12:00:00.123Z stdout F ...", "[2025-06-01 12:00:00] ...".
std::string_view without_stamp(std::string_view line);
// Without the sequences that colour it on a terminal, or name the terminal's window.
std::string without_colours(std::string_view line);
// What mpirun --tag-output ("[1,0]<stdout>: ..."), srun --label ("0: ..."), mpiexec -l ("[0] ..."),
// torchrun ("[default0]:...") and pdsh ("node0: ...") put before a line.
std::string_view tag_of(std::string_view line);
// A tag without the time of mpirun --timestamp-output.
std::string_view rank_of(std::string_view tag);
// "NCCL INFO NCCL_ALGO set by environment to Ring." as "NCCL_ALGO=Ring"; "": none.
std::string forced_setting(const std::vector<std::string_view>& words);
// "NCCL INFO Using network Socket", "NCCL INFO NET/IB : Using [0]mlx5_0": Socket, IB; "": not said.
std::string network_in_use(const std::vector<std::string_view>& words);
// The name in 2.x of a column of 1.x or 2.x.
std::string_view modern_name(std::string_view column);
bool starts_timing(std::string_view column);
// Half a unit of the last digit of a number as printed, which is how far rounding may have moved
// it: 0.005 for "12.50", 0.5 for "104", 50 for "1.2e3".
double half_of_last_digit(std::string_view number);
// "host: Test NCCL failure ...", " .. host pid 1: Test failure ...", as nccl-tests prints them.
bool is_nccl_failure(std::string_view line);
// "NCCL WARN ... Connection closed by remote peer": a failure while a test runs, and nothing where
// ranks end one after the other.
bool is_lost_peer(std::string_view line);

}  // namespace orrery::traces
