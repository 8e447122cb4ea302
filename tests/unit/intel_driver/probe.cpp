// What a process does with an Intel GPU, through the shim, for a test that runs it on Intel's driver in capture mode.
//
//   intel_driver_probe LIST
//
// LIST has a line per kernel: its name, its work-group size, a SPIR-V file and a binary of an offline compiler (or -).
// Modules from SPIR-V, from the driver's own binary of it and from that binary; for each the kernel's arguments, copies
// both ways, a launch and a wait. A line per step done, so that the last one names what the process died of; the first
// failure goes to stderr and ends it with 1.
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "runtime/ze/command_list.h"
#include "runtime/ze/memory.h"

namespace zefuse::ze {
namespace {

constexpr size_t buffer_bytes = 1 << 20;
constexpr uint64_t wait_ns = 60'000'000'000;

[[noreturn]] void fail(const std::string& step, const Status& status) {
  std::fprintf(stderr, "%s: %s\n", step.c_str(), status.toString().c_str());
  std::exit(1);
}

template <typename T> T must(const std::string& step, Result<T> result) {
  if (!result.ok())
    fail(step, result.status());
  return std::move(*result);
}

void must(const std::string& step, const Status& status) {
  if (!status.ok())
    fail(step, status);
}

// For who looks at a probe that hung or crashed: only so much, as a tool's text is kept up to its first 64 KiB.
void say(const std::string& step) {
  std::printf("%s\n", step.c_str());
  std::fflush(stdout);
}

std::vector<char> contents(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

struct Probe {
  Context context;
  CommandList list;
  Event done;

  void finish(const std::string& step) {
    must(step, done.wait(wait_ns));
    say(step);
    must(step + ", event reset", done.reset());
  }

  void run(const Module& module, const std::string& name, uint32_t group_size, const std::string& origin) {
    say(origin + ": " + name);
    Kernel kernel = must(origin + ": kernel", Kernel::create(module, name.c_str()));
    must(origin + ": group size", kernel.setGroupSize(group_size, 1, 1));
    std::vector<Memory> buffers;
    // Every argument of ours has 8 bytes, pointer or integer; in capture mode nothing reads what it means.
    for (uint32_t i = 0; i < kernel.argumentCount(); ++i) {
      buffers.push_back(
          must(origin + ": device memory", Memory::allocate(context, Memory::Kind::device, buffer_bytes)));
      void* data = buffers.back().data();
      must(origin + ": argument", kernel.setArgument(i, sizeof data, &data));
    }
    Memory host = must(origin + ": host memory", Memory::allocate(context, Memory::Kind::host, buffer_bytes));
    must(origin + ": copy in", list.copy(buffers.front().data(), host.data(), buffer_bytes));
    must(origin + ": launch", list.launch(kernel, 2));
    must(origin + ": copy out", list.copy(host.data(), buffers.back().data(), buffer_bytes, &done));
    finish(origin + ": wait");
  }
};

}  // namespace
}  // namespace zefuse::ze

int main(int count, char** arguments) {
  using namespace zefuse;
  using namespace zefuse::ze;
  if (count != 2) {
    std::fprintf(stderr, "usage: %s LIST\n", arguments[0]);
    return 2;
  }
  Device device = must("device", Device::find("gpu:0"));
  std::printf("found %s, id 0x%04x\n", device.description.c_str(), device.properties.deviceId);
  Context context = must("context", Context::create(device));
  EventPool pool = must("event pool", EventPool::create(context, 1));
  Event done = must("event", Event::create(pool, 0));
  CommandList list = must("immediate list", CommandList::createImmediate(context, Execution::asynchronous));
  Probe probe{std::move(context), std::move(list), std::move(done)};
  std::ifstream kernels(arguments[1]);
  std::string name, spirv_file, binary_file;
  uint32_t group_size = 0;
  while (kernels >> name >> group_size >> spirv_file >> binary_file) {
    std::vector<char> spirv = contents(spirv_file);
    std::span<const uint32_t> words(reinterpret_cast<const uint32_t*>(spirv.data()), spirv.size() / 4);
    say(spirv_file);
    Module built = must("module from " + spirv_file, Module::fromSpirv(probe.context, words, name));
    probe.run(built, name, group_size, "from SPIR-V");
    std::vector<std::byte> native = must("the driver's binary", built.nativeBinary());
    Module again = must("module from the driver's binary", Module::fromNative(probe.context, native, name));
    probe.run(again, name, group_size, "from the driver's binary");
    if (binary_file != "-") {
      std::vector<char> packaged = contents(binary_file);
      Module given = must("module from " + binary_file,
                          Module::fromNative(probe.context, std::as_bytes(std::span(packaged)), name));
      probe.run(given, name, group_size, "from a packaged binary");
    }
  }
  std::printf("done\n");
  return 0;
}
