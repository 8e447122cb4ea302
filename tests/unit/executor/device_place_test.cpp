// Calls whose tensors lie in a GPU's own memory: used there, without a copy. The CPU's driver poses as the GPU; where
// that is a discrete one, its memory cannot be reached by the host at all.
#include <gtest/gtest.h>

#include <thread>

#include "tests/unit/executor/device_calls.h"

namespace zefuse {
namespace {

using test::addsInPlace;
using test::create;
using test::DeviceFloats;
using test::filled;
using test::HostTensor;
using test::OutputMemory;
using test::PlanBuilder;

TEST(DevicePlace, TensorsAreUsedWhereTheyAre) {
  PlanBuilder b = addsInPlace();
  auto executable = create(b);
  ASSERT_TRUE(executable.ok()) << executable.status().toString();
  DeviceFloats x(filled(1)), y(filled(2)), p(filled(10)), out(filled(-1));
  for (int call = 1; call < 6; ++call) {  // the later ones are replayed
    const CallInput inputs[] = {x.input(), y.input(), p.input()};
    auto outputs = (*executable)->call(inputs, out.allocator(), nullptr, {Place::device});
    ASSERT_TRUE(outputs.ok()) << outputs.status().toString();
    EXPECT_EQ(out.read(), filled(float(1 + 2 * call + 10)));
    EXPECT_EQ(x.read(), filled(float(1 + 2 * call)));
  }
  const ExecutionCounters counters = (*executable)->counters();
  EXPECT_EQ(counters.copies_to_device + counters.copies_to_host + counters.parameters_uploaded, 0u);
  EXPECT_EQ(counters.launches, 10u);
}

TEST(DevicePlace, OtherMemoryInEachCall) {
  PlanBuilder b = addsInPlace();
  auto executable = create(b);
  ASSERT_TRUE(executable.ok()) << executable.status().toString();
  std::vector<std::unique_ptr<DeviceFloats>> kept;
  auto made = [&](float value) -> DeviceFloats& {
    return *kept.emplace_back(std::make_unique<DeviceFloats>(filled(value)));
  };
  for (float call : {1.f, 2.f, 3.f, 4.f}) {
    DeviceFloats &x = made(call), &y = made(2 * call), &p = made(10 * call), &out = made(-1);
    const CallInput inputs[] = {x.input(), y.input(), p.input()};
    auto outputs = (*executable)->call(inputs, out.allocator(), nullptr, {Place::device});
    ASSERT_TRUE(outputs.ok()) << outputs.status().toString();
    EXPECT_EQ(out.read(), filled(13 * call));
    EXPECT_EQ(x.read(), filled(3 * call));
  }
}

TEST(DevicePlace, EachTensorHasItsOwn) {
  PlanBuilder b = addsInPlace();
  auto executable = create(b);
  ASSERT_TRUE(executable.ok()) << executable.status().toString();
  DeviceFloats x(filled(1)), p(filled(10)), out(filled(-1));
  HostTensor y = HostTensor::f32({24}, filled(2)), on_host = HostTensor::f32({24}, filled(20));
  for (int call = 1; call < 5; ++call) {
    const bool device = call % 2 == 1;  // the parameter's, and the result's
    const CallInput inputs[] = {x.input(), y.input(), device ? p.input() : on_host.input()};
    OutputMemory memory;
    auto outputs = (*executable)
                       ->call(inputs, device ? out.allocator() : memory.allocator(), nullptr,
                              {device ? Place::device : Place::host});
    ASSERT_TRUE(outputs.ok()) << outputs.status().toString();
    EXPECT_EQ(device ? out.read() : memory.read<float>((*outputs)[0]),
              filled(float(1 + 2 * call + (device ? 10 : 20))));
    EXPECT_EQ(x.read(), filled(float(1 + 2 * call)));
  }
}

// In an executable for calls in streams, which keeps no room on the device for what lies on the host.
TEST(DevicePlace, TensorsOnTheHostWhereCallsBringAStream) {
  PlanBuilder b = addsInPlace();
  auto executable = create(b, true);
  ASSERT_TRUE(executable.ok()) << executable.status().toString();
  DeviceFloats y(filled(2));
  HostTensor x = HostTensor::f32({24}, filled(1)), p = HostTensor::f32({24}, filled(10));
  for (int call = 1; call < 5; ++call) {
    const CallInput inputs[] = {x.input(), y.input(), p.input()};
    OutputMemory memory;
    auto outputs = (*executable)->call(inputs, memory.allocator());
    ASSERT_TRUE(outputs.ok()) << outputs.status().toString();
    EXPECT_EQ(memory.read<float>((*outputs)[0]), filled(float(1 + 2 * call + 10)));
    const auto* now = reinterpret_cast<const float*>(x.bytes.data());
    EXPECT_EQ(std::vector<float>(now, now + 24), filled(float(1 + 2 * call)));
  }
}

// Kernels count on boundaries of 64 bytes: what begins elsewhere is copied on the device, there and back.
TEST(DevicePlace, TensorsThatBeginBetweenBoundaries) {
  PlanBuilder b = addsInPlace();
  auto executable = create(b);
  ASSERT_TRUE(executable.ok()) << executable.status().toString();
  DeviceFloats x(filled(1), 1), y(filled(2), 3), p(filled(10), 5), out(filled(-1), 7);
  for (int call = 1; call < 5; ++call) {
    const CallInput inputs[] = {x.input(), y.input(), p.input()};
    auto outputs = (*executable)->call(inputs, out.allocator(), nullptr, {Place::device});
    ASSERT_TRUE(outputs.ok()) << outputs.status().toString();
    EXPECT_EQ(out.read(), filled(float(1 + 2 * call + 10)));
    EXPECT_EQ(x.read(), filled(float(1 + 2 * call)));
  }
  EXPECT_EQ((*executable)->counters().copies_to_host, 0u);
}

// Two inputs in the same memory, one of which is written.
TEST(DevicePlace, TensorsThatShareMemory) {
  PlanBuilder b = addsInPlace();
  auto executable = create(b);
  ASSERT_TRUE(executable.ok()) << executable.status().toString();
  DeviceFloats x(filled(1)), y(filled(2)), out(filled(-1));
  const CallInput inputs[] = {x.input(), y.input(), x.input()};
  auto outputs = (*executable)->call(inputs, out.allocator(), nullptr, {Place::device});
  ASSERT_TRUE(outputs.ok()) << outputs.status().toString();
  EXPECT_EQ(out.read(), filled(6));
}

TEST(DevicePlace, AStepOnTheHostCannotUseThem) {
  PlanBuilder b = addsInPlace();
  const uint32_t copied = b.outputTensor(plan::DType::f32, {b.constant(24)});
  b.copy(1, copied);
  auto executable = create(b);
  ASSERT_TRUE(executable.ok()) << executable.status().toString();
  DeviceFloats y(filled(2)), out(filled(-1));
  HostTensor x = HostTensor::f32({24}, filled(1)), p = HostTensor::f32({24}, filled(10));
  const CallInput inputs[] = {x.input(), y.input(), p.input()};
  OutputMemory memory;
  const Status status = (*executable)->call(inputs, memory.allocator()).status();
  EXPECT_EQ(status.code(), Code::unsupported);
  EXPECT_NE(status.message().find("runs on the host, and input 'y', which it uses, lies on the device"),
            std::string::npos)
      << status.toString();
  HostTensor on_host = HostTensor::f32({24}, filled(2));
  const CallInput others[] = {x.input(), on_host.input(), p.input()};
  const Status of_results = (*executable)->call(others, out.allocator(), nullptr, {Place::device}).status();
  EXPECT_NE(of_results.message().find("a result, which it uses, lies on the device"), std::string::npos)
      << of_results.toString();
  EXPECT_TRUE((*executable)->call(others, memory.allocator()).ok());
}

// Holds a stream until it is let go.
class Held {
public:
  explicit Held(void* stream)
      : context_(device_->context()), pool_(std::move(*ze::EventPool::create(context_, 1))),
        event_(std::move(*ze::Event::create(pool_, 0))),
        list_(std::move(*ze::CommandList::createImmediate(context_, ze::Execution::asynchronous, stream))) {
    ze_event_handle_t event = event_.handle();
    EXPECT_EQ(context_.api().zeCommandListAppendBarrier(list_.handle(), nullptr, 1, &event), ZE_RESULT_SUCCESS);
  }
  void letGo() {
    auto other = ze::CommandList::createImmediate(context_, ze::Execution::synchronous);
    ASSERT_TRUE(other.ok() && other->barrier(&event_).ok());
  }

private:
  std::shared_ptr<executor::DeviceContext> device_ = *executor::DeviceContext::open("gpu:0");
  const ze::Context& context_;
  ze::EventPool pool_;
  ze::Event event_;
  ze::CommandList list_;
};

// Calls that come in a stream are queued there, one after the other, and nobody waits.
TEST(DevicePlace, CallsInAStreamDoNotWait) {
  PlanBuilder b = addsInPlace();
  auto executable = create(b, true);
  ASSERT_TRUE(executable.ok()) << executable.status().toString();
  DeviceFloats x(filled(1)), y(filled(2)), p(filled(10)), out(filled(-1));
  int stream = 0;  // any address
  const CallPlace place = {Place::device, &stream};
  Held held(&stream);
  for (int call = 1; call < 6; ++call) {  // the later ones are replayed
    const CallInput inputs[] = {x.input(), y.input(), p.input()};
    auto outputs = (*executable)->call(inputs, out.allocator(), nullptr, place);
    ASSERT_TRUE(outputs.ok()) << outputs.status().toString();
    EXPECT_EQ(out.read(), filled(-1));
  }
  held.letGo();
  const Status ended = (*executable)->synchronize();
  ASSERT_TRUE(ended.ok()) << ended.toString();
  EXPECT_EQ(out.read(), filled(1 + 2 * 5 + 10));
  EXPECT_EQ(x.read(), filled(1 + 2 * 5));
  const ExecutionCounters counters = (*executable)->counters();
  EXPECT_EQ(counters.copies_to_device + counters.copies_to_host + counters.parameters_uploaded, 0u);
  EXPECT_EQ(counters.launches, 10u);
}

// An executable that goes waits for what it queued: its kernels and its memory are in use.
TEST(DevicePlace, WhatIsQueuedOutlivesTheExecutable) {
  PlanBuilder b = addsInPlace();
  auto executable = create(b, true);
  ASSERT_TRUE(executable.ok()) << executable.status().toString();
  DeviceFloats x(filled(1)), y(filled(2)), p(filled(10)), out(filled(-1));
  int stream = 0;
  Held held(&stream);
  const CallInput inputs[] = {x.input(), y.input(), p.input()};
  ASSERT_TRUE((*executable)->call(inputs, out.allocator(), nullptr, {Place::device, &stream}).ok());
  std::thread lets_go([&] { held.letGo(); });
  executable->reset();
  lets_go.join();
  EXPECT_EQ(out.read(), filled(13));
}

TEST(DevicePlace, APlanForTheCpuTakesNone) {
  PlanBuilder b = addsInPlace();
  auto executable = Executable::create(b.finish(), {});
  ASSERT_TRUE(executable.ok()) << executable.status().toString();
  HostTensor x = HostTensor::f32({24}, filled(1));
  CallInput inputs[] = {x.input(), x.input(), x.input()};
  inputs[1].tensor.place = Place::device;
  OutputMemory memory;
  const Status status = (*executable)->call(inputs, memory.allocator()).status();
  EXPECT_EQ(status.code(), Code::unsupported);
  EXPECT_NE(status.message().find("input 1 'y' lies on a device, and the plan is for the CPU"), std::string::npos)
      << status.toString();
}

}  // namespace
}  // namespace zefuse
