// Random kernels of pointwise ops, views, concats and reductions, on both schedules, against a plain interpreter. What
// the lowering refuses is skipped (it says so before it emits); most must be accepted.
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <random>

#include "tests/unit/lowering/kernel_text.h"

namespace zefuse::test {
namespace {

using Sizes = std::vector<int64_t>;

int64_t elements(const Sizes& shape) {
  return std::accumulate(shape.begin(), shape.end(), int64_t(1), std::multiplies<>());
}

struct Tensor {
  std::string name;
  Sizes shape;
  std::vector<double> data;

  std::string type() const {
    std::string text = "tensor<";
    for (int64_t size : shape)
      text += std::to_string(size) + "x";
    return text + "f32>";
  }
  int rank() const { return int(shape.size()); }
};

std::string dims(int rank) {
  std::string text = "(";
  for (int i = 0; i < rank; ++i)
    text += (i ? ", d" : "d") + std::to_string(i);
  return text + ")";
}
std::string join(const std::vector<std::string>& parts) {
  std::string text;
  for (const std::string& part : parts)
    text += (text.empty() ? "" : ", ") + part;
  return text;
}
std::string identity(int rank) { return dims(rank) + " -> " + dims(rank); }

// Calls use(index) for each index of the shape, row-major.
template <typename Use> void forEach(const Sizes& shape, Use use) {
  std::vector<int64_t> index(shape.size(), 0);
  for (int64_t n = elements(shape); n > 0; --n) {
    use(index);
    for (int i = int(shape.size()) - 1; i >= 0 && ++index[i] == shape[i]; --i)
      index[i] = 0;
  }
}
int64_t position(const std::vector<int64_t>& index, const Sizes& shape) {
  int64_t at = 0;
  for (size_t i = 0; i < shape.size(); ++i)
    at = at * shape[i] + index[i];
  return at;
}

class Generator {
public:
  explicit Generator(unsigned seed) : random_(seed) {
    text_.name = "random";
    int count = 1 + pick(2);
    Sizes shape;
    for (int rank = 1 + pick(3); rank > 0; --rank)
      shape.push_back(std::vector<int64_t>{1, 2, 3, 4, 8, 12, 16, 17, 24, 35, 64}[pick(11)]);
    for (int i = 0; i < count; ++i)
      addInput(shape);
    current_ = values_.front();
    for (int steps = 2 + pick(5); steps > 0; --steps)
      step();
    for (size_t i = 0; i < values_.size(); ++i)
      if (values_[i].name == current_.name && computed_[i])
        finished_ = true;
    if (!finished_)
      pointwise();
    outputs_.push_back(current_);
    if (pick(3) == 0)
      for (size_t i = 0; i < values_.size(); ++i)
        if (computed_[i] && values_[i].name != current_.name && values_[i].rank() > 0) {
          outputs_.push_back(values_[i]);
          break;
        }
    for (const Tensor& output : outputs_)
      text_.output({output.name, output.type(), layout(output.shape, contiguous(output.shape))});
  }

  std::string module() const { return text_.module(); }
  std::vector<std::vector<float>>& inputs() { return buffers_; }
  const std::vector<Tensor>& outputs() const { return outputs_; }

private:
  int pick(int n) { return int(random_() % unsigned(n)); }
  std::string fresh() { return "%v" + std::to_string(next_++); }

  static Sizes contiguous(const Sizes& shape) {
    Sizes strides(shape.size());
    int64_t stride = 1;
    for (size_t i = shape.size(); i-- > 0; stride *= shape[i])
      strides[i] = stride;
    return strides;
  }
  static std::string layout(const Sizes& shape, const Sizes& strides) {
    std::string expr;
    for (size_t i = 0; i < shape.size(); ++i)
      expr += (i ? " + d" : "d") + std::to_string(i) + " * " + std::to_string(strides[i]);
    return dims(int(shape.size())) + " -> (" + (expr.empty() ? "0" : expr) + ")";
  }

