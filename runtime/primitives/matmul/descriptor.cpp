#include "runtime/primitives/matmul/descriptor.h"

#include <algorithm>
#include <functional>

#include "common/plan/plan_generated.h"

namespace zefuse::primitives {

namespace {

using plan::DType;
using plan::PostOpKind;
using Dims = std::vector<int64_t>;

constexpr size_t maxRank = 5;

bool isFloat(DType dtype) { return dtype == DType::f32 || dtype == DType::bf16 || dtype == DType::f16; }

Status refuse(Code code, const MatmulDesc& desc, const std::string& why) {
  return Status(code, toString(desc) + ": " + why);
}

Status checkOperand(const MatmulDesc& desc, const TensorDesc& tensor, const char* name) {
  if (tensor.sizes.size() != tensor.strides.size())
    return refuse(Code::invalid_argument, desc,
                  std::string(name) + " has " + std::to_string(tensor.sizes.size()) + " sizes but " +
                      std::to_string(tensor.strides.size()) + " strides");
  for (int64_t size : tensor.sizes)
    if (size < 0)
      return refuse(Code::invalid_argument, desc, std::string(name) + " has a negative size");
  for (int64_t stride : tensor.strides)
    if (stride < 0)
      return refuse(Code::unsupported, desc, std::string(name) + " has a negative stride");
  if (!isFloat(tensor.dtype))
    return refuse(Code::unsupported, desc,
                  std::string(name) + " is " + plan::EnumNameDType(tensor.dtype) +
                      "; oneDNN multiplies f32, bf16 and f16 here: run this product through ATen");
  return Status();
}

Status checkBroadcast(const MatmulDesc& desc, const TensorDesc& tensor, const char* name) {
  ZEFUSE_RETURN_IF_ERROR(checkOperand(desc, tensor, name));
  const Dims& out = desc.out.sizes;
  bool fits = tensor.sizes.size() <= out.size();
  for (size_t i = 0; fits && i < tensor.sizes.size(); ++i) {
    int64_t size = tensor.sizes[tensor.sizes.size() - 1 - i];
    fits = size == 1 || size == out[out.size() - 1 - i];
  }
  if (!fits)
    return refuse(Code::invalid_argument, desc,
                  std::string(name) + " " + toString(tensor) + " does not broadcast to out");
  return Status();
}

// An operand seen over the dimensions of the product: stride 0 wherever it does not move.
struct Walk {
  TensorDesc* target;
  Dims batch;
  int64_t row, column;    // strides
  int64_t rows, columns;  // sizes
  bool rows_follow_m;     // false for b: its rows are K
};

Walk walk(TensorDesc& tensor, size_t rank, bool rows_follow_m) {
  tensor.sizes.insert(tensor.sizes.begin(), rank - tensor.sizes.size(), 1);
  tensor.strides.insert(tensor.strides.begin(), rank - tensor.strides.size(), 0);
  Walk result{&tensor, {}, 0, 0, 0, 0, rows_follow_m};
  for (size_t d = 0; d + 2 < rank; ++d)
    result.batch.push_back(tensor.sizes[d] == 1 ? 0 : tensor.strides[d]);
  result.rows = tensor.sizes[rank - 2];
  result.columns = tensor.sizes[rank - 1];
  result.row = result.rows == 1 ? 0 : tensor.strides[rank - 2];
  result.column = result.columns == 1 ? 0 : tensor.strides[rank - 1];
  return result;
}

// Gives dimensions of size 1 the stride of a dense tensor, so that oneDNN recognises the layout.
void tidyStrides(TensorDesc& tensor) {
  size_t rank = tensor.sizes.size();
  auto &sizes = tensor.sizes, &strides = tensor.strides;
  size_t row = rank - 2, column = rank - 1;
  if (sizes[column] == 1)
    strides[column] = 1;
  if (sizes[row] == 1)
    strides[row] = strides[column] == 1 ? sizes[column] : 1;
  int64_t extent = std::max(sizes[row] * strides[row], sizes[column] * strides[column]);
  for (size_t d = row; d-- > 0;) {
    if (sizes[d] == 1)
      strides[d] = std::max<int64_t>(extent, 1);
    extent = std::max(extent, sizes[d] * strides[d]);
  }
}

}  // namespace

std::string toString(const MatmulDesc& desc) {
  return "matmul " + toString(desc.a) + " x " + toString(desc.b) + " -> " + toString(desc.out);
}

Status checkDescriptor(const MatmulDesc& desc) {
  ZEFUSE_RETURN_IF_ERROR(checkOperand(desc, desc.a, "a"));
  ZEFUSE_RETURN_IF_ERROR(checkOperand(desc, desc.b, "b"));
  ZEFUSE_RETURN_IF_ERROR(checkOperand(desc, desc.out, "out"));
  size_t rank = desc.out.sizes.size();
  if (desc.a.sizes.size() != rank || desc.b.sizes.size() != rank)
    return refuse(Code::invalid_argument, desc, "ranks differ");
  if (rank < 2 || rank > maxRank)
    return refuse(Code::unsupported, desc, "rank must be 2 to " + std::to_string(maxRank));
  const Dims &a = desc.a.sizes, &b = desc.b.sizes, &out = desc.out.sizes;
  if (a[rank - 1] != b[rank - 2])
    return refuse(Code::invalid_argument, desc, "a's columns differ from b's rows");
  if (a[rank - 2] != out[rank - 2] || b[rank - 1] != out[rank - 1])
    return refuse(Code::invalid_argument, desc, "out's matrix is not a's rows by b's columns");
  for (size_t d = 0; d + 2 < rank; ++d)
    if ((a[d] != out[d] && a[d] != 1) || (b[d] != out[d] && b[d] != 1))
      return refuse(Code::invalid_argument, desc,
                    "batch dimension " + std::to_string(d) + " does not broadcast to out");
  for (size_t d = 0; d < rank; ++d)
    if (out[d] > 1 && desc.out.strides[d] == 0)
      return refuse(Code::invalid_argument, desc, "out overlaps itself (a stride of 0)");
  if (desc.a.dtype != desc.b.dtype)
    return refuse(Code::unsupported, desc, "a and b must have one element type");
  if (desc.out.dtype != desc.a.dtype && desc.out.dtype != DType::f32)
    return refuse(Code::unsupported, desc, "out must be f32 or have the type of a and b");
  if (desc.bias)
    ZEFUSE_RETURN_IF_ERROR(checkBroadcast(desc, *desc.bias, "bias"));
  for (size_t i = 0; i < desc.post_ops.size(); ++i) {
    const PostOpDesc& op = desc.post_ops[i];
    std::string name = "operand of post-op " + std::to_string(i);
    bool binary = op.kind == PostOpKind::add || op.kind == PostOpKind::mul;
    if (binary != op.operand.has_value())
      return refuse(Code::invalid_argument, desc,
                    "post-op " + std::to_string(i) + " (" + plan::EnumNamePostOpKind(op.kind) +
                        (binary ? ") needs an operand" : ") takes no operand"));
    if (op.operand)
      ZEFUSE_RETURN_IF_ERROR(checkBroadcast(desc, *op.operand, name.c_str()));
  }
  return Status();
}

MatmulDesc canonical(const MatmulDesc& desc) {
  MatmulDesc result = desc;
  size_t rank = desc.out.sizes.size();
  std::vector<Walk> walks;
  walks.push_back(walk(result.a, rank, true));
  walks.push_back(walk(result.b, rank, false));
  walks.push_back(walk(result.out, rank, true));
  if (result.bias)
    walks.push_back(walk(*result.bias, rank, true));
  for (PostOpDesc& op : result.post_ops)
    if (op.operand)
      walks.push_back(walk(*op.operand, rank, true));

  Dims batch(desc.out.sizes.begin(), desc.out.sizes.end() - 2);
  int64_t m = desc.out.sizes[rank - 2];
  auto drop = [&](size_t d) {
    batch.erase(batch.begin() + d);
    for (Walk& w : walks)
      w.batch.erase(w.batch.begin() + d);
  };
  auto all = [&](const std::function<bool(const Walk&)>& holds) {
    return std::all_of(walks.begin(), walks.end(), holds);
  };

  for (size_t d = batch.size(); d-- > 0;)
    if (batch[d] == 1)
      drop(d);
  for (size_t d = batch.size(); d-- > 1;)
    if (all([&](const Walk& w) { return w.batch[d - 1] == batch[d] * w.batch[d]; })) {
      for (Walk& w : walks)
        w.batch[d - 1] = w.batch[d];
      batch[d - 1] *= batch[d];
      drop(d);
    }
  if (!batch.empty()) {
    size_t d = batch.size() - 1;
    if (m == 1 && walks[1].batch[d] == 0) {
      for (Walk& w : walks)
        if (w.rows_follow_m)
          w.row = w.batch[d];
      m = batch[d];
      drop(d);
    } else if (all([&](const Walk& w) { return w.rows_follow_m ? w.batch[d] == m * w.row : w.batch[d] == 0; })) {
      m *= batch[d];
      drop(d);
    }
  }

  // oneDNN's fast implementations know the order acbd of four dimensions (heads seen through [batch, row, head,
  // column]) but no counterpart among three.
  bool heads = batch.size() == 1 && std::any_of(walks.begin(), walks.end(), [&](const Walk& w) {
                 return w.batch[0] != 0 && w.batch[0] < std::max(w.row, w.column);
               });
  if (heads) {
    batch.insert(batch.begin(), 1);
    for (Walk& w : walks)
      w.batch.insert(w.batch.begin(), 0);
  }

  for (Walk& w : walks) {
    TensorDesc& tensor = *w.target;
    bool product = &tensor == &result.a || &tensor == &result.b || &tensor == &result.out;
    Dims sizes, strides;
    for (size_t d = 0; d < batch.size(); ++d) {
      // oneDNN's out has no batch that neither operand has: then a repeats itself, with a stride of
      // 0.
      bool repeats = &tensor == &result.a && walks[1].batch[d] == 0 && batch[d] != 1;
      sizes.push_back(w.batch[d] == 0 && batch[d] != 0 && !repeats ? 1 : batch[d]);
      strides.push_back(w.batch[d]);
    }
    int64_t rows = w.rows_follow_m ? m : w.rows;
    int64_t columns = product ? w.columns : result.out.sizes.back();
    sizes.push_back(!product && w.row == 0 && rows != 0 ? 1 : rows);
    strides.push_back(w.row);
    sizes.push_back(!product && w.column == 0 && columns != 0 ? 1 : columns);
    strides.push_back(w.column);
    tensor.sizes = std::move(sizes);
    tensor.strides = std::move(strides);
    tidyStrides(tensor);
  }
  return result;
}

}  // namespace zefuse::primitives
