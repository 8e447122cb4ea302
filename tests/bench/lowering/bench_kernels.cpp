// Times of lowered kernels on this host, and of the stages of compiling them. Not a test: nothing fails here.
//   bench_kernels [threads] [repeats]
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <random>
#include <thread>

#include <time.h>

#include "drivers/cpu/codegen/codegen.h"
#include "lowering/dialect/Zefuse.h"
#include "lowering/lower.h"
#include "lowering/schedule/schedule.h"
#include "lowering/spirv/emit.h"
#include "lowering/spirv/validate.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/Parser/Parser.h"
#include "llvm/IR/LLVMContext.h"
#include "llvm/IR/Module.h"

using Clock = std::chrono::steady_clock;
static double ms(Clock::time_point from) {
  return std::chrono::duration<double, std::milli>(Clock::now() - from).count();
}

struct Case {
  const char* name;
  size_t inputs, bias;  // full inputs, and inputs of one row
  std::string text;
};

static std::string replaceAll(std::string text, const std::string& from, const std::string& to) {
  for (size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size())
    text.replace(at, from.size(), to);
  return text;
}

static const char* const header = R"(
#both = affine_map<(d0, d1) -> (d0, d1)>
#row = affine_map<(d0, d1) -> (d0)>
#col = affine_map<(d0, d1) -> (d1)>
#flat = affine_map<(d0, d1) -> (d0 * COLS + d1)>
#vec = affine_map<(d0) -> (d0)>
!full = tensor<ROWSxCOLSxf32>
!line = tensor<COLSxf32>
!perrow = tensor<ROWSxf32>
)";

