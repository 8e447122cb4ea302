// The codegen tests' harness (tests/unit/codegen/harness.h) over the compiler for NVIDIA's GPUs, without one: the LLVM
// IR that would become PTX is compiled for the host, where the special registers, barriers, votes and shuffles are
// functions of this file, the matrix instructions (those of warpgroups: simulated_warpgroups.cpp) and asynchronous
// copies too. Work-items are fibers that take turns; a group has the memory that a launch gives it. What is checked so:
// the reader's address spaces, the form of kernels, every group operation with whole and partial warps, and the math
// library.
#include "tests/unit/codegen/harness.h"
#include "tests/unit/cuda/simulated_warpgroups.h"

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <ucontext.h>

#include <array>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>

#include "drivers/cpu/codegen/backend.h"
#include "drivers/cuda/codegen/backend.h"

#include "llvm/IR/IRBuilder.h"
#include "llvm/IR/ReplaceConstant.h"

#include <unistd.h>

namespace {

// Lanes of a warp, or items of a group, that meet.
struct Meeting {
  size_t arrived = 0, generation = 0;
  uint32_t in[32] = {}, out[32] = {};
};

struct Copy {
  std::byte* to;
  const std::byte* from;
  uint32_t bytes, whole;  // the rest becomes zeros
};

struct Item {
  ucontext_t context;
  std::vector<std::vector<Copy>> batches{1};  // of asynchronous copies; the last one is open
  std::vector<std::byte> stack;
  uint32_t id[3], linear;
  bool done = false;
};

struct Group {
  uint32_t id[3], count[3], size[3], items;
  std::vector<Item> all;
  Item* current = nullptr;
  ucontext_t scheduler;
  Meeting barrier;
  std::map<std::pair<uint32_t, uint32_t>, Meeting> warps;  // warp, mask
  std::map<uint32_t, Meeting> warpgroups;
  std::map<uint32_t, Meeting> barriers;                                   // but the group's
  std::map<uint32_t, std::array<std::array<uint64_t, 10>, 32>> operands;  // per warp and lane: of a matrix instruction
  size_t alive = 0, progress = 0;
  void (*entry)(void**) = nullptr;
  void** arguments = nullptr;
  std::string error;
};
Group* group;  // the one that runs
// An address's low bits are its place there, as those of shared memory are.
constexpr size_t local_bytes = 256 << 10;
std::byte* const local_memory = static_cast<std::byte*>(std::aligned_alloc(local_bytes, local_bytes));

void yield() { swapcontext(&group->current->context, &group->scheduler); }

// Waits until `wanted` have come.
void meet(Meeting& meeting, size_t wanted) {
  const size_t mine = meeting.generation;
  ++group->progress;
  if (++meeting.arrived == wanted) {
    std::copy(std::begin(meeting.in), std::end(meeting.in), meeting.out);
    meeting.arrived = 0;
    ++meeting.generation;
    return;
  }
  while (meeting.generation == mine)
    yield();
}

uint32_t lane() { return group->current->linear % 32; }

Meeting& meetLanes(uint32_t mask, uint32_t value) {
  Meeting& meeting = group->warps[{group->current->linear / 32, mask}];
  if (!(mask >> lane() & 1))
    group->error = "a lane that is not in its mask";
  meeting.in[lane()] = value;
  meet(meeting, size_t(__builtin_popcount(mask)));
  return meeting;
}

// PTX, shfl.sync: `clamp` has the segment's mask and its last lane.
uint32_t shuffle(uint32_t mask, uint32_t value, uint32_t other, uint32_t clamp, bool exclusive_or) {
  const uint32_t segment = clamp >> 8 & 31, last = (lane() & segment) | (clamp & 31 & ~segment);
  const uint32_t from = exclusive_or ? lane() ^ (other & 31) : (lane() & segment) | (other & 31 & ~segment);
  Meeting& meeting = meetLanes(mask, value);
  const uint32_t source = from <= last ? from : lane();
  return mask >> source & 1 ? meeting.out[source] : 0xdeadbeef;  // a lane that is not there: undefined
}

// What all lanes of the warp gave.
using Operands = std::array<std::array<uint64_t, 10>, 32>;
Operands exchangeOperands(const uint64_t* mine, size_t count) {
  Operands& shared = group->operands[group->current->linear / 32];
  std::copy(mine, mine + count, shared[lane()].begin());
  meetLanes(~0u, 0);
  const Operands all = shared;
  meetLanes(~0u, 0);  // before the next instruction's overwrite them
  return all;
}

float numberOf(uint16_t bits, bool half) {
  return half ? float(std::bit_cast<_Float16>(bits)) : std::bit_cast<float>(uint32_t(bits) << 16);
}

// PTX, "Matrix fragments for mma.m16n8k16": operands are a's 4 registers, b's 2 and c's 4.
void multiplyFragments(const uint64_t* mine, float* sums, bool half) {
  const Operands all = exchangeOperands(mine, 10);
  float a[16][16], b[16][8];
  for (uint32_t from = 0; from < 32; ++from)
    for (uint32_t reg = 0; reg < 6; ++reg)
      for (uint32_t pair = 0; pair < 2; ++pair) {
        const float value = numberOf(uint16_t(all[from][reg] >> 16 * pair), half);
        const uint32_t along = from % 4 * 2 + pair;
        if (reg < 4)
          a[from / 4 + reg % 2 * 8][along + reg / 2 * 8] = value;
        else
          b[along + (reg - 4) * 8][from / 4] = value;
      }
  for (uint32_t i = 0; i < 4; ++i) {
    sums[i] = std::bit_cast<float>(uint32_t(mine[6 + i]));
    for (uint32_t k = 0; k < 16; ++k)
      sums[i] += a[lane() / 4 + i / 2 * 8][k] * b[k][lane() % 4 * 2 + i % 2];
  }
}

// The same of mma.m16n8k8 of tf32, whose operands' last 13 bits do not count, and whose sums are cut off, as a GPU's
// are.
void multiplyWideFragments(const uint64_t* mine, float* sums) {
  const Operands all = exchangeOperands(mine, 10);
  float a[16][8], b[8][8];
  for (uint32_t from = 0; from < 32; ++from)
    for (uint32_t reg = 0; reg < 6; ++reg) {
      const float value = std::bit_cast<float>(uint32_t(all[from][reg]) & 0xffffe000);
      if (reg < 4)
        a[from / 4 + reg % 2 * 8][from % 4 + reg / 2 * 4] = value;
      else
        b[from % 4 + (reg - 4) * 4][from / 4] = value;
    }
  for (uint32_t i = 0; i < 4; ++i) {
    double sum = std::bit_cast<float>(uint32_t(mine[6 + i]));
    for (uint32_t k = 0; k < 8; ++k)
      sum += double(a[lane() / 4 + i / 2 * 8][k]) * double(b[k][lane() % 4 * 2 + i % 2]);
    sums[i] = float(sum);
    if (std::abs(sums[i]) > std::abs(sum))
      sums[i] = std::nextafter(sums[i], 0.0F);
  }
}

// PTX, ldmatrix: the lines of block i are where lanes 8i to 8i + 7 point to.
void loadFragments(const uint64_t* mine, uint32_t* blocks, bool transposed) {
  const Operands all = exchangeOperands(mine, 1);
  for (uint32_t block = 0; block < 4; ++block) {
    uint16_t pair[2];
    for (uint32_t i = 0; i < 2; ++i) {
      const uint32_t across = lane() / 4, along = lane() % 4 * 2 + i;
      const auto* line = reinterpret_cast<const uint16_t*>(all[block * 8 + (transposed ? along : across)][0]);
      if (reinterpret_cast<uintptr_t>(line) % 16 != 0)
        group->error = "a block's line that does not begin at a multiple of 16 bytes";
      pair[i] = line[transposed ? across : along];
    }
    blocks[block] = pair[0] | uint32_t(pair[1]) << 16;
  }
}

void runItem() {
  group->entry(group->arguments);
  group->current->done = true;
  --group->alive;
  ++group->progress;
  // Who ended is waited for no more.
  if (group->barrier.arrived != 0 && group->barrier.arrived == group->alive)
    group->error = "an item ended while others wait at a barrier";
  yield();
}

void runGroup(Group& g) {
  group = &g;
  std::memset(local_memory, 0xcd, local_bytes);
  zefuse::cuda::testing::resetWarpgroups();
  g.alive = g.items;
  g.all = std::vector<Item>(g.items);
  for (uint32_t i = 0; i < g.items; ++i) {
    Item& item = g.all[i];
    item.linear = i;
    item.id[0] = i % g.size[0];
    item.id[1] = i / g.size[0] % g.size[1];
    item.id[2] = i / g.size[0] / g.size[1];
    item.stack.resize(128 << 10);
    getcontext(&item.context);
    item.context.uc_stack = {item.stack.data(), 0, item.stack.size()};
    item.context.uc_link = nullptr;
    makecontext(&item.context, runItem, 0);
  }
  while (g.alive != 0 && g.error.empty()) {
    const size_t before = g.progress;
    for (Item& item : g.all)
      if (!item.done) {
        g.current = &item;
        swapcontext(&g.scheduler, &item.context);
      }
    if (g.progress == before)
      g.error = "items wait for others that never come";
  }
  group = nullptr;
}

}  // namespace

