#include "compiler/disassemble.h"

#include "llvm/MC/MCAsmInfo.h"
#include "llvm/MC/MCContext.h"
#include "llvm/MC/MCDisassembler/MCDisassembler.h"
#include "llvm/MC/MCInst.h"
#include "llvm/MC/MCInstPrinter.h"
#include "llvm/MC/MCInstrInfo.h"
#include "llvm/MC/MCRegisterInfo.h"
#include "llvm/MC/MCSubtargetInfo.h"
#include "llvm/MC/MCTargetOptions.h"
#include "llvm/MC/TargetRegistry.h"
#include "llvm/Object/ELFObjectFile.h"
#include "llvm/Support/Format.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/TargetSelect.h"
#include "llvm/Support/raw_ostream.h"

using namespace llvm;

namespace zefuse {
namespace {

/// Everything LLVM wants before it prints one instruction.
struct Disassembler {
  Triple triple{"x86_64-unknown-linux-gnu"};
  MCTargetOptions options;
  std::unique_ptr<MCRegisterInfo> registers;
  std::unique_ptr<MCAsmInfo> syntax;
  std::unique_ptr<MCInstrInfo> instructions;
  std::unique_ptr<MCSubtargetInfo> subtarget;
  std::unique_ptr<MCContext> context;
  std::unique_ptr<MCDisassembler> decoder;
  std::unique_ptr<MCInstPrinter> printer;

  bool initialize() {
    InitializeAllTargetInfos();
    InitializeAllTargetMCs();
    InitializeAllDisassemblers();
    std::string error;
    const Target* target = TargetRegistry::lookupTarget(triple, error);
    if (!target)
      return false;
    registers.reset(target->createMCRegInfo(triple));
    syntax.reset(target->createMCAsmInfo(*registers, triple, options));
    instructions.reset(target->createMCInstrInfo());
    subtarget.reset(target->createMCSubtargetInfo(triple, "", "+avx512f,+avx512bw,+avx512vl,+avx512dq,+amx-tile"));
    context = std::make_unique<MCContext>(triple, syntax.get(), registers.get(), subtarget.get());
    decoder.reset(target->createMCDisassembler(*subtarget, *context));
    printer.reset(target->createMCInstPrinter(triple, /*SyntaxVariant=*/1, *syntax, *instructions, *registers));
    return decoder && printer;
  }

  void print(StringRef code, uint64_t address, raw_ostream& out) {
    ArrayRef<uint8_t> bytes(code.bytes_begin(), code.size());
    while (!bytes.empty()) {
      MCInst instruction;
      uint64_t size = 0;
      auto status = decoder->getInstruction(instruction, size, bytes, address, nulls());
      size = std::clamp<uint64_t>(size, 1, bytes.size());
      out << format("  %6llx", static_cast<unsigned long long>(address));
      if (status == MCDisassembler::Success)
        printer->printInst(&instruction, address, "", *subtarget, out);
      else
        out << "\t(no instruction)";
      out << "\n";
      bytes = bytes.drop_front(size);
      address += size;
    }
  }
};

}  // namespace

std::string disassemble(std::span<const std::byte> native) {
  StringRef bytes(reinterpret_cast<const char*>(native.data()), native.size());
  size_t start = bytes.find(StringRef("\177ELF\2\1\1", 7));
  if (start == StringRef::npos)
    return "; no ELF image in the native binary\n";
  auto image = MemoryBuffer::getMemBufferCopy(bytes.substr(start), "kernel");  // aligned, as LLVM's reader wants it
  auto file = object::ObjectFile::createELFObjectFile(image->getMemBufferRef());
  if (!file)
    return "; " + toString(file.takeError()) + "\n";
  auto* elf = dyn_cast<object::ELFObjectFileBase>(file->get());
  if (!elf || elf->getEMachine() != ELF::EM_X86_64)
    return "; not x86-64 code\n";
  Disassembler disassembler;
  if (!disassembler.initialize())
    return "; LLVM has no x86-64 disassembler\n";
  std::string text;
  raw_string_ostream out(text);
  for (const object::SectionRef& section : elf->sections()) {
    Expected<StringRef> name = section.getName(), contents = section.getContents();
    if (!name || !contents) {
      consumeError(name.takeError());
      consumeError(contents.takeError());
      continue;
    }
    if (!section.isText() || section.isBSS())
      continue;
    out << *name << ":\n";
    disassembler.print(*contents, section.getAddress(), out);
  }
  return text;
}

}  // namespace zefuse
