// The native step: ocloc compiles what we emit, and a compiler that hangs or crashes is an error with a reason.
#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <thread>

#include "common/toolchain/installed_compilers.h"
#include "common/toolchain/ocloc.h"
#include "common/toolchain/subprocess.h"
#include "common/toolchain/targets.h"

namespace zefuse {
namespace {

namespace fs = std::filesystem;

class FakeCompiler : public testing::Test {
protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "zefuse-native-XXXXXX").string();
    ASSERT_TRUE(mkdtemp(name.data()));
    directory_ = name;
    setenv("TMPDIR", directory_.c_str(), 1);
  }
  void TearDown() override {
    unsetenv("TMPDIR");
    fs::remove_all(directory_);
  }
  std::string write(const std::string& script) {
    fs::path path = directory_ / "compiler";
    std::ofstream(path) << "#!/bin/sh\n" << script << "\n";
    fs::permissions(path, fs::perms::owner_all);
    return path.string();
  }
  Result<DeviceBinary> compile(const std::string& script, int deadline_ms = 60000) {
    OclocOptions options;
    options.compiler = write(script);
    options.deadline = std::chrono::milliseconds(deadline_ms);
    return compile(options);
  }
  static Result<DeviceBinary> compile(const OclocOptions& options) {
    uint32_t words[] = {0x07230203};
    return compileWithOcloc(words, "dg2-g11", options);
  }
  fs::path directory_;
};

TEST_F(FakeCompiler, TakesTheBinary) {
  // -out_dir is the eleventh argument's name, its value the twelfth: find it rather than count.
  auto result = compile(R"(while [ "$1" != -out_dir ]; do shift; done; mkdir "$2"; printf abc > "$2/kernel.bin")");
  ASSERT_TRUE(result.ok()) << result.status().toString();
  EXPECT_EQ(result->bytes.size(), 3u);
  EXPECT_EQ(std::distance(fs::directory_iterator(directory_), {}), 1) << "the temporary directory is left behind";
}

TEST_F(FakeCompiler, FailureCarriesItsWords) {
  auto result = compile("echo 'error: no such device' >&2; exit 3");
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.status().code(), Code::device);
  EXPECT_NE(result.status().message().find("exit code 3"), std::string::npos);
  EXPECT_NE(result.status().message().find("no such device"), std::string::npos);
  EXPECT_NE(result.status().message().find("to repeat: "), std::string::npos);
}

TEST_F(FakeCompiler, CrashIsToldFromFailure) {
  auto result = compile("kill -SEGV $$");
  ASSERT_FALSE(result.ok());
  EXPECT_NE(result.status().message().find("crashed with signal 11"), std::string::npos) << result.status().message();
}

TEST_F(FakeCompiler, HangEndsAtTheDeadlineWithItsChildren) {
  fs::path mark = directory_ / "child";
  int child = 0;
  // On a busy machine the shell may not come to its child before the deadline: then there is none to look for.
  for (int deadline_ms = 300; child == 0 && deadline_ms < 60000; deadline_ms *= 2) {
    auto begin = std::chrono::steady_clock::now();
    auto result = compile("sleep 600 & echo $! > " + mark.string() + "; wait", deadline_ms);
    ASSERT_FALSE(result.ok());
    EXPECT_EQ(result.status().code(), Code::deadline);
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(120));
    std::ifstream(mark) >> child;
  }
  ASSERT_GT(child, 0);
  for (int i = 0; i < 6000 && kill(child, 0) == 0; ++i) {  // init reaps it
    std::ifstream stat("/proc/" + std::to_string(child) + "/stat");
    std::string id, name, state;
    if (stat >> id >> name >> state && state == "Z")
      return;
    usleep(10000);
  }
  EXPECT_NE(kill(child, 0), 0) << "the compiler's child still runs";
}

TEST_F(FakeCompiler, EatingMemoryEndsAtTheLimit) {
  OclocOptions options;
  // Each round doubles a variable of the shell's.
  options.compiler = write("x=0123456789abcdef; while :; do x=$x$x; done");
  options.memory_bytes = uint64_t(256) << 20;
  auto result = compile(options);
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.status().code(), Code::device) << result.status().message();  // not the deadline
  EXPECT_NE(result.status().message().find("its memory is limited to 256 MiB"), std::string::npos)
      << result.status().message();
}

TEST_F(FakeCompiler, CancelledWhileItRuns) {
  OclocOptions options;
  options.compiler = write("sleep 600");
  int asked = 0;
  options.cancelled = [&] { return ++asked > 3; };
  auto begin = std::chrono::steady_clock::now();
  auto result = compile(options);
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.status().code(), Code::cancelled);
  EXPECT_NE(result.status().message().find("was cancelled"), std::string::npos) << result.status().message();
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(60));
}

