// What zefuse-spirv-emitter does: LLVM's SPIR-V back end, a child process per module. See emitter_client.h for why.
#include "lowering/spirv/emitter.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <string>

#include "common/base/descriptor_io.h"
#include "llvm/Bitcode/BitcodeReader.h"
#include "llvm/IR/LLVMContext.h"
#include "llvm/IR/LegacyPassManager.h"
#include "llvm/IR/Module.h"
#include "llvm/MC/TargetRegistry.h"
#include "llvm/Support/ErrorHandling.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/raw_ostream.h"
#include "llvm/Target/TargetMachine.h"

extern "C" {
void LLVMInitializeSPIRVTarget();
void LLVMInitializeSPIRVTargetInfo();
void LLVMInitializeSPIRVTargetMC();
void LLVMInitializeSPIRVAsmPrinter();
}

namespace {

using zefuse::emitter::Frame;
using zefuse::emitter::Kind;

constexpr const char* triple = "spirv64v1.2-unknown-unknown";

std::unique_ptr<llvm::TargetMachine> targetMachine() {
  LLVMInitializeSPIRVTargetInfo();
  LLVMInitializeSPIRVTarget();
  LLVMInitializeSPIRVTargetMC();
  LLVMInitializeSPIRVAsmPrinter();
  std::string error;
  const llvm::Target* target = llvm::TargetRegistry::lookupTarget(llvm::Triple(triple), error);
  // Level None leaves out loop-strength reduction, which would turn a[i] into byte-pointer phis.
  return std::unique_ptr<llvm::TargetMachine>(
      target ? target->createTargetMachine(llvm::Triple(triple), "", "", llvm::TargetOptions(), std::nullopt,
                                           std::nullopt, llvm::CodeGenOptLevel::None)
             : nullptr);
}

bool answer(int file, Kind kind, llvm::StringRef body) {
  const Frame frame{kind, body.size()};
  return zefuse::writeAll(file, &frame, sizeof frame) && zefuse::writeAll(file, body.data(), body.size());
}

// In the child: the answer goes into `file`.
bool runBackEnd(llvm::TargetMachine& machine, llvm::StringRef bitcode, int file) {
  llvm::install_fatal_error_handler(
      [](void* data, const char* reason, bool) {
        answer(*static_cast<int*>(data), Kind::error, std::string("cannot write this module: ") + reason);
        _exit(0);
      },
      &file);
  llvm::LLVMContext context;
  auto module = llvm::parseBitcodeFile(llvm::MemoryBufferRef(bitcode, "kernel"), context);
  if (!module)
    return answer(file, Kind::error, "got a module that it cannot read: " + llvm::toString(module.takeError()));
  (*module)->setTargetTriple(llvm::Triple(triple));
  (*module)->setDataLayout(machine.createDataLayout());
  llvm::SmallVector<char, 0> bytes;
  llvm::raw_svector_ostream stream(bytes);
  llvm::legacy::PassManager passes;
  if (machine.addPassesToEmitFile(passes, stream, nullptr, llvm::CodeGenFileType::ObjectFile))
    return answer(file, Kind::error, "cannot write an object file");
  passes.run(**module);
  if (bytes.size() % 4 != 0 || bytes.empty())
    return answer(file, Kind::error, "wrote " + std::to_string(bytes.size()) + " bytes");
  return answer(file, Kind::spirv, {bytes.data(), bytes.size()});
}

std::string readToEnd(int file) {
  std::string text;
  char buffer[1 << 16];
  for (ssize_t count; (count = read(file, buffer, sizeof buffer)) != 0;) {
    if (count < 0 && errno != EINTR)
      break;
    text.append(buffer, count > 0 ? size_t(count) : 0);
  }
  return text;
}

// A whole answer frame, whatever became of the child.
std::string runInChild(llvm::TargetMachine& machine, llvm::StringRef bitcode) {
  auto failure = [](const std::string& why) {
    const Frame frame{Kind::error, why.size()};
    return std::string(reinterpret_cast<const char*>(&frame), sizeof frame) + why;
  };
  int ends[2];
  if (pipe(ends) != 0)
    return failure(std::string("has no pipe: ") + std::strerror(errno));
  const pid_t child = fork();
  if (child == 0)
    _exit(runBackEnd(machine, bitcode, ends[1]) ? 0 : 1);
  close(ends[1]);
  std::string text = child < 0 ? std::string() : readToEnd(ends[0]);
  close(ends[0]);
  if (child < 0)
    return failure(std::string("has no process: ") + std::strerror(errno));
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (WIFSIGNALED(status))
    return failure(std::string("crashed: ") + strsignal(WTERMSIG(status)));
  Frame frame{};
  if (text.size() >= sizeof frame)
    std::memcpy(&frame, text.data(), sizeof frame);
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0 || text.size() != sizeof frame + frame.size)
    return failure("ended its process: it met something that it cannot legalise");
  return text;
}

}  // namespace

int zefuse_spirv_emitter() {
  constexpr int socket = 0;
  std::unique_ptr<llvm::TargetMachine> machine = targetMachine();
  if (!machine) {
    llvm::errs() << "zefuse-spirv-emitter: this LLVM has no SPIR-V target\n";
    return 1;
  }
  Frame frame{};
  while (zefuse::readAll(socket, &frame, sizeof frame) && frame.kind == Kind::bitcode) {
    std::string bitcode(frame.size, '\0');
    if (!zefuse::readAll(socket, bitcode.data(), bitcode.size()))
      break;
    const std::string text = runInChild(*machine, bitcode);
    if (!zefuse::sendAll(socket, text.data(), text.size()))
      break;
  }
  return 0;  // the process that started this one is gone
}
