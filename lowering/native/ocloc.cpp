#include "lowering/native/ocloc.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>

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

}  // namespace

Result<std::vector<std::byte>> compileWithOcloc(std::span<const uint32_t> spirv, const std::string& device,
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
  Result<ToolOutput> run =
      runTool({options.compiler, "compile", "-spirv_input", "-file", input.string(), "-device", device, "-output",
               "kernel", "-output_no_suffix", "-out_dir", output.string(), "-q"},
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
  return bytes;
}

}  // namespace zefuse
