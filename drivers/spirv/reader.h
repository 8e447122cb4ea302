// SPIR-V to LLVM IR. One Reader reads one module once. Address spaces, scopes and math come out as the target wants
// them (reader_target.h); work-item built-ins, barriers and Workgroup variables become markers (markers.h).
//
// Ids, types and structure are checked before each LLVM builder call, which would not survive a mismatch; SPIRV-Tools'
// validator is not relied on. What needs the whole function (dominance) is left to LLVM's verifier afterwards.
#pragma once

#include "drivers/spirv/kernel_info.h"
#include "drivers/spirv/markers.h"
#include "drivers/spirv/reader_target.h"
#include "drivers/spirv/spirv_module.h"

#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/IR/IRBuilder.h"
#include "llvm/IR/Module.h"

#include <map>
#include <string>
#include <unordered_map>
#include <vector>

namespace zefuse::spirv {

struct Type {
  uint16_t opcode = 0;           // spv::OpType...
  llvm::Type* llvm = nullptr;    // nullptr for types without values (pipes and such are refused earlier)
  uint32_t element = 0;          // vector, array: element; pointer: pointee
  uint32_t storage_class = 0;    // pointer
  uint64_t bytes = 0;            // allocation size; 0 for void, function
  uint64_t scalars = 0;          // leaves of a value: bounds first-class loads
  uint8_t image_dimensions = 0;  // image: 1 to 3, without layers
  bool image_arrayed = false, image_depth = false, image_sampled = false;  // image_sampled: a sampler may be used
  std::vector<uint32_t> members;  // struct: member types; function: return type, parameters
};

struct Decoration {
  uint32_t kind;
  std::span<const uint32_t> operands;
  const SpirvInst* inst;
};

struct KernelSource {
  KernelInfo info;
  llvm::Function* function = nullptr;     // void (arguments as declared)
  std::vector<uint32_t> local_variables;  // ids, in module order
};

struct ExportedFunction {
  std::string name;
  llvm::Function* function;
};
struct ExportedGlobal {
  std::string name;
  uint64_t size;
  llvm::GlobalVariable* variable;
};
struct LocalVariable {
  uint64_t size;
  uint64_t alignment;
};

class Reader {
public:
  Reader(const SpirvModule& source, llvm::Module& module, Markers& markers,
         const std::vector<SpecConstant>& spec_constants, const ReaderTarget& target = {});
  void read();  // throws CompileError

  std::vector<KernelSource> kernels;
  std::vector<ExportedFunction> exported_functions;
  std::vector<ExportedGlobal> exported_globals;
  std::vector<std::string> imports;  // linkage names this module needs and does not define
  std::map<uint32_t, LocalVariable> local_variables;

private:
  // reader.cpp: module level and the walk over functions
  void readPreamble(const SpirvInst& inst);
  void readDecoration(const SpirvInst& inst);
  void declareFunction(size_t index);
  void readFunctionBody(size_t first, size_t end);
  void readInstruction(const SpirvInst& inst);
  void finishKernels();
  ArgInfo describeArgument(const SpirvInst& param, const SpirvInst& function_inst);

  // types_constants.cpp
  bool readType(const SpirvInst& inst);
  bool readConstant(const SpirvInst& inst);
  llvm::Constant* specValue(const SpirvInst& inst, const Type& type);
  void readSpecConstantOp(const SpirvInst& inst);
  void addType(const SpirvInst& inst, Type type);
  llvm::PointerType* pointerIn(uint32_t storage_class) const;

  // One method per family; false: not an opcode of the family.
  bool readArith(const SpirvInst& inst);
  bool readComposite(const SpirvInst& inst);
  bool readMemory(const SpirvInst& inst);
  bool readControl(const SpirvInst& inst);
  bool readAtomic(const SpirvInst& inst);
  bool readGroup(const SpirvInst& inst);
  bool readImage(const SpirvInst& inst);
  bool readShuffleBetween(const SpirvInst& inst);
  bool readExtInst(const SpirvInst& inst);

