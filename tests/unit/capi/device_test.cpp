// Devices through the C interface: consent to the driver's compiler, and the second choice. The CPU driver poses as an
// Intel GPU that no compiler here covers (docs/gpu.md), so its own compiler is "the driver's".
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cmath>
#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "runtime/capi/zefuse.h"
#include "tests/unit/cache/temporary_folder.h"

namespace {

// x[4, 8] -> gelu(x) * 2: what `zefuse compile --standalone --targets cpu,dg2-g11` made, without the sections of native
// code for dg2-g11.
constexpr const char* package = PACKAGES "gpu_plan.zefuse";

struct Seen {
  std::vector<std::string> kernels;
  std::string device;
  int answer = 1;
};

int note(void* data, const char* device, const char* kernel, size_t number, size_t count) {
  auto* seen = static_cast<Seen*>(data);
  EXPECT_GE(count, number);
  seen->kernels.emplace_back(kernel);
  seen->device = device;
  return seen->answer;
}

class Device : public testing::Test {
protected:
  void SetUp() override {
    setenv("ZEFUSE_CPU_DRIVER_AS", "gpu", 1);  // before the driver is loaded, by the first of these tests
    setenv("ZEFUSE_CPU_DRIVER_GPU_ID", "0x56a5", 1);
    setenv("ZEFUSE_OCLOC", "/no/such/ocloc", 1);
    unsetenv("ZEFUSE_JIT");
    options.size = sizeof options;
    options.jit_progress = note;
    options.jit_progress_data = &seen;
  }
  void TearDown() override { zefuse_model_release(model); }
  zefuse_status load() { return zefuse_model_load_file(package, &options, &model); }

  void callsRight() {
    std::vector<float> x(32);
    for (size_t i = 0; i < x.size(); ++i)
      x[i] = float(i) / 8 - 2;
    int64_t sizes[] = {4, 8};
    DLTensor input{};
    input.data = x.data();
    input.device = {kDLCPU, 0};
    input.ndim = 2;
    input.dtype = {kDLFloat, 32, 1};
    input.shape = sizes;
    const DLTensor* inputs[] = {&input};
    DLManagedTensor* output;
    ASSERT_EQ(zefuse_model_call(model, inputs, 1, &output, 1), ZEFUSE_OK) << zefuse_error_message();
    const auto* y = reinterpret_cast<const float*>(static_cast<const char*>(output->dl_tensor.data) +
                                                   output->dl_tensor.byte_offset);
    for (size_t i = 0; i < x.size(); ++i)
      EXPECT_NEAR(y[i], x[i] * (1 + std::erf(x[i] / std::sqrt(2.0f))), 1e-5) << i;
    output->deleter(output);
  }
  bool says(const char* words) const { return std::string(zefuse_error_message()).find(words) != std::string::npos; }

