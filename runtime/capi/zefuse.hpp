// zefuse.h for C++17: the same functions with ownership and exceptions. Header only.
#pragma once

#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <zefuse/zefuse.h>

namespace zefuse {

class Error : public std::runtime_error {
public:
  Error(zefuse_status status, const std::string& message) : std::runtime_error(message), status_(status) {}
  zefuse_status status() const noexcept { return status_; }

private:
  zefuse_status status_;
};

inline void check(zefuse_status status) {
  if (status != ZEFUSE_OK)
    throw Error(status, zefuse_error_message());
}

template <typename T> struct DType;
#define ZEFUSE_DTYPE(type, code, bits)                                                                                 \
  template <> struct DType<type> {                                                                                     \
    static constexpr DLDataType value{code, bits, 1};                                                                  \
  };
ZEFUSE_DTYPE(float, kDLFloat, 32)
ZEFUSE_DTYPE(double, kDLFloat, 64)
ZEFUSE_DTYPE(std::int64_t, kDLInt, 64)
ZEFUSE_DTYPE(std::int32_t, kDLInt, 32)
ZEFUSE_DTYPE(std::int16_t, kDLInt, 16)
ZEFUSE_DTYPE(std::int8_t, kDLInt, 8)
ZEFUSE_DTYPE(std::uint8_t, kDLUInt, 8)
ZEFUSE_DTYPE(bool, kDLBool, 8)
#undef ZEFUSE_DTYPE

// Describes the caller's row-major memory as an input; owns none of it.
class View {
public:
  template <typename T> View(const T* data, std::vector<std::int64_t> sizes) : sizes_(std::move(sizes)) {
    tensor_.data = const_cast<T*>(data);
    tensor_.device = {kDLCPU, 0};
    tensor_.dtype = DType<T>::value;
    tensor_.ndim = static_cast<std::int32_t>(sizes_.size());
    tensor_.shape = sizes_.data();
  }
  View(const View& other) : sizes_(other.sizes_), tensor_(other.tensor_), constant_(other.constant_) {
    tensor_.shape = sizes_.data();
  }
  // In place of an input that was a constant when the program was exported: it stays what it was.
  static View constant() { return View(); }
  View& operator=(const View&) = delete;
  const DLTensor& operator*() const { return tensor_; }
  const DLTensor* get() const { return constant_ ? nullptr : &tensor_; }

private:
  View() : constant_(true) {}

  std::vector<std::int64_t> sizes_;
  DLTensor tensor_{};
  bool constant_ = false;
};

// An output. Move-only.
class Tensor {
public:
  explicit Tensor(DLManagedTensor* managed) : managed_(managed) {}
  explicit operator bool() const { return managed_ != nullptr; }  // false: the program returned None
  const DLTensor& dl() const { return managed_->dl_tensor; }
  std::vector<std::int64_t> sizes() const { return {dl().shape, dl().shape + dl().ndim}; }
  // Throws when the elements are of another type. Row-major unless the strides say otherwise. On a GPU (dl().device) it
  // is an address there.
  template <typename T> const T* data() const {
    constexpr DLDataType wanted = DType<T>::value;
    if (dl().dtype.code != wanted.code || dl().dtype.bits != wanted.bits)
      throw Error(ZEFUSE_INVALID_ARGUMENT, "zefuse: an output has another element type than asked for");
    return reinterpret_cast<const T*>(static_cast<const char*>(dl().data) + dl().byte_offset);
  }
  DLManagedTensor* release() { return managed_.release(); }  // to hand it to another library

private:
  struct Delete {
    void operator()(DLManagedTensor* managed) const { managed->deleter(managed); }
  };
  std::unique_ptr<DLManagedTensor, Delete> managed_;
};

class Model {
public:
  static Model fromFile(const std::string& path, const std::string& device = "cpu") {
    zefuse_load_options options{};
    options.size = sizeof options;
    options.device = device.c_str();
    return fromFile(path, options);
  }
  static Model fromFile(const std::string& path, const zefuse_load_options& options) {
    zefuse_model* model = nullptr;
    check(zefuse_model_load_file(path.c_str(), &options, &model));
    return Model(model);
  }
  static Model fromBuffer(const void* data, std::size_t bytes, const zefuse_load_options& options) {
    zefuse_model* model = nullptr;
    check(zefuse_model_load_buffer(data, bytes, &options, &model));
    return Model(model);
  }

