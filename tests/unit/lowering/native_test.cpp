// The native step: ocloc compiles what we emit, and a compiler that hangs or crashes is an error with a reason.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "lowering/native/ocloc.h"
#include "lowering/native/subprocess.h"

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
  Result<DeviceBinary> compile(const std::string& script, int deadline_ms = 5000) {
    fs::path path = directory_ / "compiler";
    std::ofstream(path) << "#!/bin/sh\n" << script << "\n";
    fs::permissions(path, fs::perms::owner_all);
    uint32_t words[] = {0x07230203};
    return compileWithOcloc(words, "dg2-g11", {path.string(), std::chrono::milliseconds(deadline_ms)});
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
  auto begin = std::chrono::steady_clock::now();
  auto result = compile("sleep 600 & echo $! > " + mark.string() + "; wait", 300);
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.status().code(), Code::deadline);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(60));
  int child = 0;
  std::ifstream(mark) >> child;
  ASSERT_GT(child, 0);
  for (int i = 0; i < 200 && kill(child, 0) == 0; ++i) {  // init reaps it
    std::ifstream stat("/proc/" + std::to_string(child) + "/stat");
    std::string id, name, state;
    if (stat >> id >> name >> state && state == "Z")
      return;
    usleep(10000);
  }
  EXPECT_NE(kill(child, 0), 0) << "the compiler's child still runs";
}

TEST_F(FakeCompiler, ACompilerThatIsNotThere) {
  uint32_t words[] = {0};
  auto result = compileWithOcloc(words, "dg2-g11", {"zefuse-no-such-compiler"});
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.status().code(), Code::not_found);
}

TEST_F(FakeCompiler, SuccessWithoutABinaryIsAnError) {
  auto result = compile("exit 0");
  ASSERT_FALSE(result.ok());
  EXPECT_NE(result.status().message().find("wrote no binary"), std::string::npos);
}

TEST(Report, SpillsAndPrivateMemory) {
  DeviceBinary old{{}, "warning: kernel k  compiled SIMD16 allocated 128 regs and spilled around 54\n"};
  EXPECT_EQ(deviceReport(old).spilled_registers, 54);
  std::string info = "kernels:\n  - name: Intel_Symbol_Table_Void_Program\n    execution_env:\n      simd_size: 32\n"
                     "  - name: kernel\n    execution_env:\n      grf_count:       128\n      private_size:    20480\n"
                     "      simd_size:       16\n      slm_size:        96\n      spill_size:      192\n"
                     "    payload_arguments:\n        size: 8\n";
  DeviceBinary current;
  for (char c : info)
    current.bytes.push_back(std::byte(c));
  DeviceReport report = deviceReport(current);
  EXPECT_EQ(report.simd, 16);
  EXPECT_EQ(report.registers, 128);
  EXPECT_EQ(report.spilled_registers, 192);
  EXPECT_EQ(report.private_bytes, 20480);
  EXPECT_EQ(report.local_bytes, 96);
  EXPECT_EQ(deviceReport({}).spilled_registers, 0);
}

TEST(CommandLine, QuotesForTheShell) { EXPECT_EQ(commandLine({"a", "b c", "it's"}), "a 'b c' 'it'\\''s'"); }

}  // namespace
}  // namespace zefuse