  zefuse_load_options options{};
  zefuse_model* model = nullptr;
  Seen seen;
};

TEST_F(Device, WithoutConsentTheMessageSaysEverything) {
  options.device = "gpu:0";
  EXPECT_EQ(load(), ZEFUSE_NOT_FOUND);
  EXPECT_EQ(model, nullptr);
  for (const char* words : {"no compiler here makes code for device 'gpu:0'", "PCI id 8086:56a5", "it is a 'dg2-g11'",
                            "installed: none", "zefuse toolchain install", "ZEFUSE_JIT=allow"})
    EXPECT_TRUE(says(words)) << words << " in " << zefuse_error_message();
  options.jit = ZEFUSE_JIT_NEVER;  // wins over the environment
  setenv("ZEFUSE_JIT", "allow", 1);
  EXPECT_EQ(load(), ZEFUSE_NOT_FOUND);
  EXPECT_TRUE(seen.kernels.empty());
}

TEST_F(Device, WithConsentTheDriverCompilesAndTheCodeIsKept) {
  const zefuse::test::TemporaryFolder cache;
  options.device = "gpu:0";
  options.cache_dir = cache.path.c_str();
  options.jit = ZEFUSE_JIT_ALLOW;
  ASSERT_EQ(load(), ZEFUSE_OK) << zefuse_error_message();
  EXPECT_FALSE(seen.kernels.empty());
  EXPECT_NE(seen.device.find("8086:56a5"), std::string::npos) << seen.device;
  const char* why = "unset";
  EXPECT_STREQ(zefuse_model_device(model, &why), "gpu:0");
  EXPECT_EQ(why, nullptr);
  callsRight();
  zefuse_model_release(std::exchange(model, nullptr));

  seen.kernels.clear();
  options.jit = ZEFUSE_JIT_NEVER;  // found again, so no consent is needed
  EXPECT_EQ(load(), ZEFUSE_OK) << zefuse_error_message();
  EXPECT_TRUE(seen.kernels.empty());
}

TEST_F(Device, TheEnvironmentConsentsForProgramsThatDoNotSay) {
  options.device = "gpu:0";
  setenv("ZEFUSE_JIT", "allow", 1);
  EXPECT_EQ(load(), ZEFUSE_OK) << zefuse_error_message();
  EXPECT_FALSE(seen.kernels.empty());
  setenv("ZEFUSE_JIT", "perhaps", 1);
  zefuse_model_release(std::exchange(model, nullptr));
  EXPECT_EQ(load(), ZEFUSE_INVALID_ARGUMENT);
  EXPECT_TRUE(says("ZEFUSE_JIT='perhaps'"));
}

TEST_F(Device, ProgressMayCancel) {
  options.jit = ZEFUSE_JIT_ALLOW;
  seen.answer = 0;
  for (const char* device : {"gpu:0", "gpu:0,cpu"}) {  // who wants no GPU's kernel wants no model
    options.device = device;
    EXPECT_EQ(load(), ZEFUSE_CANCELLED) << device;
    EXPECT_EQ(model, nullptr);
    EXPECT_TRUE(says("was cancelled")) << zefuse_error_message();
  }
  options.size = offsetof(zefuse_load_options, cancelled);  // compiled before there was such a status
  EXPECT_EQ(load(), ZEFUSE_DEADLINE);
}

// Compilers that never end: the installed one's answer what it is, its code for a kernel, and the driver's own. Its
// children's ids are in `running`.
class Cancelled : public Device {
public:  // to callbacks
  void SetUp() override {
    Device::SetUp();
    running = (folder / "running").string();
    options.device = "gpu:0,cpu";
    options.cancelled = [](void* data) {
      auto* self = static_cast<Cancelled*>(data);
      ++self->asked;
      return int(std::filesystem::exists(self->running));
    };
    options.cancelled_data = this;
  }
  void TearDown() override {
    unsetenv("ZEFUSE_CPU_DRIVER_GPU_FAULT");
    Device::TearDown();
  }
  // A program in the place of ocloc; `compile`: what it does when it is to compile, `other`: when it is asked.
  void install(const std::string& compile, const std::string& other) {
    const std::string path = (folder / "ocloc").string();
    std::ofstream(path) << "#!/bin/sh\nhang() { echo $$ >> " << running << "; exec sleep 600; }\ncase \"$1\" in\n"
                        << "compile) " << compile << ";;\nquery) " << (other.empty() ? "printf 12.34 > $2" : other)
                        << ";;\n*) "
                        << (other.empty() ? "echo '  -device <device_type> can be: skl, dg2-g11, version'; exit 7"
                                          : other)
                        << ";;\nesac\n";
    std::filesystem::permissions(path, std::filesystem::perms::owner_all);
    setenv("ZEFUSE_OCLOC", path.c_str(), 1);
  }
  void expectCancelled() {
    EXPECT_EQ(load(), ZEFUSE_CANCELLED) << zefuse_error_message();
    EXPECT_EQ(model, nullptr);
    EXPECT_GT(asked, 1);
    EXPECT_TRUE(says("cancelled")) << zefuse_error_message();
    std::ifstream ids(running);
    for (pid_t id; ids >> id;)
      EXPECT_NE(kill(id, 0), 0) << "the compiler " << id << " still runs";
  }

