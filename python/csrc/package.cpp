#include "python/csrc/package.h"

#include <set>

#include <ATen/ops/empty_strided.h>
#include <ATen/ops/from_blob.h>
#include <torch/csrc/autograd/python_variable.h>

#include "compiler/plan/plan_generated.h"
#include "python/csrc/errors.h"
#include "python/csrc/tensors.h"
#include "runtime/package/package.h"
#include "llvm/Support/Endian.h"
#include "llvm/Support/JSON.h"

namespace py = pybind11;

namespace zefuse::python {
namespace {

constexpr int64_t kManifestFormat = 1;

std::string constantName(size_t number) { return "zefuse.constant." + std::to_string(number); }

std::span<const std::byte> bytesOf(std::string_view text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}

std::string_view textOf(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

/// safetensors' own writer refuses strided and shared tensors: every weight goes in as a dense copy where needed, and
/// the manifest remembers the strides that the plan was compiled for.
struct Weights {
  py::bytes blob;
  llvm::json::Object strides;  // name to list, for those that were not contiguous
};

Weights serialize(const py::dict& weights) {
  Weights result;
  py::dict dense;
  std::set<const void*> seen;
  for (auto [name, value] : weights) {
    const at::Tensor& tensor = THPVariable_Unpack(value.ptr());
    at::Tensor copy = tensor.detach().contiguous();
    if (!tensor.is_contiguous()) {
      llvm::json::Array strides;
      for (int64_t stride : tensor.strides())
        strides.push_back(stride);
      result.strides[py::cast<std::string>(name)] = std::move(strides);
    }
    if (!seen.insert(copy.storage().data()).second)
      copy = copy.clone();
    seen.insert(copy.storage().data());
    dense[name] = py::reinterpret_steal<py::object>(THPVariable_Wrap(copy));
  }
  result.blob = py::module_::import("safetensors.torch").attr("save")(dense);
  return result;
}

c10::ScalarType dtypeOf(llvm::StringRef name) {
  static const std::pair<const char*, c10::ScalarType> names[] = {
      {"F32", c10::ScalarType::Float},     {"F64", c10::ScalarType::Double}, {"F16", c10::ScalarType::Half},
      {"BF16", c10::ScalarType::BFloat16}, {"I64", c10::ScalarType::Long},   {"I32", c10::ScalarType::Int},
      {"I16", c10::ScalarType::Short},     {"I8", c10::ScalarType::Char},    {"U8", c10::ScalarType::Byte},
      {"BOOL", c10::ScalarType::Bool}};
  for (auto& [known, type] : names)
    if (name == known)
      return type;
  return c10::ScalarType::Undefined;
}

[[noreturn]] void damaged(const std::string& path, const std::string& what) {
  raise("damaged", "package " + path + ": " + what + "; make it again with `zefuse compile`");
}

/// The tensors of a safetensors blob (8 bytes of header length, a JSON header, data), without copying. The format's
/// reference: the safetensors documentation, "Format".
py::dict mapWeights(const std::string& path, std::span<const std::byte> blob,
                    const std::shared_ptr<package::Reader>& reader, const llvm::json::Object* strides) {
  if (blob.size() < 8)
    damaged(path, "weights are cut off");
  uint64_t header_size = llvm::support::endian::read64le(blob.data());
  if (header_size > blob.size() - 8)
    damaged(path, "the weights' header is cut off");
  auto header = llvm::json::parse(llvm::StringRef(textOf(blob.subspan(8, header_size))));
  if (!header || !header->getAsObject()) {
    llvm::consumeError(header.takeError());
    damaged(path, "the weights' header is no JSON object");
  }
  std::span<const std::byte> data = blob.subspan(8 + header_size);
  py::dict result;
  for (auto& [key, value] : *header->getAsObject()) {
    if (key == "__metadata__")
      continue;
    std::string name = key.str();
    auto* entry = value.getAsObject();
    auto* shape = entry ? entry->getArray("shape") : nullptr;
    auto* offsets = entry ? entry->getArray("data_offsets") : nullptr;
    auto dtype = dtypeOf(entry ? entry->getString("dtype").value_or("") : "");
    if (!shape || !offsets || offsets->size() != 2 || dtype == c10::ScalarType::Undefined)
      damaged(path, "weight " + name + " has no usable description");
    std::vector<int64_t> sizes;
    uint64_t bytes = c10::elementSize(dtype);
    for (auto& size : *shape) {
      sizes.push_back(size.getAsInteger().value_or(-1));
      if (sizes.back() < 0 || __builtin_mul_overflow(bytes, static_cast<uint64_t>(sizes.back()), &bytes))
        damaged(path, "weight " + name + " has an impossible shape");
    }
    int64_t begin = (*offsets)[0].getAsInteger().value_or(-1), end = (*offsets)[1].getAsInteger().value_or(-1);
    if (begin < 0 || end < begin || static_cast<uint64_t>(end) > data.size() ||
        static_cast<uint64_t>(end - begin) != bytes)
      damaged(path, "weight " + name + " lies outside the file");
    // The mapping is private, so a write changes only this process' pages.
    at::Tensor tensor =
        at::from_blob(const_cast<std::byte*>(data.data() + begin), sizes, [reader](void*) {}, at::TensorOptions(dtype));
    if (auto* wanted = strides ? strides->getArray(name) : nullptr) {
      std::vector<int64_t> numbers;
      for (auto& stride : *wanted)
        numbers.push_back(stride.getAsInteger().value_or(0));
      if (numbers.size() != sizes.size())
        damaged(path, "weight " + name + " has strides of another rank");
      tensor = at::empty_strided(sizes, numbers, tensor.options()).copy_(tensor);
    }
    result[py::str(name)] = py::reinterpret_steal<py::object>(THPVariable_Wrap(tensor));
  }
  return result;
}

}  // namespace

void writePackage(const std::string& path, const CompiledGraph& graph, const py::dict& weights,
                  const std::string& convention) {
  py::dict all(weights);
  for (size_t i = 0; i < graph.constants().size(); ++i)
    all[py::str(constantName(i))] = py::reinterpret_steal<py::object>(THPVariable_Wrap(graph.constants()[i]));
  Weights serialized = serialize(all);
  llvm::json::Object manifest{{"format", kManifestFormat},
                              {"convention", convention},
                              {"constants", static_cast<int64_t>(graph.constants().size())},
                              {"strides", std::move(serialized.strides)}};
  std::string manifest_text;
  llvm::raw_string_ostream(manifest_text) << llvm::json::Value(std::move(manifest));

  package::Writer writer;
  writer.add(std::string(package::manifest_section), bytesOf(manifest_text));
  writer.add(std::string(package::plan_section), graph.executable().planBytes());
  auto natives = unwrap(graph.executable().nativeBinaries());
  const auto* modules = graph.executable().plan().modules();
  for (size_t i = 0; i < natives.size(); ++i)
    if (!natives[i].empty())
      writer.add(package::nativeSection(modules->Get(i)->id()->string_view(), modules->Get(i)->target()->string_view()),
                 natives[i]);
  writer.add(std::string(package::weights_section), bytesOf(std::string_view(serialized.blob)));
  if (Status status = writer.write(path); !status.ok())
    raise(status);
}

py::tuple loadPackage(const std::string& path, const ExecutableOptions& given) {
  std::shared_ptr<package::Reader> reader = unwrap(package::Reader::open(path));
  auto manifest_bytes = unwrap(reader->section(package::manifest_section));
  auto manifest = llvm::json::parse(llvm::StringRef(textOf(manifest_bytes)));
  llvm::json::Object* object = manifest ? manifest->getAsObject() : nullptr;
  if (!object) {
    llvm::consumeError(manifest.takeError());
    damaged(path, "the manifest is no JSON object");
  }
  if (auto format = object->getInteger("format"); format != kManifestFormat)
    raise("unsupported", "package " + path + " has format " + std::to_string(format.value_or(0)) +
                             ", this zefuse reads format " + std::to_string(kManifestFormat) +
                             "; make it again with `zefuse compile`");
  py::dict weights =
      mapWeights(path, unwrap(reader->section(package::weights_section)), reader, object->getObject("strides"));
  std::vector<at::Tensor> constants;
  for (int64_t i = 0; i < object->getInteger("constants").value_or(0); ++i) {
    py::str name(constantName(i));
    if (!weights.contains(name))
      damaged(path, "constant " + std::to_string(i) + " is missing");
    constants.push_back(THPVariable_Unpack(py::object(weights[name]).ptr()));
    weights.attr("pop")(name);
  }
  ExecutableOptions options = given;
  options.native_binary = [&](std::string_view id, std::string_view target) { return reader->native(id, target); };
  auto plan = unwrap(reader->section(package::plan_section));
  auto graph = std::make_unique<CompiledGraph>(unwrap(Executable::create(plan, options)), std::move(constants), "");
  return py::make_tuple(py::cast(std::move(graph)), weights, object->getString("convention").value_or("").str());
}

}  // namespace zefuse::python
