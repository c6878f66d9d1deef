// SPDX-License-Identifier: Apache-2.0
// The rendezvous between processes of this host, over the loopback, each wait bounded.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <functional>
#include <map>
#include <thread>

#include "base/error.hpp"
#include "calibrate/nccl/local_launch.hpp"
#include "calibrate/nccl/team.hpp"

namespace orrery::calibrate {
namespace {

using testing::HasSubstr;

RankIdentity identity_of(int rank, int size, const std::string& token = "t") {
  RankIdentity identity;
  identity.rank = rank;
  identity.size = size;
  identity.token = token;
  return identity;
}

TeamOptions quick(const std::string& address, double join = 10, double step = 10) {
  TeamOptions options;
  options.address = address;
  options.join_timeout = Seconds(join);
  options.step_timeout = Seconds(step);
  return options;
}

std::string message_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

// A child process that runs `action` and ends with 0 when it held.
pid_t child(const std::function<bool()>& action) {
  const pid_t process = ::fork();
  if (process == 0) {
    bool held = false;
    try {
      held = action();
    } catch (const std::exception& error) {
      std::fprintf(stderr, "%s\n", error.what());
    }
    ::_exit(held ? 0 : 1);
  }
  return process;
}

int exit_code(pid_t process) {
  int status = 0;
  ::waitpid(process, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

class TeamOf : public testing::TestWithParam<int> {};

// What NCCL needs: every rank learns the id that rank 0 made.
TEST_P(TeamOf, ProcessesExchangeAnId) {
  const int size = GetParam();
  const std::string id(128, '\0' + 7);  // any bytes, as ncclUniqueId has
  Socket listener = listen_on(0, true);
  const std::string address = "127.0.0.1:" + std::to_string(port_of(listener));
  std::vector<pid_t> children;
  for (int rank = 1; rank < size; ++rank) {
    children.push_back(child([&] {
      Team team(identity_of(rank, size), quick(address));
      const bool same = team.broadcast("") == id;
      const auto ranks = team.all_gather(std::to_string(rank) + ":x\n");
      team.barrier();
      return same && static_cast<int>(ranks.size()) == size && ranks.back()[0] == '0' + size - 1;
    }));
  }
  TeamOptions options = quick(address);
  options.listener = std::move(listener);
  Team team(identity_of(0, size), std::move(options));
  EXPECT_EQ(team.broadcast(id), id);
  EXPECT_EQ(team.all_gather("0:x\n").front(), "0:x\n");
  team.barrier();
  for (const pid_t process : children) {
    EXPECT_EQ(exit_code(process), 0);
  }
}

INSTANTIATE_TEST_SUITE_P(Sizes, TeamOf, testing::Values(1, 2, 3, 4));

TEST(Team, MeetsThroughAFile) {
  const std::string path =
      (std::filesystem::temp_directory_path() / ("orrery-meet-" + std::to_string(::getpid())))
          .string();
  const pid_t other = child([&] {
    Team team(identity_of(1, 2), quick("file:" + path));
    return team.broadcast("") == "hello";
  });
  {
    Team team(identity_of(0, 2), quick("file:" + path));
    EXPECT_EQ(team.broadcast("hello"), "hello");
    EXPECT_EQ(exit_code(other), 0);
  }
  EXPECT_FALSE(std::filesystem::exists(path));
}

TEST(Team, NamesARankThatDies) {
  Socket listener = listen_on(0, true);
  const std::string address = "127.0.0.1:" + std::to_string(port_of(listener));
  const pid_t dying = child([&] {
    Team team(identity_of(1, 2), quick(address));
    return true;  // leaves before the exchange
  });
  TeamOptions options = quick(address);
  options.listener = std::move(listener);
  Team team(identity_of(0, 2), std::move(options));
  EXPECT_EQ(exit_code(dying), 0);
  EXPECT_THAT(message_of([&] { (void)team.all_gather("x"); }),
              testing::AllOf(HasSubstr("rank 1"), HasSubstr("left")));
  EXPECT_THAT(message_of([&] { team.check(); }), HasSubstr("rank 1"));
}

TEST(Team, TellsWhyARankGaveUp) {
  Socket listener = listen_on(0, true);
  const std::string address = "127.0.0.1:" + std::to_string(port_of(listener));
  std::thread other([&] {
    Team team(identity_of(1, 2), quick(address));
    team.report_fault("rank 1 (b): out of memory");
    (void)message_of([&] { (void)team.all_gather("x"); });
  });
  TeamOptions options = quick(address);
  options.listener = std::move(listener);
  Team team(identity_of(0, 2), std::move(options));
  EXPECT_THAT(message_of([&] { (void)team.all_gather("x"); }), HasSubstr("out of memory"));
  other.join();
}

TEST(Team, SilenceEndsAtTheDeadline) {
  Socket listener = listen_on(0, true);
  const std::string address = "127.0.0.1:" + std::to_string(port_of(listener));
  TeamOptions alone = quick(address, 0.2);
  alone.listener = listen_on(0, true);
  EXPECT_THAT(message_of([&] { Team(identity_of(0, 3), std::move(alone)); }),
              testing::AllOf(HasSubstr("1 of 3 ranks"), HasSubstr("missing: 1 2")));
  EXPECT_THAT(message_of([&] { Team(identity_of(1, 2), quick("file:/nowhere/x", 0.2)); }),
              HasSubstr("did not write its address"));
  listener.close();
  EXPECT_THAT(message_of([&] { Team(identity_of(1, 2), quick(address, 0.2)); }),
              HasSubstr("does not listen"));
}

TEST(Team, AStuckPeerIsNamed) {
  Socket listener = listen_on(0, true);
  const std::string address = "127.0.0.1:" + std::to_string(port_of(listener));
  std::thread other([&] {
    Team team(identity_of(1, 2), quick(address));
    std::this_thread::sleep_for(std::chrono::milliseconds(600));
  });
  TeamOptions options = quick(address, 10, 0.2);
  options.listener = std::move(listener);
  Team team(identity_of(0, 2), std::move(options));
  EXPECT_THAT(message_of([&] { (void)team.all_gather("x"); }), HasSubstr("did not answer within"));
  other.join();
}

TEST(Team, StrangersAreIgnoredAndDoublesRefused) {
  Socket listener = listen_on(0, true);
  const std::string address = "127.0.0.1:" + std::to_string(port_of(listener));
  std::thread stranger([&] {
    const Clock::time_point deadline = Clock::now() + std::chrono::seconds(5);
    const std::optional<Socket> socket = connect_to(parse_address(address, "test"), deadline);
    ASSERT_TRUE(socket.has_value());
    (void)send(*socket, {FrameKind::Data, "GET / HTTP/1.1"}, deadline);
  });
  stranger.join();
  std::thread wrong([&] {
    (void)message_of([&] {
      Team team(identity_of(1, 2, "other run"), quick(address, 1, 1));
      (void)team.broadcast("");
    });
  });
  wrong.join();
  std::thread right([&] {
    (void)message_of([&] {
      Team team(identity_of(1, 2), quick(address));
      EXPECT_EQ(team.broadcast(""), "id");
    });
  });
  TeamOptions options = quick(address);
  options.listener = std::move(listener);
  Team team(identity_of(0, 2), std::move(options));
  EXPECT_EQ(team.broadcast("id"), "id");
  right.join();
}

TEST(Team, NeedsAnAddress) {
  EXPECT_THAT(message_of([] { Team(identity_of(0, 2), {}); }), HasSubstr("--rendezvous"));
  EXPECT_THAT(message_of([] { Team(identity_of(0, 2), quick("nohost")); }), HasSubstr("HOST:PORT"));
  EXPECT_THAT(message_of([] { (void)parse_address("h:99999", "x"); }), HasSubstr("x"));
  EXPECT_EQ(parse_address("[::1]:80", "x").host, "::1");
}

RankIdentity from(const std::map<std::string, std::string>& variables) {
  return rank_identity([&](const std::string& name) {
    const auto found = variables.find(name);
    return found == variables.end() ? std::nullopt : std::optional<std::string>(found->second);
  });
}

TEST(RankEnvironment, KnowsTheLaunchers) {
  EXPECT_EQ(from({}).size, 1);
  EXPECT_TRUE(from({}).launcher.empty());
  const RankIdentity open_mpi = from({{"OMPI_COMM_WORLD_RANK", "3"},
                                      {"OMPI_COMM_WORLD_SIZE", "8"},
                                      {"OMPI_COMM_WORLD_LOCAL_RANK", "1"}});
  EXPECT_EQ(open_mpi.rank, 3);
  EXPECT_EQ(open_mpi.size, 8);
  EXPECT_EQ(open_mpi.local_rank, 1);
  EXPECT_EQ(from({{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}}).launcher, "pmi");
  EXPECT_EQ(from({{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}}).local_rank, -1);
  const std::map<std::string, std::string> batch = {{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "8"}};
  EXPECT_TRUE(from(batch).launcher.empty());  // a batch script is one process
  std::map<std::string, std::string> step = batch;
  step["SLURM_STEP_ID"] = "0";
  EXPECT_EQ(from(step).launcher, "slurm");
  const RankIdentity torch = from({{"RANK", "0"},
                                   {"WORLD_SIZE", "4"},
                                   {"LOCAL_RANK", "0"},
                                   {"MASTER_ADDR", "n1"},
                                   {"MASTER_PORT", "29500"}});
  EXPECT_EQ(torch.address, "n1:29500");
  EXPECT_TRUE(from({{"RANK", "0"}, {"WORLD_SIZE", "4"}}).launcher.empty());
}

TEST(RankEnvironment, RefusesContradictions) {
  EXPECT_THAT(message_of([] { (void)from({{"PMI_RANK", "1"}}); }), HasSubstr("PMI_SIZE"));
  EXPECT_THAT(message_of([] {
                (void)from({{"PMI_RANK", "2"}, {"PMI_SIZE", "2"}});
              }),
              HasSubstr("rank 2 of 2"));
  EXPECT_THAT(message_of([] {
                (void)from({{"PMI_RANK", "x"}, {"PMI_SIZE", "2"}});
              }),
              HasSubstr("PMI_RANK"));
}

TEST(LocalLaunch, StartsTheOthersAndSeesThemFail) {
  LocalLaunch good("/bin/sh", {"sh", "-c", "test \"$ORRERY_WORLD_SIZE\" = 3"}, 3);
  EXPECT_EQ(good.identity().size, 3);
  EXPECT_EQ(good.identity().rank, 0);
  EXPECT_TRUE(good.wait(Seconds(10)));
  LocalLaunch bad("/bin/sh", {"sh", "-c", "exit $ORRERY_RANK"}, 2);
  EXPECT_FALSE(bad.wait(Seconds(10)));
  EXPECT_THAT(message_of([] { LocalLaunch("/no/such/program", {"x"}, 2); }),
              HasSubstr("cannot start"));
  EXPECT_FALSE(own_arguments().empty());
}

// Copies that outlive the run are stopped when it ends.
TEST(LocalLaunch, StopsWhoStays) {
  const auto begin = Clock::now();
  { LocalLaunch stuck("/bin/sh", {"sh", "-c", "exec sleep 60"}, 2); }
  EXPECT_LT(Clock::now() - begin, std::chrono::seconds(30));
}

}  // namespace
}  // namespace orrery::calibrate
