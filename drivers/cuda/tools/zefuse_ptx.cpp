// zefuse-ptx: what the driver's compiler makes of SPIR-V, without a GPU.
//
//   zefuse-ptx kernel.spv -o kernel.ptx [--arch sm_90] [--native] [--cubin FILE]
//
// writes PTX; --native the driver's native binary around it, which zeModuleCreate takes; --cubin the same around a file
// that ptxas made of that PTX. Exit status: 0, 1 with the build log on stderr, 2 for a wrong command line.
//
// It also speaks as Intel's ocloc does as far as zefuse asks (common/toolchain/ocloc.h), so that
// packages for NVIDIA's GPUs are made by it (vendor_compilers.h): "query OCL_DRIVER_VERSION", "compile --help",
// "compile -file F -device sm_90 -output N -out_dir D". It then writes a native binary with a cubin, made by NVIDIA's
// assembler where there is one (ZEFUSE_PTXAS; that of the packages nvidia-cuda-nvcc or triton beside zefuse's; "ptxas"
// in PATH), else with PTX; a module has one kernel, and what it takes is printed in a zebin's words.
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "common/base/build_id.h"
#include "common/toolchain/subprocess.h"
#include "common/toolchain/temporary_folder.h"
#include "drivers/cuda/codegen/codegen.h"
#include "drivers/cuda/compiler_library.h"
#include "drivers/level_zero/build_version.h"

