// Modules changed so that most of them still build: another operation of the same shape, another value of the same
// type, another constant. fuzz_test.cpp damages them instead, and few get past the reader's checks.
//
// What is built is also run where that is safe: the changed instructions reach no address and no branch, so every
// access stays in bounds and every loop ends, whatever is computed. A damaged module's kernel could write and jump
// anywhere, and a process of its own does not keep it from the machine's files: those are only compiled.
#include "tests/unit/codegen/harness.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <spirv/unified1/OpenCL.std.h>
#define SPV_ENABLE_UTILITY_CODE
#include <spirv/unified1/spirv.hpp>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>
#include <random>
#include <set>

namespace zefuse::cpu::testing {
namespace {

using Words = std::vector<uint32_t>;

// Operations that take and give the same types.
const std::vector<std::vector<unsigned>> kKin = {
    {spv::OpIAdd, spv::OpISub, spv::OpIMul, spv::OpUDiv, spv::OpSDiv, spv::OpUMod, spv::OpSRem, spv::OpSMod,
     spv::OpBitwiseOr, spv::OpBitwiseXor, spv::OpBitwiseAnd, spv::OpShiftRightLogical, spv::OpShiftRightArithmetic,
     spv::OpShiftLeftLogical},
    {spv::OpFAdd, spv::OpFSub, spv::OpFMul, spv::OpFDiv, spv::OpFRem, spv::OpFMod},
    {spv::OpIEqual, spv::OpINotEqual, spv::OpUGreaterThan, spv::OpSGreaterThan, spv::OpUGreaterThanEqual,
     spv::OpSGreaterThanEqual, spv::OpULessThan, spv::OpSLessThan, spv::OpULessThanEqual, spv::OpSLessThanEqual},
    {spv::OpFOrdEqual, spv::OpFUnordEqual, spv::OpFOrdNotEqual, spv::OpFUnordNotEqual, spv::OpFOrdLessThan,
     spv::OpFUnordLessThan, spv::OpFOrdGreaterThan, spv::OpFUnordGreaterThan, spv::OpFOrdLessThanEqual,
     spv::OpFUnordLessThanEqual, spv::OpFOrdGreaterThanEqual, spv::OpFUnordGreaterThanEqual},
    {spv::OpLogicalEqual, spv::OpLogicalNotEqual, spv::OpLogicalOr, spv::OpLogicalAnd},
    {spv::OpSNegate, spv::OpNot, spv::OpBitCount},
    {spv::OpUConvert, spv::OpSConvert},
    {spv::OpConvertSToF, spv::OpConvertUToF},
};
// The same of OpenCL's functions.
const std::vector<std::vector<unsigned>> kKinOfOpenCl = {
    {OpenCLLIB::Fabs,  OpenCLLIB::Floor, OpenCLLIB::Ceil, OpenCLLIB::Rint,  OpenCLLIB::Round, OpenCLLIB::Trunc,
     OpenCLLIB::Sqrt,  OpenCLLIB::Exp,   OpenCLLIB::Exp2, OpenCLLIB::Expm1, OpenCLLIB::Log,   OpenCLLIB::Log2,
     OpenCLLIB::Log1p, OpenCLLIB::Sin,   OpenCLLIB::Cos,  OpenCLLIB::Tan,   OpenCLLIB::Asin,  OpenCLLIB::Acos,
     OpenCLLIB::Atan,  OpenCLLIB::Sinh,  OpenCLLIB::Cosh, OpenCLLIB::Tanh,  OpenCLLIB::Erf,   OpenCLLIB::Erfc,
     OpenCLLIB::Cbrt,  OpenCLLIB::Rsqrt},
    {OpenCLLIB::FMax_common, OpenCLLIB::FMin_common, OpenCLLIB::Fmax, OpenCLLIB::Fmin, OpenCLLIB::Copysign,
     OpenCLLIB::Fmod, OpenCLLIB::Pow, OpenCLLIB::Atan2, OpenCLLIB::Hypot, OpenCLLIB::Fdim, OpenCLLIB::Remainder,
     OpenCLLIB::Nextafter},
    {OpenCLLIB::Fma, OpenCLLIB::Mad, OpenCLLIB::Mix, OpenCLLIB::FClamp},
    {OpenCLLIB::SMax, OpenCLLIB::SMin, OpenCLLIB::UMax, OpenCLLIB::UMin, OpenCLLIB::SMul_hi, OpenCLLIB::UMul_hi,
     OpenCLLIB::Rotate, OpenCLLIB::SAdd_sat, OpenCLLIB::SSub_sat, OpenCLLIB::UAdd_sat, OpenCLLIB::UAbs_diff,
     OpenCLLIB::SHadd},
    {OpenCLLIB::SAbs, OpenCLLIB::UAbs, OpenCLLIB::Clz, OpenCLLIB::Ctz, OpenCLLIB::Popcount},
    {OpenCLLIB::SClamp, OpenCLLIB::UClamp, OpenCLLIB::SMad_hi, OpenCLLIB::UMad_hi, OpenCLLIB::Bitselect},
};

const std::vector<unsigned>* kinOf(const std::vector<std::vector<unsigned>>& groups, unsigned code) {
  for (const auto& group : groups)
    if (std::find(group.begin(), group.end(), code) != group.end())
      return &group;
  return nullptr;
}

struct Instruction {
  size_t at;
  unsigned opcode, length;
  uint32_t type = 0, result = 0;  // ids, or 0
};

// What a module's instructions are and which may change.
class Anatomy {
public:
  explicit Anatomy(const Words& words) : words_(words) {
    uint32_t block = 0;
    for (size_t at = 5; at < words.size() && words[at] >> 16; at += words[at] >> 16) {
      Instruction i{at, words[at] & 0xffff, words[at] >> 16};
      bool has_result = false, has_type = false;
      spv::HasResultAndType(static_cast<spv::Op>(i.opcode), &has_result, &has_type);
      if (has_type)
        i.type = words[at + 1];
      if (has_result)
        i.result = words[at + 1 + has_type];
      if (i.opcode == spv::OpLabel)
        block = i.result;
      type_of_[i.result] = i.type;
      if (i.opcode == spv::OpVariable && words[at + 3] == spv::StorageClassInput)
        inputs_.insert(i.result);
      block_of_.push_back(block);
      all.push_back(i);
    }
    findLoops();
    findSteering();
  }

