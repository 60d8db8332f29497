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

// What Open MPI 4.1 has for shared memory, with components in files or in the
// library.
TEST(MpiLaunchTest, FindsComponents) {
  EXPECT_THAT(
      FindMpiComponents("opal_btl_base opal_btl_tcp opal_btl_vader "
                        "opal_btl_self ompi_pml_base ompi_pml_ob1 ompi_fbtl "
                        "ompi_fbtl_posix ompi_vprotocol_base "),
      ElementsAre("btl_self", "btl_tcp", "btl_vader", "pml_ob1"));
  EXPECT_THAT(FindMpiComponents(""), ElementsAre());
}

TEST(MpiLaunchTest, SharedMemoryOnOneHostIsLetIn) {
  const std::set<std::string> components = {"pml_ob1", "btl_vader", "btl_tcp",
                                            "btl_self"};
  EXPECT_TRUE(CheckTransport({components, 2, true}, {}).ok());
  // Between hosts it would be the tcp BTL.
  EXPECT_THAT(Refusal(CheckTransport({components, 2, false}, {})),
              AllOf(HasSubstr("tcp BTL"), HasSubstr("ucx")));
}

TEST(MpiLaunchTest, TheTcpBtlIsRefused) {
  EXPECT_THAT(Refusal(CheckTransport({{"pml_ob1", "btl_tcp"}, 2, true}, {})),
              HasSubstr("tcp BTL"));
  // One rank has nobody to send to.
  EXPECT_TRUE(CheckTransport({{"pml_ob1", "btl_tcp"}, 1, true}, {}).ok());
}

TEST(MpiLaunchTest, UnknownTransportsAreRefused) {
  EXPECT_THAT(Refusal(CheckTransport({{"pml_cm"}, 2, true}, {})),
              HasSubstr("not known"));
  // Whatever the user has chosen.
  EXPECT_THAT(Refusal(CheckTransport({{}, 2, true}, {{"OMPI_MCA_btl", "sm"}})),
              HasSubstr("not known"));
}

// As in Open MPI 5, where they are part of the library; a second name of sm.
TEST(MpiLaunchTest, ComponentsOfOpenMpi5AreKnown) {
  const auto components = FindMpiComponents(
      "opal_btl_base opal_btl_self opal_btl_sm opal_btl_vader opal_btl_tcp "
      "ompi_pml_base ompi_pml_ob1 ompi_fbtl_base ompi_fbtl_posix ");
  EXPECT_EQ(components.count("btl_sm"), 1u);
  EXPECT_EQ(components.count("pml_ob1"), 1u);
  EXPECT_TRUE(CheckTransport({components, 2, true}, {}).ok());
  EXPECT_THAT(Refusal(CheckTransport({components, 2, false}, {})),
              HasSubstr("tcp BTL"));
}

TEST(MpiLaunchTest, UcxIsLetInWithoutCma) {
  const MpiTransport ucx = {{"pml_ucx", "btl_tcp"}, 2, false};
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
}

}  // namespace
}  // namespace elasticdl::collective
