#include "runtime/package/manifest.h"

#include <algorithm>
#include <cstring>
#include <set>

#include "common/plan/dtype.h"
#include "runtime/package/json.h"

namespace zefuse::package {
namespace {

std::string_view textOf(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::vector<std::string> textsOf(const Json* list) {
  std::vector<std::string> result;
  if (list)
    for (const Json& item : list->array())
      result.push_back(item.text().value_or(""));
  return result;
}

Status damaged(const Reader& reader, const std::string& what) {
  return {Code::damaged, reader.name() + ": " + what + "; make it again"};
}

// False: an entry has none of the forms below.
bool readSlots(const Json& json, PlanEntry& entry) {
  auto number = [](const Json& slot, std::string_view key) {
    const Json* value = slot.find(key);
    return value ? value->integer().value_or(-1) : -1;
  };
  constexpr int64_t most = 1 << 20;
  const Json *inputs = json.find("inputs"), *outputs = json.find("outputs");
  if (!inputs || !outputs)
    return false;
  for (const Json& slot : inputs->array()) {
    InputSlot input;
    input.weight = slot.textOr("weight");
    input.is_weight = !input.weight.empty();
    const int64_t user = number(slot, "user");
    if (!input.is_weight && (user < 0 || user > most))
      return false;
    input.user = input.is_weight ? 0 : size_t(user);
    input.constant = slot.flag("constant");
    input.written = slot.flag("written");
    entry.inputs.push_back(std::move(input));
  }
  size_t users = 0;
  for (const Json& slot : outputs->array()) {
    OutputSlot output;
    output.weight = slot.textOr("weight");
    const int64_t mutates = number(slot, "mutates");
    if (slot.flag("user")) {
      output.user = users++;
    } else if (!output.weight.empty()) {
      output.kind = OutputSlot::Kind::weight;
    } else if (mutates >= 0 && mutates <= most) {
      output.kind = OutputSlot::Kind::mutates;
      output.user = size_t(mutates);
    } else {
      return false;
    }
    entry.outputs.push_back(std::move(output));
  }
  return true;
}

std::optional<GraphKey> readGraphKey(const Json* json) {
  if (!json || !json->isObject())
    return std::nullopt;
  auto numbers = [&](std::string_view name) {
    std::vector<int64_t> result;
    if (const Json* list = json->find(name))
      for (const Json& item : list->array())
        result.push_back(item.integer().value_or(-1));
    return result;
  };
  GraphKey key;
  if (const Json* fields = json->find("fields"))
    for (const auto& [name, value] : fields->object())
      key.fields.emplace_back(name, value.text().value_or(""));
  key.inputs = textsOf(json->find("inputs"));
  key.outputs = textsOf(json->find("outputs"));
  key.arguments = numbers("arguments");
  key.symbols = numbers("symbols");
  if (const Json* unread = json->find("unread"))
    for (const Json& item : unread->array())
      if (item.array().size() == 2)
        key.unread.emplace_back(item.array()[0].text().value_or(""), item.array()[1].integer().value_or(-1));
  return key;
}

// Format 1: one plan for the CPU; the convention was a text of its own, and constants followed the inputs.
Status readFormat1(const Reader& reader, const Json& json, Manifest& manifest) {
  Result<Json> convention = Json::parse(json.textOr("convention"));
  if (!convention.ok())
    return damaged(reader, "the manifest's convention is " + convention.status().message());
  PlanEntry entry{"cpu", std::string(plan_section), {}, {}, {}, {}};
  if (!readSlots(*convention, entry))
    return damaged(reader, "the manifest has an input or output of no known kind");
  size_t users = 0, results = 0;
  for (const InputSlot& slot : entry.inputs)
    users = std::max(users, slot.is_weight ? 0 : slot.user + 1);
  for (const OutputSlot& slot : entry.outputs)
    results += slot.kind == OutputSlot::Kind::user;
  const Json* constants = json.find("constants");
  const int64_t count = constants ? constants->integer().value_or(0) : 0;
  for (int64_t i = 0; i < std::min<int64_t>(count, 1 << 20); ++i)
    entry.inputs.push_back({.is_weight = true, .weight = "zefuse.constant." + std::to_string(i)});
  for (size_t i = 0; i < users; ++i)
    manifest.input_names.push_back("input_" + std::to_string(i));
  for (size_t i = 0; i < results; ++i)
    manifest.output_names.push_back("output_" + std::to_string(i));
  manifest.in_spec = convention->textOr("in_spec");
  manifest.out_spec = convention->textOr("out_spec");
  manifest.plans.push_back(std::move(entry));
  return {};
}

struct Dtype {
  const char* name;
  plan::DType type;
};
constexpr Dtype dtypes[] = {{"F32", plan::DType::f32},   {"F64", plan::DType::f64}, {"F16", plan::DType::f16},
                            {"BF16", plan::DType::bf16}, {"I64", plan::DType::i64}, {"I32", plan::DType::i32},
                            {"I16", plan::DType::i16},   {"I8", plan::DType::i8},   {"U8", plan::DType::u8},
                            {"BOOL", plan::DType::b8}};

}  // namespace

Result<Manifest> Manifest::read(const Reader& reader) {
  auto bytes = reader.section(manifest_section);
  if (!bytes.ok())
    return bytes.status();
  Result<Json> json = Json::parse(textOf(*bytes));
  if (!json.ok() || !json->isObject())
    return damaged(reader, "the manifest is no JSON object");
  Manifest manifest;
  manifest.producer = json->textOr("producer", "zefuse");
  if (const Json* strides = json->find("strides"))
    for (const auto& [name, list] : strides->object())
      for (const Json& stride : list.array())
        manifest.strides[name].push_back(stride.integer().value_or(-1));
  if (reader.format() == 1) {
    ZEFUSE_RETURN_IF_ERROR(readFormat1(reader, *json, manifest));
  } else {
    manifest.input_names = textsOf(json->find("inputs"));
    manifest.output_names = textsOf(json->find("outputs"));
    manifest.in_spec = json->textOr("in_spec");
    manifest.out_spec = json->textOr("out_spec");
    const Json* plans = json->find("plans");
    for (const Json& item : plans ? plans->array() : Json::Array()) {
      PlanEntry entry{item.textOr("target"), item.textOr("section"), {}, {}, readGraphKey(item.find("graph")), {}};
      if (entry.target.empty() || entry.section.empty() || !readSlots(item, entry))
        return damaged(reader, "the manifest describes a plan that this runtime cannot bind");
      auto guards = Guards::read(item.find("guards"), manifest.input_names.size());
      if (!guards)
        return Status(Code::unsupported, reader.name() +
                                             ": the manifest has a condition on arguments that this runtime does not "
                                             "know: load it with a newer zefuse");
      entry.guards = std::move(*guards);
      manifest.plans.push_back(std::move(entry));
    }
    const Json* captured = json->find("captured");
    for (const Json& item : captured ? captured->array() : Json::Array()) {
      auto graph = readGraphKey(item.find("graph"));
      const Json* count = item.find("num_inputs");
      const int64_t num_inputs = count ? count->integer().value_or(-1) : -1;
      CapturedGraph entry{item.textOr("target"), item.textOr("section"), size_t(num_inputs), {}};
      if (entry.target.empty() || entry.section.empty() || !graph || num_inputs < 0 || num_inputs > 1 << 20)
        return damaged(reader, "the manifest describes a graph of torch.compile that this runtime cannot bind");
      entry.graph = std::move(*graph);
      manifest.captured.push_back(std::move(entry));
    }
  }
  if (manifest.plans.empty() && manifest.captured.empty())
    return damaged(reader, "the manifest names no plan");
  std::set<std::string_view> plans;
  for (const PlanEntry& entry : manifest.plans) {
    if (!plans.insert(entry.section).second)  // each is loaded
      return damaged(reader, "the manifest names the plan '" + entry.section + "' twice");
    size_t results = 0;
    for (const InputSlot& slot : entry.inputs)
      if (!slot.is_weight && slot.user >= manifest.input_names.size())
        return damaged(reader, "the manifest binds an input that it does not name");
    for (const OutputSlot& slot : entry.outputs) {
      results += slot.kind == OutputSlot::Kind::user;
      if (slot.kind == OutputSlot::Kind::mutates && slot.user >= manifest.input_names.size())
        return damaged(reader, "the manifest changes an input that it does not name");
    }
    if (results != manifest.output_names.size())
      return damaged(reader, "the manifest names " + std::to_string(manifest.output_names.size()) +
                                 " outputs and a plan has " + std::to_string(results));
  }
  return manifest;
}

// The format's reference: the safetensors documentation, "Format": 8 bytes of header length, a JSON header, data.
Result<std::vector<Weight>> readWeights(const Reader& reader) {
  auto section = reader.section(weights_section);
  if (!section.ok())
    return section.status();
  const std::span<const std::byte> blob = *section;
  uint64_t header_bytes = 0;
  if (blob.size() < sizeof header_bytes)
    return damaged(reader, "the weights are cut off");
  std::memcpy(&header_bytes, blob.data(), sizeof header_bytes);
  if (header_bytes > blob.size() - sizeof header_bytes)
    return damaged(reader, "the weights' header is cut off");
  Result<Json> header = Json::parse(textOf(blob.subspan(sizeof header_bytes, size_t(header_bytes))));
  if (!header.ok() || !header->isObject())
    return damaged(reader, "the weights' header is no JSON object");
  const std::span<const std::byte> data = blob.subspan(sizeof header_bytes + size_t(header_bytes));
  std::vector<Weight> weights;
  uint64_t all_bytes = 0;
  for (const auto& [name, entry] : header->object()) {
    if (name == "__metadata__")
      continue;
    const std::string dtype = entry.textOr("dtype");
    const auto* known = std::ranges::find_if(dtypes, [&](const Dtype& candidate) { return dtype == candidate.name; });
    const Json *shape = entry.find("shape"), *offsets = entry.find("data_offsets");
    if (known == std::end(dtypes) || !shape || !offsets || offsets->array().size() != 2)
      return damaged(reader, "weight '" + name + "' has no usable description");
    Weight weight{name, known->type, {}, {}};
    uint64_t bytes = plan::elementSize(weight.dtype);
    for (const Json& size : shape->array()) {
      weight.sizes.push_back(size.integer().value_or(-1));
      if (weight.sizes.back() < 0 || __builtin_mul_overflow(bytes, uint64_t(weight.sizes.back()), &bytes))
        return damaged(reader, "weight '" + name + "' has an impossible shape");
    }
    const int64_t begin = offsets->array()[0].integer().value_or(-1), end = offsets->array()[1].integer().value_or(-1);
    if (begin < 0 || end < begin || uint64_t(end) > data.size() || uint64_t(end - begin) != bytes)
      return damaged(reader, "weight '" + name + "' lies outside the file");
    // Weights that overlap would be copied more often than the file is large.
    if ((all_bytes += bytes) > data.size())
      return damaged(reader, "the weights up to '" + name + "' take more than the file holds of them");
    weight.bytes = data.subspan(size_t(begin), size_t(bytes));
    weights.push_back(std::move(weight));
  }
  std::ranges::sort(weights, {}, &Weight::name);
  return weights;
}

}  // namespace zefuse::package
