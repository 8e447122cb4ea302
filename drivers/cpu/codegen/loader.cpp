// Container to code in memory. No LLVM here: a driver without a compiler links this file, container.cpp, arena.cpp,
// isa.cpp and a compileSpirv that refuses.
#include "common/base/unseen_order.h"
#include "drivers/cpu/codegen/arena.h"
#include "drivers/cpu/codegen/codegen.h"
#include "drivers/cpu/codegen/container.h"

#include <dlfcn.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>

namespace zefuse::cpu {
namespace {

// glibc compares names before files, so two objects must never be opened under one name, even when a descriptor's
// number is used again. The counter is written in slashes: "/proc/self/fd" + ("/" or "/./" per bit) + "/N".
std::string uniquePath(int fd) {
  static std::atomic<uint64_t> counter{1};
  std::string path = "/proc/self/fd";
  for (uint64_t n = counter++; n; n >>= 1)
    path += n & 1 ? "/." : "//.";
  return path + "/" + std::to_string(fd);
}

// A module may be mapped where another thread's lay: the linker unmaps that one first.
UnseenOrder addresses_reused;

class ElfModule final : public LoadedModule {
public:
  explicit ElfModule(Container c) : container_(std::move(c)) {}
  ~ElfModule() override {
    if (!handle_)
      return;
    addresses_reused.give();
    dlclose(handle_);
  }

  bool open(std::string& log) {
    // Kernels since 6.3 want to be told that the memory will hold code; older ones do not know the flag.
    constexpr unsigned kExec = 0x10;  // MFD_EXEC
    int fd = memfd_create("zefuse-kernels", MFD_CLOEXEC | kExec);
    if (fd < 0 && errno == EINVAL)
      fd = memfd_create("zefuse-kernels", MFD_CLOEXEC);
    if (fd < 0) {
      log = std::string("native binary: memfd_create failed: ") + std::strerror(errno);
      return false;
    }
    size_t done = 0;
    while (done < container_.elf.size()) {
      ssize_t n = write(fd, container_.elf.data() + done, container_.elf.size() - done);
      if (n < 0 && errno == EINTR)
        continue;
      if (n <= 0) {
        log = std::string("native binary: writing the code to memory failed: ") + std::strerror(errno);
        close(fd);
        return false;
      }
      done += n;
    }
    handle_ = dlopen(uniquePath(fd).c_str(), RTLD_NOW | RTLD_LOCAL);
    addresses_reused.take();
    const char* error = handle_ ? nullptr : dlerror();
    close(fd);
    if (!handle_) {
      log = std::string("native binary: dlopen failed: ") + (error ? error : "no reason given");
      return false;
    }
    if (auto* runtime = static_cast<const Runtime**>(dlsym(handle_, "zf_runtime")))
      *runtime = &kRuntime;
    for (size_t i = 0; i < container_.kernels.size(); ++i)
      if (!resolve(kernelSymbol(i), entries_, log))
        return false;
    for (size_t i = 0; i < container_.globals.size(); ++i)
      if (!resolve(globalSymbol(i), globals_, log))
        return false;
    for (size_t i = 0; i < container_.functions.size(); ++i)
      if (!resolve(functionSymbol(i), functions_, log))
        return false;
    container_.elf = {};
    container_.spirv = {};
    return true;
  }

  const std::vector<spirv::KernelInfo>& kernels() const override { return container_.kernels; }
  WorkGroupFn entry(size_t i) const override {
    return i < entries_.size() ? reinterpret_cast<WorkGroupFn>(entries_[i]) : nullptr;
  }
  const std::vector<GlobalInfo>& globals() const override { return container_.globals; }
  void* globalAddress(size_t i) const override { return i < globals_.size() ? globals_[i] : nullptr; }
  std::vector<std::string> unresolvedImports() const override { return container_.imports; }
  const std::vector<std::string>& functions() const override { return container_.functions; }
  void* functionAddress(const std::string& name) const override {
    for (size_t i = 0; i < functions_.size(); ++i)
      if (container_.functions[i] == name)
        return functions_[i];
    return nullptr;
  }
  const std::string& buildFlags() const override { return container_.build_flags; }

private:
  bool resolve(const std::string& symbol, std::vector<void*>& out, std::string& log) {
    void* p = dlsym(handle_, symbol.c_str());
    if (!p)
      log = "native binary: symbol " + symbol + " is missing from the code";
    out.push_back(p);
    return p != nullptr;
  }

  Container container_;
  void* handle_ = nullptr;
  std::vector<void*> entries_, globals_, functions_;
};

}  // namespace

std::unique_ptr<LoadedModule> LoadedModule::load(std::span<const std::byte> native, std::string& log) {
  log.clear();
  Container c;
  if (!readContainer(native, c, log))
    return nullptr;
  if (c.isa > hostIsaLevel()) {
    CompileOptions options;
    options.isa = hostIsaLevel();
    options.opt_level = c.opt_level;
    options.build_flags = c.build_flags;
    options.spec_constants = c.spec_constants;
    CompileResult again = compileSpirv(c.spirv, options);
    if (!again.ok) {
      log = std::string("native binary: built for ") + isaLevelName(c.isa) + ", this host runs " +
            isaLevelName(options.isa) + ", and compiling its SPIR-V again failed: " + again.log;
      return nullptr;
    }
    if (!readContainer(again.native, c, log))
      return nullptr;
  }
  auto module = std::make_unique<ElfModule>(std::move(c));
  if (!module->open(log))
    return nullptr;
  return module;
}

}  // namespace zefuse::cpu
