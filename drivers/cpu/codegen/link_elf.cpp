// lld in this process. Its state is global, so one link at a time.
#include "drivers/cpu/codegen/backend.h"
#include "drivers/spirv/spirv_module.h"

#include "lld/Common/Driver.h"
#include "llvm/Object/ELFObjectFile.h"
#include "llvm/Support/raw_ostream.h"

#include <dlfcn.h>
#include <link.h>
#include <sys/mman.h>
#include <unistd.h>

#include <fstream>
#include <mutex>

LLD_HAS_DRIVER(elf)

namespace zefuse::cpu {
namespace {

class MemoryFile {
public:
  explicit MemoryFile(const char* name) : fd_(memfd_create(name, MFD_CLOEXEC)) {
    if (fd_ < 0)
      throw spirv::CompileError(std::string("memfd_create failed: ") + strerror(errno));
  }
  ~MemoryFile() { close(fd_); }
  MemoryFile(const MemoryFile&) = delete;
  std::string path() const { return "/proc/self/fd/" + std::to_string(fd_); }
  void write(const char* data, size_t n) {
    while (n) {
      ssize_t k = ::write(fd_, data, n);
      if (k < 0 && errno == EINTR)
        continue;
      if (k <= 0)
        throw spirv::CompileError(std::string("writing to memory failed: ") + strerror(errno));
      data += k;
      n -= k;
    }
  }

private:
  int fd_;
};

// lld replaces its output by renaming a file beside it, which a memory file cannot offer.
class OutputFile {
public:
  OutputFile() {
    const char* tmp = getenv("TMPDIR");
    for (const char* parent : {"/dev/shm", tmp, "/tmp"}) {
      if (!parent)
        continue;
      directory_ = std::string(parent) + "/zefuse-XXXXXX";
      if (mkdtemp(directory_.data())) {
        path_ = directory_ + "/kernels.so";
        return;
      }
    }
    throw spirv::CompileError("no folder for the linker's output: neither /dev/shm, $TMPDIR nor /tmp can be written");
  }
  ~OutputFile() {
    unlink(path_.c_str());
    rmdir(directory_.c_str());
  }
  OutputFile(const OutputFile&) = delete;
  const std::string& path() const { return path_; }
  std::vector<std::byte> read() {
    std::ifstream f(path(), std::ios::binary | std::ios::ate);
    std::vector<std::byte> out(f ? static_cast<size_t>(f.tellg()) : 0);
    f.seekg(0);
    f.read(reinterpret_cast<char*>(out.data()), out.size());
    if (!f || out.empty())
      throw spirv::CompileError("the linker's output " + path() + " cannot be read");
    return out;
  }

private:
  std::string directory_, path_;  // the path is kept because a destructor must not need memory
};

// Where the process's dynamic linker finds a library; empty when it does not.
std::string libraryPath(const char* soname) {
  void* handle = dlopen(soname, RTLD_LAZY | RTLD_LOCAL);
  if (!handle)
    return "";
  link_map* map = nullptr;
  std::string path;
  if (dlinfo(handle, RTLD_DI_LINKMAP, &map) == 0 && map)
    path = map->l_name;
  dlclose(handle);
  return path;
}

bool hasUndefined(const std::vector<char>& object) {
  auto file = llvm::object::ObjectFile::createELFObjectFile(
      llvm::MemoryBufferRef(llvm::StringRef(object.data(), object.size()), "kernels"));
  if (!file) {
    llvm::consumeError(file.takeError());
    return true;
  }
  for (const llvm::object::SymbolRef& s : (*file)->symbols()) {
    auto flags = s.getFlags();
    if (!flags) {
      llvm::consumeError(flags.takeError());
      return true;
    }
    auto name = s.getName();
    if (!name) {
      llvm::consumeError(name.takeError());
      return true;
    }
    if ((*flags & llvm::object::SymbolRef::SF_Undefined) && !name->empty())
      return true;
  }
  return false;
}

}  // namespace

std::vector<std::byte> linkSharedObject(const std::vector<char>& object) {
  MemoryFile in("zefuse-object");
  OutputFile out;
  in.write(object.data(), object.size());
  std::vector<std::string> args = {
      "ld.lld",      "-shared", "-Bsymbolic", "--threads=1", "--build-id=none", "--hash-style=gnu", "-z", "now", "-z",
      "noexecstack", "-z",      "norelro",    "-o",          out.path(),        in.path()};
  // Code without calls needs no library; memcpy and such come from the libc that every process has.
  if (hasUndefined(object)) {
    static const std::string libs[] = {libraryPath("libmvec.so.1"), libraryPath("libm.so.6"), libraryPath("libc.so.6")};
    args.push_back("--no-undefined");
    args.push_back("--as-needed");
    for (const std::string& l : libs)
      if (!l.empty())
        args.push_back(l);
  }
  std::vector<const char*> argv;
  for (const std::string& a : args)
    argv.push_back(a.c_str());
  std::string text;
  llvm::raw_string_ostream errors(text);
  static std::mutex mutex;
  {
    std::lock_guard lock(mutex);
    static bool broken = false;
    if (broken)
      throw spirv::CompileError("lld stopped in an earlier link of this process and cannot run again");
    lld::Result r = lld::lldMain(argv, llvm::nulls(), errors, {{lld::Gnu, &lld::elf::link}});
    broken = !r.canRunAgain;
    if (r.retCode != 0)
      throw spirv::CompileError("linking the kernels failed: " + text);
  }
  return out.read();
}

}  // namespace zefuse::cpu