  // Whether a change of its value can change an address, a branch of a loop, a type or what an instruction is.
  bool steers(uint32_t id) const { return steering_.count(id) != 0; }
  uint32_t typeOf(uint32_t id) const {
    auto found = type_of_.find(id);
    return found == type_of_.end() ? 0 : found->second;
  }
  // Ids of the same type that the instruction may use in the place of `id`: constants, and what its block made before.
  std::vector<uint32_t> insteadOf(uint32_t id, size_t user) const {
    std::vector<uint32_t> out;
    for (size_t i = 0; i < user; ++i)
      if (all[i].result && all[i].type && all[i].type == typeOf(id) &&
          (all[i].opcode == spv::OpConstant ||
           (all[i].opcode != spv::OpVariable && block_of_[i] && block_of_[i] == block_of_[user])))
        out.push_back(all[i].result);
    return out;
  }

  // Operations on values alone, of all whose words behind the result are ids (or small numbers, which change nothing).
  static bool pure(unsigned opcode) {
    return kinOf(kKin, opcode) || opcode == spv::OpSelect || opcode == spv::OpExtInst || opcode == spv::OpDot ||
           opcode == spv::OpCompositeConstruct || opcode == spv::OpCompositeExtract ||
           opcode == spv::OpCompositeInsert || opcode == spv::OpVectorShuffle || opcode == spv::OpPhi ||
           opcode == spv::OpVectorTimesScalar || opcode == spv::OpConvertFToS || opcode == spv::OpConvertFToU ||
           opcode == spv::OpSatConvertSToU || opcode == spv::OpLogicalNot || opcode == spv::OpFNegate ||
           opcode == spv::OpFConvert;
  }

