#include "language_model.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <stdexcept>

LanguageModel::LanguageModel(const std::string& path)
    : model_(zefuse::Model::fromFile(path)), tokenizer_(model_.file("tokenizer.json")) {
  try {
    const auto settings = nlohmann::json::parse(model_.file("language_model.json"));
    for (const auto& token : settings.at("end"))
      ends_.insert(token.get<std::int64_t>());
    step_ = settings.at("step").get<std::int64_t>();
    const auto& context = settings.at("context");
    context_ = context.is_null() ? std::int64_t(1) << 20 : context.get<std::int64_t>();
    if (const auto& texts = settings.at("conversation"); !texts.is_null()) {
      conversation_ = Conversation{texts.at("before"), texts.at("after"), std::nullopt};
      if (texts.contains("between"))
        conversation_->between = texts.at("between");
    }
  } catch (const nlohmann::json::exception& error) {
    throw std::runtime_error(path +
                             ": its language_model.json is not what zefuse compile --llm writes: " + error.what());
  }
  const auto inputs = model_.inputs();
  for (std::size_t i = 3; i < inputs.size(); ++i) {  // after input_ids, padding and start
    const zefuse_tensor_info& info = inputs[i];
    if (info.ndim != 4 || step_ < 1)
      throw std::runtime_error(path + ": it has no key-value cache of the form that zefuse compile --llm makes");
    Layer& layer = layers_.emplace_back();
    const std::int64_t heads = info.sizes[1], width = info.sizes[3];
    layer.sizes = {1, heads, 0, width};
    layer.strides = {heads * width, width, heads * width, 1};
    layer.bytes_per_token = std::size_t(heads * width) * info.dtype.bits / 8;
    layer.tensor.device = {kDLCPU, 0};
    layer.tensor.ndim = 4;
    layer.tensor.dtype = info.dtype;
  }
  for (Layer& layer : layers_) {  // which stay where they are from here on
    layer.tensor.shape = layer.sizes.data();
    layer.tensor.strides = layer.strides.data();
  }
}

void LanguageModel::reserve(std::int64_t tokens) {
  if (tokens > context_)
    throw std::runtime_error("the conversation would have " + std::to_string(tokens) + " tokens, more than the " +
                             std::to_string(context_) + " of the model's context: shorten the prompt or ask for fewer");
  if (tokens <= capacity_)
    return;
  const std::int64_t wanted = std::min(context_, (tokens + step_ - 1) / step_ * step_);
  for (Layer& layer : layers_) {
    layer.memory.resize(std::size_t(wanted) * layer.bytes_per_token);
    layer.tensor.data = layer.memory.data();
  }
  capacity_ = wanted;
}

std::int64_t LanguageModel::next(std::span<const std::int64_t> tokens, std::int64_t added, const Sampling& sampling,
                                 std::mt19937_64& draws) {
  if (tokens.empty())
    throw std::runtime_error("the prompt has no tokens");
  const auto count = std::int64_t(tokens.size());
  reserve(length_ + count);
  // The plans see the filled part of the cache, in steps: each new size costs a call about a millisecond.
  const std::int64_t shown = std::min(capacity_, (length_ + count + step_ - 1) / step_ * step_);
  const std::int64_t none = 0;  // a batch of one has no padding
  const zefuse::View ids(tokens.data(), {1, count}), padding(&none, {1}), start(&length_, {});
  std::vector<const DLTensor*> inputs{ids.get(), padding.get(), start.get()};
  for (Layer& layer : layers_) {
    layer.sizes[2] = shown;
    inputs.push_back(&layer.tensor);
  }
  const auto outputs = model_(inputs);
  length_ += count;
  sequence_.insert(sequence_.end(), tokens.begin(), tokens.end());
  const float* made = outputs.at(0).data<float>();
  std::vector<float> logits(made, made + outputs[0].sizes().back());
  return choose(logits, sequence_, added, ends_, sampling, draws);
}