  void addInput(const Sizes& shape) {
    Tensor tensor{"%in" + std::to_string(buffers_.size()), shape, {}};
    // Row-major, permuted, or with room between rows.
    Sizes order(shape.size()), strides(shape.size());
    std::iota(order.begin(), order.end(), 0);
    if (pick(3) == 0)
      std::shuffle(order.begin(), order.end(), random_);
    int64_t stride = 1;
    for (size_t i = order.size(); i-- > 0;) {
      strides[order[i]] = stride;
      stride *= shape[order[i]] + (pick(4) == 0 ? 3 : 0);
    }
    std::vector<float> buffer(stride + 8, 1e30f);
    std::normal_distribution<float> normal;
    forEach(shape, [&](const std::vector<int64_t>& index) {
      int64_t at = 0;
      for (size_t i = 0; i < index.size(); ++i)
        at += index[i] * strides[i];
      buffer[at] = normal(random_);
      tensor.data.push_back(buffer[at]);
    });
    text_.input({tensor.name, tensor.type(), layout(shape, strides)});
    buffers_.push_back(std::move(buffer));
    add(tensor, false);
  }

  void add(const Tensor& tensor, bool computed) {
    values_.push_back(tensor);
    computed_.push_back(computed);
  }
  void become(Tensor tensor, bool computed = true) {
    add(tensor, computed);
    current_ = std::move(tensor);
  }

  void step() {
    switch (pick(9)) {
    case 0:
    case 1: return pointwise();
    case 2: return binary();
    case 3: return permute();
    case 4: return slice();
    case 5: return reshape();
    case 6: return concat();
    default: return reduce();
    }
  }

  void pointwise() {
    Tensor out{fresh(), current_.shape, current_.data};
    bool heavy = pick(2) == 0;
    for (double& value : out.data)
      value = heavy ? std::tanh(value) : value * 0.5 + 1;
    emitGeneric(out, {{current_, identity(current_.rank())}},
                heavy ? "%r = math.tanh %0 : f32"
                      : "%h = arith.constant 0.5 : f32\n %k = arith.constant 1.0 : f32\n %m = arith.mulf %0, %h : "
                        "f32\n %r = arith.addf %m, %k : f32");
    become(out);
  }

  void emitGeneric(const Tensor& out, const std::vector<std::pair<Tensor, std::string>>& ins, const std::string& body) {
    text_.empty(out.name + "_e", out.type());
    std::vector<Operand> operands;
    for (auto& [tensor, map] : ins)
      operands.push_back({tensor.name, tensor.type(), map});
    text_.generic(out.name, std::string(out.rank(), 'p'), operands, {out.name + "_e", out.type(), identity(out.rank())},
                  body + "\n yield %r : f32");
  }

  // With a value that has some of the dims, in order; the others broadcast.
  void binary() {
    for (int tries = 0; tries < 4; ++tries) {
      const Tensor other = values_[pick(int(values_.size()))];
      std::vector<int> kept;
      size_t next = 0;
      for (int i = 0; i < current_.rank() && next < other.shape.size(); ++i)
        if (current_.shape[i] == other.shape[next]) {
          kept.push_back(i);
          ++next;
        }
      if (next != other.shape.size())
        continue;
      return combine(other, kept);
    }
  }
  void combine(const Tensor& other, const std::vector<int>& kept) {
    Tensor out{fresh(), current_.shape, {}};
    std::vector<std::string> exprs;
    for (int dim : kept)
      exprs.push_back("d" + std::to_string(dim));
    size_t n = 0;
    forEach(out.shape, [&](const std::vector<int64_t>& index) {
      std::vector<int64_t> at;
      for (int dim : kept)
        at.push_back(index[dim]);
      out.data.push_back(current_.data[n++] - 0.25 * other.data[position(at, other.shape)]);
    });
    emitGeneric(out,
                {{current_, identity(current_.rank())}, {other, dims(current_.rank()) + " -> (" + join(exprs) + ")"}},
                "%q = arith.constant 0.25 : f32\n %m = arith.mulf %1, %q : f32\n %r = arith.subf %0, %m : f32");
    become(out);
  }

