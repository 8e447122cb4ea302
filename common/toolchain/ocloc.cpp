#include "common/toolchain/ocloc.h"

#include <elf.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string_view>

#include "common/toolchain/subprocess.h"
#include "common/toolchain/temporary_folder.h"

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

// Names that a zebin (an ELF file) refers to and does not define, but for the driver's own patches.
std::vector<std::string> undefinedFunctions(std::string_view bytes) {
  std::vector<std::string> names;
  auto read = [&]<typename T>(T& into, size_t at) {
    if (at > bytes.size() || bytes.size() - at < sizeof(T))
      return false;
    std::memcpy(&into, bytes.data() + at, sizeof(T));
    return true;
  };
  Elf64_Ehdr file;
  if (!read(file, 0) || std::memcmp(file.e_ident, ELFMAG, SELFMAG) != 0 || file.e_shentsize != sizeof(Elf64_Shdr))
    return names;
  auto section = [&](Elf64_Shdr& into, size_t number) {
    return number < file.e_shnum && read(into, file.e_shoff + number * sizeof(Elf64_Shdr));
  };
  for (size_t number = 0; number < file.e_shnum; ++number) {
    Elf64_Shdr symbols, strings;
    if (!section(symbols, number) || symbols.sh_type != SHT_SYMTAB || !section(strings, symbols.sh_link))
      continue;
    Elf64_Sym symbol;
    for (size_t at = 0; at + sizeof(symbol) <= symbols.sh_size && read(symbol, symbols.sh_offset + at);
         at += sizeof(symbol)) {
      const size_t name = strings.sh_offset + symbol.st_name;
      if (symbol.st_shndx != SHN_UNDEF || symbol.st_name == 0 || name >= bytes.size())
        continue;
      std::string_view text = bytes.substr(name, bytes.substr(name).find('\0'));
      if (!text.empty() && !text.starts_with("__INTEL_PATCH"))
        names.emplace_back(text);
    }
  }
  return names;
}

// Instructions of this name in an assembly dump: a line each, after a predicate; comments do not count.
int countInstructions(const std::string& assembly, std::string_view name) {
  int count = 0;
  std::istringstream lines(assembly);
  for (std::string line; std::getline(lines, line);) {
    size_t at = line.find_first_not_of(' ');
    if (at != std::string::npos && line[at] == '(')  // (W) or a flag
      at = line.find_first_not_of(' ', line.find(')', at) + 1);
    count += at != std::string::npos && std::string_view(line).substr(at).starts_with(name);
  }
  return count;
}