  std::vector<Instruction> all;

private:
  // A branch to a block that stands before it closes a loop, which holds everything between.
  void findLoops() {
    std::map<uint32_t, size_t> labels;
    for (const Instruction& i : all)
      if (i.opcode == spv::OpLabel)
        labels[i.result] = i.at;
    for (const Instruction& i : all)
      for (unsigned word = 1; (i.opcode == spv::OpBranch || i.opcode == spv::OpBranchConditional) && word < i.length;
           ++word)
        if (auto target = labels.find(words_[i.at + word]); target != labels.end() && target->second < i.at)
          loops_.emplace_back(target->second, i.at);
  }
  bool inLoop(size_t at) const {
    return std::any_of(loops_.begin(), loops_.end(),
                       [&](const auto& loop) { return loop.first <= at && at <= loop.second; });
  }

  void findSteering() {
    auto take = [&](const Instruction& i, unsigned from, unsigned to) {
      for (unsigned word = from; word < to; ++word)
        steering_.insert(words_[i.at + word]);
    };
    bool loads_steer = false;
    for (size_t before = ~size_t{0}; before != steering_.size();) {
      before = steering_.size();
      for (const Instruction& i : all) {
        if (i.opcode == spv::OpName || i.opcode == spv::OpDecorate || i.opcode == spv::OpConstant ||
            (i.opcode == spv::OpBranchConditional && !inLoop(i.at)))
          continue;
        if (i.opcode == spv::OpStore) {
          take(i, 1, loads_steer ? 3 : 2);
        } else if (i.opcode == spv::OpLoad) {
          take(i, 3, 4);
          loads_steer |= steers(i.result) && !inputs_.count(words_[i.at + 3]);
        } else if (!pure(i.opcode) || steers(i.result)) {
          take(i, 1 + (i.type != 0) + (i.result != 0), i.length);
        }
      }
    }
  }