  void view(const Sizes& shape, const std::vector<std::string>& exprs,
            const std::function<std::vector<int64_t>(const std::vector<int64_t>&)>& map) {
    Tensor out{fresh(), shape, {}};
    forEach(shape, [&](const std::vector<int64_t>& index) {
      out.data.push_back(current_.data[position(map(index), current_.shape)]);
    });
    text_.line(out.name + " = zefuse.view " + current_.name + " affine_map<" + dims(out.rank()) + " -> (" +
               join(exprs) + ")> : " + current_.type() + " -> " + out.type());
    become(out, false);
  }
  void permute() {
    std::vector<int> order(current_.rank());
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), random_);
    Sizes shape(order.size());
    std::vector<std::string> exprs;
    for (int i = 0; i < current_.rank(); ++i) {
      shape[order[i]] = current_.shape[i];
      exprs.push_back("d" + std::to_string(order[i]));
    }
    view(shape, exprs, [&](const std::vector<int64_t>& index) {
      std::vector<int64_t> at;
      for (int dim : order)
        at.push_back(index[dim]);
      return at;
    });
  }
  void slice() {
    if (current_.rank() == 0)
      return;
    int dim = pick(current_.rank());
    int64_t size = current_.shape[dim], start = pick(int(size)), step = 1 + pick(2);
    bool flip = pick(4) == 0;
    Sizes shape = current_.shape;
    shape[dim] = flip ? size : (size - start + step - 1) / step;
    std::vector<std::string> exprs;
    for (int i = 0; i < current_.rank(); ++i) {
      std::string d = "d" + std::to_string(i);
      exprs.push_back(i != dim ? d
                      : flip   ? std::to_string(size - 1) + " - " + d
                               : d + " * " + std::to_string(step) + " + " + std::to_string(start));
    }
    view(shape, exprs, [&](std::vector<int64_t> index) {
      index[dim] = flip ? size - 1 - index[dim] : index[dim] * step + start;
      return index;
    });
  }
  void reshape() {
    if (current_.rank() == 0)
      return;
    int dim = pick(current_.rank());
    if (dim + 1 < current_.rank() && pick(2)) {  // merge
      int64_t inner = current_.shape[dim + 1];
      Sizes shape = current_.shape;
      shape[dim] *= inner;
      shape.erase(shape.begin() + dim + 1);
      std::vector<std::string> exprs;
      for (int i = 0; i < current_.rank(); ++i) {
        std::string d = "d" + std::to_string(i <= dim ? i : i - 1);
        exprs.push_back(i == dim       ? d + " floordiv " + std::to_string(inner)
                        : i == dim + 1 ? d + " mod " + std::to_string(inner)
                                       : d);
      }
      return view(shape, exprs, [&](std::vector<int64_t> index) {
        int64_t whole = index[dim];
        index[dim] = whole / inner;
        index.insert(index.begin() + dim + 1, whole % inner);
        return index;
      });
    }
    for (int64_t inner : {8, 4, 3, 2})
      if (current_.shape[dim] % inner == 0 && current_.rank() < 5) {
        Sizes shape = current_.shape;
        shape[dim] /= inner;
        shape.insert(shape.begin() + dim + 1, inner);
        std::vector<std::string> exprs;
        for (int i = 0; i < current_.rank(); ++i)
          exprs.push_back(i == dim
                              ? "d" + std::to_string(i) + " * " + std::to_string(inner) + " + d" + std::to_string(i + 1)
                              : "d" + std::to_string(i < dim ? i : i + 1));
        return view(shape, exprs, [&](std::vector<int64_t> index) {
          index[dim] = index[dim] * inner + index[dim + 1];
          index.erase(index.begin() + dim + 1);
          return index;
        });
      }
  }
  void concat() {
    if (current_.rank() == 0 || elements(current_.shape) > 20000)
      return;
    int dim = pick(current_.rank());
    Tensor other = current_;
    for (const Tensor& value : values_) {  // another value that differs along dim only
      if (value.rank() != current_.rank() || value.name == current_.name)
        continue;
      Sizes a = value.shape, b = current_.shape;
      a[dim] = b[dim] = 0;
      if (a == b)
        other = value;
    }
    Tensor out{fresh(), current_.shape, {}};
    out.shape[dim] += other.shape[dim];
    forEach(out.shape, [&](std::vector<int64_t> index) {
      bool first = index[dim] < current_.shape[dim];
      if (!first)
        index[dim] -= current_.shape[dim];
      const Tensor& from = first ? current_ : other;
      out.data.push_back(from.data[position(index, from.shape)]);
    });
    text_.line(out.name + " = tensor.concat dim(" + std::to_string(dim) + ") " + current_.name + ", " + other.name +
               " : (" + current_.type() + ", " + other.type() + ") -> " + out.type());
    become(out);
  }
  // Over some dims; then often combined with what was reduced, as norms do.
  void reduce() {
    if (current_.rank() == 0)
      return;
    std::string kinds;
    std::vector<int> kept;
    Sizes shape;
    for (int i = 0; i < current_.rank(); ++i) {
      bool reduced = pick(2);
      kinds += reduced ? 'r' : 'p';
      if (!reduced) {
        kept.push_back(i);
        shape.push_back(current_.shape[i]);
      }
    }
    if (kinds.find('r') == std::string::npos)
      return;
    bool sum = pick(2);
    Tensor out{fresh(), shape, std::vector<double>(elements(shape), sum ? 0.5 : -INFINITY)};
    size_t n = 0;
    forEach(current_.shape, [&](const std::vector<int64_t>& index) {
      std::vector<int64_t> at;
      for (int dim : kept)
        at.push_back(index[dim]);
      double& slot = out.data[position(at, shape)];
      slot = sum ? slot + 0.125 * current_.data[n] : std::max(slot, 0.125 * current_.data[n]);
      ++n;
    });
    std::vector<std::string> exprs;
    for (int dim : kept)
      exprs.push_back("d" + std::to_string(dim));
    text_.fill(out.name + "_i", out.type(), sum ? "0.5" : "0xFF800000");
    text_.generic(out.name, kinds, {{current_.name, current_.type(), identity(current_.rank())}},
                  {out.name + "_i", out.type(), dims(current_.rank()) + " -> (" + join(exprs) + ")"},
                  std::string("%k = arith.constant 0.125 : f32\n %m = arith.mulf %0, %k : f32\n %s = arith.") +
                      (sum ? "addf" : "maximumf") + " %m, %o : f32\n yield %s : f32");
    if (pick(3) != 0) {
      add(out, true);
      combine(out, kept);
    } else {
      become(out);
    }
  }