namespace {

using zefuse::cuda::CompileOptions;
using zefuse::cuda::CompileResult;

bool readFile(const std::string& path, std::vector<char>& bytes) {
  std::ifstream file(path, std::ios::binary);
  bytes.assign(std::istreambuf_iterator<char>(file), {});
  return file.is_open();
}

bool writeFile(const std::string& path, const std::byte* bytes, size_t count) {
  std::ofstream file(path, std::ios::binary);
  file.write(reinterpret_cast<const char*>(bytes), std::streamsize(count));
  return bool(file.flush());
}

// False, with a line on stderr.
bool compile(const std::string& input, const CompileOptions& options, CompileResult& result) {
  std::vector<char> bytes;
  if (!readFile(input, bytes)) {
    std::fprintf(stderr, "zefuse-ptx: cannot read %s\n", input.c_str());
    return false;
  }
  std::vector<uint32_t> words(bytes.size() / 4);
  std::memcpy(words.data(), bytes.data(), words.size() * 4);
  result = zefuse::cuda::compileSpirv(words, options);
  if (!result.ok)
    std::fprintf(stderr, "%s: %s\n", input.c_str(), result.log.c_str());
  return result.ok;
}

uint32_t architectureOf(const std::string& name) {  // "sm_90"; 0: another word
  return name.starts_with("sm_") ? uint32_t(std::atoi(name.c_str() + 3)) : 0;
}

std::string assembler() {
  if (const char* named = std::getenv("ZEFUSE_PTXAS"); named && *named)
    return named;
  // In a wheel this program stands in site-packages/zefuse/lib.
  std::error_code error;
  const auto packages = std::filesystem::read_symlink("/proc/self/exe", error).parent_path() / "../..";
  for (const char* installed : {"nvidia/cu13/bin/ptxas", "triton/backends/nvidia/bin/ptxas"})
    if (const std::string path = (packages / installed).lexically_normal().string(); access(path.c_str(), X_OK) == 0)
      return path;
  return "ptxas";
}

// "13.0.88"; empty without an assembler.
std::string assemblerVersion() {
  const auto told = zefuse::runTool({assembler(), "--version"}, {std::chrono::seconds(10)});
  const size_t at = told.ok() ? told->text.find(", V") : std::string::npos;
  return at == std::string::npos ? "" : told->text.substr(at + 3, told->text.find_first_of(" \n", at + 3) - at - 3);
}

// The largest number that stands before `words`, of all functions; 0 without.
long numberBefore(const std::string& text, const std::string& words) {
  long largest = 0;
  for (size_t at = text.find(words); at != std::string::npos; at = text.find(words, at + 1)) {
    size_t first = at;
    while (first > 0 && text[first - 1] >= '0' && text[first - 1] <= '9')
      --first;
    largest = std::max(largest, std::atol(text.c_str() + first));
  }
  return largest;
}

// The image becomes a cubin. False, with a line on stderr.
bool assemble(zefuse::cuda::Program& program) {
  zefuse::TemporaryFolder folder("zefuse-ptx");
  if (!folder.status().ok()) {
    std::fprintf(stderr, "zefuse-ptx: %s\n", folder.status().toString().c_str());
    return false;
  }
  const std::string ptx = (folder.path() / "kernel.ptx").string(), cubin = (folder.path() / "kernel.cubin").string();
  writeFile(ptx, program.image.data(), program.image.size() - 1);
  const std::string_view assembly(reinterpret_cast<const char*>(program.image.data()), program.image.size());
  const auto run =
      zefuse::runTool({assembler(), "-v", "-arch=" + zefuse::cuda::ptxTarget(program.image), ptx, "-o", cubin}, {});
  if (!run.ok()) {
    folder.keep();
    std::fprintf(stderr, "zefuse-ptx: %s\n", run.status().toString().c_str());
    return false;
  }
  const std::string& text = run->text;
  long spilled = numberBefore(text, " bytes spill stores") + numberBefore(text, " bytes spill loads");
  // Products of warpgroups that wait for each other, for want of registers mostly, are no better than spills.
  if (text.find("wgmma.mma_async instructions are serialized") != std::string::npos)
    spilled = std::max(spilled, 4L);
  const long stack = numberBefore(text, " bytes stack frame");
  const auto& info = program.kernels.front().info;
  int matrix_operations = 0;
  for (const char* instruction : {"mma.sync", "wgmma.mma_async"})
    for (size_t at = 0; (at = assembly.find(instruction, at)) != std::string_view::npos; ++at)
      ++matrix_operations;
  std::printf("%sexecution_env: simd_size: %u grf_count: %ld private_size: %ld spill_size: %ld slm_size: %u "
              "matrix_operations: %d\n",
              text.c_str(), info.required_subgroup_size ? info.required_subgroup_size : 32,
              numberBefore(text, " registers"), stack > spilled ? stack - spilled : 0, spilled, info.local_bytes,
              matrix_operations);
  std::vector<char> bytes;
  readFile(cubin, bytes);
  auto* first = reinterpret_cast<const std::byte*>(bytes.data());
  program.image.assign(first, first + bytes.size());
  program.is_cubin = true;
  return true;
}

int asOcloc(const std::vector<std::string>& words) {
  if (words[0] == "query") {
    const std::string ptxas = assemblerVersion();
    char build[16];
    std::snprintf(build, sizeof build, "%08x",
                  zefuse::level_zero::foldBuildIds({zefuse::buildIdOfFile(zefuse::cuda::compilerPath())}));
    const std::string answer = std::string("nvptx-") + build + (ptxas.empty() ? "" : "-ptxas-" + ptxas);
    return writeFile("OCL_DRIVER_VERSION", reinterpret_cast<const std::byte*>(answer.data()), answer.size()) ? 0 : 1;
  }
  std::string input, device, output = "kernel", folder = ".";
  for (size_t i = 1; i < words.size(); ++i) {
    if (words[i] == "--help") {
      std::printf("<device_type> can be: sm_80, sm_86, sm_89, sm_90, sm_90a, sm_100\n");
      return 0;
    }
    const bool more = i + 1 < words.size();
    if (words[i] == "-file" && more)
      input = words[++i];
    else if (words[i] == "-device" && more)
      device = words[++i];
    else if (words[i] == "-output" && more)
      output = words[++i];
    else if (words[i] == "-out_dir" && more)
      folder = words[++i];
  }
  CompileOptions options;
  options.architecture = architectureOf(device);
  CompileResult result;
  if (options.architecture == 0) {
    std::fprintf(stderr, "zefuse-ptx: device '%s' is none of sm_80, sm_86, sm_89, sm_90, sm_90a, sm_100\n",
                 device.c_str());
    return 2;
  }
  if (!compile(input, options, result))
    return 1;
  if (!assemblerVersion().empty() && !assemble(result.program))
    return 1;
  const std::vector<std::byte> native = zefuse::cuda::writeProgram(result.program);
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  return writeFile(folder + "/" + output, native.data(), native.size()) ? 0 : 1;
}

int usage() {
  std::fprintf(stderr, "usage: zefuse-ptx FILE.spv -o OUTPUT [--arch sm_90] [--native] [--cubin FILE]\n");
  return 2;
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> words(argv + 1, argv + argc);
  if (words.empty())
    return usage();
  if (words[0] == "query" || words[0] == "compile")
    return asOcloc(words);
  std::string input, output, cubin;
  CompileOptions options;
  options.architecture = 90;
  bool native = false;
  for (size_t i = 0; i < words.size(); ++i) {
    const bool more = i + 1 < words.size();
    if (words[i] == "-o" && more)
      output = words[++i];
    else if (words[i] == "--arch" && more && architectureOf(words[i + 1]) != 0)
      options.architecture = architectureOf(words[++i]);
    else if (words[i] == "--cubin" && more)
      cubin = words[++i];
    else if (words[i] == "--native")
      native = true;
    else if (input.empty() && words[i][0] != '-')
      input = words[i];
    else
      return usage();
  }
  CompileResult result;
  if (input.empty() || output.empty())
    return usage();
  if (!compile(input, options, result))
    return 1;
  std::vector<std::byte> out(result.program.image.begin(), result.program.image.end() - 1);
  if (!cubin.empty()) {
    std::vector<char> bytes;
    if (!readFile(cubin, bytes)) {
      std::fprintf(stderr, "zefuse-ptx: cannot read %s\n", cubin.c_str());
      return 1;
    }
    auto* first = reinterpret_cast<const std::byte*>(bytes.data());
    result.program.image.assign(first, first + bytes.size());
    result.program.is_cubin = true;
  }
  if (native || !cubin.empty())
    out = zefuse::cuda::writeProgram(result.program);
  return writeFile(output, out.data(), out.size()) ? 0 : 1;
}