  const Words& words_;
  std::map<uint32_t, uint32_t> type_of_;
  std::vector<uint32_t> block_of_;
  std::vector<std::pair<size_t, size_t>> loops_;
  std::set<uint32_t> steering_;
  std::set<uint32_t> inputs_;  // variables that no store reaches: work-item ids and sizes
};

// Changes what it can of `count` instructions. `harmless`: only what steers nothing.
Words mutate(Words words, const Anatomy& anatomy, int count, bool harmless, std::mt19937_64& random) {
  auto pick = [&](size_t n) { return n == 0 ? size_t{0} : random() % n; };
  for (int tries = 0; count > 0 && tries < 1000; ++tries) {
    const size_t number = pick(anatomy.all.size());
    const Instruction& i = anatomy.all[number];
    if (!i.result || (harmless && anatomy.steers(i.result)))
      continue;
    uint32_t* at = &words[i.at];
    if (i.opcode == spv::OpConstant) {
      static const uint32_t odd[] = {0, 1, 0xffffffff, 0x80000000, 0x7fffffff, 0x7fc00000, 0xff800000, 31, 33};
      // One for values alone: sizes of arrays steer in every module.
      if (anatomy.steers(i.result) || i.length != 4)
        continue;
      at[3] = pick(2) ? odd[pick(std::size(odd))] : static_cast<uint32_t>(random());
    } else if (!Anatomy::pure(i.opcode) || i.opcode == spv::OpPhi) {
      continue;
    } else if (const auto* kin = kinOf(kKin, i.opcode); kin && pick(2)) {
      at[0] = (at[0] & 0xffff0000) | (*kin)[pick(kin->size())];
    } else if (const auto* known = i.opcode == spv::OpExtInst ? kinOf(kKinOfOpenCl, at[4]) : nullptr;
               known && pick(2)) {
      at[4] = (*known)[pick(known->size())];
    } else {
      const unsigned first = i.opcode == spv::OpExtInst ? 5 : 3;
      if (i.opcode == spv::OpCompositeExtract || i.opcode == spv::OpVectorShuffle || i.length <= first)
        continue;
      const unsigned operand = first + static_cast<unsigned>(pick(i.length - first));
      const auto others = anatomy.insteadOf(at[operand], number);
      if (others.empty())
        continue;
      at[operand] = others[pick(others.size())];
    }
    --count;
  }
  return words;
}

int cases(int usual) {
  const char* text = std::getenv("ZEFUSE_FUZZ_CASES");
  return text ? std::atoi(text) : usual;
}
uint64_t firstSeed() {
  const char* text = std::getenv("ZEFUSE_FUZZ_SEED");
  return text ? std::strtoull(text, nullptr, 10) : 1;
}

class Mutation : public ::testing::TestWithParam<const char*> {};

TEST_P(Mutation, MostModulesBuild) {
  const Words words = loadSpirv(GetParam());
  const Anatomy anatomy(words);
  const int n = cases(25);
  int built = 0, changed = 0;
  for (int i = 0; i < n; ++i) {
    std::mt19937_64 random(firstSeed() + i);
    const Words other = mutate(words, anatomy, 1 + int(random() % 4), false, random);
    changed += other != words;
    const CompileResult result = compileSpirv(other, {.isa = IsaLevel::x86_64_v3, .opt_level = i % 4 == 0 ? 2 : 0});
    built += result.ok;
    EXPECT_NE(result.ok, result.log.find("error") != std::string::npos && result.native.empty())
        << "seed " << firstSeed() + i;
  }
  // Else these changes test the reader's first checks only, as damage does.
  EXPECT_GE(changed, n / 2);
  EXPECT_GE(built, n * 6 / 10) << "of " << n;
  RecordProperty("built", built);
}

INSTANTIATE_TEST_SUITE_P(Modules, Mutation,
                         ::testing::Values("arithmetic", "basic", "control", "barrier", "math_small"),
                         [](auto& i) { return std::string(i.param); });

// What the kernel "arithmetic" reads and writes: memory that a child process shares with the test.
struct Data {
  static constexpr size_t items = 64;
  int32_t a[items];
  int64_t b[items];
  float c[items];
  float v[items][4];
  int16_t s[items];
  struct Out {
    int32_t i[items];
    int64_t l[items];
    float f[items];
    float v[items][4];
    int16_t s[items];
  } out;
  bool ran;
};

void fill(Data& data) {
  std::mt19937 random(5);
  const int32_t odd[] = {0, 1, -1, INT32_MIN, INT32_MAX, 7, -100, 65536};
  const float odd_floats[] = {0.f, -0.f, 1.f, -1.5f, INFINITY, -INFINITY, NAN, 1e-40f, 3e38f, 0.1f};
  for (size_t i = 0; i < Data::items; ++i) {
    data.a[i] = i < std::size(odd) ? odd[i] : int32_t(random());
    data.b[i] = i < std::size(odd) ? int64_t(odd[i]) << 32 : int64_t(uint64_t(random()) << 32 | random());
    data.c[i] = i < std::size(odd_floats) ? odd_floats[i] : float(random() % 2000) / 64 - 15;
    for (float& element : data.v[i])
      element = float(random() % 1000) / 32 - 12;
    data.s[i] = int16_t(random());
  }
}

// In a process of its own, with its results in shared memory: what it does to itself is told by how it ended.
std::string runInChild(const CompileResult& compiled, Data& data) {
  std::string log;
  auto module = LoadedModule::load(compiled.native, log);
  if (!module)
    return "does not load: " + log;
  std::memset(&data.out, 0, sizeof data.out);
  data.ran = false;
  const pid_t child = fork();
  if (child == 0) {
    alarm(60);
    for (int fatal : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT})
      signal(fatal, SIG_DFL);
    void* pointers[] = {data.a,     data.b,     data.c,     data.v,     data.s,
                        data.out.i, data.out.l, data.out.f, data.out.v, data.out.s};
    const void* args[std::size(pointers)];
    for (size_t i = 0; i < std::size(pointers); ++i)
      args[i] = &pointers[i];
    alignas(64) static std::byte local[4096];
    const LaunchContext launch = {{1, 1, 1}, {Data::items, 1, 1}, {0, 0, 0}, 1};
    const uint64_t group[3] = {0, 0, 0};
    module->entry(0)(args, &launch, group, local);
    data.ran = true;
    _exit(0);
  }
  int status = 0;
  if (child < 0 || waitpid(child, &status, 0) != child)
    return "no child process";
  if (WIFSIGNALED(status))
    return std::string("ended by ") + strsignal(WTERMSIG(status));
  return data.ran ? "" : "did not run to its end";
}

bool same(float x, float y) { return std::memcmp(&x, &y, sizeof x) == 0 || (std::isnan(x) && std::isnan(y)); }

// Empty when all results agree; else the first that do not.
std::string compare(const Data::Out& x, const Data::Out& y) {
  auto differ = [](const char* what, size_t item, double a, double b) {
    return std::string(what) + "[" + std::to_string(item) + "]: " + std::to_string(a) + " and " + std::to_string(b);
  };
  for (size_t i = 0; i < Data::items; ++i) {
    if (x.i[i] != y.i[i])
      return differ("int", i, x.i[i], y.i[i]);
    if (x.l[i] != y.l[i])
      return differ("long", i, double(x.l[i]), double(y.l[i]));
    if (!same(x.f[i], y.f[i]))
      return differ("float", i, x.f[i], y.f[i]);
    for (int k = 0; k < 4; ++k)
      if (!same(x.v[i][k], y.v[i][k]))
        return differ("float4", i, x.v[i][k], y.v[i][k]);
    if (x.s[i] != y.s[i])
      return differ("short", i, x.s[i], y.s[i]);
  }
  return {};
}

TEST(MutatedKernels, RunWithoutATrapAndGiveTheSameAtEveryLevel) {
  const Words words = loadSpirv("arithmetic");
  const Anatomy anatomy(words);
  auto* data =
      static_cast<Data*>(mmap(nullptr, sizeof(Data), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  if (data == MAP_FAILED)
    FAIL() << "no memory for the data";
  fill(*data);
  const int n = cases(60);
  int ran = 0, changed = 0;
  auto unchanged = std::make_unique<Data::Out>(), plain = std::make_unique<Data::Out>();
  ASSERT_EQ(runInChild(compileSpirv(words, {}), *data), "");
  *unchanged = data->out;
  for (int i = 0; i < n; ++i) {
    const uint64_t seed = firstSeed() + i;
    std::mt19937_64 random(seed);
    const Words other = mutate(words, anatomy, 1 + int(random() % 6), true, random);
    const CompileResult quick = compileSpirv(other, {.opt_level = 0});
    if (!quick.ok)
      continue;
    ASSERT_EQ(runInChild(quick, *data), "") << "seed " << seed;
    *plain = data->out;
    const CompileResult best = compileSpirv(other, {.opt_level = 3});
    ASSERT_TRUE(best.ok) << "seed " << seed << ": " << best.log;
    ASSERT_EQ(runInChild(best, *data), "") << "seed " << seed;
    EXPECT_EQ(compare(*plain, data->out), "") << "seed " << seed;
    ++ran;
    changed += !compare(*unchanged, data->out).empty();
  }
  EXPECT_GE(ran, n * 8 / 10);
  EXPECT_GE(changed, n / 2) << "a change that no result shows tests little";
  RecordProperty("ran", ran);
  munmap(data, sizeof(Data));
}

}  // namespace
}  // namespace zefuse::cpu::testing