  const zefuse::test::TemporaryFolder temporary;
  const std::filesystem::path folder = temporary.path;
  std::string running;
  std::atomic<int> asked{0};
};

TEST_F(Cancelled, WhileACompilerIsAskedWhatItIs) {
  install("exit 1", "hang");
  expectCancelled();
}

TEST_F(Cancelled, WhileAnInstalledCompilerRuns) {
  install("hang", "");
  expectCancelled();
}

TEST_F(Cancelled, WhileTheDriverCompiles) {
  // The driver reads its environment once a process: what it is told here only its compiler, another process, hears.
  setenv("ZEFUSE_CPU_DRIVER_GPU_FAULT", "jit-hang", 1);
  options.jit = ZEFUSE_JIT_ALLOW;
  options.jit_progress = [](void* data, const char*, const char*, size_t, size_t) {
    std::ofstream(static_cast<Cancelled*>(data)->running).flush();  // no id: it is not ours to know
    return 1;
  };
  options.jit_progress_data = this;
  expectCancelled();
  std::ifstream children("/proc/self/task/" + std::to_string(getpid()) + "/children");
  pid_t child = 0;
  EXPECT_FALSE(children >> child) << "process " << child << " is left";
}

TEST_F(Cancelled, BeforeItBegins) {
  std::ofstream(running).flush();
  options.device = "cpu";
  EXPECT_EQ(load(), ZEFUSE_CANCELLED);
  EXPECT_EQ(asked, 1) << "the first yes stays";
  options.size = offsetof(zefuse_load_options, cancelled);  // not read
  EXPECT_EQ(load(), ZEFUSE_OK) << zefuse_error_message();
}

TEST_F(Device, TheCpuWhereItWasChosen) {
  for (const char* device : {"gpu:0,cpu", "gpu:42,cpu"}) {
    options.device = device;
    ASSERT_EQ(load(), ZEFUSE_OK) << zefuse_error_message();
    const char* why = nullptr;
    EXPECT_STREQ(zefuse_model_device(model, &why), "cpu");
    ASSERT_NE(why, nullptr);
    EXPECT_NE(std::string(why).find(std::string(device).substr(0, std::string(device).find(','))), std::string::npos)
        << why;
    callsRight();
    zefuse_model_release(std::exchange(model, nullptr));
  }
}

TEST_F(Device, WrongOptionsAreNamed) {
  for (const char* device : {"cpu,gpu:0", "gpu:0,gpu:1", "gpu:", "gpu:x", "GPU", ""}) {
    options.device = device;
    EXPECT_EQ(load(), ZEFUSE_INVALID_ARGUMENT) << device;
    EXPECT_TRUE(says("expected \"cpu\", \"gpu:N\"")) << zefuse_error_message();
  }
  options.device = "cpu";
  options.jit = static_cast<zefuse_jit>(9);
  EXPECT_EQ(load(), ZEFUSE_INVALID_ARGUMENT);
  EXPECT_TRUE(says("jit"));
  options.jit = ZEFUSE_JIT_NEVER;
  options.jit_timeout_s = -1;
  EXPECT_EQ(load(), ZEFUSE_INVALID_ARGUMENT);
  EXPECT_TRUE(says("jit_timeout_s"));
}

// What a program passes that was compiled before the newer members existed.
TEST_F(Device, AnOlderCallersOptionsAreEnough) {
  options.size = offsetof(zefuse_load_options, jit);
  options.jit = static_cast<zefuse_jit>(9);  // not read
  EXPECT_EQ(load(), ZEFUSE_OK) << zefuse_error_message();
  EXPECT_STREQ(zefuse_model_device(model, nullptr), "cpu");
}

}  // namespace