TEST_F(FakeCompiler, SaysItsVersionAndDevices) {
  OclocOptions options;
  options.compiler = write(R"(case "$1" in
    query) printf 12.34 > "$2";;
    *) echo "  -device   <device_type> can be: skl, dg2-g11, version"; echo "  other, words"; exit 7;;
  esac)");
  auto version = oclocVersion(options);
  ASSERT_TRUE(version.ok()) << version.status().toString();
  EXPECT_EQ(*version, "12.34");
  auto devices = oclocDevices(options);
  ASSERT_TRUE(devices.ok());
  EXPECT_EQ(*devices, (std::vector<std::string>{"skl", "dg2-g11", "version"}));
  options.compiler = write("exit 0");
  EXPECT_FALSE(oclocVersion(options).ok());
}

// ZEFUSE_OCLOC or, with several, the compilers of `zefuse toolchain install`. Each script notes how often it ran.
class InstalledCompilers : public FakeCompiler {
protected:
  void SetUp() override {
    FakeCompiler::SetUp();
    setenv("ZEFUSE_PTX_COMPILER", "/nowhere/zefuse-ptx", 1);  // without our own
  }
  void TearDown() override {
    unsetenv("ZEFUSE_PTX_COMPILER");
    unsetenv("ZEFUSE_OCLOC");
    FakeCompiler::TearDown();
  }
  std::string install(const std::string& script) {
    const std::string path = write("echo \"$1\" >> " + log() + "\n" + script);
    setenv("ZEFUSE_OCLOC", path.c_str(), 1);
    return path;
  }
  std::string log() const { return (directory_ / "log").string(); }
  int questions() const {
    std::ifstream file(log());
    int lines = 0;
    for (std::string line; std::getline(file, line);)
      ++lines;
    return lines;
  }
  static constexpr const char* answers = R"(case "$1" in
    query) printf 12.34 > "$2";;
    *) echo "  -device   <device_type> can be: skl, dg2-g11, version"; exit 7;;
  esac)";
};

TEST_F(InstalledCompilers, AreAskedOnceAProcess) {
  install(answers);
  for (int round = 0; round < 3; ++round) {
    auto found = installedCompilerFor("dg2-g11", std::chrono::seconds(30));
    ASSERT_TRUE(found.ok()) << found.status().toString();
    EXPECT_EQ(found->version, "12.34");
  }
  EXPECT_EQ(questions(), 2);
  auto other = installedCompilerFor("bmg-g21", std::chrono::seconds(30));
  EXPECT_EQ(other.status().code(), Code::not_found);
  EXPECT_NE(other.status().message().find("compiler 12.34"), std::string::npos) << other.status().message();
  EXPECT_EQ(questions(), 2);
  fs::remove(directory_ / "compiler");  // another file is another compiler
  install(std::string(answers) + " # newer");
  EXPECT_TRUE(installedCompilerFor("skl", std::chrono::seconds(30)).ok());
  EXPECT_EQ(questions(), 4);
}

TEST_F(InstalledCompilers, AnswersThatAreLateAreNotWaitedForAgain) {
  install("exec sleep 600");
  for (int round = 0; round < 3; ++round) {
    const auto compilers = installedCompilers(std::chrono::milliseconds(40));
    ASSERT_EQ(compilers.size(), 1u);
    EXPECT_EQ(compilers[0].problem.code(), Code::deadline);
    EXPECT_NE(describe(compilers).find("did not end in 40 ms"), std::string::npos) << describe(compilers);
  }
  EXPECT_LE(questions(), 2);  // one killed before it ran its first line has noted nothing
  const int before = questions();
  for (int wait_ms = 400; questions() == before && wait_ms < 60000; wait_ms *= 2)
    (void)installedCompilers(std::chrono::milliseconds(wait_ms));  // who is ready to wait longer asks again
  EXPECT_GT(questions(), before);
}

TEST_F(InstalledCompilers, QuestionsCanBeCancelledAndAreAskedAgain) {
  install("exec sleep 600");
  std::atomic<bool> waiting{false};
  Status while_asked, while_waited;
  std::thread asks([&] {  // until the other waits for its answer
    while_asked = installedCompilerFor("dg2-g11", std::chrono::seconds(600), [&] { return waiting.load(); }).status();
  });
  while (questions() == 0)
    usleep(1000);
  int asked = 0;
  while_waited = installedCompilerFor("dg2-g11", std::chrono::seconds(600), [&] { return ++asked > 2; }).status();
  EXPECT_EQ(while_waited.code(), Code::cancelled) << while_waited.message();
  waiting = true;
  asks.join();
  EXPECT_EQ(while_asked.code(), Code::cancelled) << while_asked.message();
  const auto compilers = installedCompilers(std::chrono::milliseconds(40));
  ASSERT_EQ(compilers.size(), 1u);
  EXPECT_EQ(compilers[0].problem.code(), Code::deadline) << "it was asked, and was late";
}

