// Module level: preamble, declarations, and the walk over function bodies.
#include "drivers/spirv/reader.h"

#include "llvm/Transforms/Utils/Cloning.h"

#include <spirv/unified1/spirv.hpp>

#include <algorithm>
#include <set>

namespace zefuse::spirv {
namespace {

constexpr uint32_t kCapabilities[] = {
    spv::CapabilityMatrix,
    spv::CapabilityShader,  // Shader only as a declared dependency; no shader opcode is read
    spv::CapabilityAddresses,
    spv::CapabilityLinkage,
    spv::CapabilityKernel,
    spv::CapabilityVector16,
    spv::CapabilityFloat16Buffer,
    spv::CapabilityFloat16,
    spv::CapabilityFloat64,
    spv::CapabilityInt64,
    spv::CapabilityInt64Atomics,
    spv::CapabilityGroups,
    spv::CapabilityInt16,
    spv::CapabilityInt8,
    spv::CapabilityGenericPointer,
    spv::CapabilitySubgroupDispatch,
    spv::CapabilityNamedBarrier,
    spv::CapabilityGroupNonUniform,
    spv::CapabilityGroupNonUniformVote,
    spv::CapabilityGroupNonUniformArithmetic,
    spv::CapabilityGroupNonUniformBallot,
    spv::CapabilityGroupNonUniformShuffle,
    spv::CapabilityGroupNonUniformShuffleRelative,
    spv::CapabilitySubgroupShuffleINTEL,
    spv::CapabilityAtomicFloat16AddEXT,
    spv::CapabilityAtomicFloat16MinMaxEXT,
    spv::CapabilityAtomicFloat32AddEXT,
    spv::CapabilityAtomicFloat64AddEXT,
    spv::CapabilityAtomicFloat32MinMaxEXT,
    spv::CapabilityAtomicFloat64MinMaxEXT,
    spv::CapabilityExpectAssumeKHR,
    spv::CapabilityOptNoneINTEL,
    spv::CapabilityKernelAttributesINTEL,
    spv::CapabilityFunctionPointersINTEL,
    spv::CapabilityIndirectReferencesINTEL,
    spv::CapabilityArbitraryPrecisionIntegersINTEL,
    spv::CapabilityGroupUniformArithmeticKHR,
    // What LLVM does by itself, and hints.
    spv::CapabilityDenormPreserve,
    spv::CapabilitySignedZeroInfNanPreserve,
    spv::CapabilityRoundingModeRTE,
    spv::CapabilityFPFastMathModeINTEL,
    spv::CapabilityMemoryAccessAliasingINTEL,
};

// Where the target has images.
constexpr uint32_t kImageCapabilities[] = {
    spv::CapabilityImageBasic,    spv::CapabilityLiteralSampler, spv::CapabilitySampled1D,      spv::CapabilityImage1D,
    spv::CapabilitySampledBuffer, spv::CapabilityImageBuffer,    spv::CapabilityImageReadWrite,
};

template <size_t N> bool contains(const uint32_t (&list)[N], uint32_t capability) {
  return std::find(std::begin(list), std::end(list), capability) != std::end(list);
}

bool isClangKernelBody(const std::string& name) {
  return name.rfind("__clang_ocl_kern_imp_", 0) == 0;  // clang's copy of a kernel's body: nobody asks for it
}

}  // namespace

Reader::Reader(const SpirvModule& source, llvm::Module& module, Markers& markers,
               const std::vector<SpecConstant>& spec_constants, const ReaderTarget& target)
    : source_(source), module_(module), context_(module.getContext()), markers_(markers),
      spec_constants_(spec_constants), target_(target), builder_(context_) {}

void Reader::read() {
  scratch_ = llvm::Function::Create(llvm::FunctionType::get(builder_.getVoidTy(), false),
                                    llvm::Function::InternalLinkage, "zf.scratch", module_);
  auto* scratch_block = llvm::BasicBlock::Create(context_, "", scratch_);
  builder_.SetInsertPoint(scratch_block);

  std::vector<size_t> functions;
  bool in_function = false;
  for (size_t i = 0; i < source_.insts.size(); ++i) {
    const SpirvInst& inst = source_.insts[i];
    if (inst.opcode == spv::OpFunction) {
      if (in_function)
        fail(inst, "function inside a function");
      functions.push_back(i);
      in_function = true;
    } else if (inst.opcode == spv::OpFunctionEnd) {
      in_function = false;
    } else if (!in_function) {
      readPreamble(inst);
    }
  }
  if (in_function)
    throw CompileError("SPIR-V: the last function has no OpFunctionEnd");
  for (size_t i : functions)
    declareFunction(i);
  for (uint32_t id : function_order_)
    if (functions_[id].has_body)
      readFunctionBody(functions_[id].first, functions_[id].end);
  scratch_->eraseFromParent();
  finishKernels();
}

void Reader::readPreamble(const SpirvInst& inst) {
  switch (inst.opcode) {
  case spv::OpNop:
  case spv::OpSource:
  case spv::OpSourceContinued:
  case spv::OpSourceExtension:
  case spv::OpString:
  case spv::OpLine:
  case spv::OpNoLine:
  case spv::OpMemberName:
  case spv::OpModuleProcessed: return;
  case spv::OpName: names_[inst.op(0)] = literalString(inst, 1); return;
  case spv::OpCapability:
    if (!contains(kCapabilities, inst.op(0)) && !(target_.images && contains(kImageCapabilities, inst.op(0))))
      fail(inst, "capability " + std::to_string(inst.op(0)) + " is not supported");
    return;
  // An extension by itself changes nothing: what it brings is a capability, an instruction or an execution mode, which
  // is refused where it is unknown, or a decoration that may be ignored.
  case spv::OpExtension:
  // Which accesses do not overlap: only hints lead there (the two INTEL masks of memory operands).
  case spv::OpAliasDomainDeclINTEL:
  case spv::OpAliasScopeDeclINTEL:
  case spv::OpAliasScopeListDeclINTEL: return;
  case spv::OpExtInstImport: {
    std::string name = literalString(inst, 0);
    if (name != "OpenCL.std" && name.rfind("OpenCL.DebugInfo", 0) != 0 && name.rfind("NonSemantic.", 0) != 0)
      fail(inst, "instruction set " + name + " is not supported");
    ext_sets_[inst.result_id] = name;
    return;
  }
  case spv::OpExtInst: {
    auto set = ext_sets_.find(inst.op(0));
    if (set == ext_sets_.end() || set->second == "OpenCL.std")
      fail(inst, "extended instruction outside of a function");
    return;  // debug information
  }
  case spv::OpMemoryModel:
    if (inst.op(0) != spv::AddressingModelPhysical64)
      fail(inst, "addressing model " + std::to_string(inst.op(0)) + " is not Physical64");
    if (inst.op(1) != spv::MemoryModelOpenCL)
      fail(inst, "memory model " + std::to_string(inst.op(1)) + " is not OpenCL");
    return;
  case spv::OpEntryPoint:
    if (inst.op(0) != spv::ExecutionModelKernel)
      fail(inst, "execution model " + std::to_string(inst.op(0)) + " is not Kernel");
    entry_points_.push_back({literalString(inst, 2), inst.op(1), &inst});
    return;
  case spv::OpExecutionMode:
  case spv::OpExecutionModeId: modes_.insert({inst.op(0), {inst.op(1), inst.operands.subspan(2), &inst}}); return;
  case spv::OpDecorate:
  case spv::OpDecorateId:
  case spv::OpDecorateString:
  case spv::OpGroupDecorate:
  case spv::OpMemberDecorate:
  case spv::OpDecorationGroup:
  case spv::OpGroupMemberDecorate:
  case spv::OpMemberDecorateString: readDecoration(inst); return;
  case spv::OpVariable: readVariable(inst); return;
  case spv::OpUndef:
    refuseHandles(inst, type(inst, inst.type_id));
    values_[inst.result_id] = llvm::UndefValue::get(valueType(inst, inst.type_id));
    value_types_[inst.result_id] = inst.type_id;
    return;
  default:
    if (!readType(inst) && !readConstant(inst))
      fail(inst, "unsupported instruction");
  }
}

void Reader::readDecoration(const SpirvInst& inst) {
  switch (inst.opcode) {
  case spv::OpGroupDecorate: {
    std::vector<Decoration> group;
    auto [first, last] = decorations_.equal_range(inst.op(0));
    for (auto it = first; it != last; ++it)
      group.push_back(it->second);
    // Bounds the product of a hostile module's groups and targets.
    if (group.size() * inst.operands.size() > 1u << 20)
      fail(inst, "decoration group is too large");
    for (size_t i = 1; i < inst.operands.size(); ++i)
      for (const Decoration& d : group)
        decorations_.insert({inst.operands[i], d});
    return;
  }
  case spv::OpDecorate:
  case spv::OpDecorateId:
  case spv::OpDecorateString:
    if (inst.op(1) == spv::DecorationSpecId)
      spec_ids_[inst.op(0)] = inst.op(2);
    decorations_.insert({inst.op(0), {inst.op(1), inst.operands.subspan(2), &inst}});
    return;
  case spv::OpMemberDecorate:
    // Offsets and layouts of members are the C layout in the OpenCL environment; anything else is a mistake.
    return;
  default: return;
  }
}

const Decoration* Reader::decoration(uint32_t id, uint32_t kind) const {
  auto [first, last] = decorations_.equal_range(id);
  for (auto it = first; it != last; ++it)
    if (it->second.kind == kind)
      return &it->second;
  return nullptr;
}

std::string Reader::name(uint32_t id) const {
  auto it = names_.find(id);
  return it == names_.end() ? "" : it->second;
}

void Reader::declareFunction(size_t index) {
  const SpirvInst& inst = source_.insts[index];
  FunctionInfo info;
  info.first = index;
  info.type = inst.op(1);
  const Type& ft = type(inst, info.type);
  if (ft.opcode != spv::OpTypeFunction)
    fail(inst, "type of the function is not a function type");
  size_t i = index + 1;
  for (; source_.insts[i].opcode != spv::OpFunctionEnd; ++i) {
    if (source_.insts[i].opcode == spv::OpFunctionParameter)
      info.params.push_back(&source_.insts[i]);
    else if (source_.insts[i].opcode == spv::OpLabel)
      info.has_body = true;
  }
  info.end = i;
  auto* llvm_type = llvm::cast<llvm::FunctionType>(ft.llvm);
  if (info.params.size() != llvm_type->getNumParams())
    fail(inst, "function has " + std::to_string(info.params.size()) + " parameters, its type " +
                   std::to_string(llvm_type->getNumParams()));
  for (size_t p = 0; p < info.params.size(); ++p)
    if (valueType(*info.params[p], info.params[p]->type_id) != llvm_type->getParamType(p))
      fail(*info.params[p], "parameter's type differs from the function type");
  if (inst.type_id != ft.members[0])
    fail(inst, "result type differs from the function type");
  for (const EntryPoint& e : entry_points_)
    info.is_entry |= e.function == inst.result_id;

  std::string symbol = name(inst.result_id);
  if (const Decoration* link = decoration(inst.result_id, spv::DecorationLinkageAttributes)) {
    size_t next = 0;
    SpirvInst decorate = *link->inst;
    std::string linkage_name = literalString(decorate, 2, &next);
    uint32_t linkage = decorate.op(next);
    if (linkage == spv::LinkageTypeImport)
      info.import_name = linkage_name;
    symbol = linkage_name;
  }
  if (!info.has_body && info.import_name.empty())
    fail(inst, "function without body or Import linkage");
  if (info.has_body && info.import_name.empty()) {
    info.llvm = llvm::Function::Create(llvm_type, llvm::Function::InternalLinkage, "", module_);
    info.llvm->setDoesNotThrow();
    for (size_t p = 0; p < info.params.size(); ++p) {
      uint32_t id = info.params[p]->result_id;
      auto* arg = info.llvm->getArg(p);
      if (type(*info.params[p], info.params[p]->type_id).opcode != spv::OpTypePointer)
        continue;
      const Type& pointee_type = type(*info.params[p], types_[info.params[p]->type_id].element);
      auto [first, last] = decorations_.equal_range(id);
      for (auto it = first; it != last; ++it) {
        const Decoration& d = it->second;
        if (d.kind == spv::DecorationAlignment && !d.operands.empty() && llvm::isPowerOf2_32(d.operands[0]) &&
            d.operands[0] <= 4096) {
          arg->addAttr(llvm::Attribute::getWithAlignment(context_, llvm::Align(d.operands[0])));
        } else if (d.kind == spv::DecorationRestrict) {
          arg->addAttr(llvm::Attribute::NoAlias);
        } else if (d.kind == spv::DecorationFuncParamAttr && !d.operands.empty()) {
          switch (d.operands[0]) {
          case spv::FunctionParameterAttributeNoAlias: arg->addAttr(llvm::Attribute::NoAlias); break;
          case spv::FunctionParameterAttributeByVal:
            // A kernel's caller passes the bytes' address; the copy is made in readFunctionBody.
            if (!pointee_type.llvm || pointee_type.bytes == 0)
              fail(*info.params[p], "ByVal parameter of a type without size");
            if (!info.is_entry)
              arg->addAttr(llvm::Attribute::getWithByValType(context_, pointee_type.llvm));
            break;
          default: break;
          }
        }
      }
    }
  }
  function_order_.push_back(inst.result_id);
  if (info.has_body && !info.import_name.empty())
    fail(inst, "imported function with a body");
  if (const Decoration* link = decoration(inst.result_id, spv::DecorationLinkageAttributes);
      link && info.llvm && !info.is_entry && !isClangKernelBody(symbol))
    exported_functions.push_back({symbol, info.llvm});
  functions_[inst.result_id] = std::move(info);
}

void Reader::readFunctionBody(size_t first, size_t end) {
  const SpirvInst& head = source_.insts[first];
  FunctionInfo& info = functions_[head.result_id];
  function_ = info.llvm;
  blocks_.clear();
  specials_.clear();
  sampled_images_.clear();
  local_ids_.clear();
  phis_.clear();
  edges_.clear();
  std::vector<uint32_t> defined;

  for (size_t i = first; i < end; ++i)
    if (source_.insts[i].opcode == spv::OpLabel)
      blocks_[source_.insts[i].result_id] = llvm::BasicBlock::Create(context_, "", function_);
  auto* entry = &function_->getEntryBlock();
  builder_.SetInsertPoint(entry);
  for (size_t p = 0; p < info.params.size(); ++p) {
    const SpirvInst& param = *info.params[p];
    llvm::Value* v = function_->getArg(p);
    const Decoration* by_val = nullptr;
    auto [d, last] = decorations_.equal_range(param.result_id);
    for (; d != last; ++d)
      if (d->second.kind == spv::DecorationFuncParamAttr && !d->second.operands.empty() &&
          d->second.operands[0] == spv::FunctionParameterAttributeByVal)
        by_val = &d->second;
    if (info.is_entry && by_val && type(param, param.type_id).opcode == spv::OpTypePointer) {
      // Each work-item owns its copy; the source has no promised alignment.
      const Type& t = type(param, types_[param.type_id].element);
      auto* copy = builder_.CreateAlloca(t.llvm);
      builder_.CreateMemCpy(copy, copy->getAlign(), v, llvm::Align(1), t.bytes);
      v = copy;
    }
    values_[param.result_id] = v;
    value_types_[param.result_id] = param.type_id;
    defined.push_back(param.result_id);
  }
  bool open = false;  // between OpLabel and a terminator
  for (size_t i : readingOrder(first + 1, end)) {
    const SpirvInst& inst = source_.insts[i];
    if (inst.opcode == spv::OpFunctionParameter)
      continue;
    if (inst.opcode == spv::OpLabel) {
      if (open)
        fail(inst, "the block before has no terminator");
      builder_.SetInsertPoint(block(inst, inst.result_id));
      open = true;
      continue;
    }
    if (inst.opcode == spv::OpLine || inst.opcode == spv::OpNoLine || inst.opcode == spv::OpNop)
      continue;
    if (!open)
      fail(inst, "instruction outside of a block");
    readInstruction(inst);
    if (inst.result_id != 0)
      defined.push_back(inst.result_id);
    open = builder_.GetInsertBlock()->getTerminator() == nullptr;
  }
  if (open)
    fail(head, "the function's last block has no terminator");
  finishPhis();
  for (uint32_t id : defined)
    values_.erase(id);
  bool used = false;
  for (const EntryPoint& e : entry_points_)
    if (e.function == head.result_id) {
      KernelSource k;
      k.info.name = e.name;
      k.function = function_;
      if (used) {  // several entry points, one function
        llvm::ValueToValueMapTy map;
        k.function = llvm::CloneFunction(function_, map);
      }
      used = true;
      kernels.push_back(std::move(k));
    }
  function_ = nullptr;
}

void Reader::readInstruction(const SpirvInst& inst) {
  if (readArith(inst) || readComposite(inst) || readMemory(inst) || readControl(inst) || readAtomic(inst) ||
      readGroup(inst) || readImage(inst) || readExtInst(inst))
    return;
  fail(inst, "unsupported instruction");
}

ArgInfo Reader::describeArgument(const SpirvInst& param, const SpirvInst& function_inst) {
  const Type& t = type(param, param.type_id);
  auto align = [&](llvm::Type* ty) {
    return static_cast<uint32_t>(module_.getDataLayout().getABITypeAlign(ty).value());
  };
  if (t.bytes > 65536)
    fail(param, "kernel argument of " + std::to_string(t.bytes) + " bytes exceeds 65536");
  switch (t.opcode) {
  case spv::OpTypePointer:
    switch (t.storage_class) {
    case spv::StorageClassCrossWorkgroup: return {ArgKind::global_pointer, 8, 8};
    case spv::StorageClassUniformConstant: return {ArgKind::constant_pointer, 8, 8};
    case spv::StorageClassWorkgroup: return {ArgKind::local_pointer, 8, 8};
    case spv::StorageClassFunction: {
      const Type& p = type(param, t.element);
      if (p.bytes == 0 || p.bytes > 65536)
        fail(param, "by-value kernel argument of " + std::to_string(p.bytes) + " bytes");
      return {ArgKind::by_value_struct, static_cast<uint32_t>(p.bytes), align(p.llvm)};
    }
    default: fail(param, "kernel argument in storage class " + std::to_string(t.storage_class));
    }
  case spv::OpTypeInt:
  case spv::OpTypeFloat:
  case spv::OpTypeVector: return {ArgKind::scalar, static_cast<uint32_t>(t.bytes), align(t.llvm)};
  case spv::OpTypeImage: return {ArgKind::image, 8, 8};
  case spv::OpTypeSampler: return {ArgKind::sampler, 8, 8};  // a handle's place, the word first
  case spv::OpTypeStruct:
  case spv::OpTypeArray: return {ArgKind::scalar, static_cast<uint32_t>(t.bytes), align(t.llvm)};
  default: fail(param, "kernel argument of unsupported type");
  }
}

void Reader::finishKernels() {
  std::set<std::string> seen;
  for (const EntryPoint& e : entry_points_) {
    auto f = functions_.find(e.function);
    if (f == functions_.end() || !f->second.llvm)
      fail(*e.inst, "entry point " + e.name + " has no body");
    if (!seen.insert(e.name).second)
      fail(*e.inst, "two entry points are named " + e.name);
  }
  for (KernelSource& k : kernels) {
    const EntryPoint* entry = nullptr;
    for (const EntryPoint& e : entry_points_)
      if (e.name == k.info.name)
        entry = &e;
    const FunctionInfo& f = functions_[entry->function];
    const SpirvInst& head = source_.insts[f.first];
    if (!f.llvm->getReturnType()->isVoidTy())
      fail(head, "kernel " + entry->name + " returns a value");
    for (const SpirvInst* p : f.params)
      k.info.args.push_back(describeArgument(*p, head));
    auto [m, last] = modes_.equal_range(entry->function);
    for (; m != last; ++m) {
      const Mode& mode = m->second;
      bool by_id = mode.inst->opcode == spv::OpExecutionModeId;
      auto operand = [&](size_t i) -> uint32_t {
        if (i >= mode.operands.size())
          fail(*mode.inst, "execution mode lacks an operand");
        return by_id ? static_cast<uint32_t>(constantInt(*mode.inst, mode.operands[i])) : mode.operands[i];
      };
      auto sizes = [](const auto& operand) {
        return std::to_string(operand(0)) + "," + std::to_string(operand(1)) + "," + std::to_string(operand(2));
      };
      auto attribute = [&](const std::string& text) {
        k.info.source_attributes += (k.info.source_attributes.empty() ? "" : " ") + text;
      };
      switch (mode.mode) {
      case spv::ExecutionModeLocalSize:
      case spv::ExecutionModeLocalSizeId: {
        uint64_t total = 1;
        for (int d = 0; d < 3; ++d) {
          uint64_t n = operand(d);
          if (n == 0 || n > 1024 || (total *= n) > 1024)
            fail(*mode.inst, "work-group size of kernel " + entry->name + " is not within 1..1024");
          k.info.required_group_size[d] = n;
        }
        attribute("reqd_work_group_size(" + sizes(operand) + ")");
        break;
      }
      case spv::ExecutionModeSubgroupSize: {
        uint32_t w = operand(0);
        if (w != 4 && w != 8 && w != 16 && w != 32 && w != 64 && w != 1 && w != 2)
          fail(*mode.inst, "sub-group size " + std::to_string(w) + " of kernel " + entry->name + " is not supported");
        k.info.required_subgroup_size = w;
        attribute("intel_reqd_sub_group_size(" + std::to_string(w) + ")");
        break;
      }
      case spv::ExecutionModeLocalSizeHint:
      case spv::ExecutionModeLocalSizeHintId: attribute("work_group_size_hint(" + sizes(operand) + ")"); break;
      case spv::ExecutionModeVecTypeHint:
      case spv::ExecutionModeContractionOff:
      case spv::ExecutionModeInitializer:
      case spv::ExecutionModeFinalizer:
      case spv::ExecutionModeSubgroupsPerWorkgroup:
      case spv::ExecutionModeSignedZeroInfNanPreserve:
      case spv::ExecutionModeDenormPreserve:
      case spv::ExecutionModeRoundingModeRTE:
      case spv::ExecutionModeMaxWorkgroupSizeINTEL:
      case spv::ExecutionModeMaxWorkDimINTEL: break;
      default: fail(*mode.inst, "execution mode " + std::to_string(mode.mode) + " is not supported");
      }
    }
  }
}

const Type& Reader::type(const SpirvInst& user, uint32_t id) const {
  auto it = types_.find(id);
  if (it == types_.end())
    fail(user, "id " + std::to_string(id) + " is not a type");
  return it->second;
}

llvm::Type* Reader::valueType(const SpirvInst& user, uint32_t id) const {
  const Type& t = type(user, id);
  if (!t.llvm || t.llvm->isVoidTy() || t.llvm->isFunctionTy())
    fail(user, "id " + std::to_string(id) + " is not the type of a value");
  return t.llvm;
}

llvm::Value* Reader::value(const SpirvInst& user, uint32_t id) {
  if (special_variables_.count(id))
    return builtinVariable(user, id);
  auto it = values_.find(id);
  if (it == values_.end())
    fail(user, "id " + std::to_string(id) + " is not a value known here");
  return it->second;
}

const Type& Reader::typeOfValue(const SpirvInst& user, uint32_t id) const {
  auto it = value_types_.find(id);
  if (it == value_types_.end())
    fail(user, "id " + std::to_string(id) + " has no type");
  return type(user, it->second);
}

llvm::Constant* Reader::constant(const SpirvInst& user, uint32_t id) const {
  auto it = values_.find(id);
  auto* c = it == values_.end() ? nullptr : llvm::dyn_cast<llvm::Constant>(it->second);
  if (!c)
    fail(user, "id " + std::to_string(id) + " is not a constant");
  return c;
}

uint64_t Reader::constantInt(const SpirvInst& user, uint32_t id) const {
  auto* c = constant(user, id);
  if (c->isNullValue() && c->getType()->isIntegerTy())
    return 0;
  auto* i = llvm::dyn_cast<llvm::ConstantInt>(c);
  if (!i || i->getType()->isVectorTy() || i->getBitWidth() > 64)
    fail(user, "id " + std::to_string(id) + " is not a constant integer");
  return i->getZExtValue();
}

void Reader::setValue(const SpirvInst& inst, llvm::Value* v) {
  if (inst.result_id == 0)
    return;
  if (type(inst, inst.type_id).llvm != v->getType())
    fail(inst, "operand types do not fit the result type");
  values_[inst.result_id] = v;
  value_types_[inst.result_id] = inst.type_id;
}

void Reader::requireSame(const SpirvInst& inst, llvm::Value* a, llvm::Value* b) const {
  if (a->getType() != b->getType())
    fail(inst, "operands differ in type");
}
void Reader::requireInt(const SpirvInst& inst, llvm::Value* v) const {
  if (!v->getType()->isIntOrIntVectorTy())
    fail(inst, "operand is not an integer");
}
void Reader::requireFloat(const SpirvInst& inst, llvm::Value* v) const {
  if (!v->getType()->isFPOrFPVectorTy())
    fail(inst, "operand is not a floating-point value");
}
void Reader::requirePointer(const SpirvInst& inst, llvm::Value* v) const {
  if (!v->getType()->isPointerTy())
    fail(inst, "operand is not a pointer");
  // In LLVM an image is one, too.
  for (uint32_t id : inst.operands)
    if (auto known = values_.find(id); known != values_.end() && known->second == v)
      refuseHandles(inst, typeOfValue(inst, id));
}
void Reader::requireBool(const SpirvInst& inst, llvm::Value* v) const {
  if (!v->getType()->isIntOrIntVectorTy(1))
    fail(inst, "operand is not a boolean");
}

}  // namespace zefuse::spirv
