// Random numbers of zefuse.decompositions.random_numbers: functions of a seed and of the number of the element, so that
// what is computed again, in another kernel or in the backward, is the same.
#include "compiler/import/random.h"

#include "compiler/import/op_table.h"
#include "mlir/Dialect/Arith/IR/Arith.h"

using namespace mlir;

namespace zefuse {
namespace {

using Words = std::array<Scalar, 4>;  // u32

Scalar low32(Scalar x) {
  return Scalar(x.builder(), arith::TruncIOp::create(x.builder(), x.builder().getI32Type(), x.value()));
}
Scalar wide(Scalar x) {
  return Scalar(x.builder(), arith::ExtUIOp::create(x.builder(), x.builder().getI64Type(), x.value()));
}
Scalar shifted(Scalar x, int64_t bits) {
  Scalar count = constantScalar(x.builder(), x.type(), bits);
  return Scalar(x.builder(), arith::ShRUIOp::create(x.builder(), x.value(), count.value()));
}
Scalar number(Scalar like, uint32_t value) {
  return constantScalar(like.builder(), like.type(), int64_t(int32_t(value)));
}

// Philox4x32-10 (Salmon, Moraes, Dror and Shaw 2011), torch's and cuRAND's.
Words philox(Words counter, Scalar key0, Scalar key1) {
  auto product = [](Scalar x, uint32_t factor) {
    return wide(x) * constantScalar(x.builder(), x.builder().getI64Type(), int64_t(factor));
  };
  auto [a, b, c, d] = counter;
  for (int round = 0; round < 10; ++round) {
    Scalar first = product(a, 0xD2511F53), second = product(c, 0xCD9E8D57);
    Scalar next_a = low32(shifted(second, 32)) ^ b ^ key0, next_c = low32(shifted(first, 32)) ^ d ^ key1;
    b = low32(second);
    d = low32(first);
    a = next_a;
    c = next_c;
    key0 = key0 + number(key0, 0x9E3779B9);
    key1 = key1 + number(key1, 0xBB67AE85);
  }
  return {a, b, c, d};
}

// The element's number in row-major order. Of fixed sizes below 2^32 i32, else i64.
Scalar numberOf(Body& body, RankedTensorType result) {
  SmallVector<AffineExpr> sizes = shapeOf(result);
  uint64_t count = 1;
  for (AffineExpr size : sizes) {
    auto constant = dyn_cast<AffineConstantExpr>(size);
    const uint64_t elements = constant ? uint64_t(constant.getValue()) : uint64_t(1) << 32;
    count = elements != 0 && count > (uint64_t(1) << 32) / elements ? uint64_t(1) << 32 : count * elements;
  }
  Type type = count < uint64_t(1) << 32 ? body.b.getI32Type() : body.b.getI64Type();
  Scalar at = constantScalar(body.b, type, int64_t(0));
  for (int64_t d = 0; d < int64_t(sizes.size()); ++d) {
    if (isConstant(sizes[d], 1))
      continue;
    Scalar size = type.isInteger(32) ? constantScalar(body.b, type, cast<AffineConstantExpr>(sizes[d]).getValue())
                                     : body.size(sizes[d]);
    at = at * size + Scalar(body.b, arith::IndexCastOp::create(body.b, type, body.index(d)));
  }
  return at;
}

struct Drawn {
  Words words;  // of four elements
  Scalar lane;  // i32: which of the four this is
};

// Four neighbours share a counter, so that a work-item that makes them all computes it once.
Drawn draw(Body& body, RankedTensorType result, Scalar seed) {
  Scalar at = numberOf(body, result), group = shifted(at, 2);
  const bool is_long = at.type().isInteger(64);
  Scalar zero = constantScalar(body.b, body.b.getI32Type(), int64_t(0));
  Scalar low = is_long ? low32(group) : group, high = is_long ? low32(shifted(group, 32)) : zero;
  Scalar lane = (is_long ? low32(at) : at) & number(zero, 3);
  return {philox({low, high, zero, zero}, low32(seed), low32(shifted(seed, 32))), lane};
}

Scalar wordOf(const Drawn& drawn) {
  auto is = [&](uint32_t lane) { return drawn.lane == number(drawn.lane, lane); };
  return select(is(0), drawn.words[0], select(is(1), drawn.words[1], select(is(2), drawn.words[2], drawn.words[3])));
}

Scalar toFloat(Scalar word) {
  return Scalar(word.builder(), arith::UIToFPOp::create(word.builder(), word.builder().getF32Type(), word.value()));
}

Values emit(Op& op, llvm::function_ref<Scalar(Body&, const Drawn&)> number) {
  RankedTensorType result = op.resultType();
  return {op.build.loop({op.tensor("seed")}, result,
                        [&](Body& body, ArrayRef<Scalar> in) { return number(body, draw(body, result, in[0])); })};
}

Scalar uniformOf(const Drawn& drawn) { return toFloat(shifted(wordOf(drawn), 8)) * 0x1p-24; }

Values emitUniform(Op& op) {
  return emit(op, [](Body&, const Drawn& drawn) { return uniformOf(drawn); });
}

// By Box and Muller, two of two words.
Values emitNormal(Op& op) {
  return emit(op, [](Body&, const Drawn& drawn) {
    Scalar later = drawn.lane >= 2;
    auto fraction = [](Scalar word) { return toFloat(word) * 0x1p-32 + 0x1p-33; };  // in (0, 1]
    Scalar first = fraction(select(later, drawn.words[2], drawn.words[0]));
    Scalar turn = fraction(select(later, drawn.words[3], drawn.words[1]));
    Scalar odd = toFloat(drawn.lane & number(drawn.lane, 1));
    return sqrt(log(first) * -2.0) * cos((turn - odd * 0.25) * 6.283185307179586);
  });
}

// low + floor(word * (high - low) / 2^32).
Values emitIntegers(Op& op) {
  const int64_t low = op.integer("low"), high = op.integer("high");
  if (high <= low || high - low > int64_t(1) << 32)
    op.refuse("from " + Twine(low) + " to " + Twine(high));
  return emit(op, [&](Body& body, const Drawn& drawn) {
    Type type = body.b.getI64Type();
    return shifted(wide(wordOf(drawn)) * constantScalar(body.b, type, high - low), 32) +
           constantScalar(body.b, type, low);
  });
}

}  // namespace

Scalar uniformAt(Body& body, RankedTensorType result, Scalar seed) { return uniformOf(draw(body, result, seed)); }

void registerRandom(OpTable& table) {
  table.add("zefuse_random.uniform.default", emitUniform);
  table.add("zefuse_random.normal.default", emitNormal);
  table.add("zefuse_random.integers.default", emitIntegers);
}

}  // namespace zefuse
