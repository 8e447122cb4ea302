// The shim on our own driver, and what it makes of systems that are not well.
#include <gtest/gtest.h>

#include <pthread.h>
#include <signal.h>

#include <cstring>

#include "common/toolchain/host_cpu.h"
#include "common/toolchain/targets.h"
#include "runtime/ze/command_list.h"
#include "runtime/ze/memory.h"

namespace zefuse::ze {
namespace {

TEST(Ze, StructuresKnowTheirType) {
  EXPECT_EQ(make<ze_module_desc_t>().stype, ZE_STRUCTURE_TYPE_MODULE_DESC);
  EXPECT_EQ(make<ze_device_properties_t>().pNext, nullptr);
}

TEST(Ze, AProcessorThatRunsNoKernelIsNamed) {
  EXPECT_EQ(missingCpuFeatures({true, true, true, true}), "");
  EXPECT_EQ(missingCpuFeatures({false, false, true, true}), "AVX2, FMA");
  EXPECT_EQ(missingCpuFeatures({}), "AVX2, FMA, BMI2, F16C");
  EXPECT_EQ(missingCpuFeatures(hostCpuFeatures()), "") << "the tests run kernels here";
}

TEST(Ze, ALoaderThatHangsCrashesOrFindsNothingIsAnError) {
  const Status hangs = tryLoader(HANGING_LOADER, std::chrono::milliseconds(300));
  EXPECT_EQ(hangs.code(), Code::deadline) << hangs.toString();
  const Status crashes = tryLoader(CRASHING_LOADER, std::chrono::seconds(60));
  EXPECT_EQ(crashes.code(), Code::device) << crashes.toString();
  EXPECT_NE(crashes.message().find("crashed"), std::string::npos);
  EXPECT_EQ(tryLoader(EMPTY_LOADER, std::chrono::seconds(60)).code(), Code::not_found);
  const Status absent = tryLoader("libze_no_such_loader.so.1", std::chrono::seconds(60));
  EXPECT_EQ(absent.code(), Code::not_found);
  EXPECT_NE(absent.message().find("no Level Zero loader"), std::string::npos);
}

TEST(Ze, ALoaderIsTriedInAnotherProgramAndNotInACopyOfThisProcess) {
  static int forks = 0;
  static const int registered = pthread_atfork([] { ++forks; }, nullptr, nullptr);
  ASSERT_EQ(registered, 0);
  forks = 0;
  const Status crashes = tryLoader(CRASHING_LOADER, std::chrono::seconds(60));
  EXPECT_EQ(crashes.code(), Code::device) << crashes.toString();
  EXPECT_EQ(forks, 0) << "other threads' locks would be held for ever in the child";
}

TEST(Ze, AHostThatReapsAllChildrenGetsTheSameVerdict) {
  struct Restore {
    sighandler_t before = signal(SIGCHLD, SIG_IGN);
    ~Restore() { signal(SIGCHLD, before); }
  } restore;
  const Status empty = tryLoader(EMPTY_LOADER, std::chrono::seconds(60));
  EXPECT_EQ(empty.code(), Code::not_found) << empty.toString();
  EXPECT_NE(empty.message().find("zeInit found no usable driver (0x78000001)"), std::string::npos) << empty.message();
  EXPECT_EQ(tryLoader(CRASHING_LOADER, std::chrono::seconds(60)).code(), Code::device);
}

TEST(Ze, ADriverThatIsNoneIsAnError) {
  EXPECT_EQ(loadDriver("/nowhere/libze.so").status().code(), Code::not_found);
  const Status empty = loadDriver(EMPTY_LOADER).status();
  EXPECT_EQ(empty.code(), Code::damaged);
  EXPECT_NE(empty.message().find("zeGetGlobalProcAddrTable"), std::string::npos);
}

#ifdef HAVE_CPU_DRIVER

TEST(Ze, TheCpuIsOurDriver) {
  auto device = Device::find("cpu");
  ASSERT_TRUE(device.ok()) << device.status().toString();
  EXPECT_TRUE(device->isCpu());
  EXPECT_NE(device->api->library.find("libze_zefuse_cpu"), std::string::npos);
  bool driver = false, instructions = false;
  for (const auto& [name, value] : device->nativeFields()) {
    driver |= name == "driver" && value.size() > 33;  // uuid and version
    instructions |= name == "instruction set" && findCpuTarget(value) != nullptr;
    EXPECT_EQ(value.find('/'), std::string::npos) << name << "=" << value;  // the same on another machine
  }
  EXPECT_TRUE(driver && instructions);
}

TEST(Ze, AnUnknownDeviceListsWhatExists) {
  for (const char* name : {"tpu", "gpu:42", "gpu:x", "CPU", ""}) {
    const Status status = Device::find(name).status();
    EXPECT_EQ(status.code(), Code::not_found);
    EXPECT_NE(status.message().find("this machine has 'cpu' ("), std::string::npos) << status.message();
  }
}

struct ZeCpu : testing::Test {
  std::unique_ptr<Context> context;
  void SetUp() override {
    auto device = Device::find("cpu");
    ASSERT_TRUE(device.ok()) << device.status().toString();
    auto made = Context::create(*device);
    ASSERT_TRUE(made.ok()) << made.status().toString();
    context = std::make_unique<Context>(std::move(*made));
  }
};

TEST_F(ZeCpu, BadSpirvFailsWithTheBuildLog) {
  const uint32_t words[] = {0x07230203, 0x00010200, 0, 5, 0, 0xDEADBEEF};
  const Status status = Module::fromSpirv(*context, words, "some kernel").status();
  EXPECT_EQ(status.code(), Code::device);
  EXPECT_NE(status.message().find("SPIR-V of kernel module 'some kernel': zeModuleCreate failed "
                                  "with ZE_RESULT_ERROR_MODULE_BUILD_FAILURE"),
            std::string::npos)
      << status.message();
  EXPECT_NE(status.message().find('\n'), std::string::npos) << "no log: " << status.message();
}

TEST_F(ZeCpu, BadNativeCodeIsDamaged) {
  const std::vector<std::byte> bytes(300, std::byte(9));
  EXPECT_EQ(Module::fromNative(*context, bytes, "k").status().code(), Code::damaged);
}

TEST_F(ZeCpu, MemoryCopiesFillsAndEvents) {
  for (Execution execution : {Execution::synchronous, Execution::asynchronous}) {
    auto list = CommandList::createImmediate(*context, execution);
    ASSERT_TRUE(list.ok()) << list.status().toString();
    auto pool = EventPool::create(*context, 2);
    ASSERT_TRUE(pool.ok()) << pool.status().toString();
    auto event = Event::create(*pool, 0);
    ASSERT_TRUE(event.ok()) << event.status().toString();
    auto from = Memory::allocate(*context, Memory::Kind::shared, 256);
    auto to = Memory::allocate(*context, Memory::Kind::host, 256);
    ASSERT_TRUE(from.ok() && to.ok());
    EXPECT_EQ(reinterpret_cast<uintptr_t>(from->data()) % 64, 0u);
    const uint32_t pattern = 0x01020304;
    std::memset(to->data(), 0, 256);
    ASSERT_TRUE(list->fill(from->data(), &pattern, 4, 256).ok());
    ASSERT_TRUE(list->barrier().ok());
    ASSERT_TRUE(list->copy(to->data(), from->data(), 256, &*event).ok());
    ASSERT_TRUE(event->wait(60'000'000'000).ok());
    EXPECT_TRUE(*event->signalled());
    for (int i = 0; i < 64; ++i)
      ASSERT_EQ(static_cast<uint32_t*>(to->data())[i], pattern);
    ASSERT_TRUE(event->reset().ok());
    EXPECT_FALSE(*event->signalled());
    EXPECT_EQ(event->wait(1'000'000).code(), Code::deadline);
  }
}

TEST_F(ZeCpu, AFailingCallNamesCallCodeAndDevice) {
  const Status status = Memory::allocate(*context, Memory::Kind::host, 64, 3).status();
  ASSERT_FALSE(status.ok());
  EXPECT_NE(status.message().find("zeMemAllocHost failed with ZE_RESULT_ERROR_"), std::string::npos)
      << status.message();
  EXPECT_NE(status.message().find("on device 'cpu'"), std::string::npos);
}

#endif

}  // namespace
}  // namespace zefuse::ze
