// Dot products of bytes by the CPU's instructions: VNNI's vpdpbusd, else the multiplications of pairs that AVX2 has.
#include "drivers/cpu/codegen/backend.h"

#include "llvm/Analysis/ValueTracking.h"
#include "llvm/Analysis/VectorUtils.h"
#include "llvm/IR/IRBuilder.h"
#include "llvm/IR/IntrinsicsX86.h"
#include "llvm/Support/KnownBits.h"

namespace zefuse::cpu {
namespace {

using llvm::Intrinsic::ID;

// By width: 4, 8 and 16 lanes.
struct Instructions {
  ID dot, pairs_of_bytes, pairs_of_words;
};
constexpr Instructions kInstructions[] = {
    {llvm::Intrinsic::x86_avx512_vpdpbusd_128, llvm::Intrinsic::x86_ssse3_pmadd_ub_sw_128,
     llvm::Intrinsic::x86_sse2_pmadd_wd},
    {llvm::Intrinsic::x86_avx512_vpdpbusd_256, llvm::Intrinsic::x86_avx2_pmadd_ub_sw,
     llvm::Intrinsic::x86_avx2_pmadd_wd},
    {llvm::Intrinsic::x86_avx512_vpdpbusd_512, llvm::Intrinsic::x86_avx512_pmaddubs_w_512,
     llvm::Intrinsic::x86_avx512_pmaddw_d_512},
};

llvm::Value* dot4(llvm::IRBuilderBase& builder, IsaLevel isa, llvm::Value* a, llvm::Value* b, llvm::Value* sum) {
  auto* vector = llvm::dyn_cast<llvm::FixedVectorType>(sum->getType());
  const unsigned lanes = vector ? vector->getNumElements() : 1;
  if (lanes == 16 && isa < IsaLevel::avx512) {
    llvm::Value* halves[2];
    for (int half = 0; half < 2; ++half) {
      auto part = [&](llvm::Value* whole) {
        return builder.CreateShuffleVector(whole, llvm::createSequentialMask(8 * half, 8, 0));
      };
      halves[half] = dot4(builder, isa, part(a), part(b), part(sum));
    }
    return builder.CreateShuffleVector(halves[0], halves[1], llvm::createSequentialMask(0, 16, 0));
  }
  if (lanes != 4 && lanes != 8 && lanes != 16)
    return spirv::dot4ByArithmetic(builder, a, b, sum);
  const Instructions& instructions = kInstructions[lanes / 8];
  auto elements = [&](llvm::Value* value, unsigned bits) {
    return builder.CreateBitCast(value, llvm::FixedVectorType::get(builder.getIntNTy(bits), lanes * 32 / bits));
  };
  auto call = [&](ID id, llvm::ArrayRef<llvm::Value*> arguments) { return builder.CreateIntrinsic(id, {}, arguments); };
  if (isa >= IsaLevel::avx512_bf16)
    return call(instructions.dot, {sum, elements(a, 8), elements(b, 8)});
  // Two products of bytes below 128 fit into 16 bits; of larger ones they would saturate.
  const llvm::APInt tops(32, 0x80808080);
  const llvm::KnownBits known = llvm::computeKnownBits(a, builder.GetInsertBlock()->getDataLayout());
  if (tops.isSubsetOf(known.Zero)) {
    llvm::Value* pairs = call(instructions.pairs_of_bytes, {elements(a, 8), elements(b, 8)});
    llvm::Value* ones = llvm::ConstantInt::get(pairs->getType(), 1);
    return builder.CreateAdd(sum, call(instructions.pairs_of_words, {pairs, ones}));
  }
  llvm::Value* words_of_b = elements(b, 16);
  llvm::Value* even = call(instructions.pairs_of_words, {elements(builder.CreateAnd(a, 0x00ff00ff), 16),
                                                         builder.CreateAShr(builder.CreateShl(words_of_b, 8), 8)});
  llvm::Value* odd =
      call(instructions.pairs_of_words, {builder.CreateLShr(elements(a, 16), 8), builder.CreateAShr(words_of_b, 8)});
  return builder.CreateAdd(builder.CreateAdd(sum, even), odd);
}

template <IsaLevel isa>
llvm::Value* dot4For(llvm::IRBuilderBase& builder, llvm::Value* a, llvm::Value* b, llvm::Value* sum) {
  return dot4(builder, isa, a, b, sum);
}

}  // namespace

spirv::Dot4* dot4Of(IsaLevel isa) {
  switch (isa) {
  case IsaLevel::x86_64_v3: return dot4For<IsaLevel::x86_64_v3>;
  case IsaLevel::avx512: return dot4For<IsaLevel::avx512>;
  case IsaLevel::avx512_bf16:
  case IsaLevel::amx: return dot4For<IsaLevel::avx512_bf16>;
  }
  return spirv::dot4ByArithmetic;
}

}  // namespace zefuse::cpu
