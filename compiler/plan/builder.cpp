#include "compiler/plan/builder.h"

#include <map>
#include <optional>

#include "common/plan/plan_generated.h"
#include "common/toolchain/target_description.h"
#include "compiler/fuse/graph.h"
#include "compiler/plan/aten_arguments.h"
#include "compiler/plan/exprs.h"
#include "compiler/plan/layouts.h"
#include "compiler/plan/library_calls.h"
#include "compiler/plan/values.h"
#include "lowering/analysis/library_products.h"
#include "lowering/dialect/Zefuse.h"
#include "lowering/dialect/shape.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/SHA256.h"

using namespace mlir;

namespace zefuse {
namespace {

std::string contentId(const LoweredKernel& kernel, StringRef target) {
  llvm::SHA256 hash;
  hash.update(target);
  hash.update(
      ArrayRef<uint8_t>(reinterpret_cast<const uint8_t*>(kernel.spirv.data()), kernel.spirv.size() * sizeof(uint32_t)));
  auto digest = hash.final();
  return llvm::toHex(ArrayRef<uint8_t>(digest.data(), 16), /*LowerCase=*/true);
}

plan::ErrorClass errorClass(StringRef name) {
  if (name == "index_error")
    return plan::ErrorClass::index_error;
  return name == "value_error" ? plan::ErrorClass::value_error : plan::ErrorClass::runtime_error;
}

class Builder {
public:
  Builder(func::FuncOp graph, const LoweredGraph& lowered, const PlanOptions& options)
      : graph_(graph), context_(graph.getContext()),
        num_symbols_(graph->getAttrOfType<ArrayAttr>("zefuse.symbols").size()), exprs_(num_symbols_), lowered_(lowered),
        options_(options), values_(plan_, exprs_, context_), calls_(values_, num_symbols_) {}

  LogicalResult build() {
    addSymbols();
    if (failed(addInputs()))
      return failure();
    markOutputs();
    for (Operation& op : graph_.getBody().front().without_terminator())
      if (failed(addStep(&op)))
        return failure();
    copyWritten();
    addOutputs();
    addSizeChecks();
    return success();
  }

  BuiltPlan finish() {
    plan_.device = options_.device;
    plan_.report = options_.report;
    plan_.kept_weights = options_.kept_weights;
    plan_.exprs.assign(exprs_.nodes().begin(), exprs_.nodes().end());
    flatbuffers::FlatBufferBuilder buffer(1 << 16);
    buffer.Finish(plan::Plan::Pack(buffer, &plan_), plan::PlanIdentifier());
    BuiltPlan built;
    auto* data = reinterpret_cast<const std::byte*>(buffer.GetBufferPointer());
    built.bytes.assign(data, data + buffer.GetSize());
    return built;
  }

private:
  //===-- the graph's interface --------------------------------------------------------------===//

  void addSymbols() {
    auto names = graph_->getAttrOfType<ArrayAttr>("zefuse.symbols");
    auto sources = graph_->getAttrOfType<ArrayAttr>("zefuse.symbol_sources");
    for (auto [number, name, source] : llvm::enumerate(names, sources)) {
      auto from = dyn_cast<DictionaryAttr>(source);
      if (!from) {
        exprs_.setSymbol(number, source);
        continue;
      }
      exprs_.setSymbol(number, static_cast<uint32_t>(plan_.symbols.size()));
      auto symbol = std::make_unique<plan::SymbolT>();
      symbol->name = cast<StringAttr>(name).str();
      symbol->input = from.getAs<IntegerAttr>("input").getInt();
      if (auto dim = from.getAs<IntegerAttr>("dim"))
        symbol->dim = dim.getInt();
      plan_.symbols.push_back(std::move(symbol));
    }
  }

