#include "lowering/analysis/product_form.h"

#include "lowering/analysis/domain.h"
#include "lowering/dialect/shape.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/IR/TypeUtilities.h"
#include "llvm/ADT/DenseSet.h"

using namespace mlir;

namespace zefuse {

bool isProduct(Operation* op) { return isa_and_nonnull<MatmulOp, ConvolutionOp, AttentionOp>(op); }

Node ProductForm::operand(const Domain& domain, unsigned number) const {
  const ProductOperand& operand = operands[number];
  return {operand.value, domain.space.indices(domain.axis_sets[operand.axes].indices)};
}

std::optional<SmallVector<unsigned>> rowMajorDims(const IndexSpace& space, AffineExpr index, AffineExpr size) {
  LinearForm form = space.linear(space.simplify(index));
  if (constantOf(form.constant) != 0)
    return std::nullopt;
  SmallVector<unsigned> dims;
  AffineExpr stride = space.constant(1);
  while (dims.size() < form.terms.size()) {
    auto next = llvm::find_if(form.terms, [&](const LinearForm::Term& term) {
      auto dim = dyn_cast<AffineDimExpr>(term.atom);
      return dim && !llvm::is_contained(dims, dim.getPosition()) && sameValue(term.coefficient, stride);
    });
    if (next == form.terms.end())
      return std::nullopt;
    dims.push_back(cast<AffineDimExpr>(next->atom).getPosition());
    stride = space.simplify(stride * space.size(dims.back()));
  }
  if (!sameValue(stride, size))
    return std::nullopt;
  std::reverse(dims.begin(), dims.end());
  return dims;
}

static Value biasOf(Operation* product) {
  if (auto matmul = dyn_cast<MatmulOp>(product))
    return matmul.getBias();
  auto convolution = dyn_cast<ConvolutionOp>(product);
  return convolution ? convolution.getBias() : Value();
}

/// What has an index space of its own.
static OperandRange operandsOf(Operation* product) {
  return isa<AttentionOp>(product) ? product->getOperands() : product->getOperands().take_front(2);
}

void completeProduct(Domain& domain) {
  ProductForm& product = *domain.product;
  IndexSpace& space = domain.space;
  if (product.operands.empty())
    for (Value value : operandsOf(product.op)) {
      AxisSet set;
      for (AffineExpr size : shapeOf(cast<RankedTensorType>(value.getType()))) {
        set.sizes.push_back(size);
        if (constantOf(size) != 1)
          set.dims.push_back(space.addDim(size));
        set.indices.push_back(constantOf(size) == 1 ? space.constant(0) : space.dim(set.dims.back()));
      }
      product.operands.push_back({value, unsigned(domain.axis_sets.size())});
      domain.axis_sets.push_back(std::move(set));
    }
  product.bias.reset();
  Value bias = biasOf(product.op);
  if (!bias || !product.at[0])
    return;
  auto sizes = shapeOf(cast<RankedTensorType>(bias.getType()));
  // A matrix product's is broadcast to the result, a convolution's has an element per channel.
  SmallVector<AffineExpr> indices(isa<MatmulOp>(product.op) ? product.at[0].getResults().take_back(sizes.size())
                                                            : product.at[0].getResults().slice(1, 1));
  for (auto [index, size] : llvm::zip(indices, sizes))
    if (constantOf(size) == 1)
      index = space.constant(0);
  product.bias = Node{bias, space.indices(indices)};
}

Refusal whyNoOperands(Domain& domain, const KernelGraph& graph) {
  ProductForm& product = *domain.product;
  if (llvm::none_of(product.at, [](AffineMap at) { return bool(at); }))
    return {product.op, "a product's result is read by none of the kernel's outputs"};
  SmallVector<Node> roots;
  for (unsigned number = 0; number < product.operands.size(); ++number)
    roots.push_back(product.operand(domain, number));
  Refusal refusal;
  llvm::DenseSet<std::pair<Value, AffineMap>> seen;
  for (Node root : roots)
    walkNodes(domain.space, root, seen, graph, [&](Node node) {
      if (graph.is_input(node.value))
        return false;
      if (llvm::is_contained(graph.outputs, node.value))
        refusal = {node.value.getDefiningOp(), "what a product reads has other readers too: it is made once"};
      return refusal.reason.empty();
    });
  if (!refusal.reason.empty())
    return refusal;
  if (product.bias)
    roots.push_back(*product.bias);
  return whyNotElementwise(domain.space, roots, graph, "a product");
}

Refusal whyNotBound(const Domain& domain) {
  const ProductForm& product = *domain.product;
  const IndexSpace& space = domain.space;
  auto bound = [&](ArrayRef<AffineExpr> indices, ArrayRef<AffineExpr> sizes, ArrayRef<unsigned> dims) {
    Dims used;
    for (auto [index, size] : llvm::zip_equal(indices, sizes)) {
      auto mine = rowMajorDims(space, index, size);
      if (!mine)
        return false;
      for (unsigned dim : *mine) {
        if (used.test(dim))
          return false;
        used.set(dim);
      }
    }
    return llvm::all_of(dims, [&](unsigned dim) { return used.test(dim); });
  };
  const unsigned first = product.at[0] ? 0 : 1;
  auto sizes = shapeOf(cast<RankedTensorType>(product.op->getResult(first).getType()));
  if (!bound(product.at[first].getResults(), sizes, domain.rows))
    return {product.op, "not every element of the product's result is needed once, where it is made"};
  if (first == 0 && product.at.size() > 1 && product.at[1] &&
      product.at[1].getResults() != product.at[0].getResults().drop_back())
    return {product.op, "what the product makes of each row is needed elsewhere than the row"};
  for (const ProductOperand& operand : product.operands) {
    const AxisSet& set = domain.axis_sets[operand.axes];
    if (!bound(set.indices, set.sizes, set.dims))
      return {product.op, "what the product reads is computed in another order"};
  }
  return {};
}

void markInKernel(Operation* op, ProductLimits limits) {
  op->setAttr(in_kernel, DenseI64ArrayAttr::get(op->getContext(), {int64_t(limits.f64), limits.operand_work}));
}

/// How often each element of the operand is loaded and computed for one tile of the result: once, but that an image's
/// is under each tap of the kernel.
static int64_t timesLoaded(Operation* product, unsigned operand) {
  auto convolution = dyn_cast<ConvolutionOp>(product);
  if (!convolution || operand != 0)
    return 1;
  const bool of_weights = convolution.getKind() == "weights";
  const auto sizes = shapeOf(of_weights ? convolution.getType() : convolution.getWeight().getType());
  int64_t taps = 1;
  for (AffineExpr size : ArrayRef(sizes).take_back(convolution.getStride().size()))
    taps *= constantOf(size).value_or(3);
  return taps;
}

static bool computesInF64(Operation* op) {
  auto wide = [](Type type) { return getElementTypeOrSelf(type).isF64(); };
  return op
      ->walk([&](Operation* inner) {
        return llvm::any_of(inner->getOperandTypes(), wide) || llvm::any_of(inner->getResultTypes(), wide)
                   ? WalkResult::interrupt()
                   : WalkResult::advance();
      })
      .wasInterrupted();
}

Value libraryResidual(Operation* op, Operation* product) {
  auto convolution = dyn_cast<ConvolutionOp>(product);
  auto loop = dyn_cast<linalg::GenericOp>(op);
  if (!convolution || !convolution.getBias() || !convolution->hasOneUse() || !loop || !loop->hasOneUse() ||
      loop.getNumDpsInputs() != 2 ||
      !llvm::all_of(loop.getIndexingMapsArray(), [](AffineMap map) { return map.isIdentity(); }))
    return {};
  // The library has code for it before a relu alone.
  auto name = (*loop->user_begin())->getAttrOfType<StringAttr>("zefuse.activation");
  if (!name || name != "relu")
    return {};
  Value residual;
  bool reads = false;
  for (Value input : loop.getInputs()) {
    if (input.getType() != convolution.getType())
      return {};
    if (input == convolution.getResult())
      reads = true;
    else
      residual = input;
  }
  if (!reads || !residual)
    return {};
  auto source = [](Value value) {
    while (Operation* conversion = value.getDefiningOp()) {
      if (!isa<arith::ExtFOp, arith::TruncFOp>(conversion))
        break;
      value = conversion->getOperand(0);
    }
    return value;
  };
  auto sum = source(loop.getBody()->getTerminator()->getOperand(0)).getDefiningOp<arith::AddFOp>();
  if (!sum)
    return {};
  auto lhs = dyn_cast<BlockArgument>(source(sum.getLhs())), rhs = dyn_cast<BlockArgument>(source(sum.getRhs()));
  return lhs && rhs && lhs != rhs ? residual : Value();
}

/// The activation of the library's call that the operation is, of all that `product` computes; empty: none.
static StringRef libraryActivation(Operation* op, Operation* product) {
  auto loop = dyn_cast<linalg::GenericOp>(op);
  auto name = op->getAttrOfType<StringAttr>("zefuse.activation");
  if (!loop || !name || !product->hasOneUse() || loop.getNumDpsInputs() != 1 ||
      getElementTypeOrSelf(loop.getResult(0)) != getElementTypeOrSelf(product->getResult(0)))
    return {};
  // A convolution's library has code for relu behind a bias alone.
  auto convolution = dyn_cast<ConvolutionOp>(product);
  if (convolution ? name != "relu" || !convolution.getBias() : name != "relu" && name != "gelu_tanh")
    return {};
  Value source = loop.getDpsInputOperand(0)->get();
  if (auto view = source.getDefiningOp<ViewOp>(); view && view->hasOneUse() && !convolution)
    source = view.getSource();
  if (Operation* before = source.getDefiningOp(); convolution && before && libraryResidual(before, product))
    return name.getValue();
  return source == product->getResult(0) ? name.getValue() : StringRef();
}

static std::optional<std::string> whyNotInLibrary(Operation* product, ArrayRef<Operation*> ops) {
  for (Operation* op : ops) {
    const bool memory_only = op == product || isa<ViewOp, SizeOp, linalg::FillOp, tensor::EmptyOp>(op) ||
                             op->hasTrait<OpTrait::ConstantLike>();
    if (!memory_only && libraryActivation(op, product).empty() && !libraryResidual(op, product))
      return std::string(
          isa<ConvolutionOp>(product)
              ? "the vendor's library may compute the convolution: its call takes a bias, and behind one relu, with or "
                "without another tensor added before it"
              : "the vendor's library may compute the product: its call takes a bias, relu and gelu by tanh");
  }
  return std::nullopt;
}

std::optional<std::string> whyNotWithProduct(Domain& domain, const KernelGraph& graph, ArrayRef<Operation*> ops) {
  constexpr int division = 4;          // scalar operations
  constexpr int64_t most_traffic = 2;  // times the bytes that the operand itself has
  ProductForm& product = *domain.product;
  auto limits = product.op->getAttrOfType<DenseI64ArrayAttr>(in_kernel);
  if (!limits)
    return std::nullopt;
  if (product.op->hasAttr(in_library))
    if (auto reason = whyNotInLibrary(product.op, ops))
      return reason;
  if (limits[0] == 0 && llvm::any_of(ops, computesInF64))
    return "the product's device has no double precision, in which this computes";
  for (unsigned number = 0; number < product.operands.size(); ++number) {
    Node root = product.operand(domain, number);
    int64_t work = 0, bytes = 0;
    std::optional<std::string> reason;
    llvm::DenseSet<std::pair<Value, AffineMap>> seen;
    size_t dims = domain.axis_sets[product.operands[number].axes].dims.size();
    auto bytesOf = [](Type type) {
      return std::max<int64_t>(1, getElementTypeOrSelf(type).getIntOrFloatBitWidth() / 8);
    };
    walkNodes(domain.space, root, seen, graph, [&](Node node) {
      if (graph.is_input(node.value)) {
        if (domain.space.dimsOf(node.at).count() == dims)
          bytes += bytesOf(node.value.getType());
        return false;
      }
      Operation* op = node.value.getDefiningOp();
      if (!op || isa<RankedTensorType>(node.value.getType())) {
        if (isa_and_nonnull<tensor::ConcatOp, PadOp>(op))
          reason = "a concatenation or padding";
        return true;
      }
      if (isa<tensor::ExtractOp, CheckedIndexOp>(op))
        reason = "a gather";
      else if (isa<math::MathDialect>(op->getDialect()) && !isa<math::AbsFOp, math::AbsIOp, math::SqrtOp>(op))
        reason = op->getName().getStringRef().str();
      else if (isa<arith::DivFOp, arith::DivSIOp, arith::RemSIOp, arith::FloorDivSIOp>(op))
        work += division;
      else if (!op->hasTrait<OpTrait::ConstantLike>())
        ++work;
      return true;
    });
    if (!reason && work * timesLoaded(product.op, number) > limits[1])
      reason = std::to_string(work) + " operations";
    if (!reason && bytes > most_traffic * bytesOf(root.value.getType()))
      reason = "reading " + std::to_string(bytes) + " bytes";
    if (reason)
      return "each tile of the product would compute what it reads again, with " + *reason + " per element";
  }
  return std::nullopt;
}

}  // namespace zefuse
