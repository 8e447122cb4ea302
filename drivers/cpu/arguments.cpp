#include "drivers/cpu/arguments.h"

#include <algorithm>
#include <cstring>

#include "drivers/cpu/level_zero.h"
#include "drivers/cpu/memory.h"
#include "drivers/cpu/sampler.h"
#include "drivers/cpu/virtual_memory.h"

namespace zefuse::cpu {
namespace {

bool isPointer(spirv::ArgKind kind) {
  return kind == spirv::ArgKind::global_pointer || kind == spirv::ArgKind::constant_pointer;
}

size_t storedBytes(const spirv::ArgInfo& info) {
  return isPointer(info.kind) || info.kind == spirv::ArgKind::local_pointer ? sizeof(void*) : info.size;
}

}  // namespace

Arguments::Arguments(const spirv::KernelInfo& info, bool usm_only)
    : info_(info), usm_only_(usm_only), is_set_(info.args.size(), false),
      unset_(static_cast<uint32_t>(info.args.size())), local_bytes_(alignLocal(info.local_bytes)) {
  size_t end = 0;
  for (uint32_t i = 0; i < info.args.size(); ++i) {
    size_t alignment = std::clamp<size_t>(info.args[i].alignment, sizeof(void*), kLocalAlignment);
    end = (end + alignment - 1) / alignment * alignment;
    offsets_.push_back(static_cast<uint32_t>(end));
    end += storedBytes(info.args[i]);
    if (info.args[i].kind == spirv::ArgKind::local_pointer)
      locals_.push_back({i, 0});
    if (info.args[i].kind == spirv::ArgKind::image)
      images_.resize(info.args.size());
  }
  storage_.resize(end / sizeof(Block) + 1);
  std::memset(storage_.data(), 0, storage_.size() * sizeof(Block));
  pointAtValues();
}

Arguments::Arguments(const Arguments& other)
    : info_(other.info_), usm_only_(other.usm_only_), storage_(other.storage_), offsets_(other.offsets_),
      locals_(other.locals_), is_set_(other.is_set_), images_(other.images_), unset_(other.unset_),
      local_bytes_(other.local_bytes_) {
  pointAtValues();
}

void Arguments::pointAtValues() {
  pointers_.resize(offsets_.size());
  for (uint32_t i = 0; i < offsets_.size(); ++i)
    pointers_[i] = valueOf(i);
}

ze_result_t Arguments::set(uint32_t index, size_t size, const void* value) {
  if (index >= info_.args.size())
    return refuse(ZE_RESULT_ERROR_INVALID_KERNEL_ARGUMENT_INDEX,
                  "zeKernelSetArgumentValue: kernel '%s' has %zu arguments, not one numbered %u", info_.name.c_str(),
                  info_.args.size(), index);
  const spirv::ArgInfo& info = info_.args[index];
  if (info.kind == spirv::ArgKind::image || info.kind == spirv::ArgKind::sampler) {
    if (ze_result_t result = setHandle(index, size, value))
      return result;
  } else if (info.kind == spirv::ArgKind::local_pointer) {
    if (value)
      return refuse(ZE_RESULT_ERROR_INVALID_ARGUMENT,
                    "zeKernelSetArgumentValue: argument %u of kernel '%s' is local memory: the "
                    "value must be NULL and the size its bytes",
                    index, info_.name.c_str());
    if (size == 0 || size > kMaxLocalBytes)
      return refuse(ZE_RESULT_ERROR_INVALID_KERNEL_ARGUMENT_SIZE,
                    "zeKernelSetArgumentValue: argument %u of kernel '%s': %zu bytes of local "
                    "memory; 1 to %u are possible",
                    index, info_.name.c_str(), size, kMaxLocalBytes);
    auto local =
        std::find_if(locals_.begin(), locals_.end(), [&](const LocalArgument& entry) { return entry.index == index; });
    local_bytes_ += alignLocal(static_cast<uint32_t>(size));
    local_bytes_ -= alignLocal(local->bytes);
    local->bytes = static_cast<uint32_t>(size);
  } else {
    if (size != storedBytes(info))
      return refuse(ZE_RESULT_ERROR_INVALID_KERNEL_ARGUMENT_SIZE,
                    "zeKernelSetArgumentValue: argument %u of kernel '%s' has %zu bytes, not %zu", index,
                    info_.name.c_str(), storedBytes(info), size);
    const void* pointer = nullptr;
    if (value && usm_only_ && isPointer(info.kind))
      std::memcpy(&pointer, value, sizeof pointer);
    if (pointer && !AllocationTable::instance().contains(pointer) && !isMappedVirtual(pointer))
      return refuse(ZE_RESULT_ERROR_INVALID_ARGUMENT,
                    "zeKernelSetArgumentValue: argument %u of kernel '%s' is %p, which lies in no USM: a discrete "
                    "device cannot reach it",
                    index, info_.name.c_str(), pointer);
    if (value)
      std::memcpy(valueOf(index), value, size);
    else
      std::memset(valueOf(index), 0, size);  // "considered null"
  }
  if (!is_set_[index]) {
    is_set_[index] = true;
    --unset_;
  }
  return ZE_RESULT_SUCCESS;
}

ze_result_t Arguments::setHandle(uint32_t index, size_t size, const void* value) {
  const bool is_image = info_.args[index].kind == spirv::ArgKind::image;
  if (size != sizeof(ze_image_handle_t))
    return refuse(ZE_RESULT_ERROR_INVALID_KERNEL_ARGUMENT_SIZE,
                  "zeKernelSetArgumentValue: argument %u of kernel '%s' is the handle of %s: %zu bytes, not %zu", index,
                  info_.name.c_str(), is_image ? "an image" : "a sampler", sizeof(ze_image_handle_t), size);
  void* handle = nullptr;
  if (value)
    std::memcpy(&handle, value, sizeof handle);
  Image* image = is_image ? fromHandle<Image>(handle) : nullptr;
  Sampler* sampler = is_image ? nullptr : fromHandle<Sampler>(handle);
  if (handle && !image && !sampler)
    return refuse(ZE_RESULT_ERROR_INVALID_ARGUMENT,
                  "zeKernelSetArgumentValue: argument %u of kernel '%s': %p is not a live %s", index,
                  info_.name.c_str(), handle, is_image ? "image" : "sampler");
  if (is_image) {
    const ImageView* view = image ? &image->view : &kNoImage;
    images_[index] = Ref<Image>(image);
    std::memcpy(valueOf(index), &view, sizeof(void*));
  } else {
    const uint64_t word = sampler ? sampler->word : 0;
    std::memcpy(valueOf(index), &word, sizeof word);
  }
  return ZE_RESULT_SUCCESS;
}

ze_result_t Arguments::explainIncomplete() const {
  if (unset_ != 0) {
    auto first = std::find(is_set_.begin(), is_set_.end(), false) - is_set_.begin();
    return refuse(ZE_RESULT_ERROR_INVALID_ARGUMENT, "launch of kernel '%s': argument %td was never set",
                  info_.name.c_str(), first);
  }
  return refuse(ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY,
                "launch of kernel '%s': a work-group needs %llu bytes of local memory; there are %u",
                info_.name.c_str(), static_cast<unsigned long long>(local_bytes_), kMaxLocalBytes);
}

void Arguments::translate() {
  for (uint32_t i = 0; i < info_.args.size(); ++i) {
    if (!isPointer(info_.args[i].kind))
      continue;
    const void* pointer;
    std::memcpy(&pointer, valueOf(i), sizeof pointer);
    pointer = AllocationTable::instance().reach(pointer);
    std::memcpy(valueOf(i), &pointer, sizeof pointer);
  }
}

void Arguments::fill(KernelCall& call) const {
  call.arguments = pointers_.data();
  call.argument_count = static_cast<uint32_t>(pointers_.size());
  call.local_arguments = locals_.data();
  call.local_argument_count = static_cast<uint32_t>(locals_.size());
  call.static_local_bytes = info_.local_bytes;
  call.info = &info_;
  call.keeps_across_barriers = info_.has_barrier && info_.private_bytes != 0;
}

}  // namespace zefuse::cpu
