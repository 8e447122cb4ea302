// The legal set, proved: every op that spirv/legality.cpp allows, at every type class it claims, goes through LLVM's
// SPIR-V back end (which would end this process), spirv-val and the host's code generator, as a scalar and as a vector
// of 16, and gives the right value. A row of the table without a case here fails the test.
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <random>
#include <set>

#include "lowering/analysis/legality.h"
#include "tests/unit/lowering/kernel_text.h"

namespace zefuse::test {
namespace {

constexpr int count = 48;  // three vectors

// %0, %1, %2: inputs of the case's type. T is replaced by the type.
struct Case {
  std::string op;
  std::string text;
  std::string out = "T";
  std::function<double(double, double, double)> reference;
};

double bits(double value, int width) {  // wraps to a signed integer of that width
  int64_t wide = int64_t(value);
  return double(width == 64 ? wide : int64_t(uint64_t(wide) << (64 - width)) >> (64 - width));
}

std::string unary(const std::string& op) { return "%r = " + op + " %0 : T"; }
std::string binary(const std::string& op) { return "%r = " + op + " %0, %1 : T"; }

const std::vector<Case>& floatCases() {
  using D = double;
  static const std::vector<Case> cases = {
      {"arith.constant", "%r = arith.constant 1.5 : T", "T", [](D, D, D) { return 1.5; }},
      {"arith.select", "%c = arith.cmpf olt, %0, %1 : T\n %r = arith.select %c, %0, %1 : T", "T",
       [](D x, D y, D) { return x < y ? x : y; }},
      {"arith.addf", binary("arith.addf"), "T", [](D x, D y, D) { return x + y; }},
      {"arith.subf", binary("arith.subf"), "T", [](D x, D y, D) { return x - y; }},
      {"arith.mulf", binary("arith.mulf"), "T", [](D x, D y, D) { return x * y; }},
      {"arith.divf", binary("arith.divf"), "T", [](D x, D y, D) { return x / y; }},
      {"arith.remf", binary("arith.remf"), "T", [](D x, D y, D) { return std::fmod(x, y); }},
      {"arith.negf", unary("arith.negf"), "T", [](D x, D, D) { return -x; }},
      {"arith.maximumf", binary("arith.maximumf"), "T", [](D x, D y, D) { return std::max(x, y); }},
      {"arith.minimumf", binary("arith.minimumf"), "T", [](D x, D y, D) { return std::min(x, y); }},
      {"arith.maxnumf", binary("arith.maxnumf"), "T", [](D x, D y, D) { return std::fmax(x, y); }},
      {"arith.minnumf", binary("arith.minnumf"), "T", [](D x, D y, D) { return std::fmin(x, y); }},
      {"arith.cmpf", "%r = arith.cmpf oge, %0, %1 : T", "i1", [](D x, D y, D) { return x >= y; }},
      {"arith.cmpf", "%r = arith.cmpf une, %0, %1 : T", "i1", [](D x, D y, D) { return x != y; }},
      {"arith.cmpf", "%r = arith.cmpf ord, %0, %1 : T", "i1", [](D, D, D) { return 1; }},
      {"math.absf", unary("math.absf"), "T", [](D x, D, D) { return std::abs(x); }},
      {"math.acos", unary("math.acos"), "T", [](D x, D, D) { return std::acos(x); }},
      {"math.acosh", "%r = math.acosh %2 : T", "T", [](D, D, D z) { return std::acosh(z); }},
      {"math.asin", unary("math.asin"), "T", [](D x, D, D) { return std::asin(x); }},
      {"math.asinh", unary("math.asinh"), "T", [](D x, D, D) { return std::asinh(x); }},
      {"math.atan", unary("math.atan"), "T", [](D x, D, D) { return std::atan(x); }},
      {"math.atan2", binary("math.atan2"), "T", [](D x, D y, D) { return std::atan2(x, y); }},
      {"math.atanh", unary("math.atanh"), "T", [](D x, D, D) { return std::atanh(x); }},
      {"math.cbrt", unary("math.cbrt"), "T", [](D x, D, D) { return std::cbrt(x); }},
      {"math.ceil", unary("math.ceil"), "T", [](D x, D, D) { return std::ceil(x); }},
      {"math.clampf", "%r = math.clampf %0 to [%1, %2] : T", "T",
       [](D x, D y, D z) { return std::min(std::max(x, y), z); }},
      {"math.copysign", binary("math.copysign"), "T", [](D x, D y, D) { return std::copysign(x, y); }},
      {"math.cos", unary("math.cos"), "T", [](D x, D, D) { return std::cos(x); }},
      {"math.cosh", unary("math.cosh"), "T", [](D x, D, D) { return std::cosh(x); }},
      {"math.erf", unary("math.erf"), "T", [](D x, D, D) { return std::erf(x); }},
      {"math.erfc", unary("math.erfc"), "T", [](D x, D, D) { return std::erfc(x); }},
      {"math.exp", unary("math.exp"), "T", [](D x, D, D) { return std::exp(x); }},
      {"math.exp2", unary("math.exp2"), "T", [](D x, D, D) { return std::exp2(x); }},
      {"math.expm1", unary("math.expm1"), "T", [](D x, D, D) { return std::expm1(x); }},
      {"math.floor", unary("math.floor"), "T", [](D x, D, D) { return std::floor(x); }},
      {"math.fma", "%r = math.fma %0, %1, %2 : T", "T", [](D x, D y, D z) { return std::fma(x, y, z); }},
      {"math.isfinite", "%r = math.isfinite %0 : T", "i1", [](D, D, D) { return 1; }},
      {"math.isinf", "%r = math.isinf %0 : T", "i1", [](D, D, D) { return 0; }},
      {"math.isnan", "%r = math.isnan %0 : T", "i1", [](D, D, D) { return 0; }},
      {"math.log", "%r = math.log %2 : T", "T", [](D, D, D z) { return std::log(z); }},
      {"math.log10", "%r = math.log10 %2 : T", "T", [](D, D, D z) { return std::log10(z); }},
      {"math.log1p", unary("math.log1p"), "T", [](D x, D, D) { return std::log1p(x); }},
      {"math.log2", "%r = math.log2 %2 : T", "T", [](D, D, D z) { return std::log2(z); }},
      {"math.powf", "%r = math.powf %2, %1 : T", "T", [](D, D y, D z) { return std::pow(z, y); }},
      {"math.round", unary("math.round"), "T", [](D x, D, D) { return std::round(x); }},
      {"math.roundeven", unary("math.roundeven"), "T", [](D x, D, D) { return std::nearbyint(x); }},
      {"math.rsqrt", "%r = math.rsqrt %2 : T", "T", [](D, D, D z) { return 1 / std::sqrt(z); }},
      {"math.sin", unary("math.sin"), "T", [](D x, D, D) { return std::sin(x); }},
      {"math.sinh", unary("math.sinh"), "T", [](D x, D, D) { return std::sinh(x); }},
      {"math.sqrt", "%r = math.sqrt %2 : T", "T", [](D, D, D z) { return std::sqrt(z); }},
      {"math.tan", unary("math.tan"), "T", [](D x, D, D) { return std::tan(x); }},
      {"math.tanh", unary("math.tanh"), "T", [](D x, D, D) { return std::tanh(x); }},
      {"math.trunc", unary("math.trunc"), "T", [](D x, D, D) { return std::trunc(x); }},
      {"arith.bitcast", "%b = arith.bitcast %0 : T to U\n %r = arith.bitcast %b : U to T", "T",
       [](D x, D, D) { return x; }},
      {"arith.fptosi", "%r = arith.fptosi %2 : T to i64", "i64", [](D, D, D z) { return double(int64_t(z)); }},
      {"arith.fptosi", "%r = arith.fptosi %2 : T to i32", "i32", [](D, D, D z) { return double(int64_t(z)); }},
      {"arith.fptosi", "%r = arith.fptosi %2 : T to i16", "i16", [](D, D, D z) { return double(int64_t(z)); }},
      {"arith.fptosi", "%r = arith.fptosi %2 : T to i8", "i8", [](D, D, D z) { return double(int64_t(z)); }},
      {"arith.fptoui", "%r = arith.fptoui %2 : T to i32", "i32", [](D, D, D z) { return double(int64_t(z)); }},
      {"arith.truncf", "%h = arith.truncf %2 : T to bf16\n %r = arith.extf %h : bf16 to T", "T", nullptr},
      {"arith.truncf", "%h = arith.truncf %2 : T to f16\n %r = arith.extf %h : f16 to T", "T", nullptr},
      {"arith.extf",
       "%h = arith.truncf %2 : T to bf16\n %c = arith.cmpf olt, %h, %h : bf16\n %s = arith.select %c, %h, %h : bf16\n "
       "%r = arith.extf %s : bf16 to T",
       "T", nullptr},
      {"arith.extf",
       "%h = arith.truncf %2 : T to f16\n %k = arith.constant 1.0 : f16\n %c = arith.cmpf olt, %h, %k : f16\n %s = "
       "arith.select %c, %h, %h : f16\n %r = arith.extf %s : f16 to T",
       "T", nullptr},
  };
  return cases;
}

int64_t floorDivide(int64_t a, int64_t b) { return a / b - (a % b != 0 && (a % b < 0) != (b < 0)); }

// %0, %1: any values (%1 not zero), %2: 0..6.
std::vector<Case> integerCases(int width) {
  using D = double;
  auto mask = [width](D x) {
    return width == 64 ? uint64_t(int64_t(x)) : uint64_t(int64_t(x)) & ((1ull << width) - 1);
  };
  auto I = [](D x) { return int64_t(x); };
  return {
      {"arith.constant", "%r = arith.constant 7 : T", "T", [](D, D, D) { return 7; }},
      {"arith.select", "%c = arith.cmpi slt, %0, %1 : T\n %r = arith.select %c, %0, %1 : T", "T",
       [](D x, D y, D) { return std::min(x, y); }},
      {"arith.addi", binary("arith.addi"), "T", [](D x, D y, D) { return x + y; }},
      {"arith.subi", binary("arith.subi"), "T", [](D x, D y, D) { return x - y; }},
      {"arith.muli", binary("arith.muli"), "T", [](D x, D y, D) { return x * y; }},
      {"arith.divsi", binary("arith.divsi"), "T", [=](D x, D y, D) { return D(I(x) / I(y)); }},
      {"arith.divui", binary("arith.divui"), "T", [=](D x, D y, D) { return D(int64_t(mask(x) / mask(y))); }},
      {"arith.remsi", binary("arith.remsi"), "T", [=](D x, D y, D) { return D(I(x) % I(y)); }},
      {"arith.remui", binary("arith.remui"), "T", [=](D x, D y, D) { return D(int64_t(mask(x) % mask(y))); }},
      {"arith.floordivsi", binary("arith.floordivsi"), "T", [=](D x, D y, D) { return D(floorDivide(I(x), I(y))); }},
      {"arith.ceildivsi", binary("arith.ceildivsi"), "T", [=](D x, D y, D) { return D(-floorDivide(-I(x), I(y))); }},
      {"arith.andi", binary("arith.andi"), "T", [=](D x, D y, D) { return D(I(x) & I(y)); }},
      {"arith.ori", binary("arith.ori"), "T", [=](D x, D y, D) { return D(I(x) | I(y)); }},
      {"arith.xori", binary("arith.xori"), "T", [=](D x, D y, D) { return D(I(x) ^ I(y)); }},
      {"arith.shli", "%r = arith.shli %0, %2 : T", "T", [=](D x, D, D z) { return D(I(x) * (int64_t(1) << I(z))); }},
      {"arith.shrsi", "%r = arith.shrsi %0, %2 : T", "T", [=](D x, D, D z) { return D(I(x) >> I(z)); }},
      {"arith.shrui", "%r = arith.shrui %0, %2 : T", "T", [=](D x, D, D z) { return D(int64_t(mask(x) >> I(z))); }},
      {"arith.maxsi", binary("arith.maxsi"), "T", [](D x, D y, D) { return std::max(x, y); }},
      {"arith.minsi", binary("arith.minsi"), "T", [](D x, D y, D) { return std::min(x, y); }},
      {"arith.maxui", binary("arith.maxui"), "T", [=](D x, D y, D) { return mask(x) > mask(y) ? x : y; }},
      {"arith.minui", binary("arith.minui"), "T", [=](D x, D y, D) { return mask(x) < mask(y) ? x : y; }},
      {"arith.cmpi", "%r = arith.cmpi sge, %0, %1 : T", "i1", [](D x, D y, D) { return x >= y; }},
      {"arith.cmpi", "%r = arith.cmpi ult, %0, %1 : T", "i1", [=](D x, D y, D) { return mask(x) < mask(y); }},
      {"math.absi", unary("math.absi"), "T", [](D x, D, D) { return std::abs(x); }},
      {"math.ctpop", unary("math.ctpop"), "T", [=](D x, D, D) { return D(__builtin_popcountll(mask(x))); }},
      {"math.ctlz", unary("math.ctlz"), "T",
       [=](D x, D, D) { return mask(x) == 0 ? width : D(__builtin_clzll(mask(x)) - (64 - width)); }},
      {"math.ipowi", "%r = math.ipowi %1, %2 : T", "T",
       [=](D, D y, D z) {
         int64_t p = 1;
         for (int i = 0; i < I(z); ++i)
           p *= I(y);
         return bits(D(p), width);
       }},
      {"math.ipowi", "%r = math.ipowi %2, %1 : T", "T",
       [=](D, D y, D z) {
         if (y < 0)
           return z == 1 ? 1.0 : 0.0;
         uint64_t p = 1;
         for (int i = 0; i < I(y); ++i)
           p *= uint64_t(I(z));
         return bits(D(int64_t(p)), width);
       }},
      {"arith.sitofp", "%r = arith.sitofp %0 : T to f32", "f32", [](D x, D, D) { return x; }},
      {"arith.sitofp", "%r = arith.sitofp %0 : T to f64", "f64", [](D x, D, D) { return x; }},
      {"arith.uitofp", "%r = arith.uitofp %2 : T to f32", "f32", [](D, D, D z) { return z; }},
      {"arith.uitofp", "%r = arith.uitofp %2 : T to f64", "f64", [](D, D, D z) { return z; }},
      {"arith.index_cast", "%i = arith.index_cast %0 : T to index\n %r = arith.index_cast %i : index to T", "T",
       [](D x, D, D) { return x; }},
      {"arith.index_castui", "%i = arith.index_castui %0 : T to index\n %r = arith.index_castui %i : index to T", "T",
       [](D x, D, D) { return x; }},
  };
}

// Of i32 alone. Bytes that stay below 128 have a form of their own on some CPUs.
std::vector<Case> dotCases() {
  auto dot = [](uint32_t a, uint32_t b, double sum) {
    for (int byte = 0; byte < 4; ++byte)
      sum += int(a >> (8 * byte) & 255) * int(int8_t(b >> (8 * byte)));
    return sum;
  };
  auto I = [](double x) { return uint32_t(int64_t(x)); };
  return {
      {"zefuse.dot4", "%r = zefuse.dot4 %0, %1, %2 : T", "T",
       [=](double x, double y, double z) { return dot(I(x), I(y), z); }},
      {"zefuse.dot4",
       "%m = arith.constant 2139062143 : T\n %a = arith.andi %0, %m : T\n %r = zefuse.dot4 %a, %1, %2 : T", "T",
       [=](double x, double y, double z) { return dot(I(x) & 0x7f7f7f7f, I(y), z); }},
  };
}

// Between integer widths, and to and from i1.
std::vector<Case> castCases(int width) {
  using D = double;
  std::vector<Case> cases;
  for (int other : {8, 16, 32, 64}) {
    std::string to = "i" + std::to_string(other);
    if (other > width) {
      cases.push_back({"arith.extsi", "%r = arith.extsi %0 : T to " + to, to, [](D x, D, D) { return x; }});
      cases.push_back({"arith.extui", "%r = arith.extui %0 : T to " + to, to,
                       [=](D x, D, D) { return x < 0 ? x + std::ldexp(1.0, width) : x; }});
    }
    if (other < width)
      cases.push_back(
          {"arith.trunci", "%r = arith.trunci %0 : T to " + to, to, [=](D x, D, D) { return bits(x, other); }});
  }
  cases.push_back(
      {"arith.trunci", "%r = arith.trunci %0 : T to i1", "i1", [](D x, D, D) { return D(int64_t(x) & 1); }});
  return cases;
}

std::vector<Case> boolCases() {
  using D = double;
  return {
      {"arith.constant", "%r = arith.constant true", "T", [](D, D, D) { return 1; }},
      {"arith.select", "%r = arith.select %0, %1, %2 : T", "T", [](D x, D y, D z) { return x ? y : z; }},
      {"arith.andi", binary("arith.andi"), "T", [](D x, D y, D) { return x * y; }},
      {"arith.ori", binary("arith.ori"), "T", [](D x, D y, D) { return std::max(x, y); }},
      {"arith.xori", binary("arith.xori"), "T", [](D x, D y, D) { return x != y; }},
      {"arith.addi", binary("arith.addi"), "T", [](D x, D y, D) { return x != y; }},
      {"arith.subi", binary("arith.subi"), "T", [](D x, D y, D) { return x != y; }},
      {"arith.muli", binary("arith.muli"), "T", [](D x, D y, D) { return x * y; }},
      {"arith.maxsi", binary("arith.maxsi"), "T", [](D x, D y, D) { return x * y; }},
      {"arith.minsi", binary("arith.minsi"), "T", [](D x, D y, D) { return std::max(x, y); }},
      {"arith.maxui", binary("arith.maxui"), "T", [](D x, D y, D) { return std::max(x, y); }},
      {"arith.minui", binary("arith.minui"), "T", [](D x, D y, D) { return x * y; }},
      {"arith.cmpi", "%r = arith.cmpi eq, %0, %1 : T", "T", [](D x, D y, D) { return x == y; }},
      {"arith.cmpi", "%r = arith.cmpi ult, %0, %1 : T", "T", [](D x, D y, D) { return x < y; }},
      {"arith.cmpi", "%r = arith.cmpi slt, %0, %1 : T", "T", [](D x, D y, D) { return x > y; }},
      {"arith.extui", "%r = arith.extui %0 : T to i64", "i64", [](D x, D, D) { return x; }},
      {"arith.extui", "%r = arith.extui %0 : T to i8", "i8", [](D x, D, D) { return x; }},
      {"arith.extsi", "%r = arith.extsi %0 : T to i32", "i32", [](D x, D, D) { return -x; }},
      {"arith.uitofp", "%r = arith.uitofp %0 : T to f32", "f32", [](D x, D, D) { return x; }},
      {"arith.index_cast", "%i = arith.index_castui %0 : T to index\n %r = arith.index_castui %i : index to T", "T",
       [](D x, D, D) { return x; }},
      {"arith.index_castui", "%i = arith.index_castui %0 : T to index\n %r = arith.index_castui %i : index to T", "T",
       [](D x, D, D) { return x; }},
  };
}

std::vector<Case> indexCases() {
  using D = double;
  auto over = [](const std::string& op, const std::string& right) {
    return "%i = linalg.index 0 : index\n %j = arith.constant " + right + " : index\n %q = " + op +
           " %i, %j : index\n %r = arith.index_cast %q : index to i64";
  };
  // %2 is the element's number.
  std::vector<Case> cases;
  auto add = [&](const std::string& op, const std::string& right, auto reference) {
    cases.push_back({op, over(op, right), "i64", reference});
  };
  add("arith.addi", "5", [](D, D, D z) { return z + 5; });
  add("arith.subi", "5", [](D, D, D z) { return z - 5; });
  add("arith.muli", "5", [](D, D, D z) { return z * 5; });
  add("arith.divsi", "5", [](D, D, D z) { return std::floor(z / 5); });
  add("arith.divui", "5", [](D, D, D z) { return std::floor(z / 5); });
  add("arith.remsi", "5", [](D, D, D z) { return std::fmod(z, 5); });
  add("arith.remui", "5", [](D, D, D z) { return std::fmod(z, 5); });
  add("arith.floordivsi", "5", [](D, D, D z) { return std::floor(z / 5); });
  add("arith.ceildivsi", "5", [](D, D, D z) { return std::ceil(z / 5); });
  add("arith.andi", "5", [](D, D, D z) { return D(int(z) & 5); });
  add("arith.ori", "5", [](D, D, D z) { return D(int(z) | 5); });
  add("arith.xori", "5", [](D, D, D z) { return D(int(z) ^ 5); });
  add("arith.shli", "3", [](D, D, D z) { return z * 8; });
  add("arith.shrsi", "3", [](D, D, D z) { return std::floor(z / 8); });
  add("arith.shrui", "3", [](D, D, D z) { return std::floor(z / 8); });
  add("arith.maxsi", "5", [](D, D, D z) { return std::max(z, 5.0); });
  add("arith.minsi", "5", [](D, D, D z) { return std::min(z, 5.0); });
  add("arith.maxui", "5", [](D, D, D z) { return std::max(z, 5.0); });
  add("arith.minui", "5", [](D, D, D z) { return std::min(z, 5.0); });
  cases.push_back({"arith.cmpi",
                   "%i = linalg.index 0 : index\n %j = arith.constant 5 : index\n %r = arith.cmpi slt, %i, %j : index",
                   "i1", [](D, D, D z) { return z < 5; }});
  cases.push_back({"arith.select",
                   "%i = linalg.index 0 : index\n %j = arith.constant 5 : index\n %c = arith.cmpi slt, %i, %j : index\n"
                   " %s = arith.select %c, %i, %j : index\n %r = arith.index_cast %s : index to i64",
                   "i64", [](D, D, D z) { return std::min(z, 5.0); }});
  cases.push_back({"arith.index_castui", "%i = linalg.index 0 : index\n %r = arith.index_castui %i : index to i32",
                   "i32", [](D, D, D z) { return z; }});
  cases.push_back({"arith.index_cast", "%i = linalg.index 0 : index\n %r = arith.index_cast %i : index to i8", "i8",
                   [](D, D, D z) { return z; }});
  cases.push_back({"arith.constant", "%i = arith.constant 5 : index\n %r = arith.index_cast %i : index to i64", "i64",
                   [](D, D, D) { return 5; }});
  return cases;
}

size_t bytesOf(const std::string& type) {
  if (type == "i1" || type == "i8")
    return 1;
  return type == "i16" || type == "f16" || type == "bf16" ? 2 : type == "i32" || type == "f32" ? 4 : 8;
}

double load(const std::byte* at, const std::string& type) {
  auto as = [&](auto value) {
    std::memcpy(&value, at, sizeof value);
    return double(value);
  };
  return type == "f32"   ? as(float())
         : type == "f64" ? as(double())
         : type == "i64" ? as(int64_t())
         : type == "i32" ? as(int32_t())
         : type == "i16" ? as(int16_t())
                         : as(int8_t());
}
void save(std::byte* at, const std::string& type, double number) {
  auto as = [&](auto value) { std::memcpy(at, &value, sizeof value); };
  type == "f32"   ? as(float(number))
  : type == "f64" ? as(double(number))
  : type == "i64" ? as(int64_t(number))
  : type == "i32" ? as(int32_t(number))
  : type == "i16" ? as(int16_t(number))
                  : as(int8_t(number));
}

std::string replaced(std::string text, const std::string& type) {
  std::string result;
  for (size_t i = 0; i < text.size(); ++i) {
    bool alone = (i == 0 || text[i - 1] == ' ') && (i + 1 == text.size() || text[i + 1] == '\n' || text[i + 1] == ' ');
    if (alone && text[i] == 'T')
      result += type;
    else if (alone && text[i] == 'U')
      result += type == "f32" ? "i32" : "i64";
    else
      result += text[i];
  }
  return result;
}

// One kernel with an output per case.
void runCases(const std::string& type, const std::vector<Case>& cases, const std::vector<std::vector<double>>& inputs,
              int lanes) {
  KernelText text;
  std::string n = std::to_string(count);
  auto tensor = [&](const std::string& element) { return "tensor<" + n + "x" + element + ">"; };
  const char* same = "(d0) -> (d0)";
  std::vector<std::vector<std::byte>> buffers;
  for (int i = 0; i < 3; ++i) {
    text.input({"%in" + std::to_string(i), tensor(type), same});
    buffers.emplace_back(count * bytesOf(type));
    for (int j = 0; j < count; ++j)
      save(&buffers.back()[j * bytesOf(type)], type, inputs[i][j]);
  }
  for (size_t i = 0; i < cases.size(); ++i) {
    std::string out = replaced(cases[i].out, type), name = "%out" + std::to_string(i);
    text.empty(name + "_e", tensor(out));
    text.generic(name, "p", {{"%in0", tensor(type), same}, {"%in1", tensor(type), same}, {"%in2", tensor(type), same}},
                 {name + "_e", tensor(out), same}, replaced(cases[i].text, type) + "\n yield %r : " + out);
    text.output({name, tensor(out), same});
    buffers.emplace_back(count * bytesOf(out));
  }
  TargetDescription target = TargetDescription::cpu();
  target.vector_width = lanes;
  Program program(text.module(), target);
  ASSERT_TRUE(program.ok()) << type << " with " << lanes << " lanes";
  std::vector<void*> pointers;
  for (auto& buffer : buffers)
    pointers.push_back(buffer.data());
  program.run(pointers);
  for (size_t i = 0; i < cases.size(); ++i) {
    std::string out = replaced(cases[i].out, type);
    double tolerance = cases[i].reference ? (out == "f64" && type == "f64" ? 1e-11 : out[0] == 'f' ? 4e-6 : 0) : 4e-3;
    int width = out[0] == 'i' ? int(bytesOf(out) * 8) : 0;
    for (int j = 0; j < count; ++j) {
      auto argument = [&](int k) { return load(&buffers[k][j * bytesOf(type)], type); };
      double expected = cases[i].reference ? cases[i].reference(argument(0), argument(1), argument(2)) : argument(2);
      if (width && width < 64 && out != "i1")  // a double rounds large i64, which then must not wrap
        expected = bits(expected, width);
      double got = load(&buffers[3 + i][j * bytesOf(out)], out);
      ASSERT_NEAR(got, expected, tolerance * (1 + std::abs(expected)))
          << cases[i].op << " on " << type << " with " << lanes << " lanes: " << cases[i].text << " of " << argument(0)
          << ", " << argument(1) << ", " << argument(2);
    }
  }
}

std::vector<double> uniform(double low, double high, bool whole, unsigned seed, bool zero = true) {
  std::mt19937 generator(seed);
  std::uniform_real_distribution<double> random(low, high);
  std::vector<double> values;
  while (values.size() < count) {
    double value = whole ? std::floor(random(generator)) : random(generator);
    if (zero || value != 0)
      values.push_back(value);
  }
  return values;
}

class Legality : public testing::TestWithParam<int> {};

TEST_P(Legality, Floats) {
  for (const char* type : {"f32", "f64"})
    runCases(type, floatCases(),
             {uniform(-0.95, 0.95, false, 1), uniform(-0.95, 0.95, false, 2), uniform(1, 60, false, 3)}, GetParam());
}

TEST_P(Legality, Integers) {
  for (int width : {8, 16, 32, 64}) {
    std::string type = "i" + std::to_string(width);
    std::vector<std::vector<double>> inputs = {uniform(-100, 100, true, 4), uniform(-9, 10, true, 5, false),
                                               uniform(0, 7, true, 6)};
    runCases(type, integerCases(width), inputs, GetParam());
    runCases(type, castCases(width), inputs, GetParam());
  }
}

TEST_P(Legality, DotProducts) {
  std::vector<std::vector<double>> inputs;
  for (unsigned seed : {10, 11, 12})
    inputs.push_back(uniform(-0x1p31, 0x1p31, true, seed));
  for (int i = 0; i < 16; ++i)  // each byte the largest and the smallest
    for (int j = 0; j < 2; ++j)
      inputs[j][i] = bits(double(0x7f80ff7full >> (8 * ((i >> (2 * j)) % 4)) & 255) * 0x01010101, 32);
  runCases("i32", dotCases(), inputs, GetParam());
}

TEST_P(Legality, Bools) {
  runCases("i1", boolCases(), {uniform(0, 2, true, 7), uniform(0, 2, true, 8), uniform(0, 2, true, 9)}, GetParam());
}

TEST_P(Legality, Indices) {
  std::vector<double> numbers(count);
  for (int i = 0; i < count; ++i)
    numbers[i] = i;
  runCases("f32", indexCases(), {numbers, numbers, numbers}, GetParam());
}

INSTANTIATE_TEST_SUITE_P(Lanes, Legality, testing::Values(16, 1));
INSTANTIATE_TEST_SUITE_P(FewLanes, Legality, testing::Values(8, 4, 2));

TEST(LegalityTable, EveryRowHasACase) {
  std::map<char, std::set<std::string>> covered;
  for (const Case& c : floatCases()) {
    covered['f'].insert(c.op);
    if (c.text.find("bf16") != std::string::npos)  // its low-precision ops, by what the text holds
      for (const char* op : {"arith.extf", "arith.truncf", "arith.select", "arith.constant", "arith.cmpf"})
        covered['h'].insert(op);
    if (c.out == "i1")
      covered['b'].insert(c.op);
    if (c.out[0] == 'i')
      covered['i'].insert(c.op);
  }
  covered['i'].insert("arith.bitcast");
  for (auto& list : {integerCases(32), castCases(32), castCases(8), dotCases()})
    for (const Case& c : list) {
      covered['i'].insert(c.op);
      if (c.out[0] == 'f')
        covered['f'].insert(c.op);
      if (c.text.find("index") != std::string::npos)
        covered['x'].insert(c.op);
      if (c.out == "i1")
        covered['b'].insert(c.op);
    }
  for (const Case& c : boolCases())
    covered['b'].insert(c.op);
  for (const Case& c : indexCases())
    covered['x'].insert(c.op);
  for (const LegalOp& row : legalOps())
    for (const char* kind = row.types; *kind; ++kind)
      EXPECT_TRUE(covered[*kind].contains(row.name)) << row.name << " claims '" << *kind << "' and no case proves it";
}

TEST(LegalityTable, RefusalsNameOpTypeAndPlace) {
  auto refusal = [](const std::string& type, const std::string& body) {
    KernelText text;
    std::string tensor = "tensor<8x" + type + ">";
    text.input({"%x", tensor, "(d0) -> (d0)"});
    text.empty("%e", tensor);
    text.generic("%r", "p", {{"%x", tensor, "(d0) -> (d0)"}}, {"%e", tensor, "(d0) -> (d0)"},
                 body + "\n yield %r : " + type);
    text.output({"%r", tensor, "(d0) -> (d0)"});
    return refusalOf(text.module());
  };
  EXPECT_NE(refusal("bf16", "%r = arith.addf %0, %0 : bf16").find("arith.addf on bf16 has no SPIR-V lowering"),
            std::string::npos);
  EXPECT_NE(refusal("f32", "%r = math.sincos %0 : f32").size(), 0u);
  EXPECT_NE(refusal("i32", "%r, %o2 = arith.addui_extended %0, %0 : i32, i1")
                .find("arith.addui_extended has no SPIR-V lowering"),
            std::string::npos);
  EXPECT_NE(refusal("i4", "%r = arith.addi %0, %0 : i4").find("i4"), std::string::npos);
  EXPECT_NE(refusal("f80", "%r = arith.addf %0, %0 : f80").find("f80"), std::string::npos);
}

}  // namespace
}  // namespace zefuse::test
