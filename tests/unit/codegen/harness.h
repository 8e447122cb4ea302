// Compiles, loads and launches kernels the way a driver would, on one thread.
#pragma once

#include "drivers/cpu/codegen/codegen.h"

#include <array>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

namespace zefuse::cpu::testing {

std::vector<uint32_t> loadSpirv(const std::string& name);  // a file of the build's kernel folder, without ".spv"

struct Arg {
  std::vector<std::byte> value;  // what args[i] points to
  size_t local_bytes = 0;        // local_pointer: size to carve out
  template <typename T> static Arg of(const T& v) {
    Arg a;
    a.value.resize(sizeof v);
    std::memcpy(a.value.data(), &v, sizeof v);
    return a;
  }
  template <typename T> static Arg buffer(std::vector<T>& v) { return of(v.data()); }
  template <typename T> static Arg buffer(const std::vector<T>& v) { return of(v.data()); }
  static Arg local(size_t bytes) {
    Arg a;
    a.local_bytes = bytes;
    return a;
  }
};

using Size3 = std::array<uint64_t, 3>;

class Program {
public:
  // Fails the current test when it does not build. The code takes the road through the container's bytes.
  Program(const std::vector<uint32_t>& spirv, CompileOptions options = {});
  void run(const std::string& kernel, Size3 groups, Size3 local, std::vector<Arg> args, Size3 offset = {0, 0, 0});
  const spirv::KernelInfo& info(const std::string& kernel) const;
  LoadedModule* module() { return module_.get(); }
  bool ok() const { return module_ != nullptr; }

private:
  size_t find(const std::string& kernel) const;
  std::unique_ptr<LoadedModule> module_;
};

// Every level this host runs, lowest first.
std::vector<IsaLevel> hostLevels();

}  // namespace zefuse::cpu::testing
