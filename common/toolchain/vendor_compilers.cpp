#include "common/toolchain/vendor_compilers.h"

#include <cstdlib>

#include "common/toolchain/companion.h"
#include "common/toolchain/ocloc.h"
#include "common/toolchain/targets.h"

namespace zefuse {
namespace {

// Ours for NVIDIA's GPUs (docs/cuda_driver.md), which answers as ocloc does. The driver has the same compiler built in:
// only what is made ahead needs it.
std::vector<std::string> installedPtxCompilers() {
  const char* compiler = std::getenv("ZEFUSE_PTX_COMPILER");
  return {compiler && *compiler ? compiler : companionProgram("zefuse-ptx")};
}

constexpr VendorCompiler table[] = {
    {.name = "ocloc",
     .advice = "`zefuse toolchain install` gets a current one without root, ZEFUSE_OCLOC names one",
     .commands = installedOclocs,
     .version = oclocVersion,
     .devices = oclocDevices,
     .compile = compileWithOcloc,
     .report = oclocReport},
    {.name = "zefuse-ptx",
     .advice = "it comes with zefuse: reinstall that, or name one by ZEFUSE_PTX_COMPILER",
     .commands = installedPtxCompilers,
     .version = oclocVersion,
     .devices = oclocDevices,
     .compile = compileWithOcloc,
     .report = oclocReport},
};

}  // namespace

std::span<const VendorCompiler> vendorCompilers() { return table; }

const VendorCompiler* findVendorCompiler(std::string_view name) {
  for (const VendorCompiler& compiler : table)
    if (compiler.name == name)
      return &compiler;
  return nullptr;
}

const VendorCompiler* vendorCompilerOf(std::string_view product) {
  const GpuTarget* target = findGpuTarget(product);
  return target ? findVendorCompiler(target->compiler) : nullptr;
}

}  // namespace zefuse