  // "cpu" or "gpu:0"; `why`, unless null, gets why not the first of the list that was asked for, or becomes empty.
  std::string device(std::string* why = nullptr) const {
    const char* reason = nullptr;
    const std::string name = zefuse_model_device(model_.get(), &reason);
    if (why)
      *why = reason ? reason : "";
    return name;
  }
  std::vector<zefuse_tensor_info> inputs() const { return describe(zefuse_model_num_inputs, zefuse_model_input); }
  std::vector<zefuse_tensor_info> outputs() const { return describe(zefuse_model_num_outputs, zefuse_model_output); }

  // What the package carries under this name; lives as long as the model.
  std::string_view file(const std::string& name) const {
    const void* data = nullptr;
    std::size_t bytes = 0;
    check(zefuse_model_file(model_.get(), name.c_str(), &data, &bytes));
    return {static_cast<const char*>(data), bytes};
  }

  std::vector<Tensor> operator()(const std::vector<View>& inputs) {
    std::vector<const DLTensor*> pointers;
    for (const View& input : inputs)
      pointers.push_back(input.get());
    return (*this)(pointers);
  }
  // As zefuse_model_call takes them, for tensors that a View does not describe: strides, other element types, on a GPU.
  std::vector<Tensor> operator()(const std::vector<const DLTensor*>& pointers) { return call(pointers, nullptr); }
  // With a stream, results on the device, memory of the caller's.
  std::vector<Tensor> operator()(const std::vector<const DLTensor*>& pointers, const zefuse_call_options& options) {
    return call(pointers, &options);
  }
  void synchronize() { check(zefuse_model_synchronize(model_.get())); }
  DLDevice dlDevice() const { return zefuse_model_dl_device(model_.get()); }
  // A copy on the model's GPU, or in CPU memory.
  Tensor toDevice(const DLTensor& tensor) { return copy(tensor, true); }
  Tensor toHost(const DLTensor& tensor) { return copy(tensor, false); }
  zefuse_model* get() const { return model_.get(); }

private:
  explicit Model(zefuse_model* model) : model_(model) {}
  std::vector<Tensor> call(const std::vector<const DLTensor*>& pointers, const zefuse_call_options* options) {
    std::vector<DLManagedTensor*> results(zefuse_model_num_outputs(model_.get()));
    std::vector<Tensor> tensors;
    tensors.reserve(results.size());  // nothing is thrown while `results` own
    check(zefuse_model_call_with(model_.get(), options, pointers.data(), pointers.size(), results.data(),
                                 results.size()));
    for (DLManagedTensor* result : results)
      tensors.emplace_back(result);
    return tensors;
  }
  Tensor copy(const DLTensor& tensor, bool to_device) {
    DLManagedTensor* made = nullptr;
    check(zefuse_model_copy_tensor(model_.get(), &tensor, to_device, &made));
    return Tensor(made);
  }
  template <typename Count, typename Get> std::vector<zefuse_tensor_info> describe(Count count, Get get) const {
    std::vector<zefuse_tensor_info> all(count(model_.get()));
    for (std::size_t i = 0; i < all.size(); ++i)
      check(get(model_.get(), i, &all[i]));
    return all;
  }
  struct Release {
    void operator()(zefuse_model* model) const { zefuse_model_release(model); }
  };
  std::unique_ptr<zefuse_model, Release> model_;
};

}  // namespace zefuse