  LogicalResult addInputs() {
    for (auto [number, attr] : llvm::enumerate(graph_->getAttrOfType<ArrayAttr>("zefuse.inputs"))) {
      auto input = std::make_unique<plan::InputT>();
      auto entry = dyn_cast<DictionaryAttr>(attr);
      if (!entry) {
        input->kind = plan::InputKind::unused;
      } else if (auto arg = entry.getAs<IntegerAttr>("arg")) {
        BlockArgument value = graph_.getArgument(arg.getInt());
        auto type = cast<RankedTensorType>(value.getType());
        auto dtype = dtypeOf(type.getElementType());
        if (!dtype)
          return graph_.emitError("input ")
                 << number << " has element type " << type.getElementType() << ", which no plan can hold";
        if (auto name = graph_.getArgAttrOfType<StringAttr>(arg.getInt(), "zefuse.name"))
          input->name = name.str();
        auto kind = graph_.getArgAttrOfType<StringAttr>(arg.getInt(), "zefuse.kind");
        input->kind = kind && kind.getValue() != "user" ? plan::InputKind::parameter : plan::InputKind::user;
        input->dtype = *dtype;
        input->sizes = exprs_.addAll(shapeOf(type));
        SmallVector<AffineExpr> strides = contiguousStrides(shapeOf(type), context_);
        if (auto map = graph_.getArgAttrOfType<AffineMapAttr>(arg.getInt(), "zefuse.strides"))
          strides.assign(map.getValue().getResults().begin(), map.getValue().getResults().end());
        input->strides = exprs_.addAll(strides);
        values_.put(value, {values_.addBuffer(plan::Storage::input, number, AffineExpr()),
                            layoutOfArgument(graph_, arg.getInt())});
      } else {
        input->kind = entry.contains("real") ? plan::InputKind::real : plan::InputKind::integer;
      }
      plan_.inputs.push_back(std::move(input));
    }
    return success();
  }

  void markOutputs() {
    llvm::SmallDenseSet<int64_t> returned;
    for (Attribute attr : graph_->getAttrOfType<ArrayAttr>("zefuse.outputs"))
      if (auto entry = dyn_cast<DictionaryAttr>(attr); entry && entry.get("result") && !entry.get("written"))
        returned.insert(entry.getAs<IntegerAttr>("result").getInt());
    for (auto [number, value] : llvm::enumerate(graph_.getBody().front().getTerminator()->getOperands()))
      if (Value source = throughViews(value); returned.contains(number))
        if (auto step = source.getDefiningOp<StepOpInterface>();
            step && !step.getFixedResultStrides(cast<OpResult>(source).getResultNumber()))
          outputs_.insert(source);
  }

  /// What inputs are overwritten with and no step has put there (a kernel's `writes`): when nobody reads the old
  /// values.
  void copyWritten() {
    auto results = graph_.getBody().front().getTerminator()->getOperands();
    for (Attribute attr : graph_->getAttrOfType<ArrayAttr>("zefuse.outputs")) {
      auto entry = dyn_cast<DictionaryAttr>(attr);
      auto written = entry ? entry.getAs<IntegerAttr>("written") : nullptr;
      if (!written)
        continue;
      Value argument = graph_.getArgument(written.getInt());
      Value value = results[entry.getAs<IntegerAttr>("result").getInt()];
      uint32_t buffer = values_.bufferOf(argument);
      plan_.inputs[plan_.buffers[buffer]->index]->written = true;
      if (values_.bufferOf(value) == buffer)
        continue;
      plan::CopyT copy;
      copy.source = values_.addValue(value);
      copy.destination = values_.addValue(argument);
      values_.use(value, plan_.steps.size());
      auto step = std::make_unique<plan::StepT>();
      step->kind.Set(copy);
      plan_.steps.push_back(std::move(step));
    }
  }

  void addOutputs() {
    auto results = graph_.getBody().front().getTerminator()->getOperands();
    for (Attribute attr : graph_->getAttrOfType<ArrayAttr>("zefuse.outputs")) {
      auto output = std::make_unique<plan::OutputT>();
      auto entry = dyn_cast<DictionaryAttr>(attr);
      if (entry && entry.get("written"))
        continue;  // the caller has it already
      if (!entry) {
        output->kind = plan::OutputKind::none;
      } else if (auto size = entry.getAs<AffineMapAttr>("size")) {
        output->kind = plan::OutputKind::integer;
        output->value = exprs_.add(size.getValue().getResult(0));
      } else {
        Value value = results[entry.getAs<IntegerAttr>("result").getInt()];
        AffineMap strides = entry.getAs<AffineMapAttr>("strides").getValue();
        output->kind = plan::OutputKind::tensor;
        if (auto argument = entry.getAs<IntegerAttr>("argument")) {
          // torch's own offset and strides: those of a composed view may be equal and yet not look so.
          value = graph_.getArgument(argument.getInt());
          AffineMap offset = entry.getAs<AffineMapAttr>("offset").getValue();
          auto type = cast<RankedTensorType>(results[entry.getAs<IntegerAttr>("result").getInt()].getType());
          output->value =
              values_.addValue(values_.bufferOf(value), type, shapeOf(type), strides.getResults(), offset.getResult(0));
        } else {
          output->value = values_.addValue(value, strides);
        }
        values_.use(value, std::max<size_t>(plan_.steps.size(), 1) - 1);
      }
      plan_.outputs.push_back(std::move(output));
    }
  }