  std::mt19937 random_;
  KernelText text_;
  std::vector<Tensor> values_;
  std::vector<bool> computed_;
  Tensor current_;
  std::vector<std::vector<float>> buffers_;
  std::vector<Tensor> outputs_;
  int next_ = 0;
  bool finished_ = false;
};

void runSeeds(const TargetDescription& target, unsigned first, unsigned count) {
  unsigned accepted = 0;
  for (unsigned seed = first; seed < first + count; ++seed) {
    Generator generator(seed);
    std::string module = generator.module();
    std::string refused = refusalOf(module);
    if (refused.find("does not parse") != std::string::npos)
      FAIL() << "seed " << seed << ": " << refused << module;
    if (!refused.empty())
      continue;
    ++accepted;
    Program program(module, target);
    ASSERT_TRUE(program.ok()) << "seed " << seed;
    std::vector<void*> pointers;
    for (auto& buffer : generator.inputs())
      pointers.push_back(buffer.data());
    constexpr size_t guard = 32;
    std::vector<std::vector<float>> results;
    for (const Tensor& output : generator.outputs())
      results.emplace_back(output.data.size() + 2 * guard, 777.0f);
    for (auto& result : results)
      pointers.push_back(result.data() + guard);
    program.run(pointers, {}, 1 + seed % 4);
    for (size_t i = 0; i < results.size(); ++i) {
      const Tensor& output = generator.outputs()[i];
      for (size_t j = 0; j < output.data.size(); ++j)
        ASSERT_NEAR(results[i][guard + j], output.data[j],
                    1e-5 * (1 + std::abs(output.data[j])) * std::sqrt(double(elements(output.shape)) + 1))
            << "seed " << seed << ", output " << i << ", element " << j << "\n"
            << describe(program.lowered().schedule) << "\n"
            << module;
      for (size_t j = 0; j < guard; ++j)
        ASSERT_TRUE(results[i][j] == 777.0f && results[i][results[i].size() - 1 - j] == 777.0f)
            << "seed " << seed << ": stored outside output " << i << "\n"
            << module;
    }
  }
  std::printf("%u of %u accepted\n", accepted, count);
  EXPECT_GE(accepted, count / 2);
}

TEST(RandomKernels, Cpu) { runSeeds(TargetDescription::cpu(), 1, 120); }
TEST(RandomKernels, IntelGpu) { runSeeds(*TargetDescription::named("dg2-g11"), 1000, 30); }

}  // namespace
}  // namespace zefuse::test