  // instructions_arith.cpp
  void readConversion(const SpirvInst& inst);
  llvm::Value* roundForConversion(const SpirvInst& inst, llvm::Value* value);
  llvm::Value* convertWithRounding(const SpirvInst& inst, llvm::Value* value, llvm::Type* to, uint32_t rounding_mode);
  llvm::Value* integerDivision(const SpirvInst& inst, llvm::Value* a, llvm::Value* b);
  llvm::Value* remainder(const SpirvInst& inst, llvm::Value* a, llvm::Value* b);  // of the dividend's sign
  void applyFastMath(const SpirvInst& inst, llvm::Value* value);

  // instructions_memory.cpp
  void readVariable(const SpirvInst& inst);
  void readExplicitCast(const SpirvInst& inst);
  void readAccessChain(const SpirvInst& inst);
  struct Access {
    llvm::Align align;
    bool is_volatile = false;
    bool nontemporal = false;
  };
  Access memoryAccess(const SpirvInst& inst, size_t first_operand, const Type& type);
  void checkFirstClass(const SpirvInst& inst, const Type& type);
  const Type& pointee(const SpirvInst& inst, uint32_t pointer_id);

  // control_flow.cpp
  std::vector<size_t> readingOrder(size_t first, size_t end) const;
  llvm::BasicBlock* block(const SpirvInst& inst, uint32_t label);
  void readCall(const SpirvInst& inst);
  void finishPhis();

  // builtins.cpp
  llvm::Value* builtinVariable(const SpirvInst& inst, uint32_t variable_id);
  llvm::Value* query(Query q, unsigned dim);
  llvm::Value* toBfloat(llvm::Value* value);
  bool readMatrixCall(const SpirvInst& inst, const std::string& name, llvm::ArrayRef<llvm::Value*> args,
                      llvm::Type* result_type);  // matrix_calls.cpp
  bool readImportedCall(const SpirvInst& inst, const std::string& name, llvm::ArrayRef<llvm::Value*> args,
                        llvm::Type* result_type);
  bool readImportedAtomic(const SpirvInst& inst, const std::string& name, llvm::ArrayRef<llvm::Value*> args,
                          llvm::Type* result_type);
  llvm::Value* callPrintf(const SpirvInst& inst, llvm::Type* result, llvm::ArrayRef<llvm::Value*> args);
  llvm::Function* asyncCopyFunction();
  llvm::SyncScope::ID syncScope(const SpirvInst& inst, uint32_t scope_id);

  // images.cpp
  bool readImageType(const SpirvInst& inst, Type& type);
  void refuseHandles(const SpirvInst& inst, const Type& type) const;
  llvm::Constant* constantSampler(const SpirvInst& inst);
  const Type& imageType(const SpirvInst& inst, uint32_t image_id) const;
  llvm::Value* callImage(const SpirvInst& inst, const std::string& name, llvm::Type* result,
                         llvm::ArrayRef<llvm::Value*> args);
  llvm::SmallVector<llvm::Value*, 3> imageCoordinates(const SpirvInst& inst, const Type& image, uint32_t id);
  void checkImageOperands(const SpirvInst& inst, size_t first);
  std::pair<const char*, llvm::FixedVectorType*> texelOf(const SpirvInst& inst, const Type& image, llvm::Type* texel);
  void setTexel(const SpirvInst& inst, const Type& image, llvm::Value* texel);
  struct SampledImage {
    uint32_t image_id;
    llvm::Value *image, *sampler;
  };
  const SampledImage& sampledImage(const SpirvInst& inst, uint32_t id) const;
  SampledImage sampledOf(const SpirvInst& inst, uint32_t image_id, uint32_t sampler_id);
  void sampleImage(const SpirvInst& inst, const SampledImage& sampled, uint32_t coordinate);
  void readTexel(const SpirvInst& inst, uint32_t image_id, uint32_t coordinate);
  void writeTexel(const SpirvInst& inst, uint32_t image_id, uint32_t coordinate, uint32_t texel_id);
  bool readImportedImageCall(const SpirvInst& inst, const std::string& name);

