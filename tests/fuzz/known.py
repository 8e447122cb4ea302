"""Differences that are known and no fault of a random program: each with its reason.

``PENDING`` are faults that are being mended; an entry goes when its mend is in.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from program import Program


@dataclass(frozen=True)
class Known:
    reason: str
    kind: str  # of the difference, an expression
    source: str = ""  # an expression that the program's source holds
    text: str = ""  # an expression that the difference's text holds
    column: str = ""  # an expression that the column's name begins with


KNOWN: list[Known] = [
    Known(
        "oneDNN leaves out the padding of a convolution, where eager multiplies zeros by NaN or infinity",
        r".*(nan|value)",
        r"F\.conv[12]d\(.*padding=[1-9]",
        r"at .* eager nan|eager -?inf",
    ),
    Known(
        "the same, seen in the place of the first NaN",
        r".*value",
        r"F\.conv[12]d\(.*padding=[1-9][\s\S]*\.(arg)?(max|min)\(",
        r"int64",
    ),
    Known(
        "oneDNN's products of bf16 go by pairs of channels: of an odd number, the last meets the next position's infinity, times zero",
        r".*nan",
        r"bfloat16[\s\S]*F\.conv[12]d\(",
        r"at .* nan, eager .*bfloat16",
    ),
    Known(
        "the sign of a zero that a convolution gives over padding alone: it depends on what the sum begins with",
        r".*value",
        r"F\.conv[12]d\(.*padding=[1-9]",
        r"at .* -?0\.0, eager -?0\.0",
    ),
    Known(
        "a GPU's transposed convolution multiplies the zeros between strides by NaN or infinity, which eager leaves out",
        r".*(nan|value)",
        r"F\.conv_transpose[12]d\(",
        r"at .* nan, eager",
    ),
    Known(
        "a GPU's convolution multiplies its padding by weights that are infinite (so does eager without oneDNN, which leaves it out)",
        r".*nan",
        r"(inf|exp|cosh|sinh|1e30|log|reciprocal|pow|gamma)[\s\S]*F\.conv[12]d\(.*padding=[12]",
        r"at .* nan, eager -?[0-9.]+",
    ),
    Known(
        "an AMX convolution of bf16 with a padding wider than the input: eager gives exactly 0, also of disturbed inputs",
        r".*value",
        r"bfloat16[\s\S]*F\.conv[12]d\(.*padding=\d\d",
        r"eager 0\.0 \(.*bfloat16",
    ),
    Known(
        "the same in the gradient of a convolution with strides, which is a transposed one",
        r"gradient.*(nan|value)",
        r"F\.conv[12]d\(.*stride=2",
        r"at .* nan, eager",
    ),
    Known(
        "the sign of a zero that a product of matrices gives: eager's library multiplies a single pair (-1 times 0), ours adds it to 0",
        r".*value",
        r" @ |matmul\(|mm\(|linear\(|einsum\(",
        r"at .* -?0\.0, eager -?0\.0",
    ),
    Known(
        "which of equal elements topk and kthvalue take is open: their gradients are elsewhere",
        r"gradient.*",
        r"(topk|kthvalue)\(",
    ),
    Known(
        "eager's sixth in hardsigmoid's derivative is one of single precision, of doubles too",
        r"gradient.*value",
        r"hardsigmoid|hardswish",
        r"float64",
    ),
    Known(
        "the sign of a divisor of the least integer, whose absolute value overflows in eager: its own depends on the number of its steps",
        r".*value",
        r"gcd|lcm",
        r"at .*\] (?:-(\d+), eager \1|(\d+), eager -\2) .*; int",
    ),
    Known(
        "torch's shape rule and its kernel give different dtypes (pow of bool by a bool)",
        r"our error",
        text=r"the operator's shape rule disagrees with its kernel",
    ),
    Known(
        "which of two zeros of unlike sign is the larger: eager's vector and scalar loops differ, so it depends on the place",
        r".*value",
        r"maximum|minimum|fmax|fmin|amax|amin|aminmax|\.(max|min)\(|cummax|cummin|max_pool|clamp",
        r"at .* -?0\.0, eager -?0\.0",
    ),
    Known(
        "the sign of a NaN, which IEEE 754 leaves open for every operation but negate, abs and copysign",
        r".*value",
        r"signbit|copysign",
        r"at .* (True|False), eager (True|False)|at .* -?([0-9.]+|inf), eager -?\3 ",
    ),
    Known(
        "the same, seen in its bits",
        r".*value",
        r"\.view\(torch\.u?int",
        r"at .* (2143289344|-4194304|9221120237041090560|-2251799813685248|32704|-64|32256|-512)(\.0)?, eager ",
    ),
    Known(
        "the last bit of what an operator wrote over its argument, which no disturbed run changes, seen in its bits",
        r".*value",
        r"[a-z]_\([\s\S]*\.view\(torch\.u?int",
        r"at .*\] (-?\d{6})\d+, eager \1\d+ .*; int(32|64)",
    ),
    Known(
        "a tensor scattered into itself by a mask: eager reads what it has written",
        r".*value",
        r"masked_scatter_\((\w+), \1\)",
    ),
    Known(
        "the last bit of a value in a subclass, which no disturbed run changes, seen in its bits",
        r".*value",
        r"TwoTensor[\s\S]*\.view\(torch\.u?int",
        r"; u?int",
    ),
    Known(
        "the sign of a zero that a normalisation gives: it depends on how the mean of zeros of both signs is summed",
        r".*value",
        r"(layer|group|batch|instance|rms)_norm|normalize\(|soft(max|min)\(",
        r"at .* -?0\.0, eager -?0\.0",
    ),
    Known(
        "a norm of squares that exceed single precision: eager sums in double precision where the input has gaps, else not",
        r".*value",
        r"1e30[\s\S]*(batch|instance|group|layer)_norm\(",
        r"at .* inf, eager [0-9.]+e\+(19|[23][0-9])\b",
    ),
    Known(
        "the same, and a value divided by it",
        r".*(nan|value)",
        r"1e30[\s\S]*(batch|instance|group|layer)_norm\(",
        r"at .* (nan|-?0\.0), eager -?[0-9.]+ ",
    ),
    Known(
        "a variance of squares that exceed single precision: on GPUs eager sums in it too, on the CPU in double precision",
        r".*value",
        r"1e30[\s\S]*(\.(var|std)\(|(var|std)_mean\()",
        r"at .* inf, eager [0-9.]+e\+(19|[23][0-9])\b",
        r"gpu|integrated",
    ),
    Known(
        "the gradient of a deviation of equal elements: eager masks it where that is exactly zero, ours is the last bit",
        r"gradient.*value",
        r"expand[\s\S]*(\.std\(|std_mean\()",
        r"eager -?0\.0 ",
    ),
    Known(
        "a product of numbers of which some overflow and some are zero: it depends on the order",
        r".*(nan|value)",
        r"\.(prod|cumprod|nanprod)\(",
        r"nan|inf",
    ),
    Known(
        "the mean beside a variance, of infinities: eager's running mean is NaN",
        r".*(nan|value)",
        r"(var|std)_mean\(",
        r"at .* -?inf, eager|eager [0-9]+ \(allowed 0; int64",
    ),
    Known(
        "the same, and a function of it",
        r".*nan",
        r"inf[\s\S]*(var|std)_mean\(",
        r"at .*, eager nan",
    ),
    Known(
        "the order of two zeros of unlike sign in a sort or selection that need not be stable: ours is stable",
        r".*value",
        r"(msort|\bsort|kthvalue|topk)\(",
        r"at .* -?0\.0, eager -?0\.0",
    ),
    Known(
        "the order of equal elements in such a sort: their gradients are elsewhere",
        r"gradient.*value",
        r"(msort|\bsort)\(",
        r"bfloat16|float16",
    ),
    Known(
        "logit's derivative at -0.0: torch's decomposition divides by it, its kernel multiplies by infinity",
        r"gradient.*value",
        r"logit\(",
        r"at .* -inf, eager inf",
    ),
    Known(
        "the gradient of elu, selu, celu and hardswish at NaN: the same, NaN in eager's vectors and the incoming gradient after them",
        r"gradient.*nan",
        r"(elu|selu|celu|hardswish)\(",
        r"eager nan|at .* nan, eager",
    ),
    Known(
        "the gradient at a zero whose sign eager's minimum or maximum leaves open",
        r"gradient.*value",
        r"maximum|minimum|fmax|fmin|amax|amin|aminmax|\.(max|min)\(",
        r"at .* -?inf, eager -?inf",
    ),
    Known(
        "infinity added to a complex number: eager multiplies it by 1+0j first, and infinity times 0 is NaN",
        r".*nan",
        r"complex[\s\S]*(\+|-|add|sub)[\s\S]*inf|inf[\s\S]*complex[\s\S]*(\+|-|add|sub)",
        r"at .*inf.*, eager .*nan.*complex",
    ),
    Known(
        "a NaN in one part of a complex gradient: eager's sum multiplies what it adds by 1+0j, and NaN times 0 is NaN in the other part",
        r"gradient.*nan",
        r"(fft\.i?fft|torch\.complex)[\s\S]*\.(real|imag)[\s\S]*copy_",
        r"at .*\] -?[0-9.e+-]+, eager nan",
    ),
    Known(
        "equal elements normalised: what is left of the difference from their mean is its last bit, times 316",
        r".*value",
        r"expand[\s\S]*(layer|group|batch|instance)_norm\(",
    ),
    Known(
        "the gradient of a group of one element normalised, which is what is left of sums that cancel: eager's is exactly 0",
        r"gradient.*value",
        r"(layer|group|instance)_norm\(",
        r"at .* -?[0-9.]+e-0[4-9], eager -?0\.0 ",
    ),
    Known(
        "a normalisation of squares that exceed single precision: eager's running mean is NaN",
        r".*nan",
        r"1e30[\s\S]*(layer|group|batch|instance|rms)_norm\(",
        r"at .* -?[0-9.]+, eager nan",
    ),
    Known(
        "the same, seen in the order of such rows",
        r".*value",
        r"1e30[\s\S]*(layer|group|batch|instance|rms)_norm\([\s\S]*argsort\(",
        r"int64",
    ),
    Known(
        "weights of attention below f32's least normal number are zero, as in eager's kernel of four dimensions, not in its path of three",
        r".*value",
        r"scaled_dot_product_attention\([\s\S]*(torch\.(lt|le|gt|ge|ne|eq|sign|signbit|sgn)\(|to\(torch\.bool\))",
        r"at .* (True|False), eager (True|False)",
    ),
    Known(
        "the gradient of a count (the norm of order 0): eager has none, and a recurrent layer's is zeros",
        r"gradient kind",
        r"torch\.(gru|lstm|rnn_\w+)\([\s\S]*vector_norm\(\w+, 0\b",
        r"eager None",
    ),
    Known(
        "a processor's bf16 products take subnormal numbers for zero, which times infinity is NaN; eager multiplies in f32",
        r".*nan",
        r"1e-40[\s\S]*bfloat16[\s\S]*( @ |matmul|linear|mm\(|scaled_dot_product_attention)",
        r"at .* nan, eager .*bfloat16",
    ),
    Known(
        "median and kthvalue of a dimension that repeats elements: eager returns memory that nobody wrote",
        r".*(nan|value)",
        r"\.(expand\(|as_strided\(\([^)]*\), \((0,|[^)]*, 0\b))[\s\S]*\.(median|nanmedian|kthvalue)\(",
    ),
    Known(
        "the same of other repeats",
        r".*value",
        r"\.(median|nanmedian|kthvalue)\(",
        r"eager -?[0-9.]+e-(3[89]|4[0-9])",
    ),
    Known(
        "what a reduction rounds in single precision and the program then casts to double, or sums in it",
        r".*value",
        r"dtype=torch\.float32\)[\s\S]*to\(torch\.float64\)|torch\.float32[\s\S]*softm(ax|in)\([\s\S]*dtype=torch\.float64",
        r"float64",
    ),
    Known(
        "the hyperbolic cosine and sine of 89 in f32, which are numbers: eager's vectors give infinity",
        r".*value",
        r"(cosh|sinh)\(",
        r"at .* (-?)2\.24480\d*e\+38, eager \1inf",
    ),
    Known(
        "what is overwritten before anybody reads it is not computed: the error that eager raises for it goes with it",
        r"no error",
        r"\.(copy|fill|zero)_\(",
        r"non-zero size|numel\(\) == 0|out of (range|bounds)|must be non-negative",
    ),
    Known(
        "such products after which the type is another, or in an einsum",
        r".*nan",
        r"1e-40[\s\S]*bfloat16[\s\S]*(( @ |matmul|linear|mm\()[\s\S]*dtype=torch\.float32|einsum\()",
        r"at .* nan, eager ",
    ),
    Known(
        "the sign of a NaN seen in its bits, and their sum",
        r".*value",
        r"\.view\(torch\.u?int[\s\S]*(sum|mean)\(",
        r"; u?int",
    ),
    Known(
        "the bits of a NaN of 16 bits, seen as a number of the other such type",
        r".*nan",
        r"(log|sqrt|asin|acos)\([\s\S]*\.view\(torch\.(bfloat16|float16)\)",
        r"at .* -?[0-9.]+e\+3[78], eager nan|at .* nan, eager -?[0-9.]+e\+3[78]",
    ),
    Known(
        "the order of equal elements in a sort that need not be stable: their gradients are elsewhere",
        r"gradient.*value",
        r"(1e-40|expand)[\s\S]*(msort|\bsort)\(",
    ),
    Known(
        "a batch norm of squares that exceed single precision: eager sums in double precision where the input has gaps, else not",
        r".*value",
        r"1e30[\s\S]*batch_norm\(",
    ),
    Known(
        "the gradient of a quotient of equals: of the two parts' difference only the last bit is left",
        r"gradient.*value",
        r"addcdiv\([^,]+, (\w+), \1\b|div(ide)?\((\w+), \3\b|\b(\w+) / \4\b",
        r"eager -?0\.0 ",
    ),
    Known(
        "a batch norm's weight with gaps: eager's backward reads it as though it had none, and multiplies by other numbers",
        r"gradient.*value",
        r"::2\][\s\S]*batch_norm\(.*\.reshape\(-1\)\[:\d+\]",
    ),
    Known(
        "a Cholesky factor that is written by index: functionalization makes a copy of it, with rows that lie one after another; "
        "aot_eager does too, but cannot be asked beside inputs that share memory (the operator's check has an effect: StopIteration)",
        r"strides",
        r"cholesky\([\s\S]*index_copy_\(",
    ),
    Known(
        "the sign of a zero that lerp gives with a weight of 1: eager's vectors, as ours, and the elements after the last whole one differ",
        r".*value",
        r"lerp\(\w+, \w+, [a-z]\w*\)",
        r"at .* -?0\.0, eager -?0\.0",
    ),
    Known(
        "part of a tensor added into the same one by index: eager reads what it has written, and a copy of the part gives ours",
        r".*value",
        r"(\w+) = (\w+)\[[\s\S]*\b\2\.index_put_\(.*\b\1\b.*accumulate=True",
    ),
    Known(
        "a recurrent layer over a subclass: eager of torch 2.11, and aot_eager, give a plain tensor, those of 2.13 a subclass as ours",
        r"type",
        r"TwoTensor[\s\S]*torch\.(gru|lstm|rnn_tanh)\(",
        r"TwoTensor'>, eager <class 'torch\.Tensor'>",
    ),
    Known(
        "slice_scatter and select_scatter of part of a subclass's tensor: Dynamo's shape rule refuses them for every backend",
        r"our error",
        r"TwoTensor[\s\S]*(slice|select)_scatter\(",
        r"storage_offset\(\) == b\.storage_offset\(\)",
    ),
]

PENDING: list[Known] = []


def reason_of(program: Program, kind: str, text: str) -> str | None:
    source = program.make_inputs_source() + program.function_source()
    for known in (*KNOWN, *PENDING):
        if not re.match(known.column, program.column):
            continue
        if re.fullmatch(known.kind, kind) and re.search(known.source, source) and re.search(known.text, text):
            return known.reason
    return None
