#include "drivers/cuda/program.h"

#include <zlib.h>

#include <cstring>
#include <string_view>

#include "drivers/spirv/tables.h"

namespace zefuse::cuda {
namespace {

constexpr char kMagic[8] = {'Z', 'F', 'N', 'V', 'C', 'O', 'D', 'E'};
constexpr uint32_t kVersion = 1;
constexpr size_t kHeaderBytes = 32;

uint32_t checksum(std::span<const std::byte> body) {
  return uint32_t(crc32_z(crc32_z(0, nullptr, 0), reinterpret_cast<const Bytef*>(body.data()), body.size()));
}

}  // namespace

bool isProgram(std::span<const std::byte> bytes) {
  return bytes.size() >= sizeof kMagic && std::memcmp(bytes.data(), kMagic, sizeof kMagic) == 0;
}

std::vector<std::byte> writeProgram(const Program& program) {
  spirv::TableWriter body;
  body.number(program.architecture);
  body.number<uint8_t>(program.is_cubin);
  body.number<int32_t>(program.opt_level);
  body.string(program.build_flags);
  body.list(program.kernels, [&](const ProgramKernel& kernel) {
    writeKernelInfo(body, kernel.info);
    body.string(kernel.symbol);
    body.number<uint8_t>(kernel.takes_offset);
  });
  body.list(program.variables, [&](const ProgramVariable& variable) {
    body.string(variable.name);
    body.string(variable.symbol);
    body.number(variable.size);
  });
  body.list(program.imports, [&](const std::string& name) { body.string(name); });
  body.bytes(program.image.data(), program.image.size());

  spirv::TableWriter all;
  all.out.reserve(kHeaderBytes + body.out.size());
  for (char letter : kMagic)
    all.number(letter);
  all.number(kVersion);
  all.number(checksum(body.out));
  all.number<uint64_t>(body.out.size());
  all.number<uint64_t>(0);
  all.out.insert(all.out.end(), body.out.begin(), body.out.end());
  return std::move(all.out);
}

bool readProgram(std::span<const std::byte> bytes, Program& program, std::string& log) {
  auto refuse = [&](const std::string& what) {
    log = "native binary: " + what;
    return false;
  };
  if (!isProgram(bytes))
    return refuse("wrong magic at offset 0: not a native binary of this driver");
  if (bytes.size() < kHeaderBytes)
    return refuse(std::to_string(bytes.size()) + " bytes, the header alone has " + std::to_string(kHeaderBytes));
  spirv::TableReader header(bytes.subspan(sizeof kMagic));
  if (const auto version = header.number<uint32_t>(); version != kVersion)
    return refuse("format version " + std::to_string(version) + "; this driver reads " + std::to_string(kVersion));
  const auto sum = header.number<uint32_t>();
  const auto size = header.number<uint64_t>();
  const auto body = bytes.subspan(kHeaderBytes);
  if (size != body.size())
    return refuse("the body has " + std::to_string(body.size()) + " bytes, the header promises " +
                  std::to_string(size));
  if (checksum(body) != sum)
    return refuse("damaged: the checksum does not fit");
  spirv::TableReader in(body);
  program = {};
  program.architecture = in.number<uint32_t>();
  program.is_cubin = in.number<uint8_t>() != 0;
  program.opt_level = in.number<int32_t>();
  program.build_flags = in.string();
  in.list(program.kernels, [&] {
    ProgramKernel kernel;
    kernel.info = readKernelInfo(in);
    kernel.symbol = in.string();
    kernel.takes_offset = in.number<uint8_t>() != 0;
    return kernel;
  });
  in.list(program.variables, [&] {
    ProgramVariable variable;
    variable.name = in.string();
    variable.symbol = in.string();
    variable.size = in.number<uint64_t>();
    return variable;
  });
  in.list(program.imports, [&] { return in.string(); });
  const auto image = in.bytes();
  program.image.assign(image.begin(), image.end());
  if (!in.ok || !in.atEnd())
    return refuse("tables do not fit the body");
  return true;
}

std::string ptxTarget(std::span<const std::byte> ptx) {
  const std::string_view text(reinterpret_cast<const char*>(ptx.data()), ptx.size()), word = ".target ";
  const size_t at = text.find(word);
  if (at == std::string_view::npos)
    return {};
  const size_t first = at + word.size();
  return std::string(text.substr(first, text.find_first_of(", \n", first) - first));
}

}  // namespace zefuse::cuda