  // ext_inst_opencl.cpp
  // extInst and extInteger return nullptr for an instruction that is not theirs.
  llvm::Value* extInst(const SpirvInst& inst, uint32_t op, llvm::Type* result, llvm::ArrayRef<llvm::Value*> args);
  llvm::Value* extInteger(const SpirvInst& inst, uint32_t op, llvm::Type* result, llvm::ArrayRef<llvm::Value*> args);
  llvm::Value* callMathByElement(const SpirvInst& inst, llvm::StringRef name, llvm::Type* result,
                                 llvm::ArrayRef<llvm::Value*> args);
  llvm::Value* callMath(const SpirvInst& inst, llvm::StringRef name, llvm::Type* result,
                        llvm::ArrayRef<llvm::Value*> args);
  bool vectorMemory(const SpirvInst& inst, uint32_t op);
  llvm::Value* emitSync(const Sync& sync, llvm::Type* result, llvm::ArrayRef<llvm::Value*> args);

  // ids
  const Type& type(const SpirvInst& user, uint32_t id) const;
  llvm::Type* valueType(const SpirvInst& user, uint32_t id) const;  // refuses void and functions
  llvm::Value* value(const SpirvInst& user, uint32_t id);
  const Type& typeOfValue(const SpirvInst& user, uint32_t id) const;
  llvm::Constant* constant(const SpirvInst& user, uint32_t id) const;
  uint64_t constantInt(const SpirvInst& user, uint32_t id) const;
  void setValue(const SpirvInst& inst, llvm::Value* value);  // checks the type against inst.type_id
  const Decoration* decoration(uint32_t id, uint32_t kind) const;
  std::string name(uint32_t id) const;
  void requireSame(const SpirvInst& inst, llvm::Value* a, llvm::Value* b) const;
  void requireInt(const SpirvInst& inst, llvm::Value* v) const;
  void requireFloat(const SpirvInst& inst, llvm::Value* v) const;
  void requirePointer(const SpirvInst& inst, llvm::Value* v) const;
  void requireBool(const SpirvInst& inst, llvm::Value* v) const;

  struct Variable {
    uint32_t id, type, storage_class;
    const SpirvInst* inst;
  };
  struct FunctionInfo {
    llvm::Function* llvm = nullptr;
    size_t first = 0, end = 0;  // instruction indices: OpFunction .. OpFunctionEnd
    uint32_t type = 0;
    std::vector<const SpirvInst*> params;
    bool has_body = false;
    bool is_entry = false;
    std::string import_name;
  };
  struct EntryPoint {
    std::string name;
    uint32_t function;
    const SpirvInst* inst;
  };
  struct Mode {
    uint32_t mode;
    std::span<const uint32_t> operands;
    const SpirvInst* inst;
  };

  const SpirvModule& source_;
  llvm::Module& module_;
  llvm::LLVMContext& context_;
  Markers& markers_;
  const std::vector<SpecConstant>& spec_constants_;
  const ReaderTarget target_;
  llvm::IRBuilder<> builder_;

  std::unordered_map<uint32_t, Type> types_;
  std::unordered_map<uint32_t, llvm::Value*> values_;   // constants, globals, and the current function's values
  std::unordered_map<uint32_t, uint32_t> value_types_;  // value id -> type id
  std::multimap<uint32_t, Decoration> decorations_;
  std::unordered_map<uint32_t, uint32_t> spec_ids_;  // constant id -> SpecId
  std::map<uint32_t, std::string> names_;
  std::map<uint32_t, Variable> special_variables_;  // built-in and Workgroup: materialised per function
  std::map<uint32_t, FunctionInfo> functions_;
  std::vector<uint32_t> function_order_;
  std::vector<EntryPoint> entry_points_;
  std::multimap<uint32_t, Mode> modes_;
  std::map<uint32_t, std::string> ext_sets_;
  std::unordered_map<uint32_t, uint32_t> forward_pointers_;  // id -> storage class
  llvm::Function* scratch_ = nullptr;                        // home of a folding OpSpecConstantOp

  // the current function
  llvm::Function* function_ = nullptr;
  std::unordered_map<uint32_t, llvm::BasicBlock*> blocks_;
  std::unordered_map<uint32_t, llvm::Value*> specials_;
  std::unordered_map<uint32_t, SampledImage> sampled_images_;
  std::vector<uint32_t> local_ids_;
  std::vector<std::pair<llvm::PHINode*, const SpirvInst*>> phis_;
  llvm::DenseMap<const llvm::BasicBlock*, unsigned> edges_;
};

}  // namespace zefuse::spirv
