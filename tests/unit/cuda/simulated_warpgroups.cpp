#include "tests/unit/cuda/simulated_warpgroups.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <deque>
#include <map>
#include <regex>
#include <vector>

#include "tests/unit/cuda/simulated_groups.h"

#include "llvm/IR/IRBuilder.h"
#include "llvm/IR/InlineAsm.h"
#include "llvm/IR/InstIterator.h"

namespace zefuse::cuda::testing {
namespace {

constexpr uint32_t items_of_warpgroup = 128;

// One piece of inline assembly. Operands are numbered as its text has them, less the results.
struct Instruction {
  enum class Kind : uint8_t { fence, commit, wait, publish, computed, turn, registers, multiply } kind{};
  uint32_t results = 0;
  uint32_t but_last = 0;  // of a wait
  uint32_t items = 0;     // of a turn
  bool taken = false;
  // Of a multiplication.
  uint32_t columns = 0;
  bool half = false, more = false, a_in_registers = false, a_turned = false, b_turned = false;
  int a_sign = 1, b_sign = 1;
  uint32_t a = 0, b = 0;
};
std::vector<Instruction>& instructions() {
  static std::vector<Instruction> all;
  return all;
}

// Numbers of 16 bits.
using Tile = std::vector<uint16_t>;

struct Product {
  uint32_t number = 0, instruction = 0, batch = 0;
  uint64_t a = 0, b = 0;  // descriptors
  Tile a_tile, b_tile;    // 64 x 16, columns x 16, as they were when it was asked for
  std::vector<std::array<uint32_t, 128>> sums{items_of_warpgroup};  // of each item: given, then results
  bool done = false;
};

struct Warpgroup {
  std::deque<Product> products;  // of which the last waits found some undone
  std::map<uint32_t, Product> finished;
  uint32_t committed = 0;
  bool fenced[items_of_warpgroup] = {};
  const uint64_t* operands[items_of_warpgroup] = {};
  uint32_t last_number = 0;
  uint32_t instruction_of[items_of_warpgroup] = {};
};
std::map<uint32_t, Warpgroup> warpgroups;
std::map<uint32_t, uint32_t> unpublished;  // bytes / 16 of local memory -> the item that copied them

// A NaN that no arithmetic makes: the product's number and the register's.
constexpr uint32_t token_bits = 0xffc00000;
uint32_t tokenOf(uint32_t product, uint32_t reg) { return token_bits | (product & 0x3fff) << 8 | reg; }
bool isToken(uint32_t bits) { return (bits & token_bits) == token_bits && (bits & 0x3fffff) != 0; }

float numberOf(uint16_t bits, bool half) {
  return half ? float(std::bit_cast<_Float16>(bits)) : std::bit_cast<float>(uint32_t(bits) << 16);
}

// PTX, "Matrix descriptor" and "Strides": element (i, k), i of the rows of a or the columns of b, of a matrix that lies
// along k (turned: along i).
uint16_t elementAt(uint64_t descriptor, uint32_t i, uint32_t k, bool turned) {
  const auto start = uint32_t(descriptor & 0x3fff) << 4, leading = uint32_t(descriptor >> 16 & 0x3fff) << 4;
  const auto stride = uint32_t(descriptor >> 32 & 0x3fff) << 4;
  constexpr uint64_t reserved = uint64_t(3) << 14 | uint64_t(3) << 30 | uint64_t(7) << 46 | uint64_t(0x3ff) << 52;
  if (descriptor >> 62 != 1 || (descriptor >> 49 & 7) != 0 || (descriptor & reserved) != 0)
    failGroup("a matrix descriptor without the swizzle of 128 bytes, or with a base offset");
  // Lines of 128 bytes. Along k: 8 lines of the other index, then `stride` on; an instruction's 16 stay in a line.
  // Along i: 64 of it are a line, then `leading` on; 8 lines of k, then `stride` on.
  uint32_t at = start + (turned ? i % 64 * 2 + i / 64 * leading + k % 8 * 128 + k / 8 * stride
                                : i % 8 * 128 + i / 8 * stride + k * 2);
  at ^= (at >> 7 & 7) << 4;  // the swizzle: pieces of 16 bytes by the line's number
  if (at >= 256 << 10) {
    failGroup("a matrix descriptor that leaves local memory");
    return 0;
  }
  if (!unpublished.empty() && unpublished.count(at / 16))
    failGroup("an operand that was copied, and not published to the asynchronous proxy");
  uint16_t bits;
  std::memcpy(&bits, localMemory() + at, 2);
  return bits;
}

Tile tileAt(uint64_t descriptor, uint32_t count, bool turned) {
  Tile tile(size_t(count) * 16);
  for (uint32_t i = 0; i < count; ++i)
    for (uint32_t k = 0; k < 16; ++k)
      tile[i * 16 + k] = elementAt(descriptor, i, k, turned);
  return tile;
}

// PTX, "Register fragments" of .m64nNk16: warp w has rows 16w to 16w + 15, as mma.m16n8k16 has them.
Tile tileOfRegisters(const Warpgroup& w, const Instruction& instruction) {
  Tile tile(64 * 16);
  for (uint32_t item = 0; item < items_of_warpgroup; ++item)
    for (uint32_t reg = 0; reg < 4; ++reg)
      for (uint32_t half = 0; half < 2; ++half) {
        const uint32_t lane = item % 32, row = item / 32 * 16 + lane / 4 + reg % 2 * 8;
        tile[row * 16 + lane % 4 * 2 + half + reg / 2 * 8] =
            uint16_t(w.operands[item][instruction.a + reg] >> 16 * half);
      }
  return tile;
}

void finish(Warpgroup& w, Product& product) {
  const Instruction& instruction = instructions()[product.instruction];
  if (!instruction.a_in_registers && tileAt(product.a, 64, instruction.a_turned) != product.a_tile)
    failGroup("rows in local memory that changed while a product may read them");
  if (tileAt(product.b, instruction.columns, instruction.b_turned) != product.b_tile)
    failGroup("columns in local memory that changed while a product may read them");
  for (uint32_t item = 0; item < items_of_warpgroup; ++item)
    for (uint32_t reg = 0; reg < instruction.results; ++reg) {
      const uint32_t lane = item % 32, row = item / 32 * 16 + lane / 4 + reg / 2 % 2 * 8;
      const uint32_t column = reg / 4 * 8 + lane % 4 * 2 + reg % 2;
      uint32_t& bits = product.sums[item][reg];
      if (isToken(bits)) {
        auto before = w.finished.find((bits >> 8) & 0x3fff);
        if (before == w.finished.end() || (bits & 0xff) != reg) {
          failGroup("a product adds to registers that are another one's");
          return;
        }
        bits = before->second.sums[item][reg];
      }
      float sum = instruction.more ? std::bit_cast<float>(bits) : 0;
      for (uint32_t k = 0; k < 16; ++k)
        sum += float(instruction.a_sign) * numberOf(product.a_tile[row * 16 + k], instruction.half) *
               float(instruction.b_sign) * numberOf(product.b_tile[column * 16 + k], instruction.half);
      bits = std::bit_cast<uint32_t>(sum);
    }
  product.done = true;
}

// All items of the warpgroup came to `number`; the operands of each are there until the second meeting.
void together(Warpgroup& w, uint32_t number, const uint64_t* operands) {
  const uint32_t item = currentItem() % items_of_warpgroup;
  w.operands[item] = operands;
  w.instruction_of[item] = number;
  meetWarpgroup();
  for (uint32_t each : w.instruction_of)
    if (each != number)
      failGroup("items of a warpgroup at different instructions");
}

}  // namespace

void resetWarpgroups() {
  warpgroups.clear();
  unpublished.clear();
}

void noteCopied(const std::byte* to) { unpublished[uint32_t(to - localMemory()) / 16] = currentItem(); }

extern "C" __attribute__((visibility("default"), used)) void sim_assembly(uint32_t number, const uint64_t* operands,
                                                                          uint32_t* results) {
  const Instruction& instruction = instructions()[number];
  const uint32_t item = currentItem() % items_of_warpgroup;
  using Kind = Instruction::Kind;
  if (instruction.kind == Kind::publish) {
    std::erase_if(unpublished, [](const auto& entry) { return entry.second == currentItem(); });
    return;
  }
  if (instruction.kind == Kind::turn) {
    meetAtBarrier(uint32_t(operands[0]), instruction.items, instruction.taken);
    return;
  }
  if (instruction.kind == Kind::computed) {
    if (std::bit_cast<float>(uint32_t(operands[0])) < 0)
      failGroup("a number below zero, which would make the never taken branch one that is");
    return;
  }
  Warpgroup& w = warpgroups[currentItem() / items_of_warpgroup];
  together(w, number, operands);
  const bool first = item == 0;  // who does what is done once
  switch (instruction.kind) {
  case Kind::publish:
  case Kind::turn:
  case Kind::computed:
  case Kind::registers: break;
  case Kind::fence: w.fenced[item] = true; break;
  case Kind::commit:
    if (first)
      ++w.committed;
    break;
  case Kind::multiply:
    if (!w.fenced[item])
      failGroup("a product without wgmma.fence since registers could be touched");
    if (first) {
      Product& product = w.products.emplace_back();
      product.number = w.last_number = w.last_number + 1;
      product.instruction = number;
      product.batch = w.committed;
      product.b = operands[instruction.b];
      product.b_tile = tileAt(product.b, instruction.columns, instruction.b_turned);
      if (instruction.a_in_registers) {
        product.a_tile = tileOfRegisters(w, instruction);
      } else {
        product.a = operands[instruction.a];
        product.a_tile = tileAt(product.a, 64, instruction.a_turned);
      }
      for (uint32_t each = 0; each < items_of_warpgroup; ++each) {
        if (w.operands[each][instruction.b] != product.b ||
            (!instruction.a_in_registers && w.operands[each][instruction.a] != product.a))
          failGroup("items of a warpgroup with different matrix descriptors");
        for (uint32_t reg = 0; instruction.more && reg < instruction.results; ++reg)
          product.sums[each][reg] = uint32_t(w.operands[each][reg]);
      }
    }
    meetWarpgroup();
    for (uint32_t reg = 0; reg < instruction.results; ++reg)
      results[reg] = tokenOf(w.last_number, reg);
    break;
  case Kind::wait:
    w.fenced[item] = false;
    if (first)
      while (!w.products.empty() && w.products.front().batch + instruction.but_last < w.committed) {
        Product product = std::move(w.products.front());
        w.products.pop_front();
        finish(w, product);
        w.finished[product.number & 0x3fff] = std::move(product);
      }
    meetWarpgroup();
    for (uint32_t reg = 0; reg < instruction.results; ++reg) {
      results[reg] = uint32_t(operands[reg]);
      if (!isToken(results[reg]))
        continue;
      auto found = w.finished.find((results[reg] >> 8) & 0x3fff);
      if (found != w.finished.end() && (results[reg] & 0xff) == reg)
        results[reg] = found->second.sums[item][reg];
    }
    break;
  }
  meetWarpgroup();  // before the next instruction's operands
}

namespace {

bool parse(const llvm::InlineAsm& assembly, uint32_t results, Instruction& out) {
  const std::string text(assembly.getAsmString());
  using Kind = Instruction::Kind;
  out.results = results;
  std::smatch found;
  if (text == "wgmma.fence.sync.aligned;") {
    out.kind = Kind::fence;
  } else if (std::regex_match(text, found, std::regex("bar\\.(sync|arrive) \\$0, (\\d+);"))) {
    out.kind = Kind::turn;
    out.taken = found[1] == "sync";
    out.items = uint32_t(std::stoul(found[2]));
  } else if (std::regex_match(text, found, std::regex("setmaxnreg\\.(inc|dec)\\.sync\\.aligned\\.u32 (\\d+);"))) {
    out.kind = Kind::registers;
    const unsigned long count = std::stoul(found[2]);
    return count >= 24 && count <= 256 && count % 8 == 0;
  } else if (text == "wgmma.commit_group.sync.aligned;") {
    out.kind = Kind::commit;
  } else if (text == "fence.proxy.async.shared::cta;") {
    out.kind = Kind::publish;
  } else if (text == "{\n.reg .pred never;\nsetp.lt.f32 never, $0, 0f00000000;\n@never nanosleep.u32 0;\n}") {
    out.kind = Kind::computed;
  } else if (std::regex_match(text, found, std::regex("wgmma\\.wait_group\\.sync\\.aligned (\\d+);"))) {
    out.kind = Kind::wait;
    out.but_last = uint32_t(std::stoul(found[1]));
  } else if (std::regex_match(
                 text, found,
                 std::regex(
                     "\\{\n\\.reg \\.pred (\\w+);\nsetp\\.ne\\.b32 \\1, ([01]), 0;\n"
                     "wgmma\\.mma_async\\.sync\\.aligned\\.m64n(\\d+)k16\\.f32\\.(f16|bf16)\\.\\4 "
                     "\\{([^}]*)\\}, (\\{[^}]*\\}|\\$\\d+), \\$(\\d+), \\1, (-?1), (-?1), ([01])(, [01])?;\n\\}"))) {
    out.kind = Kind::multiply;
    out.more = found[2] == "1";
    out.columns = uint32_t(std::stoul(found[3]));
    out.half = found[4] == "f16";
    std::string sums;
    for (uint32_t i = 0; i < results; ++i)
      sums += (i == 0 ? "$" : ", $") + std::to_string(i);
    const std::string a = found[6];
    out.a_in_registers = a[0] == '{';
    out.a = uint32_t(std::stoul(a.substr(a.find('$') + 1))) - results;
    for (uint32_t i = 1; out.a_in_registers && i < 4; ++i)
      if (a.find("$" + std::to_string(out.a + results + i)) == std::string::npos)
        return false;
    out.b = uint32_t(std::stoul(found[7])) - results;
    out.a_sign = std::stoi(found[8]);
    out.b_sign = std::stoi(found[9]);
    // Of both operands in local memory two say whether they are turned, of rows in registers one.
    if (out.a_in_registers == found[11].matched)
      return false;
    out.a_turned = found[11].matched && found[10] == "1";
    out.b_turned = found[11].matched ? found[11] == ", 1" : found[10] == "1";
    // The sums are read where they are added to: they must be operands.
    const bool tied = assembly.getConstraintString().find(",0,") != llvm::StringRef::npos;
    return found[5] == sums && out.columns == 2 * results && (!out.more || tied);
  } else {
    return false;
  }
  return true;
}

}  // namespace

std::string replaceAssembly(llvm::Module& module) {
  std::vector<llvm::CallInst*> calls;
  for (llvm::Function& f : module)
    for (llvm::Instruction& i : llvm::instructions(f))
      if (auto* call = llvm::dyn_cast<llvm::CallInst>(&i); call && call->isInlineAsm())
        calls.push_back(call);
  llvm::IRBuilder<> b(module.getContext());
  auto simulated =
      module.getOrInsertFunction("sim_assembly", b.getVoidTy(), b.getInt32Ty(), b.getPtrTy(), b.getPtrTy());
  for (llvm::CallInst* call : calls) {
    auto* assembly = llvm::cast<llvm::InlineAsm>(call->getCalledOperand());
    auto* results = llvm::dyn_cast<llvm::StructType>(call->getType());
    Instruction instruction;
    if (!parse(*assembly, results ? results->getNumElements() : 0, instruction))
      return assembly->getAsmString().str();
    auto* f = llvm::Function::Create(call->getFunctionType(), llvm::Function::InternalLinkage, "assembly", module);
    b.SetInsertPoint(llvm::BasicBlock::Create(module.getContext(), "", f));
    auto* slots = b.CreateAlloca(b.getInt64Ty(), b.getInt32(std::max<uint32_t>(1, uint32_t(f->arg_size()))));
    for (llvm::Argument& argument : f->args()) {
      auto* slot = b.CreateConstGEP1_32(b.getInt64Ty(), slots, argument.getArgNo());
      b.CreateStore(b.getInt64(0), slot);
      b.CreateStore(&argument, slot);
    }
    llvm::Value* into =
        results ? static_cast<llvm::Value*>(b.CreateAlloca(results)) : llvm::ConstantPointerNull::get(b.getPtrTy());
    b.CreateCall(simulated, {b.getInt32(uint32_t(instructions().size())), slots, into});
    instructions().push_back(instruction);
    if (results)
      b.CreateRet(b.CreateLoad(results, into));
    else
      b.CreateRetVoid();
    call->setCalledFunction(f);
  }
  return {};
}

}  // namespace zefuse::cuda::testing