static const char* const probe = R"(
func.func @graph(%x: !full, %y: !full, %b: !line) {
  %r = zefuse.kernel "probe"(%x, %y, %b) attributes {layouts = [#flat, #flat, #vec, #flat]} : (!full, !full, !line) -> !full {
  ^bb0(%p: !full, %q: !full, %v: !line):
    %e = tensor.empty() : !full
    %s = linalg.generic {indexing_maps = [#both, #both, #col, #both], iterator_types = ["parallel", "parallel"]}
        ins(%p, %q, %v : !full, !full, !line) outs(%e : !full) {
    ^bb0(%0: f32, %1: f32, %2: f32, %o: f32):
      %half = arith.constant 0.5 : f32
      %one = arith.constant 1.0 : f32
      %k = arith.constant 0.70710678118654752 : f32
      %low = arith.constant -3.0 : f32
      %high = arith.constant 3.0 : f32
      %m = arith.mulf %0, %1 : f32
      %w = arith.addf %m, %2 : f32
      %e0 = arith.mulf %w, %k : f32
      %e1 = math.erf %e0 : f32
      %e2 = arith.addf %e1, %one : f32
      %e3 = arith.mulf %w, %half : f32
      %gelu = arith.mulf %e3, %e2 : f32
      %n = arith.negf %0 : f32
      %en = math.exp %n : f32
      %d = arith.addf %en, %one : f32
      %sig = arith.divf %one, %d : f32
      %g = arith.mulf %gelu, %sig : f32
      %t = math.tanh %1 : f32
      %su = arith.addf %g, %t : f32
      %c0 = arith.maximumf %su, %low : f32
      %c1 = arith.minimumf %c0, %high : f32
      %ex = math.exp %c1 : f32
      %lp = math.log1p %ex : f32
      %z = arith.addf %c1, %lp : f32
      linalg.yield %z : f32
    } -> !full
    zefuse.yield %s : !full
  }
  return
})";

static const char* const add = R"(
func.func @graph(%x: !full, %y: !full) {
  %r = zefuse.kernel "add"(%x, %y) attributes {layouts = [#flat, #flat, #flat]} : (!full, !full) -> !full {
  ^bb0(%p: !full, %q: !full):
    %e = tensor.empty() : !full
    %s = linalg.generic {indexing_maps = [#both, #both, #both], iterator_types = ["parallel", "parallel"]}
        ins(%p, %q : !full, !full) outs(%e : !full) {
    ^bb0(%0: f32, %1: f32, %o: f32):
      %m = arith.addf %0, %1 : f32
      linalg.yield %m : f32
    } -> !full
    zefuse.yield %s : !full
  }
  return
})";

static const char* const transposed_add = R"(
func.func @graph(%x: tensor<COLSxROWSxf32>, %y: !full) {
  %r = zefuse.kernel "transposed_add"(%x, %y) attributes {layouts = [affine_map<(d0, d1) -> (d0 * ROWS + d1)>, #flat, #flat]} : (tensor<COLSxROWSxf32>, !full) -> !full {
  ^bb0(%p: tensor<COLSxROWSxf32>, %q: !full):
    %e = tensor.empty() : !full
    %s = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d1, d0)>, #both, #both], iterator_types = ["parallel", "parallel"]}
        ins(%p, %q : tensor<COLSxROWSxf32>, !full) outs(%e : !full) {
    ^bb0(%0: f32, %1: f32, %o: f32):
      %m = arith.addf %0, %1 : f32
      linalg.yield %m : f32
    } -> !full
    zefuse.yield %s : !full
  }
  return
})";

// softmax(layer_norm(x) * 0.75)
static const char* const norm_softmax = R"(
func.func @graph(%x: !full, %w: !line, %b: !line) {
  %r = zefuse.kernel "norm_softmax"(%x, %w, %b) attributes {layouts = [#flat, #vec, #vec, #flat]} : (!full, !line, !line) -> !full {
  ^bb0(%p: !full, %wv: !line, %bv: !line):
    %e = tensor.empty() : !full
    %er = tensor.empty() : !perrow
    %zero = arith.constant 0.0 : f32
    %ninf = arith.constant 0xFF800000 : f32
    %i0 = linalg.fill ins(%zero : f32) outs(%er : !perrow) -> !perrow
    %i1 = linalg.fill ins(%ninf : f32) outs(%er : !perrow) -> !perrow
    %sum = linalg.generic {indexing_maps = [#both, #row], iterator_types = ["parallel", "reduction"]} ins(%p : !full) outs(%i0 : !perrow) {
    ^bb0(%0: f32, %o: f32):
      %m = arith.addf %0, %o : f32
      linalg.yield %m : f32
    } -> !perrow
    %c = linalg.generic {indexing_maps = [#both, #row, #both], iterator_types = ["parallel", "parallel"]} ins(%p, %sum : !full, !perrow) outs(%e : !full) {
    ^bb0(%0: f32, %1: f32, %o: f32):
      %n = arith.constant COLS.0 : f32
      %mean = arith.divf %1, %n : f32
      %m = arith.subf %0, %mean : f32
      linalg.yield %m : f32
    } -> !full
    %var = linalg.generic {indexing_maps = [#both, #row], iterator_types = ["parallel", "reduction"]} ins(%c : !full) outs(%i0 : !perrow) {
    ^bb0(%0: f32, %o: f32):
      %q = arith.mulf %0, %0 : f32
      %m = arith.addf %q, %o : f32
      linalg.yield %m : f32
    } -> !perrow
    %y = linalg.generic {indexing_maps = [#both, #row, #col, #col, #both], iterator_types = ["parallel", "parallel"]}
        ins(%c, %var, %wv, %bv : !full, !perrow, !line, !line) outs(%e : !full) {
    ^bb0(%0: f32, %1: f32, %2: f32, %3: f32, %o: f32):
      %n = arith.constant COLS.0 : f32
      %eps = arith.constant 1.0e-5 : f32
      %s = arith.constant 0.75 : f32
      %v = arith.divf %1, %n : f32
      %ve = arith.addf %v, %eps : f32
      %rs = math.rsqrt %ve : f32
      %a = arith.mulf %0, %rs : f32
      %aw = arith.mulf %a, %2 : f32
      %ab = arith.addf %aw, %3 : f32
      %as = arith.mulf %ab, %s : f32
      linalg.yield %as : f32
    } -> !full
    %mx = linalg.generic {indexing_maps = [#both, #row], iterator_types = ["parallel", "reduction"]} ins(%y : !full) outs(%i1 : !perrow) {
    ^bb0(%0: f32, %o: f32):
      %m = arith.maximumf %0, %o : f32
      linalg.yield %m : f32
    } -> !perrow
    %ex = linalg.generic {indexing_maps = [#both, #row, #both], iterator_types = ["parallel", "parallel"]} ins(%y, %mx : !full, !perrow) outs(%e : !full) {
    ^bb0(%0: f32, %1: f32, %o: f32):
      %d = arith.subf %0, %1 : f32
      %m = math.exp %d : f32
      linalg.yield %m : f32
    } -> !full
    %t = linalg.generic {indexing_maps = [#both, #row], iterator_types = ["parallel", "reduction"]} ins(%ex : !full) outs(%i0 : !perrow) {
    ^bb0(%0: f32, %o: f32):
      %m = arith.addf %0, %o : f32
      linalg.yield %m : f32
    } -> !perrow
    %out = linalg.generic {indexing_maps = [#both, #row, #both], iterator_types = ["parallel", "parallel"]} ins(%ex, %t : !full, !perrow) outs(%e : !full) {
    ^bb0(%0: f32, %1: f32, %o: f32):
      %m = arith.divf %0, %1 : f32
      linalg.yield %m : f32
    } -> !full
    zefuse.yield %out : !full
  }
  return
})";

int main(int argc, char** argv) {
  unsigned threads = argc > 1 ? std::atoi(argv[1]) : 2;
  int repeats = argc > 2 ? std::atoi(argv[2]) : 30;
  const size_t rows = 4096, columns = 1024;
  mlir::DialectRegistry registry;
  zefuse::registerDialects(registry);
  mlir::MLIRContext context(registry, mlir::MLIRContext::Threading::DISABLED);
  context.loadAllAvailableDialects();
  std::vector<std::vector<float>> buffers(4, std::vector<float>(rows * columns));
  std::mt19937 generator(1);
  std::normal_distribution<float> normal;
  for (auto& buffer : buffers)
    for (float& value : buffer)
      value = normal(generator);

  std::printf("%-16s %8s %8s %8s | %8s %8s %8s %8s %8s %8s  (ms; stages: processor time)\n", "kernel", "best", "median",
              "best CPU", "schedule", "dialect", "llvm", "spirv", "validate", "native");
  for (auto [name, text, inputs] :
       {std::tuple{"probe", probe, 3}, std::tuple{"add", add, 2}, std::tuple{"transposed_add", transposed_add, 2},
        std::tuple{"norm_softmax", norm_softmax, 3}}) {
    std::string source = replaceAll(replaceAll(std::string(header) + text, "ROWS", std::to_string(rows)), "COLS",
                                    std::to_string(columns));
    auto module = mlir::parseSourceString<mlir::ModuleOp>(source, &context);
    zefuse::KernelOp kernel;
    module->walk([&](zefuse::KernelOp op) { kernel = op; });
    // Processor time of the stages, the best of a few warm rounds.
    auto threadTime = [] {
      timespec now;
      clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
      return now.tv_sec * 1e3 + now.tv_nsec * 1e-6;
    };
    zefuse::LoweredKernel lowered;
    double stages[5] = {1e9, 1e9, 1e9, 1e9, 1e9};
    for (int round = 0; round < 8; ++round) {
      double mark = threadTime();
      auto lap = [&](int stage) {
        double now = threadTime();
        stages[stage] = std::min(stages[stage], now - mark);
        mark = now;
      };
      auto scheduled = zefuse::scheduleKernel(kernel, zefuse::TargetDescription::cpu());
      lap(0);
      (void)zefuse::convertToLLVMDialect(*scheduled->module);
      lap(1);
      llvm::LLVMContext llvm_context;
      auto ir = zefuse::translateToLLVM(*scheduled->module, llvm_context);
      lap(2);
      std::string error;
      scheduled->launch.spirv = *zefuse::emitSpirv(*ir, error);
      lap(3);
      (void)zefuse::whyInvalid(scheduled->launch.spirv);
      lap(4);
      lowered = std::move(scheduled->launch);
    }
    double compile = threadTime();
    auto native = zefuse::cpu::compileSpirv(lowered.spirv, {});
    compile = threadTime() - compile;
    std::string log;
    auto loaded = native.ok ? zefuse::cpu::LoadedModule::load(native.native, log) : nullptr;
    if (!loaded) {
      std::printf("%-16s %s%s\n", name, native.log.c_str(), log.c_str());
      continue;
    }
    auto entry = loaded->entry(0);
    std::vector<void*> pointers;
    for (int i = 0; i < inputs; ++i)
      pointers.push_back(buffers[i].data());
    pointers.push_back(buffers[3].data());
    std::vector<const void*> slots;
    for (void*& pointer : pointers)
      slots.push_back(&pointer);
    zefuse::cpu::LaunchContext launch{{threads, 1, 1}, {1, 1, 1}, {0, 0, 0}, 1};
    // Processor time of the slowest thread beside wall time: on a machine that does other work only that means
    // something.
    std::vector<double> times, processor;
    for (int repeat = 0; repeat < repeats; ++repeat) {
      std::vector<double> mine(threads);
      auto work = [&](uint64_t group) {
        double start = threadTime();
        uint64_t id[3] = {group, 0, 0};
        entry(slots.data(), &launch, id, nullptr);
        mine[group] = threadTime() - start;
      };
      auto begin = Clock::now();
      std::vector<std::thread> team;
      for (uint64_t group = 1; group < threads; ++group)
        team.emplace_back(work, group);
      work(0);
      for (auto& thread : team)
        thread.join();
      times.push_back(ms(begin));
      processor.push_back(*std::max_element(mine.begin(), mine.end()));
    }
    std::sort(times.begin(), times.end());
    std::sort(processor.begin(), processor.end());
    std::printf("%-16s %8.2f %8.2f %8.2f | %8.2f %8.2f %8.2f %8.2f %8.2f %8.2f  %s\n", name, times[0],
                times[times.size() / 2], processor[0], stages[0], stages[1], stages[2], stages[3], stages[4], compile,
                describe(lowered.schedule).c_str());
  }
}
