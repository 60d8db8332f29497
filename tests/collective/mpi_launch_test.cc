// Which ways to start MPI are let in.
#include <gmock/gmock.h>

#include "mpi/launch.h"

namespace elasticdl::collective {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

const Variables kMpirun4 = {{"OMPI_COMM_WORLD_RANK", "1"},
                            {"OMPI_MCA_orte_hnp_uri", "1.0;tcp://host:1"},
                            {"PMIX_RANK", "1"}};

Variables With(Variables variables, const std::string& name,
               const std::string& value) {
  variables[name] = value;
  return variables;
}

using Command = std::vector<std::string>;

// Of ranks that Open MPI 4 started, or nobody: the parent tells nothing.
absl::StatusOr<bool> IsStarted(const Variables& variables) {
  return IsStartedByMpirun(variables, {"sh"});
}

std::string Refusal(const absl::Status& status) {
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
  return std::string(status.message());
}

TEST(MpiLaunchTest, MpirunMustSurviveADeath) {
  EXPECT_THAT(Refusal(IsStarted(kMpirun4).status()),
              HasSubstr("--enable-recovery"));
  const std::string option = "OMPI_MCA_orte_enable_recovery";
  EXPECT_FALSE(IsStarted(With(kMpirun4, option, "0")).ok());
  EXPECT_EQ(*IsStarted(With(kMpirun4, option, "1")), true);
  // Within an allocation of Slurm, too.
  EXPECT_EQ(*IsStarted(With(With(kMpirun4, option, "1"), "SLURM_STEP_ID", "0")),
            true);
}

TEST(MpiLaunchTest, MpirunOfOpenMpi5IsAskedForItsOptions) {
  const Variables rank = {{"OMPI_COMM_WORLD_RANK", "0"}, {"PMIX_RANK", "0"}};
  for (const Command& command : std::vector<Command>{
           {"prterun", "-np", "2", "worker"},
           {"/usr/bin/prterun", "--mca", "orte_enable_recovery", "1"},
           {"mpirun", "--disable-recovery", "-np", "2"},
           {"prterun", "--runtime-options", "show-progress"},
           {"prterun", "--runtime-options"}}) {
    EXPECT_THAT(Refusal(IsStartedByMpirun(rank, command).status()),
                HasSubstr("--enable-recovery"))
        << command.back();
  }
  // The last ones cannot be known: a daemon on another host, a script.
  for (const Command& command : std::vector<Command>{
           {"prterun", "--enable-recovery", "-np", "2"},
           {"prterun", "-np", "2", "--runtime-options", "Recoverable"},
           {"/usr/bin/mpirun", "--runtime-options",
            "fwd-environment,continuous"},
           {"prterun", "--with-ft", "ulfm"},
           {"prterun", "--tune", "file"},
           {"prted", "--prtemca", "ess", "env"},
           {"sh", "worker.sh"},
           {}}) {
    const auto started = IsStartedByMpirun(rank, command);
    EXPECT_TRUE(started.ok() && *started) << started.status();
  }
}

TEST(MpiLaunchTest, ProcessesWithoutALauncherAreOutside) {
  EXPECT_EQ(*IsStarted({}), false);
  EXPECT_EQ(*IsStarted({{"SLURM_STEP_ID", "0"}, {"PATH", "/bin"}}), false);
}

TEST(MpiLaunchTest, LaunchersThatEndTheOthersAreRefused) {
  EXPECT_THAT(
      Refusal(IsStarted({{"PMIX_RANK", "0"}, {"SLURM_STEP_ID", "0"}}).status()),
      AllOf(HasSubstr("srun --mpi=pmix"), HasSubstr("mpirun")));
  EXPECT_THAT(
      Refusal(IsStarted({{"PMI_RANK", "0"}, {"SLURM_STEP_ID", "0"}}).status()),
      HasSubstr("pmi2"));
  EXPECT_THAT(Refusal(IsStarted({{"PMI_RANK", "0"}}).status()),
              AllOf(HasSubstr("MPICH"), HasSubstr("Open MPI")));
}

TEST(MpiLaunchTest, FindsLoadedModules) {
  EXPECT_THAT(FindMpiModules(
                  "7f0-7f1 r-xp 0 08:01 1 /usr/lib/openmpi3/mca_pml_ob1.so\n"
                  "7f1-7f2 r--p 0 08:01 1 /usr/lib/openmpi3/mca_pml_ob1.so\n"
                  "7f2-7f3 r--p 0 08:01 2 /usr/lib/openmpi3/mca_btl_vader.so.0 "
                  "(deleted)\n"
                  "7f3-7f4 rw-p 0 00:00 0\n"
                  "7f4-7f5 r--p 0 08:01 3 /usr/lib/libmpi.so.40\n"
                  "7f5-7f6 rw-p 0 00:00 0 [heap]"),
              ElementsAre("mca_btl_vader", "mca_pml_ob1"));
}

TEST(MpiLaunchTest, SharedMemoryOnOneHostIsLetIn) {
  const std::set<std::string> modules = {"mca_pml_ob1", "mca_btl_vader",
                                         "mca_btl_tcp", "mca_btl_self"};
  EXPECT_TRUE(CheckTransport({modules, true}, {}).ok());
  // Between hosts it would be the tcp BTL.
  EXPECT_THAT(Refusal(CheckTransport({modules, false}, {})),
              AllOf(HasSubstr("tcp BTL"), HasSubstr("ucx")));
}

TEST(MpiLaunchTest, TheTcpBtlIsRefused) {
  EXPECT_THAT(
      Refusal(CheckTransport({{"mca_pml_ob1", "mca_btl_tcp"}, true}, {})),
      HasSubstr("tcp BTL"));
}

TEST(MpiLaunchTest, UnknownTransportsAreRefused) {
  EXPECT_THAT(Refusal(CheckTransport({{"mca_pml_cm"}, true}, {})),
              HasSubstr("not known"));
  EXPECT_THAT(Refusal(CheckTransport({{}, false}, {})),
              HasSubstr("cannot tell"));
}

// As in Open MPI 5: no module is a file.
TEST(MpiLaunchTest, BuiltInModulesAreCheckedByTheirName) {
  const auto check = [](const std::string& pml, bool one_host,
                        const Variables& variables) {
    return CheckTransport({{}, one_host, pml}, variables);
  };
  EXPECT_TRUE(check("ob1", true, {}).ok());
  EXPECT_TRUE(check("ob1", true, {{"OMPI_MCA_btl", "self,sm"}}).ok());
  EXPECT_TRUE(check("ob1", true, {{"OMPI_MCA_btl", "^tcp"}}).ok());
  for (const char* btl : {"tcp,self", "^sm", "^vader"}) {
    EXPECT_THAT(Refusal(check("ob1", true, {{"OMPI_MCA_btl", btl}})),
                HasSubstr("tcp BTL"))
        << btl;
  }
  EXPECT_THAT(Refusal(check("ob1", false, {})), HasSubstr("tcp BTL"));
  // It may be chosen without a word of the user.
  EXPECT_THAT(Refusal(check("ucx", true, {})), HasSubstr("UCX_TLS=^cma"));
  EXPECT_TRUE(check("ucx", false, {{"UCX_TLS", "^cma"}}).ok());
  EXPECT_THAT(Refusal(check("cm", true, {})), HasSubstr("not known"));
}

TEST(MpiLaunchTest, UcxIsLetInWithoutCma) {
  const MpiTransport ucx = {{"mca_pml_ucx", "mca_btl_tcp"}, false};
  const auto check = [&](const std::string& tls) {
    return CheckTransport(ucx, {{"UCX_TLS", tls}});
  };
  EXPECT_THAT(Refusal(CheckTransport(ucx, {})), HasSubstr("UCX_TLS=^cma"));
  for (const char* tls :
       {"", "all", "sm,tcp", "shm", "cma", "^tcp", "rc,cma"}) {
    EXPECT_FALSE(check(tls).ok()) << tls;
  }
  for (const char* tls :
       {"^cma", "^sm", "^tcp,cma", "tcp", "rc,tcp,self", "posix,tcp"}) {
    EXPECT_TRUE(check(tls).ok()) << tls;
  }
  // Where modules are part of the library, the user's choice tells.
  const MpiTransport built_in = {{}, false};
  EXPECT_TRUE(
      CheckTransport(built_in, {{"OMPI_MCA_pml", "ucx"}, {"UCX_TLS", "^cma"}})
          .ok());
}

}  // namespace
}  // namespace elasticdl::collective
