#include "tests/unit/lowering/kept_binary.h"

#include <cstdlib>
#include <cstring>
#include <map>
#include <sstream>

#include "runtime/cache/file_cache.h"

namespace zefuse::test {
namespace {

std::string folder() {
  if (const char* given = std::getenv("ZEFUSE_TEST_CACHE"))
    return given;
  if (const char* caches = std::getenv("XDG_CACHE_HOME"); caches && *caches == '/')
    return std::string(caches) + "/zefuse-tests";
  const char* home = std::getenv("HOME");
  return home && *home == '/' ? std::string(home) + "/.cache/zefuse-tests" : "";
}

// Empty where the compiler does not tell it: then nothing is kept.
const std::string& versionOf(const CompilerOptions& options) {
  static std::map<std::string, std::string> known;
  auto [found, is_new] = known.try_emplace(options.compiler);
  if (is_new)
    if (auto version = oclocVersion(options); version.ok())
      found->second = *version;
  return found->second;
}

void append(std::vector<std::byte>& bytes, const void* data, uint64_t size) {
  const auto* first = static_cast<const std::byte*>(data);
  bytes.insert(bytes.end(), reinterpret_cast<const std::byte*>(&size), reinterpret_cast<const std::byte*>(&size + 1));
  bytes.insert(bytes.end(), first, first + size);
}

template <typename T> T take(std::span<const std::byte>& bytes) {
  uint64_t size = 0;
  std::memcpy(&size, bytes.data(), sizeof size);
  const auto part = bytes.subspan(sizeof size, size);
  bytes = bytes.subspan(sizeof size + size);
  const auto* first = reinterpret_cast<const T::value_type*>(part.data());
  return T(first, first + size);
}

// Of a dump of a megabyte, what oclocReport counts.
std::string matrixInstructions(const std::string& assembly) {
  std::string kept;
  std::istringstream lines(assembly);
  for (std::string line; std::getline(lines, line);)
    if (line.find("dpas") != std::string::npos)
      kept += line + "\n";
  return kept;
}

}  // namespace

Result<DeviceBinary> keptBinary(std::span<const uint32_t> spirv, const std::string& device,
                                const CompilerOptions& options) {
  const std::string& version = versionOf(options);
  const FileCache cache(version.empty() ? "" : folder(), uint64_t(256) << 20);
  CacheKey key("device");
  key.add("compiler", version).add("device", device).add("assembly", options.assembly ? "yes" : "no");
  key.addHash("spirv", std::as_bytes(spirv));
  if (const auto kept = cache.load(key)) {
    std::span<const std::byte> rest = *kept;
    DeviceBinary binary;
    binary.bytes = take<std::vector<std::byte>>(rest);
    binary.text = take<std::string>(rest);
    binary.assembly = take<std::string>(rest);
    return binary;
  }
  Result<DeviceBinary> made = compileWithOcloc(spirv, device, options);
  if (made.ok()) {
    std::vector<std::byte> bytes;
    const std::string assembly = matrixInstructions(made->assembly);
    append(bytes, made->bytes.data(), made->bytes.size());
    append(bytes, made->text.data(), made->text.size());
    append(bytes, assembly.data(), assembly.size());
    (void)cache.store(key, bytes);  // best effort
  }
  return made;
}

}  // namespace zefuse::test
