#include "lowering/analysis/index_space.h"

#include "lowering/dialect/shape.h"

using namespace mlir;

namespace zefuse {

std::optional<int64_t> constantOf(AffineExpr expr) {
  if (auto constant = dyn_cast_or_null<AffineConstantExpr>(expr))
    return constant.getValue();
  return std::nullopt;
}

bool neverNegative(AffineExpr expr) {
  if (auto constant = constantOf(expr))
    return *constant >= 0;
  auto binary = dyn_cast<AffineBinaryOpExpr>(expr);
  if (!binary || expr.getKind() == AffineExprKind::Mod)
    return true;
  return neverNegative(binary.getLHS()) && neverNegative(binary.getRHS());
}

bool hasDivisions(AffineExpr expr) {
  bool found = false;
  expr.walk([&](AffineExpr part) {
    if (part.getKind() == AffineExprKind::FloorDiv || part.getKind() == AffineExprKind::CeilDiv ||
        part.getKind() == AffineExprKind::Mod)
      found |= !part.isSymbolicOrConstant();
  });
  return found;
}

unsigned IndexSpace::addDim(AffineExpr size) {
  if (sizes_.size() == max_dims) {
    too_many_dims_ = true;
    return max_dims - 1;
  }
  sizes_.push_back(size);
  return sizes_.size() - 1;
}

AffineExpr IndexSpace::opaque(Value value, AffineMap at, Dims dims) {
  auto [it, fresh] = opaque_numbers_.try_emplace({value, at}, opaques_.size());
  if (fresh)
    opaques_.push_back({value, at, dims});
  return getAffineSymbolExpr(graph_symbols_ + it->second, context_);
}

bool IndexSpace::isOpaque(AffineExpr expr) const {
  auto symbol = dyn_cast<AffineSymbolExpr>(expr);
  return symbol && symbol.getPosition() >= graph_symbols_;
}

const IndexSpace::Opaque& IndexSpace::opaqueOf(AffineExpr expr) const {
  return opaques_[cast<AffineSymbolExpr>(expr).getPosition() - graph_symbols_];
}

AffineExpr IndexSpace::product(ArrayRef<unsigned> dims) const {
  AffineExpr product = constant(1);
  for (unsigned dim : dims)
    product = product * size(dim);
  return simplify(product);
}

AffineExpr IndexSpace::simplify(AffineExpr expr) const {
  // Most indices are a dim alone, which is all that it can be unless it is the only index of its dimension.
  if (auto dim = dyn_cast<AffineDimExpr>(expr))
    return dim.getPosition() < sizes_.size() && constantOf(sizes_[dim.getPosition()]) == 1 ? constant(0) : expr;
  if (isa<AffineSymbolExpr, AffineConstantExpr>(expr))
    return expr;
  if (AffineExpr known = simplified_.lookup(expr))
    return known;
  AffineExpr simple = simplifiedAnew(expr);
  simplified_[expr] = simple;
  return simple;
}

AffineExpr IndexSpace::simplifiedAnew(AffineExpr expr) const {
  // A sum such as (x floordiv 8) * 8 + x mod 8 is x: MLIR sees it for constants, the linear form for symbols too.
  expr = simplifyInBounds(expr, sizes_, graph_symbols_ + opaques_.size());
  if (!hasDivisions(expr))
    return expr;
  LinearForm form = linear(expr);
  auto binary = [](AffineExpr atom, AffineExprKind kind) {
    auto operation = dyn_cast<AffineBinaryOpExpr>(atom);
    return operation && operation.getKind() == kind ? operation : AffineBinaryOpExpr(nullptr);
  };
  for (auto& remainder : form.terms) {
    auto mod = binary(remainder.atom, AffineExprKind::Mod);
    if (!mod)
      continue;
    for (auto& quotient : form.terms) {
      auto division = binary(quotient.atom, AffineExprKind::FloorDiv);
      if (!division || division.getLHS() != mod.getLHS() || division.getRHS() != mod.getRHS() ||
          quotient.coefficient != remainder.coefficient * mod.getRHS())
        continue;
      AffineExpr rest = form.constant + mod.getLHS() * remainder.coefficient;
      for (auto& other : form.terms)
        if (&other != &remainder && &other != &quotient)
          rest = rest + other.atom * other.coefficient;
      return simplify(rest);
    }
  }
  return expr;
}

AffineMap IndexSpace::indices(ArrayRef<AffineExpr> exprs) const {
  SmallVector<AffineExpr> simplified;
  for (AffineExpr expr : exprs)
    simplified.push_back(simplify(expr));
  return AffineMap::get(max_dims, graph_symbols_ + max_opaques, simplified, context_);
}

AffineMap IndexSpace::substitute(AffineMap at, unsigned dim, AffineExpr with) const {
  SmallVector<AffineExpr> exprs;
  for (AffineExpr expr : at.getResults())
    exprs.push_back(expr.replace(this->dim(dim), with));
  return indices(exprs);
}

AffineMap IndexSpace::apply(AffineMap map, AffineMap at) const {
  SmallVector<AffineExpr> exprs;
  for (AffineExpr expr : map.getResults())
    exprs.push_back(expr.replaceDims(at.getResults()));
  return indices(exprs);
}

static void addTerm(LinearForm& form, AffineExpr atom, AffineExpr coefficient) {
  for (auto& term : form.terms)
    if (term.atom == atom) {
      term.coefficient = term.coefficient + coefficient;
      return;
    }
  form.terms.push_back({atom, coefficient});
}

LinearForm IndexSpace::linear(AffineExpr expr) const {
  auto holdsNoIndex = [&](AffineExpr part) {
    bool none = true;
    part.walk([&](AffineExpr leaf) { none &= !isa<AffineDimExpr>(leaf) && !isOpaque(leaf); });
    return none;
  };
  LinearForm form;
  form.constant = constant(0);
  auto visit = [&](auto&& self, AffineExpr part, AffineExpr factor) -> void {
    if (holdsNoIndex(part)) {
      form.constant = form.constant + part * factor;
      return;
    }
    auto binary = dyn_cast<AffineBinaryOpExpr>(part);
    if (binary && part.getKind() == AffineExprKind::Add) {
      self(self, binary.getLHS(), factor);
      self(self, binary.getRHS(), factor);
    } else if (binary && part.getKind() == AffineExprKind::Mul && holdsNoIndex(binary.getRHS())) {
      self(self, binary.getLHS(), factor * binary.getRHS());
    } else if (binary && part.getKind() == AffineExprKind::Mul && holdsNoIndex(binary.getLHS())) {
      self(self, binary.getRHS(), factor * binary.getLHS());
    } else {
      addTerm(form, part, factor);
    }
  };
  visit(visit, expr, constant(1));
  llvm::erase_if(form.terms, [](const LinearForm::Term& term) { return term.coefficient == 0; });
  return form;
}

AffineExpr IndexSpace::strideAlong(AffineExpr expr, unsigned dim) const {
  AffineExpr stride = constant(0);
  for (const LinearForm::Term& term : linear(expr).terms) {
    if (term.atom == this->dim(dim))
      stride = term.coefficient;
    else if (dimsOf(term.atom).test(dim))
      return AffineExpr();
  }
  return stride;
}

Dims IndexSpace::dimsOf(AffineExpr expr) const {
  Dims dims;
  expr.walk([&](AffineExpr part) {
    if (auto dim = dyn_cast<AffineDimExpr>(part))
      dims.set(dim.getPosition());
    else if (isOpaque(part))
      dims |= opaqueOf(part).dims;
  });
  return dims;
}

Dims IndexSpace::dimsOf(AffineMap at) const {
  Dims dims;
  for (AffineExpr expr : at.getResults())
    dims |= dimsOf(expr);
  return dims;
}

}  // namespace zefuse