// Of a question that takes milliseconds.
ToolLimits questionLimits(const CompilerOptions& options, std::string directory) {
  ToolLimits limits;
  limits.deadline = std::min(options.deadline, std::chrono::milliseconds(10'000));
  limits.memory_bytes = options.memory_bytes;
  limits.directory = std::move(directory);
  limits.cancelled = options.cancelled;
  return limits;
}

}  // namespace

std::string defaultOcloc() {
  const char* compiler = std::getenv("ZEFUSE_OCLOC");
  return compiler && *compiler ? compiler : "ocloc";
}

std::vector<std::string> installedOclocs() {
  if (const char* compiler = std::getenv("ZEFUSE_OCLOC"); compiler && *compiler)
    return {compiler};
  std::vector<std::string> found{"ocloc"};
  const char* data = std::getenv("XDG_DATA_HOME");
  const char* home = std::getenv("HOME");
  const fs::path base =
      data && *data == '/' ? fs::path(data) : fs::path(home && *home == '/' ? home : "/nonexistent") / ".local/share";
  std::error_code error;
  std::vector<std::string> unpacked;
  for (const auto& entry : fs::directory_iterator(base / "zefuse" / "toolchains", error))
    if (const fs::path program = entry.path() / "ocloc"; fs::is_regular_file(program, error))
      unpacked.push_back(program.string());
  std::sort(unpacked.begin(), unpacked.end());
  found.insert(found.end(), unpacked.begin(), unpacked.end());
  return found;
}

DeviceReport oclocReport(const DeviceBinary& binary) {
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
  report.matrix_operations = countInstructions(binary.assembly, "dpas");
  report.unresolved = undefinedFunctions(bytes);
  size_t at = bytes.find("execution_env:");
  while (at != std::string_view::npos && isFunctions(at))
    at = bytes.find("execution_env:", at + 1);
  if (at == std::string_view::npos) {  // zefuse-ptx prints the same words
    bytes = binary.text;
    at = bytes.find("execution_env:");
  }
  size_t end = at == std::string_view::npos ? at : bytes.find("payload_arguments:", at);
  if (at == std::string_view::npos)
    return report;
  std::string_view environment = bytes.substr(at, end == std::string_view::npos ? 2000 : end - at);
  report.simd = int(numberAfter(environment, "simd_size:"));
  report.registers = int(numberAfter(environment, "grf_count:"));
  report.private_bytes = numberAfter(environment, "private_size:");
  report.matrix_operations = std::max(report.matrix_operations, int(numberAfter(environment, "matrix_operations:")));
  report.local_bytes = numberAfter(environment, "slm_size:");
  report.spilled_registers = std::max(report.spilled_registers, numberAfter(environment, "spill_size:"));
  return report;
}

Result<std::string> oclocVersion(const CompilerOptions& options) {
  TemporaryFolder folder("zefuse-ocloc");
  if (!folder.status().ok())
    return folder.status();
  // The one way that versions from 2022 on share: it writes the answer into a file where it runs.
  constexpr const char* question = "OCL_DRIVER_VERSION";
  Result<ToolOutput> run =
      runTool({options.compiler, "query", question}, questionLimits(options, folder.path().string()));
  if (!run.ok())
    return run.status();
  Result<std::vector<std::byte>> bytes = readFile(folder.path() / question);
  std::string version;
  if (bytes.ok())
    for (std::byte byte : *bytes)
      if (char c = char(byte); c > ' ' && c < 127)
        version += c;
  if (version.empty() || version.size() > 100)
    return Status(Code::device, options.compiler + " does not say its version (query " + question + ")");
  return version;
}

Result<std::vector<std::string>> oclocDevices(const CompilerOptions& options) {
  ToolLimits limits = questionLimits(options, {});
  limits.any_exit_code = true;  // versions of 2022 print their help and fail
  Result<ToolOutput> run = runTool({options.compiler, "compile", "--help"}, limits);
  if (!run.ok())
    return run.status();
  constexpr std::string_view mark = "<device_type> can be:";
  const size_t start = run->text.find(mark);
  std::vector<std::string> devices;
  if (start == std::string::npos)
    return devices;
  std::istringstream words(run->text.substr(start + mark.size(), run->text.find('\n', start) - start - mark.size()));
  for (std::string word; words >> word;)
    devices.push_back(word.substr(0, word.find(',')));
  return devices;
}

Result<DeviceBinary> compileWithOcloc(std::span<const uint32_t> spirv, const std::string& device,
                                      const CompilerOptions& options) {
  TemporaryFolder folder("zefuse-ocloc");
  if (!folder.status().ok())
    return folder.status();
  const fs::path input = folder.path() / "kernel.spv", output = folder.path() / "out";
  {
    std::ofstream stream(input, std::ios::binary);
    stream.write(reinterpret_cast<const char*>(spirv.data()), std::streamsize(spirv.size_bytes()));
    if (!stream.flush())
      return Status(Code::internal, "ocloc: cannot write " + input.string());
  }
  std::vector<std::string> command;
  const fs::path dump = folder.path() / "dump";
  if (options.assembly) {
    std::error_code failed;
    fs::create_directory(dump, failed);
    command = {"env", "IGC_ShaderDumpEnable=1", "IGC_DumpToCustomDir=" + dump.string()};
  }
  // Without its SPIR-V inside: a driver that does not take the code would compile that by itself, within the call that
  // loads it, without consent, deadline or a word.
  command.insert(command.end(),
                 {options.compiler, "compile", "-spirv_input", "-exclude_ir", "-file", input.string(), "-device",
                  device, "-output", "kernel", "-output_no_suffix", "-out_dir", output.string()});
  Result<ToolOutput> run = runTool(command, {options.deadline, options.memory_bytes, {}, false, options.cancelled});
  if (!run.ok()) {
    if (run.status().code() != Code::not_found && run.status().code() != Code::cancelled)
      folder.keep();  // the message's command reads it; who cancels wants no repetition
    return run.status();
  }
  // Its name differs between versions (kernel, kernel.bin): the only file that is not SPIR-V.
  fs::path binary;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(output, error))
    if (entry.is_regular_file(error) && entry.path().extension() != ".spv")
      if (binary.empty() || entry.path().extension() == ".bin")
        binary = entry.path();
  if (binary.empty()) {
    folder.keep();
    return Status(Code::device, options.compiler + " reported success for " + device + " and wrote no binary to " +
                                    output.string() + "\n  it printed:\n" + run->text);
  }
  Result<std::vector<std::byte>> bytes = readFile(binary);
  if (!bytes.ok())
    return bytes.status();
  DeviceBinary result{std::move(*bytes), std::move(run->text), {}};
  if (options.assembly)
    for (const auto& entry : fs::directory_iterator(dump, error))
      if (entry.path().extension() == ".asm")
        if (auto text = readFile(entry.path()); text.ok())
          result.assembly.append(reinterpret_cast<const char*>(text->data()), text->size());
  return result;
}

}  // namespace zefuse
