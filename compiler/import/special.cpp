// Special functions by eager's formulas (aten/src/ATen/native/Math.h, after Cephes), in f32 or f64. All branches are
// evaluated and one is chosen.
#include <cmath>

#include "compiler/import/elementwise.h"
#include "compiler/import/op_table.h"

using namespace mlir;

namespace zefuse {
namespace {

Scalar polynomial(Scalar x, ArrayRef<double> highest_first) {
  Scalar result = x.constant(highest_first[0]);
  for (double coefficient : highest_first.drop_front())
    result = result * x + coefficient;
  return result;
}

// Clenshaw's recurrence; the coefficients from the highest order to the lowest, which is halved.
Scalar chebyshev(Scalar x, ArrayRef<double> coefficients) {
  Scalar b0 = x.constant(coefficients[0]), b1 = x.constant(0), b2 = x.constant(0);
  for (double coefficient : coefficients.drop_front()) {
    b2 = b1;
    b1 = b0;
    b0 = x * b1 - b2 + coefficient;
  }
  return 0.5 * (b0 - b2);
}

// log(gamma(2 + z)) for |z| <= 0.5: DLMF 5.7.3 at 1 + z, with log(1 + z) taken out of each zeta(k). Its last
// coefficient is 1 - Euler's constant. As in drivers/cuda/codegen/device_gamma.h.
Scalar lgammaOfTwoAnd(Scalar z) {
  return z * polynomial(
                 z, {1.330476437424449e-10,  -2.7595228851242334e-10, 5.731367241678862e-10,  -1.1921401405860912e-09,
                     2.4836745438024785e-09, -5.183475041970047e-09,  1.0838659214896955e-08, -2.2711094608943164e-08,
                     4.7698101693639804e-08, -1.0043224823968099e-07, 2.1207184805554665e-07, -4.492469198764566e-07,
                     9.55141213040742e-07,   -2.039215753801366e-06,  4.374866789907488e-06,  -9.439488275268397e-06,
                     2.050721277567069e-05,  -4.492623673813314e-05,  9.945751278180853e-05,  -0.00022315475845357939,
                     0.0005096695247430425,  -0.001192753911703261,   0.0028905103307415234,  -0.007385551028673986,
                     0.020580808427784546,   -0.0673523010531981,     0.3224670334241132,     0.42278433509846713});
}

// log|gamma|: Stirling's series from 8 on, the recurrence to 2 below, so that nothing cancels at the zeros 1 and 2; the
// reflection for x < 0.
Scalar lgamma(Scalar x) {
  constexpr double half_log_two_pi = 0.91893853320467274178;
  Scalar size = abs(x), large = size >= 8;
  Scalar z = select(size < 0.5, size, select(size < 1.5, size - 1, size - 2));
  // gamma(size) = gamma(2 + z) * factor, or divided by it where size < 1.5.
  Scalar divided = size < 1.5, factor = select(size < 0.5, size * (size + 1), select(divided, size, x.constant(1)));
  for (int step = 0; step < 6; ++step) {
    Scalar above = z > 0.5;
    factor = select(above, factor * (z + 1), factor);
    z = select(above, z - 1, z);
  }
  Scalar logarithm = log(select(large, size, factor)), inverse = 1.0 / size;
  Scalar series = inverse * polynomial(inverse * inverse, {-3617.0 / 122400, 1.0 / 156, -691.0 / 360360, 1.0 / 1188,
                                                           -1.0 / 1680, 1.0 / 1260, -1.0 / 360, 1.0 / 12});
  Scalar value = select(large, (size - 0.5) * (logarithm - 1) + (half_log_two_pi - 0.5) + series,
                        lgammaOfTwoAnd(z) + select(divided, -logarithm, logarithm));
  // Near zero it is -log|x|, to the last bit; the sine of a subnormal number would have lost its digits.
  Scalar negative = x < 0, tiny = size < 1e-18, sine = abs(sin((x - roundEven(x)) * M_PI));
  Scalar reflected = -log(select(tiny, size, size * sine * M_1_PI));
  value = select(negative, select(tiny, reflected, reflected - value), value);
  // A pole, which every large negative number is: where the other terms overflow too.
  Scalar infinite = (size == HUGE_VAL) | (negative & (sine == 0) & ~tiny) | (x == 0);
  return select(infinite, x.constant(HUGE_VAL), value);
}

Scalar digamma(Scalar x) {
  Scalar whole = x == trunc(x), negative = x < 0, rest = x - roundEven(x);
  Scalar z = select(negative, 1.0 - x, x), sum = x.constant(0);
  for (int step = 0; step < 10; ++step) {
    Scalar small = z < 10;
    sum = select(small, sum - 1.0 / z, sum);
    z = select(small, z + 1, z);
  }
  Scalar square = 1.0 / (z * z);
  Scalar series =
      square * polynomial(square, {8.33333333333333333333e-2, -2.10927960927960927961e-2, 7.57575757575757575758e-3,
                                   -4.16666666666666666667e-3, 3.96825396825396825397e-3, -8.33333333333333333333e-3,
                                   8.33333333333333333333e-2});
  Scalar value = sum + log(z) - 0.5 / z - series;
  value = select(negative, value - M_PI / tan(rest * M_PI), value);
  value = select(negative & whole, x.constant(std::nan("")), value);
  return select(x == 0, copysign(x.constant(HUGE_VAL), -x), value);
}

Scalar erfinv(Scalar y) {
  Scalar size = abs(y), square = y * y;
  Scalar central = y * polynomial(square, {-0.140543331, 0.914624893, -1.645349621, 0.886226899}) /
                   polynomial(square, {0.012229801, -0.329097515, 1.442710462, -2.118377725, 1.0});
  Scalar z = sqrt(-log((1.0 - size) / 2.0));
  Scalar tail = copysign(polynomial(z, {1.641345311, 3.429567803, -1.624906493, -1.970840454}), y) /
                polynomial(z, {1.637067800, 3.543889200, 1.0});
  Scalar x = select(size <= 0.7, central, tail);
  for (int step = 0; step < 2; ++step)  // Newton
    x = x - (erf(x) - y) / (M_2_SQRTPI * exp(-(x * x)));
  x = select(size == 1, copysign(y.constant(HUGE_VAL), y), x);
  return select(size > 1, y.constant(std::nan("")), x);
}

constexpr double i0_small[] = {
    -4.41534164647933937950E-18, 3.33079451882223809783E-17, -2.43127984654795469359E-16, 1.71539128555513303061E-15,
    -1.16853328779934516808E-14, 7.67618549860493561688E-14, -4.85644678311192946090E-13, 2.95505266312963983461E-12,
    -1.72682629144155570723E-11, 9.67580903537323691224E-11, -5.18979560163526290666E-10, 2.65982372468238665035E-9,
    -1.30002500998624804212E-8,  6.04699502254191894932E-8,  -2.67079385394061173391E-7,  1.11738753912010371815E-6,
    -4.41673835845875056359E-6,  1.64484480707288970893E-5,  -5.75419501008210370398E-5,  1.88502885095841655729E-4,
    -5.76375574538582365885E-4,  1.63947561694133579842E-3,  -4.32430999505057594430E-3,  1.05464603945949983183E-2,
    -2.37374148058994688156E-2,  4.93052842396707084878E-2,  -9.49010970480476444210E-2,  1.71620901522208775349E-1,
    -3.04682672343198398683E-1,  6.76795274409476084995E-1};
constexpr double i0_large[] = {
    -7.23318048787475395456E-18, -4.83050448594418207126E-18, 4.46562142029675999901E-17,  3.46122286769746109310E-17,
    -2.82762398051658348494E-16, -3.42548561967721913462E-16, 1.77256013305652638360E-15,  3.81168066935262242075E-15,
    -9.55484669882830764870E-15, -4.15056934728722208663E-14, 1.54008621752140982691E-14,  3.85277838274214270114E-13,
    7.18012445138366623367E-13,  -1.79417853150680611778E-12, -1.32158118404477131188E-11, -3.14991652796324136454E-11,
    1.18891471078464383424E-11,  4.94060238822496958910E-10,  3.39623202570838634515E-9,   2.26666899049817806459E-8,
    2.04891858946906374183E-7,   2.89137052083475648297E-6,   6.88975834691682398426E-5,   3.36911647825569408990E-3,
    8.04490411014108831608E-1};
constexpr double i1_small[] = {
    2.77791411276104639959E-18, -2.11142121435816608115E-17, 1.55363195773620046921E-16, -1.10559694773538630805E-15,
    7.60068429473540693410E-15, -5.04218550472791168711E-14, 3.22379336594557470981E-13, -1.98397439776494371520E-12,
    1.17361862988909016308E-11, -6.66348972350202774223E-11, 3.62559028155211703701E-10, -1.88724975172282928790E-9,
    9.38153738649577178388E-9,  -4.44505912879632808065E-8,  2.00329475355213526229E-7,  -8.56872026469545474066E-7,
    3.47025130813767847674E-6,  -1.32731636560394358279E-5,  4.78156510755005422638E-5,  -1.61760815825896745588E-4,
    5.12285956168575772895E-4,  -1.51357245063125314899E-3,  4.15642294431288815669E-3,  -1.05640848946261981558E-2,
    2.47264490306265168283E-2,  -5.29459812080949914269E-2,  1.02643658689847095384E-1,  -1.76416518357834055153E-1,
    2.52587186443633654823E-1};
constexpr double i1_large[] = {
    7.51729631084210481353E-18,  4.41434832307170791151E-18,  -4.65030536848935832153E-17, -3.20952592199342395980E-17,
    2.96262899764595013876E-16,  3.30820231092092828324E-16,  -1.88035477551078244854E-15, -3.81440307243700780478E-15,
    1.04202769841288027642E-14,  4.27244001671195135429E-14,  -2.10154184277266431302E-14, -4.08355111109219731823E-13,
    -7.19855177624590851209E-13, 2.03562854414708950722E-12,  1.41258074366137813316E-11,  3.25260358301548823856E-11,
    -1.89749581235054123450E-11, -5.58974346219658380687E-10, -3.83538038596423702205E-9,  -2.63146884688951950684E-8,
    -2.51223623787020892529E-7,  -3.88256480887769039346E-6,  -1.10588938762623716291E-4,  -9.76109749136146840777E-3,
    7.78576235018280120474E-1};

// exp(-|x|) I(x) of order 0, and of order 1 over [0, infinity).
Scalar scaledBessel(Scalar size, ArrayRef<double> small, ArrayRef<double> large, bool first_order) {
  Scalar near = chebyshev(size / 2.0 - 2.0, small);
  return select(size <= 8, first_order ? near * size : near, chebyshev(32.0 / size - 2.0, large) / sqrt(size));
}
Scalar i0e(Scalar x) { return scaledBessel(abs(x), i0_small, i0_large, false); }
Scalar i0(Scalar x) { return exp(abs(x)) * i0e(x); }
Scalar i1e(Scalar x) {
  Scalar value = scaledBessel(abs(x), i1_small, i1_large, true);
  return select(x < 0, -value, value);
}
Scalar i1(Scalar x) { return exp(abs(x)) * i1e(x); }

// Without overflow on the way; an infinity wins over a NaN.
Scalar hypot(Scalar x, Scalar y) {
  Scalar a = abs(x), b = abs(y), large = maximum(a, b), small = minimum(a, b);
  Scalar ratio = select(large == 0, large, small / large);
  Scalar value = large * sqrt(1.0 + ratio * ratio);
  return select((a == HUGE_VAL) | (b == HUGE_VAL), x.constant(HUGE_VAL), value);
}

// One step in the order of the bits, which are sign and magnitude.
Scalar nextafter(Scalar x, Scalar y) {
  ImplicitLocOpBuilder& b = x.builder();
  Type integer = b.getIntegerType(x.type().getIntOrFloatBitWidth());
  Scalar bits = bitcast(x, integer), one = constantScalar(b, integer, int64_t(1));
  Scalar away = (x < y) ^ (x < 0);  // of zero
  Scalar next = bitcast(select(away, bits + one, bits - one), x.type());
  next = select(x == 0, copysign(bitcast(one, x.type()), y), next);
  next = select(x == y, y, next);
  return select(isNan(x) | isNan(y), x + y, next);
}

// x = mantissa * 2^exponent with 0.5 <= |mantissa| < 1; zero, infinities and NaN are their own mantissas, with exponent
// 0.
struct Parts {
  Scalar mantissa, exponent;  // the exponent as an integer of x's width
};
Parts frexp(Scalar x) {
  ImplicitLocOpBuilder& b = x.builder();
  bool wide = x.type().isF64();
  Type integer = b.getIntegerType(wide ? 64 : 32);
  const int64_t digits = wide ? 52 : 23, field = wide ? 0x7ff : 0xff, half = wide ? 1022 : 126;
  auto number = [&](int64_t value) { return constantScalar(b, integer, value); };
  Scalar tiny = abs(x) < (wide ? 0x1p-1022 : 0x1p-126);  // subnormal: without a leading one
  Scalar bits = bitcast(select(tiny, x * (wide ? 0x1p54 : 0x1p25), x), integer);
  Scalar biased = Scalar(b, arith::ShRUIOp::create(b, bits.value(), number(digits).value())) & number(field);
  Scalar mantissa = bitcast((bits & number(~(field << digits))) | number(half << digits), x.type());
  Scalar exponent = biased - select(tiny, number(half + (wide ? 54 : 25)), number(half));
  Scalar plain = (x == 0) | isNan(x) | (abs(x) == HUGE_VAL);
  return {select(plain, x, mantissa), select(plain, number(0), exponent)};
}

Values emitFrexp(Op& op) {
  Value self = op.tensor("self");
  Type compute = fx::computeType(elementOf(self));
  auto made = [&](unsigned number, auto part) {
    RankedTensorType type = op.resultType(number);
    return op.build.loop({self}, type, [&](Body&, ArrayRef<Scalar> in) {
      return part(frexp(in[0].to(compute))).to(type.getElementType());
    });
  };
  Value mantissa = made(0, [](const Parts& parts) { return parts.mantissa; });
  return {mantissa, made(1, [](const Parts& parts) { return parts.exponent; })};
}

void addFunction(OpTable& table, StringRef name, Scalar (*formula)(Scalar)) {
  table.add(("aten." + name + ".default").str(), [=](Op& op) -> Values {
    TensorOrNumber self = op.operand("self");
    Type common = floatType(promote({self}, op.build.b.getContext()));
    return {elementwise(op, {self}, common, [&](Body&, ArrayRef<Scalar> in) { return formula(in[0]); })};
  });
}

void addFunction(OpTable& table, StringRef name, bool narrow, Scalar (*formula)(Scalar, Scalar)) {
  table.add(("aten." + name + ".default").str(), [=](Op& op) -> Values {
    TensorOrNumber self = op.operand("self"), other = op.operand("other");
    Type common = promote({self, other}, op.build.b.getContext());
    if (!isa<FloatType>(common) || (!narrow && fx::computeType(common) != common))
      op.refuse("operands of " + fx::dtypeName(common) + " are not lowered");
    return {elementwise(op, {self, other}, common, [&](Body&, ArrayRef<Scalar> in) { return formula(in[0], in[1]); })};
  });
}

}  // namespace

void registerSpecial(OpTable& table) {
  addFunction(table, "lgamma", lgamma);
  addFunction(table, "digamma", digamma);
  addFunction(table, "erfinv", erfinv);
  addFunction(table, "i0", i0);
  addFunction(table, "special_i0e", i0e);
  addFunction(table, "special_i1", i1);
  addFunction(table, "special_i1e", i1e);
  addFunction(table, "hypot", true, hypot);
  addFunction(table, "nextafter", false, nextafter);
  table.add("aten.frexp.Tensor", emitFrexp);
  addFunction(table, "signbit", [](Scalar x) { return copysign(x.constant(1), x) < 0; });
}

}  // namespace zefuse