  void addSizeChecks() {
    auto checks = graph_->getAttrOfType<ArrayAttr>("zefuse.size_checks");
    if (!checks)
      return;
    for (auto entry : checks.getAsRange<DictionaryAttr>()) {
      auto check = std::make_unique<plan::SizeCheckT>();
      check->value = exprs_.add(entry.getAs<AffineMapAttr>("least").getValue().getResult(0));
      check->error = errorClass(entry.getAs<StringAttr>("error"));
      check->message = entry.getAs<StringAttr>("message").str();
      check->numbers = exprs_.addAll(entry.getAs<AffineMapAttr>("numbers").getValue().getResults());
      check->source = entry.getAs<StringAttr>("source").str();
      plan_.size_checks.push_back(std::move(check));
    }
  }

  void allocate(Value value, AffineMap layout) { values_.allocate(value, layout, outputs_.contains(value)); }

  //===-- steps --------------------------------------------------------------------------------===//

  LogicalResult addStep(Operation* op) {
    if (auto kernel = dyn_cast<KernelOp>(op))
      return addLaunch(kernel);
    if (auto matmul = dyn_cast<MatmulOp>(op))
      return addMatmul(matmul);
    if (auto convolution = dyn_cast<ConvolutionOp>(op))
      return addConvolution(convolution);
    if (auto attention = dyn_cast<AttentionOp>(op))
      return addAttention(attention);
    if (auto gradient = dyn_cast<AttentionGradientOp>(op))
      return addAttentionGradient(gradient);
    if (auto grouped = dyn_cast<GroupedMatmulOp>(op))
      return addGroupedMatmul(grouped);
    if (isa<GroupIndexOp>(op)) {
      allocate(op->getResult(0), resultLayouts(op)[0]);
      return success();
    }
    if (auto recurrence = dyn_cast<RecurrenceOp>(op))
      return addRecurrence(recurrence);
    if (auto aten = dyn_cast<AtenOp>(op))
      return addAten(aten);
    if (isa<ViewOp, SizeOp>(op))
      return success();
    return op->emitError("does not belong into a fused graph");
  }

  template <typename T> void push(std::unique_ptr<T> kind, Operation* op) {
    size_t step = plan_.steps.size();
    kind->note = noteOf(op);
    for (Value operand : op->getOperands())
      if (isa<RankedTensorType>(operand.getType()))
        values_.use(operand, step);
    auto entry = std::make_unique<plan::StepT>();
    entry->kind.Set(std::move(*kind));
    plan_.steps.push_back(std::move(entry));
  }

  LogicalResult addLaunch(KernelOp kernel) {
    const LoweredLaunch& launch = *lowered_.find(kernel);
    if (failed(noteHost(kernel, launch)))
      return failure();
    if (!launch.kernel)
      return kernel.emitError() << launch.refusal;
    // Its layouts hold where a tensor begins; a pointer into the middle of a buffer would also be less aligned than the
    // schedule was told (TargetDescription::buffer_alignment).
    for (Value operand : kernel.getOperands())
      if (isa<RankedTensorType>(operand.getType()) && operand.getDefiningOp<ViewOp>())
        return kernel.emitError("internal error: a kernel takes a view, not the tensor behind it");
    auto writes = kernel.getWrites();
    for (auto [i, result] : llvm::enumerate(kernel.getResults()))
      if (writes && (*writes)[i] >= 0)
        values_.put(result, values_.placeOf(graph_.getArgument((*writes)[i])));
      else
        allocate(result, cast<AffineMapAttr>(kernel.getLayouts()[kernel.getInputs().size() + i]).getValue());
    if (isOfAGroup(kernel))
      return success();  // addGroupedMatmul has it
    pushLaunch(kernel, launch, launch.why_on_host.empty() ? calls_.vendorCall(kernel) : std::nullopt);
    return success();
  }