TEST_F(InstalledCompilers, AllAreAskedAtTheSameTime) {
  setenv("XDG_DATA_HOME", directory_.c_str(), 1);
  for (int number = 0; number < 3; ++number) {  // each answers only when the questions to all three have come
    const fs::path folder = directory_ / "zefuse" / "toolchains" / std::to_string(number);
    fs::create_directories(folder);
    const std::string script =
        "echo \"$1\" >> " + log() + "; while [ $(wc -l < " + log() + ") -lt 6 ]; do sleep 0.01; done\n" + answers;
    fs::rename(write(script), folder / "ocloc");
  }
  const char* path = std::getenv("PATH");
  const std::string old_path = path ? path : "";
  fs::create_directories(directory_ / "tools");
  for (const char* tool : {"sh", "sleep", "wc"})
    for (const char* from : {"/bin/", "/usr/bin/"})
      if (fs::exists(from + std::string(tool))) {
        fs::create_symlink(from + std::string(tool), directory_ / "tools" / tool);
        break;
      }
  setenv("PATH", (directory_ / "tools").c_str(), 1);  // without this machine's ocloc
  const auto compilers = installedCompilers(std::chrono::seconds(60));
  setenv("PATH", old_path.c_str(), 1);
  unsetenv("XDG_DATA_HOME");
  ASSERT_EQ(compilers.size(), 3u);
  for (const InstalledCompiler& compiler : compilers)
    EXPECT_EQ(compiler.version, "12.34") << compiler.problem.message();
}

TEST_F(FakeCompiler, ManyAtATime) {
  const std::string script =
      write(R"(while [ "$1" != -out_dir ]; do shift; done; mkdir "$2"; echo $$ > "$2/kernel.bin")");
  std::vector<std::thread> threads;
  std::atomic<int> fine{0};
  for (int i = 0; i < 8; ++i)
    threads.emplace_back([&] {
      OclocOptions options;
      options.compiler = script;
      for (int round = 0; round < 4; ++round)
        fine += compile(options).ok();
    });
  for (std::thread& thread : threads)
    thread.join();
  EXPECT_EQ(fine, 32);
}

TEST_F(FakeCompiler, ACompilerThatIsNotThere) {
  OclocOptions options;
  options.compiler = "zefuse-no-such-compiler";
  auto result = compile(options);
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.status().code(), Code::not_found);
}

TEST_F(FakeCompiler, SuccessWithoutABinaryIsAnError) {
  auto result = compile("exit 0");
  ASSERT_FALSE(result.ok());
  EXPECT_NE(result.status().message().find("wrote no binary"), std::string::npos);
}

TEST(VendorCompilers, EveryRowNamesOne) {
  for (const GpuTarget& target : gpuTargets()) {
    const VendorCompiler* compiler = vendorCompilerOf(target.product);
    ASSERT_NE(compiler, nullptr) << target.product << ": '" << target.compiler << "' is in no row of vendorCompilers()";
    EXPECT_EQ(compiler->name, target.compiler);
    if (!target.alias.empty())
      EXPECT_EQ(vendorCompilerOf(target.alias), compiler);
  }
  EXPECT_EQ(vendorCompilerOf("dg2-g11")->name, "ocloc");
  EXPECT_EQ(vendorCompilerOf("no such product"), nullptr);
  EXPECT_EQ(vendorCompilerOf(""), nullptr);
}

TEST(Report, SpillsAndPrivateMemory) {
  DeviceBinary old{{}, "warning: kernel k  compiled SIMD16 allocated 128 regs and spilled around 54\n"};
  EXPECT_EQ(oclocReport(old).spilled_registers, 54);
  std::string info = "kernels:\n  - name: Intel_Symbol_Table_Void_Program\n    execution_env:\n      simd_size: 32\n"
                     "  - name: kernel\n    execution_env:\n      grf_count:       128\n      private_size:    20480\n"
                     "      simd_size:       16\n      slm_size:        96\n      spill_size:      192\n"
                     "    payload_arguments:\n        size: 8\n";
  DeviceBinary current;
  for (char c : info)
    current.bytes.push_back(std::byte(c));
  DeviceReport report = oclocReport(current);
  EXPECT_EQ(report.simd, 16);
  EXPECT_EQ(report.registers, 128);
  EXPECT_EQ(report.spilled_registers, 192);
  EXPECT_EQ(report.private_bytes, 20480);
  EXPECT_EQ(report.local_bytes, 96);
  EXPECT_EQ(oclocReport({}).spilled_registers, 0);
}

TEST(CommandLine, QuotesForTheShell) { EXPECT_EQ(commandLine({"a", "b c", "it's"}), "a 'b c' 'it'\\''s'"); }

}  // namespace
}  // namespace zefuse
