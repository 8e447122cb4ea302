#include "drivers/cuda/build.h"

#include <cstring>
#include <span>
#include <utility>

#include "drivers/cuda/codegen/codegen.h"
#include "drivers/cuda/jit_link.h"
#include "drivers/level_zero/module_options.h"

namespace zefuse::cuda {
namespace {

// The two logs that CUDA writes.
struct JitLog {
  char info[8192] = "", errors[8192] = "";
  CUjit_option options[4] = {CU_JIT_INFO_LOG_BUFFER, CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES, CU_JIT_ERROR_LOG_BUFFER,
                             CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
  void* values[4] = {info, reinterpret_cast<void*>(sizeof info), errors, reinterpret_cast<void*>(sizeof errors)};

  std::string text() const {
    std::string all;
    for (const char* part : {errors, info})
      if (*part)
        all += part + std::string(all.empty() || all.back() == '\n' ? "" : "\n");
    return all;
  }
};

std::string failure(const char* function, CUresult result, const JitLog& log) {
  const std::string text = log.text();
  return std::string(function) + ": " + errorText(result) + "\n" + text;
}

// PTX, which ends with a zero byte, to a cubin for the current device.
bool link(std::vector<std::byte>& image, std::string& log) {
  JitLog jit;
  CUlinkState state = nullptr;
  if (CUresult result = cuda().cuLinkCreate(4, jit.options, jit.values, &state)) {
    log = failure("cuLinkCreate", result, jit) + log;
    return false;
  }
  void* cubin = nullptr;
  size_t bytes = 0;
  const char* function = "cuLinkAddData";
  CUresult result =
      cuda().cuLinkAddData(state, CU_JIT_INPUT_PTX, image.data(), image.size(), "kernels", 0, nullptr, nullptr);
  if (!result) {
    function = "cuLinkComplete";
    result = cuda().cuLinkComplete(state, &cubin, &bytes);
  }
  std::vector<std::byte> made;
  if (!result)
    made.assign(static_cast<std::byte*>(cubin), static_cast<std::byte*>(cubin) + bytes);
  cuda().cuLinkDestroy(state);
  if (result) {
    log = failure(function, result, jit) + log;
    return false;
  }
  log += jit.text();
  image = std::move(made);
  return true;
}

bool load(Build& build) {
  JitLog jit;
  if (CUresult result =
          cuda().cuModuleLoadDataEx(&build.loaded, build.program.image.data(), 4, jit.options, jit.values)) {
    build.log = failure("cuModuleLoadDataEx", result, jit) + build.log;
    return false;
  }
  build.log += jit.text();
  return true;
}

// What CUDA tells of somebody else's kernels: names, and sizes of the parameters.
bool describe(Build& build) {
  const CudaApi& api = cuda();
  if (!api.cuModuleGetFunctionCount || !api.cuModuleEnumerateFunctions || !api.cuFuncGetName ||
      !api.cuFuncGetParamInfo) {
    build.log =
        "native binary: of PTX and cubins that this driver did not make CUDA 12.4 is needed to know the kernels\n";
    return false;
  }
  unsigned count = 0;
  if (CUresult result = api.cuModuleGetFunctionCount(&count, build.loaded)) {
    build.log = "cuModuleGetFunctionCount: " + errorText(result) + "\n" + build.log;
    return false;
  }
  std::vector<CUfunction> functions(count);
  if (CUresult result = count ? api.cuModuleEnumerateFunctions(functions.data(), count, build.loaded) : CUDA_SUCCESS) {
    build.log = "cuModuleEnumerateFunctions: " + errorText(result) + "\n" + build.log;
    return false;
  }
  for (CUfunction function : functions) {
    const char* name = nullptr;
    if (api.cuFuncGetName(&name, function) || !name)
      continue;
    ProgramKernel kernel;
    kernel.info.name = kernel.symbol = name;
    size_t offset, bytes;
    for (size_t i = 0; api.cuFuncGetParamInfo(function, i, &offset, &bytes) == CUDA_SUCCESS; ++i)
      kernel.info.args.push_back({spirv::ArgKind::scalar, uint32_t(bytes), uint32_t(bytes >= 8 ? 8 : 4)});
    build.program.kernels.push_back(std::move(kernel));
  }
  return true;
}

void buildSpirv(Device& device, const ze_module_desc_t& desc, Build& build) {
  if (desc.inputSize % sizeof(uint32_t) != 0) {
    build.log = "SPIR-V: " + std::to_string(desc.inputSize) + " bytes are not a number of words\n";
    return;
  }
  std::vector<uint32_t> words(desc.inputSize / sizeof(uint32_t));  // copied: the input need not be aligned to words
  std::memcpy(words.data(), desc.pInputModule, desc.inputSize);
  CompileOptions options;
  options.architecture = device.architecture;
  BuildFlags flags;
  if (!parseBuildFlags(desc.pBuildFlags, flags, build.log))
    return;
  options.opt_level = flags.opt_level;
  options.build_flags = flags.accepted;
  readSpecConstants(words, desc.pConstants, options.spec_constants, build.log);
  CompileResult result = compileSpirv(words, options);
  build.log = result.log + build.log;
  if (!result.ok)
    return;
  build.program = std::move(result.program);
  // What is linked is compiled for other units to call it: there setmaxnreg is ignored and one wgmma waits for the last
  // (attention of heads of 128 takes 1.6 times as long). A module that is loaded as PTX is compiled whole.
  if (result.own && (build.ok = load(build)))
    return;
  build.program.is_cubin = true;
  build.program.architecture = device.architecture;
  const std::string log = build.log;
  if (auto cubin = jitLink(build.program.image, device.architecture, build.log)) {
    std::vector<std::byte> ptx = std::exchange(build.program.image, std::move(*cubin));
    if (build.ok = load(build); build.ok)
      return;
    build.program.image = std::move(ptx);  // a driver that does not take it makes its own
  }
  build.log = log;
  build.ok = link(build.program.image, build.log) && load(build);
}

void buildNative(Device& device, const ze_module_desc_t& desc, Build& build) {
  const std::span bytes(reinterpret_cast<const std::byte*>(desc.pInputModule), desc.inputSize);
  Program& program = build.program;
  if (!isProgram(bytes)) {  // PTX as text or a cubin
    program.image.assign(bytes.begin(), bytes.end());
    program.image.push_back(std::byte{0});
    program.is_cubin = bytes.size() > 4 && std::memcmp(bytes.data(), "\177ELF", 4) == 0;
    program.architecture = device.architecture;
    build.ok = load(build) && describe(build);
    return;
  }
  if (!readProgram(bytes, program, build.log))
    return;
  const bool fits = program.is_cubin ? program.architecture / 10 == device.architecture / 10 &&
                                           program.architecture <= device.architecture
                                     : program.architecture <= device.architecture;
  if (!fits) {
    build.log = "native binary: made for sm_" + std::to_string(program.architecture) + "; device '" + device.name +
                "' is of sm_" + std::to_string(device.architecture) + "\n";
    return;
  }
  build.ok = load(build);
}

}  // namespace

Build buildModule(Device& device, const ze_module_desc_t& desc) {
  Build build;
  const Current current(device);
  if (desc.format == ZE_MODULE_FORMAT_NATIVE)
    buildNative(device, desc, build);
  else
    buildSpirv(device, desc, build);
  if (!build.ok && build.loaded) {
    cuda().cuModuleUnload(build.loaded);
    build.loaded = nullptr;
  }
  return build;
}

}  // namespace zefuse::cuda
