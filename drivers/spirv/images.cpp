// Images and samplers. An image is a pointer to what the target's image functions (zf_image_*) know of it, a sampler a
// word (sampler.h). A sampled image is no LLVM value: nothing but image instructions may use it, so it is remembered as
// its two parts.
#include "drivers/spirv/reader.h"
#include "drivers/spirv/sampler.h"

#include <spirv/unified1/spirv.hpp>

#include <algorithm>

namespace zefuse::spirv {
namespace {

// OpenCL's numbers of what SPIR-V counts from 0.
constexpr uint64_t kFirstChannelOrder = 0x10B0, kFirstChannelType = 0x10D0;

// Of image operands: what has no meaning for an image of one level, and hints.
constexpr uint32_t kOperandsRead = uint32_t{spv::ImageOperandsLodMask} | uint32_t{spv::ImageOperandsSignExtendMask} |
                                   uint32_t{spv::ImageOperandsZeroExtendMask} |
                                   uint32_t{spv::ImageOperandsNontemporalMask};

}  // namespace

bool Reader::readImageType(const SpirvInst& inst, Type& t) {
  switch (inst.opcode) {
  case spv::OpTypeImage: {
    if (!target_.images)
      fail(inst, "this device has no images");
    if (type(inst, inst.op(0)).opcode != spv::OpTypeVoid)
      fail(inst, "image whose sampled type is not void");
    const uint32_t dim = inst.op(1), depth = inst.op(2), arrayed = inst.op(3);
    switch (dim) {
    case spv::Dim1D:
    case spv::DimBuffer: t.image_dimensions = 1; break;
    case spv::Dim2D: t.image_dimensions = 2; break;
    case spv::Dim3D: t.image_dimensions = 3; break;
    default: fail(inst, "image of dimension " + std::to_string(dim) + " is not supported");
    }
    if (depth > 1 || (depth == 1 && dim != spv::Dim2D))
      fail(inst, "depth image of this kind is not supported");
    if (arrayed > 1 || (arrayed == 1 && dim != spv::Dim1D && dim != spv::Dim2D))
      fail(inst, "array of this kind of image is not supported");
    if (inst.op(4) != 0)
      fail(inst, "multisampled images are not supported");
    if (inst.op(5) != 0 || inst.op(6) != spv::ImageFormatUnknown)
      fail(inst, "image whose use or format is known before a kernel runs is not OpenCL's");
    t.image_depth = depth == 1;
    t.image_arrayed = arrayed == 1;
    t.image_sampled = dim != spv::DimBuffer;
    t.llvm = llvm::PointerType::get(context_, 0);
    t.bytes = 8;
    t.scalars = 1;
    return true;
  }
  case spv::OpTypeSampler:
    if (!target_.images)
      fail(inst, "this device has no samplers");
    t.llvm = builder_.getInt32Ty();
    t.bytes = 4;
    t.scalars = 1;
    return true;
  case spv::OpTypeSampledImage: {
    t.element = inst.op(0);
    const Type& image = type(inst, t.element);
    if (image.opcode != spv::OpTypeImage || !image.image_sampled)
      fail(inst, "sampled image of a type that cannot be sampled");
    return true;
  }
  default: return false;
  }
}

void Reader::refuseHandles(const SpirvInst& inst, const Type& t) const {
  if (t.opcode == spv::OpTypeImage || t.opcode == spv::OpTypeSampler)
    fail(inst, "images and samplers come from arguments and constants alone, and are no part of aggregates");
}

llvm::Constant* Reader::constantSampler(const SpirvInst& inst) {
  if (type(inst, inst.type_id).opcode != spv::OpTypeSampler)
    fail(inst, "sampler constant of another type");
  if (inst.op(0) > kAddressRepeatMirrored || inst.op(1) > 1 || inst.op(2) > 1)
    fail(inst, "sampler's addressing, coordinates or filter are unknown");
  return builder_.getInt32(samplerWord(inst.op(0), inst.op(1) == 1, inst.op(2) == 1));
}

const Type& Reader::imageType(const SpirvInst& inst, uint32_t image_id) const {
  const Type& t = typeOfValue(inst, image_id);
  if (t.opcode != spv::OpTypeImage)
    fail(inst, "id " + std::to_string(image_id) + " is not an image");
  return t;
}

llvm::Value* Reader::callImage(const SpirvInst& inst, const std::string& name, llvm::Type* result,
                               llvm::ArrayRef<llvm::Value*> args) {
  llvm::SmallVector<llvm::Type*> types;
  for (llvm::Value* a : args)
    types.push_back(a->getType());
  auto* ft = llvm::FunctionType::get(result, types, false);
  auto callee = module_.getOrInsertFunction("zf_image_" + name, ft);
  auto* f = llvm::dyn_cast<llvm::Function>(callee.getCallee());
  if (!f || f->getFunctionType() != ft)
    fail(inst, "image function " + name + " used with two signatures");
  f->setDoesNotThrow();
  return builder_.CreateCall(callee, args);
}

// The coordinates as three scalars, those that the image does not have 0. Vectors may be longer than needed.
llvm::SmallVector<llvm::Value*, 3> Reader::imageCoordinates(const SpirvInst& inst, const Type& image, uint32_t id) {
  llvm::Value* v = value(inst, id);
  auto* vec = llvm::dyn_cast<llvm::FixedVectorType>(v->getType());
  llvm::Type* scalar = v->getType()->getScalarType();
  const unsigned needed = image.image_dimensions + image.image_arrayed;
  if (!scalar->isIntegerTy(32) && !scalar->isFloatTy())
    fail(inst, "coordinate is neither a 32-bit integer nor a 32-bit float");
  if ((vec ? vec->getNumElements() : 1) < needed)
    fail(inst, "coordinate has fewer components than the image");
  llvm::SmallVector<llvm::Value*, 3> all;
  for (unsigned i = 0; i < 3; ++i)
    all.push_back(i >= needed ? llvm::Constant::getNullValue(scalar) : vec ? builder_.CreateExtractElement(v, i) : v);
  return all;
}

void Reader::checkImageOperands(const SpirvInst& inst, size_t first) {
  if (first < inst.operands.size() && (inst.op(first) & ~kOperandsRead) != 0)
    fail(inst, "image operands " + std::to_string(inst.op(first)) + " are not supported");
}

// The name of the functions for texels of this type, "_f32" or "_i32", and the type that they work with.
std::pair<const char*, llvm::FixedVectorType*> Reader::texelOf(const SpirvInst& inst, const Type& image,
                                                               llvm::Type* texel) {
  auto* vec = llvm::dyn_cast<llvm::FixedVectorType>(texel);
  llvm::Type* scalar = texel->getScalarType();
  if (image.image_depth ? vec != nullptr : !vec || vec->getNumElements() != 4)
    fail(inst, image.image_depth ? "texel of a depth image is not a scalar" : "texel is not a vector of 4");
  if (scalar->isFloatTy() || scalar->isHalfTy())
    return {"_f32", llvm::FixedVectorType::get(builder_.getFloatTy(), 4)};
  if (scalar->isIntegerTy(32) && !image.image_depth)
    return {"_i32", llvm::FixedVectorType::get(builder_.getInt32Ty(), 4)};
  fail(inst, "texel of a type that images do not have");
}

void Reader::setTexel(const SpirvInst& inst, const Type& image, llvm::Value* texel) {
  llvm::Type* wanted = valueType(inst, inst.type_id);
  if (image.image_depth)
    texel = builder_.CreateExtractElement(texel, uint64_t{0});
  if (wanted->getScalarType()->isHalfTy())
    texel = builder_.CreateFPTrunc(texel, wanted);
  setValue(inst, texel);
}

void Reader::sampleImage(const SpirvInst& inst, const SampledImage& sampled, uint32_t coordinate) {
  const Type& image = imageType(inst, sampled.image_id);
  const auto [suffix, texel] = texelOf(inst, image, valueType(inst, inst.type_id));
  llvm::SmallVector<llvm::Value*> args = {sampled.image, sampled.sampler};
  for (llvm::Value* c : imageCoordinates(inst, image, coordinate))
    args.push_back(c->getType()->isFloatTy() ? c : builder_.CreateSIToFP(c, builder_.getFloatTy()));
  args.push_back(builder_.getInt32(image.image_dimensions | (image.image_arrayed ? kShapeArrayed : 0)));
  setTexel(inst, image, callImage(inst, std::string("sample") + suffix, texel, args));
}

void Reader::readTexel(const SpirvInst& inst, uint32_t image_id, uint32_t coordinate) {
  const Type& image = imageType(inst, image_id);
  const auto [suffix, texel] = texelOf(inst, image, valueType(inst, inst.type_id));
  llvm::SmallVector<llvm::Value*> args = {value(inst, image_id)};
  args.append(imageCoordinates(inst, image, coordinate));
  requireInt(inst, args[1]);
  setTexel(inst, image, callImage(inst, std::string("read") + suffix, texel, args));
}

void Reader::writeTexel(const SpirvInst& inst, uint32_t image_id, uint32_t coordinate, uint32_t texel_id) {
  const Type& image = imageType(inst, image_id);
  llvm::Value* v = value(inst, texel_id);
  const auto [suffix, texel] = texelOf(inst, image, v->getType());
  if (v->getType()->getScalarType()->isHalfTy())
    v = builder_.CreateFPExt(v, image.image_depth ? texel->getElementType() : texel);
  if (image.image_depth)
    v = builder_.CreateInsertElement(llvm::Constant::getNullValue(texel), v, uint64_t{0});
  llvm::SmallVector<llvm::Value*> args = {value(inst, image_id)};
  args.append(imageCoordinates(inst, image, coordinate));
  requireInt(inst, args[1]);
  args.push_back(v);
  callImage(inst, std::string("write") + suffix, builder_.getVoidTy(), args);
}

bool Reader::readImage(const SpirvInst& inst) {
  switch (inst.opcode) {
  case spv::OpSampledImage: {
    const Type& t = type(inst, inst.type_id);
    if (t.opcode != spv::OpTypeSampledImage)
      fail(inst, "result is not a sampled image");
    const SampledImage sampled = sampledOf(inst, inst.op(0), inst.op(1));
    if (value_types_.at(sampled.image_id) != t.element)
      fail(inst, "operands do not fit the result type");
    sampled_images_[inst.result_id] = sampled;
    return true;
  }
  case spv::OpImage: {
    const SampledImage& sampled = sampledImage(inst, inst.op(0));
    if (inst.type_id != value_types_.at(sampled.image_id))
      fail(inst, "operand types do not fit the result type");
    setValue(inst, sampled.image);
    return true;
  }
  case spv::OpImageSampleExplicitLod:
    checkImageOperands(inst, 2);
    sampleImage(inst, sampledImage(inst, inst.op(0)), inst.op(1));
    return true;
  case spv::OpImageRead:
    checkImageOperands(inst, 2);
    readTexel(inst, inst.op(0), inst.op(1));
    return true;
  case spv::OpImageWrite:
    checkImageOperands(inst, 3);
    writeTexel(inst, inst.op(0), inst.op(1), inst.op(2));
    return true;
  case spv::OpImageQuerySizeLod:
  case spv::OpImageQuerySize: {
    const Type& image = imageType(inst, inst.op(0));
    llvm::Type* result = valueType(inst, inst.type_id);
    auto* vec = llvm::dyn_cast<llvm::FixedVectorType>(result);
    const unsigned count = image.image_dimensions + image.image_arrayed;
    llvm::Type* scalar = result->getScalarType();
    if ((!scalar->isIntegerTy(32) && !scalar->isIntegerTy(64)) || (vec ? vec->getNumElements() : 1) != count)
      fail(inst, "size of this image does not fit the result type");
    llvm::Value* all = llvm::PoisonValue::get(result);
    for (unsigned i = 0; i < count; ++i) {
      llvm::Value* size = builder_.CreateZExt(
          callImage(inst, "size", builder_.getInt32Ty(), {value(inst, inst.op(0)), builder_.getInt32(i)}), scalar);
      all = vec ? builder_.CreateInsertElement(all, size, i) : size;
    }
    setValue(inst, all);
    return true;
  }
  case spv::OpImageQueryFormat:
  case spv::OpImageQueryOrder:
    imageType(inst, inst.op(0));
    setValue(inst, callImage(inst, inst.opcode == spv::OpImageQueryFormat ? "format" : "order", builder_.getInt32Ty(),
                             {value(inst, inst.op(0))}));
    return true;
  default: return false;
  }
}

Reader::SampledImage Reader::sampledOf(const SpirvInst& inst, uint32_t image_id, uint32_t sampler_id) {
  if (!imageType(inst, image_id).image_sampled || typeOfValue(inst, sampler_id).opcode != spv::OpTypeSampler)
    fail(inst, "not an image that is sampled and a sampler");
  return {image_id, value(inst, image_id), value(inst, sampler_id)};
}

const Reader::SampledImage& Reader::sampledImage(const SpirvInst& inst, uint32_t id) const {
  auto it = sampled_images_.find(id);
  if (it == sampled_images_.end())
    fail(inst, "id " + std::to_string(id) + " is not a sampled image made in this function");
  return it->second;
}

// What clang-22 leaves as calls of OpenCL's functions, whose names tell their parameters' types: two queries, and
// texels of halves.
bool Reader::readImportedImageCall(const SpirvInst& inst, const std::string& name) {
  const size_t count = inst.operands.size() - 1;  // the first names the function
  auto starts = [&](const char* prefix) { return name.rfind(prefix, 0) == 0; };
  auto expect = [&](bool fits) {
    if (!fits)
      fail(inst, "wrong signature for " + name);
  };
  if (starts("_Z12write_imageh")) {
    expect(count == 3);
    writeTexel(inst, inst.op(1), inst.op(2), inst.op(3));
    return true;
  }
  if (starts("_Z11read_imageh")) {
    expect(count == 2 || count == 3);
    if (count == 2)
      readTexel(inst, inst.op(1), inst.op(2));
    else
      sampleImage(inst, sampledOf(inst, inst.op(1), inst.op(2)), inst.op(3));
    return true;
  }
  const bool order = starts("_Z23get_image_channel_order");
  if (!order && !starts("_Z27get_image_channel_data_type"))
    return false;
  expect(count == 1 && valueType(inst, inst.type_id) == builder_.getInt32Ty());
  imageType(inst, inst.op(1));
  llvm::Value* number = callImage(inst, order ? "order" : "format", builder_.getInt32Ty(), {value(inst, inst.op(1))});
  setValue(inst, builder_.CreateAdd(number, builder_.getInt32(order ? kFirstChannelOrder : kFirstChannelType)));
  return true;
}

}  // namespace zefuse::spirv
