#include "drivers/level_zero/module_options.h"

#include <cstring>
#include <map>
#include <sstream>

namespace zefuse::level_zero {
namespace {

constexpr std::string_view kLevelFlag = "-ze-opt-level";

// "=2", "=O2", "2" or "O2".
bool parseLevel(std::string_view text, int& level) {
  if (text.starts_with('='))
    text.remove_prefix(1);
  if (text.starts_with('O'))
    text.remove_prefix(1);
  if (text.size() != 1 || text[0] < '0' || text[0] > '3')
    return false;
  level = text[0] - '0';
  return true;
}

// SPIR-V's numbers, from the unified specification.

enum : uint16_t {
  kOpTypeBool = 20,
  kOpTypeInt = 21,
  kOpTypeFloat = 22,
  kOpSpecConstantTrue = 48,
  kOpSpecConstantFalse = 49,
  kOpSpecConstant = 50,
  kOpFunction = 54,
  kOpDecorate = 71,
};
constexpr uint32_t kDecorationSpecId = 1;
constexpr uint32_t kSpirvMagic = 0x07230203;
constexpr size_t kHeaderWords = 5;

}  // namespace

bool parseBuildFlags(const char* flags, BuildFlags& options, std::string& log,
                     const std::function<OwnFlag(std::string_view)>& own) {
  std::istringstream words(flags ? flags : "");
  std::string normalised;
  for (std::string word; words >> word;) {
    std::string_view rest(word);
    if (word == "-ze-opt-disable") {
      options.opt_level = 0;
    } else if (rest.starts_with(kLevelFlag)) {
      rest.remove_prefix(kLevelFlag.size());
      std::string next;
      if (rest.empty() && words >> next)
        rest = next;
      if (!parseLevel(rest, options.opt_level)) {
        log += "build flags: '" + word + "': the level is 0, 1, 2 or 3\n";
        return false;
      }
      // As Intel's driver stores it; programs look for this text in the native binary.
      word = "-ze-opt-level=O" + std::to_string(options.opt_level);
    } else if (OwnFlag what = own ? own(rest) : OwnFlag::unknown; what != OwnFlag::unknown) {
      if (what == OwnFlag::malformed)
        return false;
      continue;
    } else if (!rest.starts_with("-ze-") && !rest.starts_with("-cl-")) {
      log += "build flags: '" + word + "' is not known and has no effect\n";
    }
    normalised += (normalised.empty() ? "" : " ") + word;
  }
  options.accepted = std::move(normalised);
  return true;
}

void readSpecConstants(std::span<const uint32_t> words, const ze_module_constants_t* constants,
                       std::vector<spirv::SpecConstant>& values, std::string& log) {
  if (!constants || constants->numConstants == 0 || !constants->pConstantIds || !constants->pConstantValues)
    return;
  std::map<uint32_t, uint32_t> spec_id_of;      // result id -> SpecId
  std::map<uint32_t, uint32_t> type_bytes;      // type's result id -> bytes
  std::map<uint32_t, uint32_t> constant_bytes;  // SpecId -> bytes
  if (words.size() >= kHeaderWords && words[0] == kSpirvMagic) {
    for (size_t at = kHeaderWords; at < words.size();) {
      uint32_t length = words[at] >> 16;
      auto opcode = static_cast<uint16_t>(words[at] & 0xffff);
      if (length == 0 || length > words.size() - at || opcode == kOpFunction)
        break;  // damaged (codegen says how), or past the declarations
      const uint32_t* operand = &words[at + 1];
      if (opcode == kOpDecorate && length >= 4 && operand[1] == kDecorationSpecId)
        spec_id_of[operand[0]] = operand[2];
      else if (opcode == kOpTypeBool && length >= 2)
        type_bytes[operand[0]] = 1;
      else if ((opcode == kOpTypeInt || opcode == kOpTypeFloat) && length >= 3)
        type_bytes[operand[0]] = operand[1] / 8;
      else if ((opcode == kOpSpecConstant || opcode == kOpSpecConstantTrue || opcode == kOpSpecConstantFalse) &&
               length >= 3 && spec_id_of.count(operand[1]))
        constant_bytes[spec_id_of[operand[1]]] = type_bytes[operand[0]];
      at += length;
    }
  }
  for (uint32_t i = 0; i < constants->numConstants; ++i) {
    uint32_t id = constants->pConstantIds[i];
    auto bytes = constant_bytes.find(id);
    if (bytes == constant_bytes.end() || bytes->second == 0 || bytes->second > 8 || !constants->pConstantValues[i]) {
      log += "specialisation constant " + std::to_string(id) +
             ": the module declares none with this id, or its value is NULL; ignored\n";
      continue;
    }
    spirv::SpecConstant constant = {id, std::vector<std::byte>(bytes->second)};
    std::memcpy(constant.value.data(), constants->pConstantValues[i], bytes->second);
    values.push_back(std::move(constant));
  }
}

}  // namespace zefuse::level_zero
