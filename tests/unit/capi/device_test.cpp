// Devices through the C interface: consent to the driver's compiler, and the second choice. The CPU driver poses as an
// Intel GPU that no compiler here covers (docs/gpu.md), so its own compiler is "the driver's".
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
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

// A row-major tensor of these floats.
template <size_t rank> DLTensor onHost(std::vector<float>& values, int64_t (&sizes)[rank]) {
  DLTensor tensor{};
  tensor.data = values.data();
  tensor.device = {kDLCPU, 0};
  tensor.ndim = int32_t(rank);
  tensor.dtype = {kDLFloat, 32, 1};
  tensor.shape = sizes;
  return tensor;
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
    const DLTensor input = onHost(x, sizes);
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
  for (const char* device : {"cpu,gpu:0", "gpu:0,gpu:1", "gpu:", "gpu:x", "cuda:", "cuda", "GPU", ""}) {
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

// Tensors that lie on the GPU, whose memory the host cannot reach.
class DeviceTensors : public Device {
protected:
  void SetUp() override {
    Device::SetUp();
    options.device = "gpu:0";
    options.cache_dir = cache.path.c_str();
    options.jit = ZEFUSE_JIT_ALLOW;
    options.device_tensors = 1;
    ASSERT_EQ(load(), ZEFUSE_OK) << zefuse_error_message();
    for (size_t i = 0; i < x.size(); ++i)
      x[i] = float(i) / 8 - 2;
  }
  DLTensor host(std::vector<float>& values) { return onHost(values, sizes); }
  DLManagedTensor* copy(const DLTensor& tensor, bool to_device) {
    DLManagedTensor* made = nullptr;
    EXPECT_EQ(zefuse_model_copy_tensor(model, &tensor, to_device, &made), ZEFUSE_OK) << zefuse_error_message();
    return made;
  }
  // Of a tensor on the device.
  std::vector<float> read(const DLTensor& tensor) {
    EXPECT_EQ(tensor.device.device_type, kDLOneAPI);
    DLManagedTensor* made = copy(tensor, false);
    const auto* values = static_cast<const float*>(made->dl_tensor.data);
    std::vector<float> all(values, values + x.size());
    made->deleter(made);
    return all;
  }
  static std::vector<float> expected(std::vector<float> values) {
    for (float& value : values)
      value = value * (1 + std::erf(value / std::sqrt(2.0f)));
    return values;
  }
  static void expectNear(const std::vector<float>& got, const std::vector<float>& wanted) {
    ASSERT_EQ(got.size(), wanted.size());
    for (size_t i = 0; i < got.size(); ++i)
      EXPECT_NEAR(got[i], wanted[i], 1e-4) << i;
  }

  const zefuse::test::TemporaryFolder cache;
  int64_t sizes[2] = {4, 8};
  std::vector<float> x = std::vector<float>(32);
};

TEST_F(DeviceTensors, GoFromCallToCall) {
  const DLDevice where = zefuse_model_dl_device(model);
  EXPECT_EQ(where.device_type, kDLOneAPI);
  EXPECT_EQ(where.device_id, 0);
  const DLTensor on_host = host(x);
  DLManagedTensor* given = copy(on_host, true);
  zefuse_call_options how{};
  how.size = sizeof how;
  how.results_on_device = 1;
  for (int again = 0; again < 4; ++again) {  // the later ones are replayed
    const DLTensor* inputs[] = {&given->dl_tensor};
    DLManagedTensor *once, *twice, *back;
    ASSERT_EQ(zefuse_model_call_with(model, &how, inputs, 1, &once, 1), ZEFUSE_OK) << zefuse_error_message();
    inputs[0] = &once->dl_tensor;
    ASSERT_EQ(zefuse_model_call_with(model, &how, inputs, 1, &twice, 1), ZEFUSE_OK) << zefuse_error_message();
    expectNear(read(once->dl_tensor), expected(x));
    expectNear(read(twice->dl_tensor), expected(expected(x)));
    ASSERT_EQ(zefuse_model_call(model, inputs, 1, &back, 1), ZEFUSE_OK) << zefuse_error_message();  // to the host
    EXPECT_EQ(back->dl_tensor.device.device_type, kDLCPU);
    const auto* values = static_cast<const float*>(back->dl_tensor.data);
    expectNear({values, values + 32}, expected(expected(x)));
    for (DLManagedTensor* each : {once, twice, back})
      each->deleter(each);
  }
  EXPECT_EQ(read(given->dl_tensor), x);
  zefuse_model_release(std::exchange(model, nullptr));
  given->deleter(given);  // outlives the model
}

// The caller's memory and stream: a call is queued behind what is there, and nothing is freed twice or never.
TEST_F(DeviceTensors, InAStreamAndInTheCallersMemory) {
  struct Pool {
    zefuse_model* model;
    std::vector<DLManagedTensor*> given;
    size_t allocated = 0, freed = 0;
    void* stream = nullptr;
  } pool{model, {}};
  zefuse_call_options how{};
  how.size = sizeof how;
  how.results_on_device = how.in_stream = 1;
  int stream = 0;  // any address
  how.stream = &stream;
  how.allocate_data = &pool;
  how.allocate = [](void* data, size_t bytes, DLDevice device, void* where) -> void* {
    auto* self = static_cast<Pool*>(data);
    EXPECT_EQ(device.device_type, kDLOneAPI);
    self->stream = where;
    std::vector<float> zeros(bytes / sizeof(float));
    int64_t size[] = {int64_t(zeros.size())};
    const DLTensor like = onHost(zeros, size);
    DLManagedTensor* made = nullptr;
    EXPECT_EQ(zefuse_model_copy_tensor(self->model, &like, 1, &made), ZEFUSE_OK) << zefuse_error_message();
    self->given.push_back(made);
    ++self->allocated;
    return made->dl_tensor.data;
  };
  how.free = [](void* data, void* memory, DLDevice) {
    auto* self = static_cast<Pool*>(data);
    EXPECT_TRUE(std::any_of(self->given.begin(), self->given.end(),
                            [&](DLManagedTensor* each) { return each->dl_tensor.data == memory; }));
    ++self->freed;
  };
  DLTensor on_host = host(x);
  DLManagedTensor *given = copy(on_host, true), *result = nullptr;
  for (int again = 0; again < 4; ++again) {
    const DLTensor* inputs[] = {&given->dl_tensor};
    ASSERT_EQ(zefuse_model_call_with(model, &how, inputs, 1, &result, 1), ZEFUSE_OK) << zefuse_error_message();
    ASSERT_EQ(zefuse_model_synchronize(model), ZEFUSE_OK) << zefuse_error_message();
    expectNear(read(result->dl_tensor), expected(x));
    EXPECT_EQ(pool.freed, size_t(again));
    result->deleter(result);
  }
  EXPECT_EQ(pool.stream, &stream);
  EXPECT_EQ(pool.allocated, 4u);
  EXPECT_EQ(pool.freed, 4u);
  how.allocate = [](void*, size_t, DLDevice, void*) -> void* { return nullptr; };
  const DLTensor* inputs[] = {&given->dl_tensor};
  EXPECT_EQ(zefuse_model_call_with(model, &how, inputs, 1, &result, 1), ZEFUSE_OUT_OF_MEMORY);
  EXPECT_EQ(result, nullptr);
  EXPECT_TRUE(says("gave no memory for a result of 128 bytes")) << zefuse_error_message();
  how.free = nullptr;
  EXPECT_EQ(zefuse_model_call_with(model, &how, inputs, 1, &result, 1), ZEFUSE_INVALID_ARGUMENT);
  for (DLManagedTensor* each : pool.given)
    each->deleter(each);
  given->deleter(given);
}

// Strides that the model does not take are made row-major by a copy, which reads a tensor with gaps on the device too.
TEST_F(DeviceTensors, ACopyIsRowMajor) {
  const DLTensor on_host = host(x);
  DLManagedTensor* given = copy(on_host, true);
  int64_t turned_sizes[] = {8, 2}, turned_strides[] = {1, 16};
  DLTensor turned = given->dl_tensor;  // rows 0 and 2, transposed
  turned.shape = turned_sizes;
  turned.strides = turned_strides;
  for (const bool to_device : {false, true}) {
    DLManagedTensor* made = copy(turned, to_device);
    DLManagedTensor* back = copy(made->dl_tensor, false);
    EXPECT_EQ(back->dl_tensor.strides[0], 2);
    const auto* values = static_cast<const float*>(back->dl_tensor.data);
    for (size_t i = 0; i < 8; ++i)
      for (size_t j = 0; j < 2; ++j)
        EXPECT_EQ(values[2 * i + j], x[16 * j + i]);
    made->deleter(made);
    back->deleter(back);
  }
  given->deleter(given);
}

TEST_F(DeviceTensors, WrongPlacesAreNamed) {
  DLTensor tensor = host(x);
  const DLTensor* inputs[] = {&tensor};
  DLManagedTensor* result = nullptr;
  for (const DLDevice wrong : {DLDevice{kDLCUDA, 0}, DLDevice{kDLOneAPI, 1}, DLDevice{kDLMetal, 0}}) {
    tensor.device = wrong;
    EXPECT_EQ(zefuse_model_call(model, inputs, 1, &result, 1), ZEFUSE_INVALID_ARGUMENT);
    EXPECT_TRUE(says("the model takes tensors in CPU memory or on kDLOneAPI:0")) << zefuse_error_message();
  }
  EXPECT_TRUE(says("input 0: it lies on type 8:0")) << zefuse_error_message();
  zefuse_model_release(std::exchange(model, nullptr));
  options.device = "cpu";
  ASSERT_EQ(load(), ZEFUSE_OK) << zefuse_error_message();
  EXPECT_EQ(zefuse_model_dl_device(model).device_type, kDLCPU);
  tensor.device = {kDLOneAPI, 0};
  EXPECT_EQ(zefuse_model_call(model, inputs, 1, &result, 1), ZEFUSE_INVALID_ARGUMENT);
  EXPECT_TRUE(says("it lies on kDLOneAPI:0, and the model takes tensors in CPU memory")) << zefuse_error_message();
  tensor.device = {kDLCPU, 0};
  zefuse_call_options how{};
  EXPECT_EQ(zefuse_model_call_with(model, &how, inputs, 1, &result, 1), ZEFUSE_INVALID_ARGUMENT);
  EXPECT_TRUE(says("zefuse_call_options.size is not set")) << zefuse_error_message();
  how.size = sizeof how;
  how.results_on_device = 1;
  EXPECT_EQ(zefuse_model_call_with(model, &how, inputs, 1, &result, 1), ZEFUSE_INVALID_ARGUMENT);
  EXPECT_TRUE(says("the model is on the CPU")) << zefuse_error_message();
  EXPECT_EQ(zefuse_model_copy_tensor(model, &tensor, 1, &result), ZEFUSE_INVALID_ARGUMENT);
  EXPECT_TRUE(says("the model is on the CPU")) << zefuse_error_message();
}

}  // namespace
