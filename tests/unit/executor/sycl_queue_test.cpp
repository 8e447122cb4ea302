// Calls in queues of SYCL's, in a Level Zero context that somebody else made: tests/unit/posing_sycl stands for SYCL.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <thread>

#include "runtime/ze/sycl.h"
#include "tests/unit/executor/device_calls.h"

namespace zefuse {
namespace {

using test::addsInPlace;
using test::create;
using test::DeviceFloats;
using test::filled;

[[maybe_unused]] const int posing = setenv("ZEFUSE_CPU_DRIVER_AS", "gpu", /*overwrite=*/0);
constexpr const char* device = "xpu:0";

// A queue in the context of the device's others, or in one of its own.
void* makeQueue(bool of_its_own = false) {
  void* library = dlopen(POSING_SYCL, RTLD_NOW);
  EXPECT_NE(library, nullptr) << dlerror();
  const auto make = reinterpret_cast<void* (*)(int)>(dlsym(library, "posing_sycl_queue"));
  return make ? make(of_its_own) : nullptr;
}

class SyclQueues : public testing::Test {
protected:
  void SetUp() override {
    setenv(ze::kSyclVariable, POSING_SYCL, 1);
    const Status known = ze::adoptSyclQueue(device, queue);
    ASSERT_TRUE(known.ok()) << known.toString();
    place = {Place::device, queue};
  }
  void* queue = makeQueue();
  CallPlace place;
};

// Lets the queue go on when it is told to.
class Held {
public:
  explicit Held(void* queue) {
    const ze::Context& context = device_->context();
    pool_ = std::move(*ze::EventPool::create(context, 1));
    event_ = std::move(*ze::Event::create(pool_, 0));
    char why[256] = "";
    auto* kept = static_cast<ze_extension::SyclQueue*>(*ze::syclQueueOf(context, queue));
    EXPECT_EQ(context.device().sycl->after(kept, event_.handle(), &mark_, why, sizeof why), 0) << why;
  }
  ~Held() { device_->context().device().sycl->release(mark_); }
  void letGo() {
    auto other = ze::CommandList::createImmediate(device_->context(), ze::Execution::synchronous);
    ASSERT_TRUE(other.ok() && other->barrier(&event_).ok());
  }

private:
  std::shared_ptr<executor::DeviceContext> device_ = *executor::DeviceContext::open(device);
  ze::EventPool pool_;
  ze::Event event_;
  ze_extension::SyclMark* mark_ = nullptr;
};

TEST_F(SyclQueues, TheContextIsSycls) {
  const auto theirs = *executor::DeviceContext::open(device), ours = *executor::DeviceContext::open("gpu:0");
  EXPECT_EQ(theirs->device().handle, ours->device().handle);
  EXPECT_EQ(theirs->context().handle(), theirs->device().context);
  EXPECT_NE(theirs->context().handle(), ours->context().handle());
  EXPECT_EQ(theirs->device().name, device);
  EXPECT_EQ(*executor::DeviceContext::open(device), theirs);
}

TEST_F(SyclQueues, CallsAreQueuedAndDoNotWait) {
  auto b = addsInPlace();
  auto executable = create(b, true, false, device);
  ASSERT_TRUE(executable.ok()) << executable.status().toString();
  DeviceFloats x(filled(1), 0, device), y(filled(2), 0, device), p(filled(10), 0, device), out(filled(-1), 0, device);
  Held held(queue);
  for (int call = 1; call < 6; ++call) {  // the later ones are replayed
    const CallInput inputs[] = {x.input(), y.input(), p.input()};
    auto outputs = (*executable)->call(inputs, out.allocator(), nullptr, place);
    ASSERT_TRUE(outputs.ok()) << outputs.status().toString();
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(50));  // that a list's thread would need at most
  EXPECT_EQ(out.read(), filled(-1));
  held.letGo();
  const Status ended = (*executable)->synchronize();
  ASSERT_TRUE(ended.ok()) << ended.toString();
  EXPECT_EQ(out.read(), filled(1 + 2 * 5 + 10));
  EXPECT_EQ(x.read(), filled(1 + 2 * 5));
  const ExecutionCounters counters = (*executable)->counters();
  EXPECT_EQ(counters.copies_to_device + counters.copies_to_host + counters.parameters_uploaded, 0u);
  EXPECT_EQ(counters.launches, 10u);
  EXPECT_GT(counters.replays, 0u);
}

// What the queue gets after a call waits for it.
TEST_F(SyclQueues, TheQueueWaitsForACall) {
  auto b = addsInPlace();
  auto executable = create(b, true, false, device);
  ASSERT_TRUE(executable.ok()) << executable.status().toString();
  DeviceFloats x(filled(1), 0, device), y(filled(2), 0, device), p(filled(10), 0, device), out(filled(-1), 0, device);
  const CallInput inputs[] = {x.input(), y.input(), p.input()};
  const auto& context = (*executor::DeviceContext::open(device))->context();
  void* kept = *ze::syclQueueOf(context, queue);
  for (int call = 1; call <= 600; ++call) {  // more than there are events for
    ASSERT_TRUE((*executable)->call(inputs, out.allocator(), nullptr, place).ok());
    if (call % 300 == 0) {
      ASSERT_TRUE(ze::awaitSyclQueue(context, kept, UINT64_MAX).ok());
      EXPECT_EQ(out.read(), filled(float(1 + 2 * call + 10)));
    }
  }
}

TEST_F(SyclQueues, WhatIsQueuedOutlivesTheExecutable) {
  auto b = addsInPlace();
  auto executable = create(b, true, false, device);
  ASSERT_TRUE(executable.ok()) << executable.status().toString();
  DeviceFloats x(filled(1), 0, device), y(filled(2), 0, device), p(filled(10), 0, device), out(filled(-1), 0, device);
  Held held(queue);
  const CallInput inputs[] = {x.input(), y.input(), p.input()};
  ASSERT_TRUE((*executable)->call(inputs, out.allocator(), nullptr, place).ok());
  std::thread lets_go([&] { held.letGo(); });
  executable->reset();
  lets_go.join();
  EXPECT_EQ(out.read(), filled(13));
}

TEST_F(SyclQueues, AnotherContextsIsRefused) {
  auto b = addsInPlace();
  auto executable = create(b, true, false, device);
  ASSERT_TRUE(executable.ok()) << executable.status().toString();
  DeviceFloats x(filled(1), 0, device), y(filled(2), 0, device), p(filled(10), 0, device), out(filled(-1), 0, device);
  const CallInput inputs[] = {x.input(), y.input(), p.input()};
  const Status status =
      (*executable)->call(inputs, out.allocator(), nullptr, {Place::device, makeQueue(true)}).status();
  EXPECT_EQ(status.code(), Code::invalid_argument);
  EXPECT_NE(status.message().find("another SYCL context"), std::string::npos) << status.toString();
  ASSERT_TRUE((*executable)->call(inputs, out.allocator(), nullptr, place).ok());
  ASSERT_TRUE((*executable)->synchronize().ok());
  EXPECT_EQ(out.read(), filled(13));
}

TEST_F(SyclQueues, ADeviceIsUnknownBeforeItsFirstQueue) {
  const Status status = ze::Device::find("xpu:5").status();
  EXPECT_EQ(status.code(), Code::not_found);
  EXPECT_NE(status.message().find("from its first tensor of torch.xpu on"), std::string::npos) << status.toString();
}

}  // namespace
}  // namespace zefuse
