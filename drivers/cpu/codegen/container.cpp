#include "drivers/cpu/codegen/container.h"

#include <zlib.h>

#include <cstring>

#include "drivers/spirv/tables.h"

namespace zefuse::cpu {
namespace {

constexpr char kMagic[8] = {'Z', 'F', 'N', 'A', 'T', 'I', 'V', 'E'};
constexpr uint32_t kVersion = 1;
constexpr size_t kHeaderBytes = 40;
constexpr size_t kCrcAt = 16;

uint32_t checksum(std::span<const std::byte> all) {
  auto crc = [](uLong seed, std::span<const std::byte> part) {
    return crc32_z(seed, reinterpret_cast<const Bytef*>(part.data()), part.size());
  };
  uLong c = crc(crc32_z(0, nullptr, 0), all.first(kCrcAt));
  return crc(c, all.subspan(kCrcAt + 4));
}

}  // namespace

std::string kernelSymbol(size_t i) { return "zf_kernel_" + std::to_string(i); }
std::string globalSymbol(size_t i) { return "zf_global_" + std::to_string(i); }
std::string functionSymbol(size_t i) { return "zf_function_" + std::to_string(i); }

std::vector<std::byte> writeContainer(const Container& c) {
  spirv::TableWriter body;
  body.string(c.build_flags);
  body.number<int32_t>(c.opt_level);
  body.list(c.spec_constants, [&](const spirv::SpecConstant& s) {
    body.number(s.id);
    body.bytes(s.value.data(), s.value.size());
  });
  body.list(c.kernels, [&](const spirv::KernelInfo& k) { writeKernelInfo(body, k); });
  body.list(c.globals, [&](const GlobalInfo& g) {
    body.string(g.name);
    body.number(g.size);
  });
  body.list(c.functions, [&](const std::string& s) { body.string(s); });
  body.list(c.imports, [&](const std::string& s) { body.string(s); });
  body.bytes(c.spirv.data(), c.spirv.size() * 4);
  body.bytes(c.elf.data(), c.elf.size());

  spirv::TableWriter w;
  w.out.reserve(kHeaderBytes + body.out.size());
  for (char ch : kMagic)
    w.number(ch);
  w.number(kVersion);
  w.number(static_cast<uint32_t>(c.isa));
  w.number<uint32_t>(0);  // CRC
  w.number<uint32_t>(0);
  w.number<uint64_t>(body.out.size());
  w.number<uint64_t>(0);
  w.out.insert(w.out.end(), body.out.begin(), body.out.end());
  uint32_t crc = checksum(w.out);
  std::memcpy(w.out.data() + kCrcAt, &crc, 4);
  return std::move(w.out);
}

bool readContainer(std::span<const std::byte> bytes, Container& c, std::string& log) {
  auto refuse = [&](const std::string& what) {
    log = "native binary: " + what;
    return false;
  };
  if (bytes.size() < kHeaderBytes)
    return refuse(std::to_string(bytes.size()) + " bytes, the header alone has " + std::to_string(kHeaderBytes));
  if (std::memcmp(bytes.data(), kMagic, sizeof kMagic) != 0)
    return refuse("wrong magic at offset 0: not a native binary of this driver");
  spirv::TableReader h(bytes.subspan(sizeof kMagic));
  uint32_t version = h.number<uint32_t>();
  uint32_t isa = h.number<uint32_t>();
  uint32_t crc = h.number<uint32_t>();
  h.number<uint32_t>();
  uint64_t size = h.number<uint64_t>();
  if (version != kVersion)
    return refuse("format version " + std::to_string(version) + " at offset 8, this driver reads " +
                  std::to_string(kVersion) + ": build it again from SPIR-V");
  if (size != bytes.size() - kHeaderBytes)
    return refuse("body of " + std::to_string(bytes.size() - kHeaderBytes) + " bytes, the header says " +
                  std::to_string(size) + ": the file is cut or has a tail");
  if (crc != checksum(bytes))
    return refuse("checksum mismatch: the bytes were damaged");
  if (isa < static_cast<uint32_t>(IsaLevel::x86_64_v3) || isa > static_cast<uint32_t>(IsaLevel::amx))
    return refuse("unknown ISA level " + std::to_string(isa) + " at offset 12");
  c = Container();
  c.isa = static_cast<IsaLevel>(isa);
  spirv::TableReader r(bytes.subspan(kHeaderBytes));
  c.build_flags = r.string();
  c.opt_level = r.number<int32_t>();
  r.list(c.spec_constants, [&] {
    spirv::SpecConstant s;
    s.id = r.number<uint32_t>();
    auto b = r.bytes();
    s.value.assign(b.begin(), b.end());
    return s;
  });
  r.list(c.kernels, [&] { return readKernelInfo(r); });
  r.list(c.globals, [&] {
    GlobalInfo g;
    g.name = r.string();
    g.size = r.number<uint64_t>();
    return g;
  });
  r.list(c.functions, [&] { return r.string(); });
  r.list(c.imports, [&] { return r.string(); });
  auto spirv = r.bytes();
  auto elf = r.bytes();
  if (!r.ok || !r.atEnd() || spirv.size() % 4 != 0)
    return refuse("tables do not fit the body");
  c.spirv.resize(spirv.size() / 4);
  if (!spirv.empty())
    std::memcpy(c.spirv.data(), spirv.data(), spirv.size());
  c.elf.assign(elf.begin(), elf.end());
  return true;
}

}  // namespace zefuse::cpu
