#include "runtime/ze/jit_program.h"

#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "runtime/ze/context.h"
#include "runtime/ze/module.h"

using namespace zefuse;

namespace {

Status compile(const std::string& name, const char* from, const char* to) {
  std::ifstream input(from, std::ios::binary);
  const std::string text((std::istreambuf_iterator<char>(input)), {});
  std::vector<uint32_t> words(text.size() / sizeof(uint32_t));
  std::memcpy(words.data(), text.data(), words.size() * sizeof(uint32_t));
  auto context = ze::Context::of(name);
  if (!context.ok())
    return context.status();
  auto module = ze::Module::fromSpirv(*context, words, from);
  if (!module.ok())
    return module.status();
  auto native = module->nativeBinary();
  if (!native.ok())
    return native.status();
  if (native->empty())
    return {Code::unsupported, "the driver gives no native code"};
  std::ofstream output(to, std::ios::binary);
  output.write(reinterpret_cast<const char*>(native->data()), std::streamsize(native->size()));
  return output.flush() ? Status() : Status(Code::internal, std::string("cannot write ") + to);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) {
    std::fprintf(stderr, "usage: %s DEVICE SPIRV-FILE NATIVE-FILE\n", ze::jit_program);
    return 2;
  }
  const Status status = compile(argv[1], argv[2], argv[3]);
  if (!status.ok())
    std::fprintf(stderr, "%s\n", status.message().c_str());
  return status.ok() ? 0 : 1;
}