namespace zefuse::cuda::testing {
uint32_t currentItem() { return group->current->linear; }
std::byte* localMemory() { return local_memory; }
void meetWarpgroup() { meet(group->warpgroups[group->current->linear / 128], 128); }
void meetAtBarrier(uint32_t number, uint32_t items, bool wait) {
  Meeting& meeting = group->barriers[number];
  if (wait) {
    meet(meeting, items);
  } else if (++group->progress; ++meeting.arrived == items) {
    meeting.arrived = 0;
    ++meeting.generation;
  }
}
void failGroup(const std::string& why) { group->error = why; }
}  // namespace zefuse::cuda::testing

#define SIMULATED extern "C" __attribute__((visibility("default"), used))
SIMULATED uint32_t sim_tid_x() { return group->current->id[0]; }
SIMULATED uint32_t sim_tid_y() { return group->current->id[1]; }
SIMULATED uint32_t sim_tid_z() { return group->current->id[2]; }
SIMULATED uint32_t sim_ntid_x() { return group->size[0]; }
SIMULATED uint32_t sim_ntid_y() { return group->size[1]; }
SIMULATED uint32_t sim_ntid_z() { return group->size[2]; }
SIMULATED uint32_t sim_ctaid_x() { return group->id[0]; }
SIMULATED uint32_t sim_ctaid_y() { return group->id[1]; }
SIMULATED uint32_t sim_ctaid_z() { return group->id[2]; }
SIMULATED uint32_t sim_nctaid_x() { return group->count[0]; }
SIMULATED uint32_t sim_nctaid_y() { return group->count[1]; }
SIMULATED uint32_t sim_nctaid_z() { return group->count[2]; }
SIMULATED void sim_barrier(uint32_t) { meet(group->barrier, group->items); }
SIMULATED void sim_warp_barrier(uint32_t mask) { meetLanes(mask, 0); }
SIMULATED uint32_t sim_shuffle_index(uint32_t mask, uint32_t v, uint32_t from, uint32_t clamp) {
  return shuffle(mask, v, from, clamp, false);
}
SIMULATED uint32_t sim_shuffle_xor(uint32_t mask, uint32_t v, uint32_t from, uint32_t clamp) {
  return shuffle(mask, v, from, clamp, true);
}
SIMULATED uint32_t sim_ballot(uint32_t mask, bool predicate) {
  Meeting& meeting = meetLanes(mask, predicate);
  uint32_t bits = 0;
  for (uint32_t i = 0; i < 32; ++i)
    bits |= (mask >> i & 1) && meeting.out[i] ? 1u << i : 0;
  return bits;
}
SIMULATED void sim_mma_f16(const uint64_t* operands, float* sums) { multiplyFragments(operands, sums, true); }
SIMULATED void sim_mma_bf16(const uint64_t* operands, float* sums) { multiplyFragments(operands, sums, false); }
SIMULATED void sim_mma_tf32(const uint64_t* operands, float* sums) { multiplyWideFragments(operands, sums); }
SIMULATED void sim_load_fragments(const uint64_t* line, uint32_t* blocks) { loadFragments(line, blocks, false); }
SIMULATED void sim_load_fragments_transposed(const uint64_t* line, uint32_t* blocks) {
  loadFragments(line, blocks, true);
}
// Asynchronous copies are as late as they may be: what nobody waits for never comes.
SIMULATED void sim_copy(std::byte* to, const std::byte* from, uint32_t bytes) {
  if (reinterpret_cast<uintptr_t>(to) % 16 != 0 || reinterpret_cast<uintptr_t>(from) % 16 != 0)
    group->error = "a copy of 16 bytes that does not begin at a multiple of them";
  group->current->batches.back().push_back({to, from, bytes, 16});
}
SIMULATED void sim_copy_word(std::byte* to, const std::byte* from, uint32_t bytes) {
  if (reinterpret_cast<uintptr_t>(to) % 4 != 0 || reinterpret_cast<uintptr_t>(from) % 4 != 0)
    group->error = "a copy of 4 bytes that does not begin at a multiple of them";
  group->current->batches.back().push_back({to, from, bytes, 4});
}
SIMULATED void sim_commit() { group->current->batches.emplace_back(); }
SIMULATED void sim_wait(uint32_t but_last) {
  auto& batches = group->current->batches;
  while (batches.size() > but_last + 1) {
    for (const Copy& copy : batches.front()) {
      std::memset(copy.to, 0, copy.whole);
      std::memcpy(copy.to, copy.from, copy.bytes);
      zefuse::cuda::testing::noteCopied(copy.to);
    }
    batches.erase(batches.begin());
  }
}
// CUDA's: arguments as a C struct lays them out.
SIMULATED int sim_vprintf(const char* format, const std::byte* arguments) {
  std::string text;
  size_t at = 0;
  auto take = [&](auto& value) {
    at = (at + sizeof value - 1) / sizeof value * sizeof value;
    std::memcpy(&value, arguments + at, sizeof value);
    at += sizeof value;
  };
  for (; *format; ++format) {
    if (*format != '%' || format[1] == '%') {
      text += *format;
      format += *format == '%';
      continue;
    }
    const size_t length = std::strcspn(format, "diouxXfFeEgGaAcsp") + 1;
    const std::string one(format, length);
    char piece[200];
    double real;
    long whole;
    int word;
    const char* string;
    if (std::strchr("fFeEgGaA", one.back())) {
      take(real);
      std::snprintf(piece, sizeof piece, one.c_str(), real);
    } else if (one.back() == 's' || one.back() == 'p') {
      take(string);
      std::snprintf(piece, sizeof piece, one.c_str(), string);
    } else if (one.find('l') != std::string::npos) {
      take(whole);
      std::snprintf(piece, sizeof piece, one.c_str(), whole);
    } else {
      take(word);
      std::snprintf(piece, sizeof piece, one.c_str(), word);
    }
    text += piece;
    format += length - 1;
  }
  std::fputs(text.c_str(), stdout);
  return 0;
}
SIMULATED float sim_exp2(float x) { return exp2f(x); }
// Subnormal results are zeros.
SIMULATED float sim_exp2_flushed(float x) { return x < -126 ? 0 : exp2f(x); }
SIMULATED float sim_reciprocal(float x) { return 1 / x; }
// What the host's code calls for a conversion that NVIDIA's GPUs have: to the nearest, of two the even one.
SIMULATED __bf16 __truncsfbf2(float x) {
  const auto bits = std::bit_cast<uint32_t>(x);
  const auto rounded = uint16_t((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
  return std::bit_cast<__bf16>(std::isnan(x) ? uint16_t(bits >> 16 | 0x40) : rounded);
}
SIMULATED std::byte* sim_local() { return local_memory; }

namespace zefuse::cpu::testing {
namespace {

const std::map<std::string, std::string> kSimulated = {
    {"llvm.nvvm.barrier.cta.sync.aligned.all", "sim_barrier"},
    {"llvm.nvvm.bar.warp.sync", "sim_warp_barrier"},
    {"llvm.nvvm.shfl.sync.idx.i32", "sim_shuffle_index"},
    {"llvm.nvvm.shfl.sync.bfly.i32", "sim_shuffle_xor"},
    {"llvm.nvvm.vote.ballot.sync", "sim_ballot"},
    {"llvm.nvvm.ex2.approx.f32", "sim_exp2"},
    {"llvm.nvvm.ex2.approx.ftz.f32", "sim_exp2_flushed"},
    {"llvm.nvvm.rcp.approx.ftz.f", "sim_reciprocal"},
    {"llvm.nvvm.cp.async.cg.shared.global.16.s", "sim_copy"},
    {"llvm.nvvm.cp.async.ca.shared.global.4.s", "sim_copy_word"},
    {"llvm.nvvm.cp.async.commit.group", "sim_commit"},
    {"llvm.nvvm.cp.async.wait.group", "sim_wait"},
};

// Those with many operands and results: (const uint64_t* operands, 4 results of 32 bits).
const std::map<std::string, std::string> kSimulatedMatrices = {
    {"llvm.nvvm.mma.m16n8k16.row.col.f32.f32", "sim_mma_f16"},
    {"llvm.nvvm.mma.m16n8k16.row.col.bf16", "sim_mma_bf16"},
    {"llvm.nvvm.mma.m16n8k8.row.col.tf32", "sim_mma_tf32"},
    {"llvm.nvvm.ldmatrix.sync.aligned.m8n8.x4.b16.p3", "sim_load_fragments"},
    {"llvm.nvvm.ldmatrix.sync.aligned.m8n8.x4.trans.b16.p3", "sim_load_fragments_transposed"},
};

// A function of `type` that calls such a one.
llvm::Function* throughMemory(llvm::Module& module, llvm::FunctionType* type, const std::string& simulated) {
  llvm::IRBuilder<> b(module.getContext());
  auto* f = llvm::Function::Create(type, llvm::Function::InternalLinkage, "through_memory", module);
  b.SetInsertPoint(llvm::BasicBlock::Create(module.getContext(), "", f));
  auto* slots = b.CreateAlloca(b.getInt64Ty(), b.getInt32(10));
  auto* results = b.CreateAlloca(type->getReturnType());
  for (llvm::Argument& argument : f->args()) {
    auto* slot = b.CreateConstGEP1_32(b.getInt64Ty(), slots, argument.getArgNo());
    b.CreateStore(b.getInt64(0), slot);
    b.CreateStore(argument.getType()->isPointerTy() ? b.CreateAddrSpaceCast(&argument, b.getPtrTy())
                                                    : static_cast<llvm::Value*>(&argument),
                  slot);
  }
  b.CreateCall(module.getOrInsertFunction(simulated, b.getVoidTy(), b.getPtrTy(), b.getPtrTy()), {slots, results});
  b.CreateRet(b.CreateLoad(type->getReturnType(), results));
  return f;
}

// The module for the host: registers and group operations are calls, shared memory is sim_local(), and kernel `n` is
// called through "run_n", which takes the addresses of the parameters.
void toHost(llvm::Module& module, const cuda::Program& program) {
  llvm::LLVMContext& context = module.getContext();
  if (const std::string assembly = cuda::testing::replaceAssembly(module); !assembly.empty())
    ADD_FAILURE() << "not simulated: " << assembly;
  for (llvm::Function& f : llvm::make_early_inc_range(module)) {
    if (!f.isDeclaration() || !f.getName().starts_with("llvm.nvvm"))
      continue;
    std::string name = f.getName().str();
    const std::string reg = "llvm.nvvm.read.ptx.sreg.";
    if (name.starts_with(reg)) {
      name = "sim_" + name.substr(reg.size());
      name[name.find('.')] = '_';
    } else if (auto known = kSimulated.find(name); known != kSimulated.end()) {
      name = known->second;
    } else if (auto matrix = kSimulatedMatrices.find(name); matrix != kSimulatedMatrices.end()) {
      f.replaceAllUsesWith(throughMemory(module, f.getFunctionType(), matrix->second));
      f.eraseFromParent();
      continue;
    } else {
      ADD_FAILURE() << "not simulated: " << name;
      continue;
    }
    auto* simulated = llvm::Function::Create(f.getFunctionType(), llvm::Function::ExternalLinkage, name, module);
    f.replaceAllUsesWith(simulated);
    f.eraseFromParent();
  }
  if (auto* print = module.getFunction("vprintf"))
    print->setName("sim_vprintf");
  llvm::IRBuilder<> b(context);
  if (auto* local = module.getNamedGlobal("zf_local")) {
    // A pointer that is known when the library is loaded would need no call, but the region is the test program's.
    auto* getter = llvm::Function::Create(llvm::FunctionType::get(b.getPtrTy(), false), llvm::Function::ExternalLinkage,
                                          "sim_local", module);
    llvm::convertUsersOfConstantsToInstructions({local});
    for (llvm::Use& use : llvm::make_early_inc_range(local->uses())) {
      auto* user = llvm::cast<llvm::Instruction>(use.getUser());
      llvm::Instruction* at = user;
      if (auto* phi = llvm::dyn_cast<llvm::PHINode>(user))
        at = phi->getIncomingBlock(use)->getTerminator();
      b.SetInsertPoint(at);
      use.set(b.CreateAddrSpaceCast(b.CreateCall(getter), local->getType()));
    }
    local->eraseFromParent();
  }
  for (size_t i = 0; i < program.kernels.size(); ++i) {
    llvm::Function* kernel = module.getFunction(program.kernels[i].symbol);
    kernel->setCallingConv(llvm::CallingConv::C);
    auto* run = llvm::Function::Create(llvm::FunctionType::get(b.getVoidTy(), {b.getPtrTy()}, false),
                                       llvm::Function::ExternalLinkage, "run_" + std::to_string(i), module);
    b.SetInsertPoint(llvm::BasicBlock::Create(context, "", run));
    std::vector<llvm::Value*> values;
    for (llvm::Argument& argument : kernel->args()) {
      llvm::Value* address =
          b.CreateLoad(b.getPtrTy(), b.CreateConstGEP1_32(b.getPtrTy(), run->getArg(0), argument.getArgNo()));
      values.push_back(argument.hasByValAttr() ? address
                                               : b.CreateAlignedLoad(argument.getType(), address, llvm::Align(1)));
    }
    auto* call = b.CreateCall(kernel, values);
    call->setAttributes(kernel->getAttributes());
    b.CreateRetVoid();
  }
  auto target = createTargetMachine(IsaLevel::x86_64_v3, 2);
  module.setTargetTriple(target->getTargetTriple());
  module.setDataLayout(target->createDataLayout());
  setTargetAttributes(module, IsaLevel::x86_64_v3);
}

class Simulated : public LoadedModule {
public:
  explicit Simulated(cuda::Program program) : program(std::move(program)) {
    for (const cuda::ProgramKernel& kernel : this->program.kernels)
      kernels_.push_back(kernel.info);
  }
  const std::vector<spirv::KernelInfo>& kernels() const override { return kernels_; }
  WorkGroupFn entry(size_t) const override { return nullptr; }
  const std::vector<GlobalInfo>& globals() const override { return globals_; }
  void* globalAddress(size_t) const override { return nullptr; }
  std::vector<std::string> unresolvedImports() const override { return program.imports; }
  const std::vector<std::string>& functions() const override { return functions_; }
  void* functionAddress(const std::string&) const override { return nullptr; }
  const std::string& buildFlags() const override { return program.build_flags; }

  const cuda::Program program;
  void* library = nullptr;

private:
  std::vector<spirv::KernelInfo> kernels_;
  std::vector<GlobalInfo> globals_;
  std::vector<std::string> functions_;  // none: they are inlined
};

void* link(const std::vector<char>& object) {
  namespace fs = std::filesystem;
  static int number = 0;
  const fs::path folder = fs::path(::testing::TempDir()) / ("zefuse-simulated-" + std::to_string(getpid()));
  fs::create_directories(folder);
  const std::string base = (folder / std::to_string(number++)).string();
  std::ofstream(base + ".o", std::ios::binary).write(object.data(), std::streamsize(object.size()));
  const std::string command = "ld -shared -z noexecstack -o " + base + ".so " + base + ".o -lm";
  EXPECT_EQ(std::system(command.c_str()), 0) << command;
  void* library = dlopen((base + ".so").c_str(), RTLD_NOW | RTLD_LOCAL);
  EXPECT_TRUE(library) << dlerror();
  fs::remove_all(folder);
  return library;
}

}  // namespace

std::vector<uint32_t> loadSpirv(const std::string& name) {
  std::ifstream f(std::string(KERNEL_DIR "/") + name + ".spv", std::ios::binary | std::ios::ate);
  if (!f) {
    ADD_FAILURE() << name << ".spv is missing";
    return {};
  }
  std::vector<uint32_t> words(size_t(f.tellg()) / 4);
  f.seekg(0);
  f.read(reinterpret_cast<char*>(words.data()), std::streamsize(words.size() * 4));
  return words;
}

Program::Program(const std::vector<uint32_t>& spirv, CompileOptions options) {
  cuda::CompileOptions for_gpu;
  for_gpu.architecture = 90;
  for_gpu.opt_level = options.opt_level;
  for_gpu.spec_constants = options.spec_constants;
  try {
    llvm::LLVMContext context;
    cuda::CompileResult result;
    auto target = cuda::createTargetMachine(90, for_gpu.opt_level);
    auto module = cuda::lowerToLlvm(spirv, for_gpu, context, *target, result);
    toHost(*module, result.program);
    auto host = createTargetMachine(IsaLevel::x86_64_v3, 2);
    void* library = link(emitObject(*module, *host));
    auto made = std::make_unique<Simulated>(std::move(result.program));
    made->library = library;
    module_ = std::move(made);
  } catch (const std::exception& e) {
    ADD_FAILURE() << e.what();
  }
}

size_t Program::find(const std::string& kernel) const {
  for (size_t i = 0; module_ && i < module_->kernels().size(); ++i)
    if (module_->kernels()[i].name == kernel)
      return i;
  return ~size_t{0};
}

const spirv::KernelInfo& Program::info(const std::string& kernel) const {
  static const spirv::KernelInfo none;
  const size_t i = find(kernel);
  EXPECT_NE(i, ~size_t{0}) << kernel;
  return i == ~size_t{0} ? none : module_->kernels()[i];
}

void Program::run(const std::string& kernel, Size3 groups, Size3 local, std::vector<Arg> args, Size3 offset) {
  const size_t index = find(kernel);
  ASSERT_NE(index, ~size_t{0}) << kernel;
  const auto& simulated = static_cast<const Simulated&>(*module_);
  const cuda::ProgramKernel& k = simulated.program.kernels[index];
  ASSERT_EQ(k.info.args.size(), args.size()) << kernel;
  // As the driver lays parameters out.
  std::vector<void*> parameters;
  std::vector<uint64_t> local_offsets(args.size());
  uint64_t shared = cuda::alignLocal(k.info.local_bytes);
  for (size_t i = 0; i < args.size(); ++i) {
    if (k.info.args[i].kind == spirv::ArgKind::local_pointer) {
      local_offsets[i] = shared;
      shared += cuda::alignLocal(uint32_t(args[i].local_bytes));
      parameters.push_back(&local_offsets[i]);
    } else {
      ASSERT_EQ(k.info.args[i].size, args[i].value.size()) << kernel << " argument " << i;
      parameters.push_back(args[i].value.data());
    }
  }
  ASSERT_LE(shared, local_bytes);
  if (k.takes_offset)
    for (uint64_t& each : offset)
      parameters.push_back(&each);
  Group made;
  made.entry = reinterpret_cast<void (*)(void**)>(dlsym(simulated.library, ("run_" + std::to_string(index)).c_str()));
  ASSERT_TRUE(made.entry) << kernel;
  made.arguments = parameters.data();
  for (int d = 0; d < 3; ++d) {
    made.count[d] = uint32_t(groups[d]);
    made.size[d] = uint32_t(local[d]);
  }
  made.items = made.size[0] * made.size[1] * made.size[2];
  for (made.id[2] = 0; made.id[2] < made.count[2]; ++made.id[2])
    for (made.id[1] = 0; made.id[1] < made.count[1]; ++made.id[1])
      for (made.id[0] = 0; made.id[0] < made.count[0]; ++made.id[0]) {
        made.barrier = {};
        made.warps.clear();
        made.warpgroups.clear();
        made.barriers.clear();
        runGroup(made);
        ASSERT_EQ(made.error, "") << kernel;
      }
}

std::vector<IsaLevel> hostLevels() { return {IsaLevel::x86_64_v3}; }

}  // namespace zefuse::cpu::testing