  /// The operation's operands and results are the kernel's arguments, in order; results are placed already.
  void pushLaunch(Operation* op, const LoweredLaunch& from, std::optional<VendorCall> vendor = std::nullopt) {
    push(launchOf(op, from, std::move(vendor)), op);
    schedule_.clear();
  }

  /// Its schedule is noted for the step that is pushed next.
  std::unique_ptr<plan::LaunchT> launchOf(Operation* op, const LoweredLaunch& from,
                                          std::optional<VendorCall> vendor = std::nullopt) {
    const LoweredKernel& lowered = *from.kernel;
    auto launch = std::make_unique<plan::LaunchT>();
    launch->module_ = moduleOf(from);
    launch->name = from.name;
    for (Value operand : op->getOperands())
      launch->args.push_back(values_.addValue(operand));
    for (Value result : op->getResults())
      launch->args.push_back(values_.addValue(result));
    launch->outputs = op->getNumResults();
    for (unsigned symbol : lowered.symbols)
      launch->symbols.push_back(exprs_.add(getAffineSymbolExpr(symbol, context_)));
    launch->distribution = lowered.chunked ? plan::Distribution::chunked : plan::Distribution::exact;
    launch->extent = exprs_.add(lowered.extent);
    launch->grain = lowered.grain;
    launch->group_size.assign(lowered.group_size.begin(), lowered.group_size.end());
    launch->scratch_bytes = lowered.scratch_bytes ? exprs_.add(lowered.scratch_bytes) : exprs_.constant(0, context_);
    for (const KernelCheck& check : lowered.checks) {
      auto entry = std::make_unique<plan::KernelCheckT>();
      entry->error = errorClass(check.error);
      entry->message = check.message;
      launch->checks.push_back(std::move(entry));
    }
    schedule_ = describe(lowered.schedule);
    if (vendor) {
      const auto target = TargetDescription::named(from.target);
      schedule_ += "; where the device's " +
                   (vendor->product ? target->product_library : convolutionLibrary(*target).str()) +
                   " is there, by that" + (vendor->inTf32() ? " in TF32" : "") +
                   (vendor->work > 0 ? " from " + std::to_string(vendor->work) + " multiplications on" : std::string());
      launch->library_work = vendor->work;
      launch->library = std::move(vendor->product);
      launch->library_convolution = std::move(vendor->convolution);
    }
    if (auto remark = op->getAttrOfType<StringAttr>("zefuse.note"))
      schedule_ += "; " + remark.str();
    return launch;
  }

  /// Equal SPIR-V is stored once.
  uint32_t moduleOf(const LoweredLaunch& launch) {
    if (auto known = modules_.find(&launch); known != modules_.end())
      return known->second;
    const LoweredKernel& lowered = *launch.kernel;
    std::string id = contentId(lowered, launch.target);
    auto [known, added] = module_ids_.try_emplace(id, plan_.modules.size());
    if (added) {
      auto module = std::make_unique<plan::KernelModuleT>();
      module->id = id;
      module->target = launch.target;
      module->spirv = lowered.spirv;
      module->entry = lowered.name;
      plan_.modules.push_back(std::move(module));
    }
    return modules_[&launch] = known->second;
  }

  /// The step that comes may run on the host.
  LogicalResult noteHost(Operation* op, const LoweredLaunch& launch) {
    if (launch.why_on_host.empty())
      return success();
    if (!options_.host_steps)
      return op->emitError() << "runs in ATen or on the host (" << launch.why_on_host
                             << "): options={'strict': False} allows it";
    host_ = launch.why_on_host;
    return success();
  }

  /// A library operation, whose results are placed here. True: as a kernel; false: it is a call, on the host.
  FailureOr<bool> addCallKernel(Operation* op) {
    for (auto [result, layout] : llvm::zip_equal(op->getResults(), resultLayouts(op)))
      allocate(result, layout);
    const LoweredLaunch* launch = lowered_.find(op);
    if (!launch)
      return false;
    if (failed(noteHost(op, *launch)))
      return failure();
    if (!launch->kernel)
      return false;
    pushLaunch(op, *launch);
    return true;
  }

  template <typename Call> void pushCall(std::unique_ptr<Call> call, Operation* op) {
    if (auto reason = op->getAttrOfType<StringAttr>("zefuse.left_out"))
      left_out_ = reason.str();
    if (call->way != plan::LibraryWay::automatic)
      if (auto remark = op->getAttrOfType<StringAttr>("zefuse.note"))
        schedule_ = remark.str();
    push(std::move(call), op);
    schedule_.clear();
  }

