// The program that runs LLVM's SPIR-V back end: what it answers, and what becomes of a host whose program goes away.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#include "lowering/spirv/emitter.h"
#include "lowering/spirv/emitter_client.h"
#include "llvm/AsmParser/Parser.h"
#include "llvm/Bitcode/BitcodeWriter.h"
#include "llvm/IR/LLVMContext.h"
#include "llvm/IR/Module.h"
#include "llvm/Support/SourceMgr.h"
#include "llvm/Support/raw_ostream.h"

namespace zefuse {
namespace {

constexpr const char* storing_kernel = "define spir_kernel void @k(ptr addrspace(1) %p) {\n"
                                       "  store i32 7, ptr addrspace(1) %p, align 4\n"
                                       "  ret void\n"
                                       "}\n";

std::string bitcodeOf(const char* text) {
  llvm::LLVMContext context;
  llvm::SMDiagnostic error;
  auto module = llvm::parseAssemblyString(text, error, context);
  EXPECT_TRUE(module) << error.getMessage().str();
  std::string bytes;
  llvm::raw_string_ostream stream(bytes);
  llvm::WriteBitcodeToFile(*module, stream);
  return bytes;
}

void expectWords(const Result<std::vector<uint32_t>>& words) {
  ASSERT_TRUE(words.ok()) << words.status().message();
  ASSERT_GT(words->size(), 5u);
  EXPECT_EQ(words->front(), 0x07230203u);  // SPIR-V's magic number
}

// Children of this process that run the program.
std::vector<pid_t> programs() {
  std::vector<pid_t> found;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    std::ifstream stat(entry.path() / "stat");
    std::string line;
    if (!std::getline(stat, line) ||
        line.find(std::string("(") + std::string(emitter::program_name).substr(0, 15)) == std::string::npos)
      continue;
    pid_t parent = 0;
    sscanf(line.c_str() + line.rfind(')'), ") %*c %d", &parent);
    if (parent == getpid())
      found.push_back(pid_t(std::stoi(line)));
  }
  return found;
}

TEST(Emitter, WritesAModuleAndTheSameWordsAgain) {
  const std::string bitcode = bitcodeOf(storing_kernel);
  auto first = runSpirvBackEnd(bitcode);
  expectWords(first);
  auto second = runSpirvBackEnd(bitcode);
  expectWords(second);
  EXPECT_EQ(*first, *second);
  EXPECT_EQ(programs().size(), 1u);
}

TEST(Emitter, SaysWhyItRefusesAndGoesOn) {
  auto damaged = runSpirvBackEnd(std::string_view("not bitcode"));
  ASSERT_FALSE(damaged.ok());
  EXPECT_NE(damaged.status().message().find("cannot read"), std::string::npos) << damaged.status().message();
  // Inline assembly ends the back end's process.
  auto illegal = runSpirvBackEnd(bitcodeOf("define spir_kernel void @k() {\n"
                                           "  call void asm sideeffect \"nop\", \"\"()\n  ret void\n}\n"));
  ASSERT_FALSE(illegal.ok());
  EXPECT_EQ(illegal.status().code(), Code::device);
  EXPECT_NE(illegal.status().message().find("cannot write this module"), std::string::npos)
      << illegal.status().message();
  expectWords(runSpirvBackEnd(bitcodeOf(storing_kernel)));
}

TEST(Emitter, IsStartedAgainWhenItWasKilled) {
  expectWords(runSpirvBackEnd(bitcodeOf(storing_kernel)));
  for (pid_t program : programs())
    kill(program, SIGKILL);
  expectWords(runSpirvBackEnd(bitcodeOf(storing_kernel)));
}

TEST(Emitter, AForkedChildHasItsOwn) {
  const std::string bitcode = bitcodeOf(storing_kernel);
  expectWords(runSpirvBackEnd(bitcode));
  const pid_t child = fork();
  if (child == 0)
    _exit(runSpirvBackEnd(bitcode).ok() && programs().size() == 1 ? 0 : 1);
  int status = 1;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  expectWords(runSpirvBackEnd(bitcode));  // ours still answers, and in step
}

TEST(Emitter, ManyThreads) {
  const std::string bitcode = bitcodeOf(storing_kernel);
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i)
    threads.emplace_back([&] {
      for (int n = 0; n < 8; ++n)
        expectWords(runSpirvBackEnd(bitcode));
    });
  for (std::thread& thread : threads)
    thread.join();
}

}  // namespace
}  // namespace zefuse
