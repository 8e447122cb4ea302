#include "lowering/native/ocloc.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string_view>

#include "lowering/native/subprocess.h"

namespace zefuse {
namespace fs = std::filesystem;

namespace {

Result<std::vector<std::byte>> readFile(const fs::path& path) {
  std::ifstream stream(path, std::ios::binary | std::ios::ate);
  if (!stream)
    return Status(Code::not_found, path.string() + ": cannot be read");
  std::vector<std::byte> bytes(size_t(stream.tellg()));
  stream.seekg(0);
  stream.read(reinterpret_cast<char*>(bytes.data()), std::streamsize(bytes.size()));
  return bytes;
}

// The number after `key`, first found from `from` on; 0 without.
int64_t numberAfter(std::string_view text, std::string_view key, size_t from = 0) {
  size_t at = text.find(key, from);
  if (at == std::string_view::npos)
    return 0;
  at = text.find_first_not_of(" \t", at + key.size());
  int64_t number = 0;
  for (; at < text.size() && text[at] >= '0' && text[at] <= '9'; ++at)
    number = number * 10 + (text[at] - '0');
  return number;
}

}  // namespace

std::string defaultOcloc() {
  const char* compiler = std::getenv("ZEFUSE_OCLOC");
  return compiler && *compiler ? compiler : "ocloc";
}

DeviceReport deviceReport(const DeviceBinary& binary) {
  DeviceReport report;
  report.spilled_registers = numberAfter(binary.text, "spilled around");
  // The .ze_info section of a zebin is YAML (compute-runtime, zebin specification).
  std::string_view bytes(reinterpret_cast<const char*>(binary.bytes.data()), binary.bytes.size());
  // Functions that a kernel calls may have an entry of their own, before or after it.
  auto isFunctions = [&](size_t entry) {
    size_t name = bytes.rfind("name:", entry);
    return name != std::string_view::npos &&
           bytes.substr(name, entry - name).find("Intel_Symbol_Table") != std::string_view::npos;
  };
  size_t at = bytes.find("execution_env:");
  while (at != std::string_view::npos && isFunctions(at))
    at = bytes.find("execution_env:", at + 1);
  size_t end = at == std::string_view::npos ? at : bytes.find("payload_arguments:", at);
  if (at == std::string_view::npos)
    return report;
  std::string_view environment = bytes.substr(at, end == std::string_view::npos ? 2000 : end - at);
  report.simd = int(numberAfter(environment, "simd_size:"));
  report.registers = int(numberAfter(environment, "grf_count:"));
  report.private_bytes = numberAfter(environment, "private_size:");
  report.local_bytes = numberAfter(environment, "slm_size:");
  report.spilled_registers = std::max(report.spilled_registers, numberAfter(environment, "spill_size:"));
  return report;
}

Result<DeviceBinary> compileWithOcloc(std::span<const uint32_t> spirv, const std::string& device,
                                      const OclocOptions& options) {
  std::error_code error;
  fs::path parent = fs::temp_directory_path(error);
  std::string directory = (parent / "zefuse-ocloc-XXXXXX").string();
  if (error || !mkdtemp(directory.data()))
    return Status(Code::internal, "ocloc: no temporary directory in " + parent.string() + "; set TMPDIR");
  fs::path input = fs::path(directory) / "kernel.spv", output = fs::path(directory) / "out";
  {
    std::ofstream stream(input, std::ios::binary);
    stream.write(reinterpret_cast<const char*>(spirv.data()), std::streamsize(spirv.size_bytes()));
    if (!stream.flush()) {
      fs::remove_all(directory, error);
      return Status(Code::internal, "ocloc: cannot write " + input.string());
    }
  }
  Result<ToolOutput> run = runTool({options.compiler, "compile", "-spirv_input", "-file", input.string(), "-device",
                                    device, "-output", "kernel", "-output_no_suffix", "-out_dir", output.string()},
                                   options.deadline);
  if (!run.ok()) {
    if (run.status().code() == Code::not_found)
      fs::remove_all(directory, error);
    return run.status();
  }
  // Its name differs between versions (kernel, kernel.bin): the only file that is not SPIR-V.
  fs::path binary;
  for (const auto& entry : fs::directory_iterator(output, error))
    if (entry.is_regular_file(error) && entry.path().extension() != ".spv")
      if (binary.empty() || entry.path().extension() == ".bin")
        binary = entry.path();
  if (binary.empty())
    return Status(Code::device, options.compiler + " reported success for " + device + " and wrote no binary to " +
                                    output.string() + "\n  it printed:\n" + run->text);
  Result<std::vector<std::byte>> bytes = readFile(binary);
  fs::remove_all(directory, error);
  if (!bytes.ok())
    return bytes.status();
  return DeviceBinary{std::move(*bytes), std::move(run->text)};
}

}  // namespace zefuse