  LogicalResult addMatmul(MatmulOp op) {
    FailureOr<bool> kernel = addCallKernel(op);
    if (failed(kernel) || *kernel)
      return success(succeeded(kernel));
    pushCall(calls_.product(op), op);
    return success();
  }

  LogicalResult addConvolution(ConvolutionOp op) {
    if (op.getSlices() != 1)
      return addOwnKernel(op);
    FailureOr<bool> kernel = addCallKernel(op);
    if (failed(kernel) || *kernel)
      return success(succeeded(kernel));
    pushCall(calls_.convolution(op), op);
    return success();
  }

  /// What no library does, and stage 2 keeps only where the lowering takes it.
  LogicalResult addOwnKernel(Operation* op) {
    FailureOr<bool> kernel = addCallKernel(op);
    if (succeeded(kernel) && !*kernel) {
      const LoweredLaunch* launch = lowered_.find(op);
      return op->emitError() << (launch ? launch->refusal : "is no call of the CPU's library");
    }
    return success(succeeded(kernel));
  }

  LogicalResult addAttention(AttentionOp op) {
    FailureOr<bool> kernel = addCallKernel(op);
    if (failed(kernel) || *kernel)
      return success(succeeded(kernel));
    push(calls_.attention(op), op);
    return success();
  }

  LogicalResult addAttentionGradient(AttentionGradientOp op) {
    if (lowered_.find(op))
      return addOwnKernel(op);
    for (auto [result, layout] : llvm::zip_equal(op.getResults(), resultLayouts(op)))
      if (!result.use_empty())
        allocate(result, layout);
    push(calls_.attentionGradient(op), op);
    return success();
  }

  LogicalResult addGroupedMatmul(GroupedMatmulOp op) {
    allocate(op.getResult(), resultLayouts(op)[0]);
    auto product = std::make_unique<plan::GroupedMatmulT>();
    const size_t step = plan_.steps.size();
    if (op.getIndex()) {
      auto kernel = throughViews(op.getB()).getDefiningOp<KernelOp>();
      if (!kernel || kernel.getNumResults() != 1 || !isOfAGroup(kernel) ||
          !llvm::is_contained(kernel.getInputs(), op.getIndex()) || !isReadByAlone(kernel.getResult(0), op))
        return op.emitError("internal error: a group's matrix is not what one kernel makes for this product alone");
      product->kernel = launchOf(kernel, *lowered_.find(kernel));
      product->index = static_cast<int32_t>(values_.addValue(op.getIndex()));
      for (Value operand : kernel.getOperands())
        values_.use(operand, step);
    }
    product->a = values_.addLibraryOperand(op.getA());
    product->b = values_.addLibraryOperand(op.getB());
    product->offsets = values_.addValue(op.getOffsets());
    product->out = values_.addValue(op.getResult());
    product->bf16_math = op.getBf16Math();
    push(std::move(product), op);
    schedule_.clear();
    return success();
  }

  static bool isReadByAlone(Value value, Operation* reader) {
    return llvm::all_of(value.getUsers(), [&](Operation* user) {
      return user == reader || (isa<ViewOp>(user) && isReadByAlone(user->getResult(0), reader));
    });
  }

  LogicalResult addRecurrence(RecurrenceOp op) {
    if (plan_.device == "gpu") {
      host_ = "no kernel for a GPU runs a recurrent layer's steps";
      if (!options_.host_steps)
        return op->emitError() << "runs in ATen or on the host (" << host_ << "): options={'strict': False} allows it";
    }
    auto recurrence = std::make_unique<plan::RecurrenceT>();
    recurrence->cell = *recurrentCell(op.getCell());
    recurrence->gradient = op.getGradient();
    recurrence->reverse = op.getReverse();
    recurrence->packed = op.getPacked();
    recurrence->projected = op.getProjected();
    for (Value operand : op.getInputs())
      recurrence->operands.push_back(values_.addValue(operand));
    for (auto [result, layout] : llvm::zip_equal(op.getResults(), resultLayouts(op))) {
      // The first, the GRU's products and the gradient of what is projected, its own steps read.
      const unsigned number = result.getResultNumber();
      const bool read_by_steps = number == 0 || (op.getGradient() && op.getCell() == "gru" && number == 1) ||
                                 (op.getProjected() && number == 3);
      if (result.use_empty() && !read_by_steps) {
        recurrence->results.push_back(-1);
        continue;
      }
      allocate(result, layout);
      recurrence->results.push_back(static_cast<int32_t>(values_.addValue(result)));
    }
    push(std::move(recurrence), op);
    return success();
  }

