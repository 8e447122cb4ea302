// Plans by hand, for tests: each method returns the index of what it added.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "common/plan/dtype.h"
#include "common/plan/plan_generated.h"

namespace zefuse::test {

struct PlanBuilder {
  plan::PlanT plan;
  uint32_t output_buffers = 0;

  PlanBuilder() {
    plan.device = "cpu";
    constant(0);  // expression 0: what fields left at their default refer to
  }

  uint32_t expr(plan::ExprOp op, int64_t value, uint32_t lhs = 0, uint32_t rhs = 0) {
    plan.exprs.emplace_back(value, lhs, rhs, op);
    return uint32_t(plan.exprs.size() - 1);
  }
  uint32_t constant(int64_t value) { return expr(plan::ExprOp::constant, value); }
  uint32_t op(plan::ExprOp op, uint32_t lhs, uint32_t rhs) { return expr(op, 0, lhs, rhs); }
  std::vector<uint32_t> constants(const std::vector<int64_t>& values) {
    std::vector<uint32_t> out;
    for (int64_t value : values)
      out.push_back(constant(value));
    return out;
  }
  // The expression of a new symbol.
  uint32_t symbol(const std::string& name, uint32_t input, int32_t dim = -1) {
    auto symbol = std::make_unique<plan::SymbolT>();
    symbol->name = name;
    symbol->input = input;
    symbol->dim = dim;
    plan.symbols.push_back(std::move(symbol));
    return expr(plan::ExprOp::symbol, int64_t(plan.symbols.size()) - 1);
  }
  std::vector<uint32_t> contiguous(const std::vector<uint32_t>& sizes) {
    std::vector<uint32_t> strides(sizes.size());
    uint32_t step = constant(1);
    for (size_t i = sizes.size(); i-- > 0;) {
      strides[i] = step;
      step = op(plan::ExprOp::mul, step, sizes[i]);
    }
    return strides;
  }

  uint32_t input(const std::string& name, plan::DType dtype, std::vector<uint32_t> sizes, std::vector<uint32_t> strides,
                 plan::InputKind kind = plan::InputKind::user) {
    auto input = std::make_unique<plan::InputT>();
    input->name = name;
    input->kind = kind;
    input->dtype = dtype;
    input->sizes = std::move(sizes);
    input->strides = std::move(strides);
    plan.inputs.push_back(std::move(input));
    return uint32_t(plan.inputs.size() - 1);
  }
  uint32_t buffer(plan::Storage storage, uint32_t index, uint32_t bytes = 0, uint32_t first = 0, uint32_t last = 0) {
    auto buffer = std::make_unique<plan::BufferT>();
    buffer->storage = storage;
    buffer->index = index;
    buffer->bytes = bytes;
    buffer->first_step = first;
    buffer->last_step = last;
    plan.buffers.push_back(std::move(buffer));
    return uint32_t(plan.buffers.size() - 1);
  }
  uint32_t value(uint32_t buffer, plan::DType dtype, std::vector<uint32_t> sizes, std::vector<uint32_t> strides,
                 uint32_t offset = 0) {
    auto value = std::make_unique<plan::ValueT>();
    value->buffer = buffer;
    value->dtype = dtype;
    value->sizes = std::move(sizes);
    value->strides = std::move(strides);
    value->offset = offset;
    plan.values.push_back(std::move(value));
    return uint32_t(plan.values.size() - 1);
  }

  // A whole contiguous input, output, arena or external buffer as one value.
  uint32_t tensorInput(const std::string& name, plan::DType dtype, std::vector<uint32_t> sizes,
                       plan::InputKind kind = plan::InputKind::user) {
    auto strides = contiguous(sizes);
    const uint32_t number = input(name, dtype, sizes, strides, kind);
    return value(buffer(plan::Storage::input, number), dtype, sizes, strides);
  }
  uint32_t integerInput(const std::string& name) {
    return input(name, plan::DType::i64, {}, {}, plan::InputKind::integer);
  }
  uint32_t outputTensor(plan::DType dtype, std::vector<uint32_t> sizes) {
    auto strides = contiguous(sizes);
    const uint32_t v = value(buffer(plan::Storage::output, output_buffers++), dtype, sizes, strides);
    output(v);
    return v;
  }
  uint32_t arenaTensor(plan::DType dtype, std::vector<uint32_t> sizes, uint32_t first, uint32_t last) {
    uint32_t bytes = constant(int64_t(plan::elementSize(dtype)));
    for (uint32_t size : sizes)
      bytes = op(plan::ExprOp::mul, bytes, size);
    auto strides = contiguous(sizes);
    return value(buffer(plan::Storage::arena, 0, bytes, first, last), dtype, sizes, strides);
  }
  uint32_t externalTensor(plan::DType dtype, std::vector<uint32_t> sizes, uint32_t first, uint32_t last) {
    auto strides = contiguous(sizes);
    return value(buffer(plan::Storage::external, 0, 0, first, last), dtype, sizes, strides);
  }

  uint32_t output(uint32_t v, plan::OutputKind kind = plan::OutputKind::tensor) {
    auto output = std::make_unique<plan::OutputT>();
    output->kind = kind;
    output->value = v;
    plan.outputs.push_back(std::move(output));
    return uint32_t(plan.outputs.size() - 1);
  }

  template <typename T> uint32_t step(T kind) {
    auto step = std::make_unique<plan::StepT>();
    step->kind.Set(std::move(kind));
    plan.steps.push_back(std::move(step));
    return uint32_t(plan.steps.size() - 1);
  }
  uint32_t copy(uint32_t source, uint32_t destination) {
    plan::CopyT copy;
    copy.source = source;
    copy.destination = destination;
    return step(std::move(copy));
  }
  uint32_t matmul(uint32_t a, uint32_t b, uint32_t out, int32_t bias = -1) {
    plan::MatmulT matmul;
    matmul.a = a;
    matmul.b = b;
    matmul.out = out;
    matmul.bias = bias;
    return step(std::move(matmul));
  }
  uint32_t module(const std::string& id, const std::string& entry, std::vector<uint32_t> spirv) {
    auto module = std::make_unique<plan::KernelModuleT>();
    module->id = id;
    module->target = "cpu";
    module->entry = entry;
    module->spirv = std::move(spirv);
    plan.modules.push_back(std::move(module));
    return uint32_t(plan.modules.size() - 1);
  }

  std::vector<std::byte> finish() const {
    flatbuffers::FlatBufferBuilder builder;
    plan::FinishPlanBuffer(builder, plan::Plan::Pack(builder, &plan));
    const auto* data = reinterpret_cast<const std::byte*>(builder.GetBufferPointer());
    return {data, data + builder.GetSize()};
  }
};

}  // namespace zefuse::test