  static std::optional<plan::RecurrentCell> recurrentCell(StringRef name) {
    for (plan::RecurrentCell cell : plan::EnumValuesRecurrentCell())
      if (name == plan::EnumNameRecurrentCell(cell))
        return cell;
    return std::nullopt;
  }

  LogicalResult addAten(AtenOp op) {
    auto call = std::make_unique<plan::AtenCallT>();
    call->op = op.getOp().str();
    call->overload = op.getOverload().str();
    call->reason = op.getReason().str();
    call->draw = op.getDraw();
    SmallVector<uint32_t> operands;
    for (auto [input, strides] : llvm::zip(op.getInputs(), op.getOperandStrides()))
      operands.push_back(values_.addValue(input, cast<AffineMapAttr>(strides).getValue()));
    for (Attribute arg : op.getArgs()) {
      auto argument = atenArgument(arg, operands, exprs_);
      if (!argument)
        return op.emitError("argument ") << arg << " has no form in a plan";
      call->args.push_back(std::move(argument));
    }
    // Set where the operator also returns what is no tensor: the place of each of our results among its own.
    auto positions = op.getResultPositions();
    for (auto [number, result, strides] : llvm::enumerate(op.getResults(), op.getResultStrides())) {
      if (positions)
        call->outputs.resize(static_cast<size_t>((*positions)[number]), -1);
      auto map = cast<AffineMapAttr>(strides).getValue();
      if (!dtypeOf(cast<RankedTensorType>(result.getType()).getElementType()))
        return op.emitError("result type ") << result.getType() << " has no form in a plan";
      values_.put(result, {values_.addBuffer(plan::Storage::external, 0, AffineExpr()),
                           stridedLayout(map.getResults(), nullptr, num_symbols_, context_)});
      call->outputs.push_back(result.use_empty() ? -1 : static_cast<int32_t>(values_.addValue(result, map)));
    }
    push(std::move(call), op);
    return success();
  }

  //===-- notes --------------------------------------------------------------------------------===//

  std::unique_ptr<plan::KernelNoteT> noteOf(Operation* op) {
    auto note = std::make_unique<plan::KernelNoteT>();
    SmallVector<std::string> nodes;
    for (Origin& origin : originsOf(op->getLoc())) {
      if (!origin.node.empty() && llvm::is_contained(nodes, origin.node))
        continue;
      nodes.push_back(origin.node);
      note->ops.push_back(origin.op);
      if (!origin.source.empty() && !llvm::is_contained(note->sources, origin.source))
        note->sources.push_back(origin.source);
      if (!origin.module.empty() && !llvm::is_contained(note->modules, origin.module))
        note->modules.push_back(origin.module);
    }
    AffineExpr bytes = getAffineConstantExpr(0, context_);
    auto count = [&](Value value) {
      if (auto type = dyn_cast<RankedTensorType>(value.getType()))
        bytes = bytes + numElements(type) * bytesOf(type.getElementType());
    };
    llvm::for_each(op->getOperands(), count);
    llvm::for_each(op->getResults(), count);
    note->bytes = exprs_.add(bytes);
    note->schedule = schedule_;
    note->host = std::exchange(host_, {});
    note->left_out = std::exchange(left_out_, {});
    return note;
  }

  func::FuncOp graph_;
  MLIRContext* context_;
  unsigned num_symbols_;
  ExprTable exprs_;
  const LoweredGraph& lowered_;
  const PlanOptions& options_;
  plan::PlanT plan_;
  PlanValues values_;
  LibraryCalls calls_;
  llvm::DenseSet<Value> outputs_;  // values whose buffer the caller gets
  llvm::DenseMap<const LoweredLaunch*, uint32_t> modules_;
  std::map<std::string, uint32_t> module_ids_;
  std::string schedule_, host_, left_out_;  // of the step that is pushed next
};

}  // namespace

FailureOr<BuiltPlan> buildPlan(func::FuncOp graph, const LoweredGraph& lowered, const PlanOptions& options) {
  Builder builder(graph, lowered, options);
  if (failed(builder.build()))
    return failure();
  return builder.finish();
}

}  // namespace zefuse
