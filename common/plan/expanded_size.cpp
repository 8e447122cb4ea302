#include "common/plan/expanded_size.h"

#include <flatbuffers/flatbuffers.h>
#include <flatbuffers/minireflect.h>

namespace zefuse::plan {
namespace {

class Walk {
public:
  Walk(std::span<const std::byte> buffer, size_t most)
      : verifier_(reinterpret_cast<const uint8_t*>(buffer.data()), buffer.size(), max_depth, UINT32_MAX), left_(most) {}

  // False: too large.
  bool table(const uint8_t* address, const flatbuffers::TypeTable& type, int depth) {
    const auto* table = reinterpret_cast<const flatbuffers::Table*>(address);
    if (!charge(2 * sizeof(uint32_t)))
      return false;
    if (depth == 0 || !verifier_.VerifyTableStart(address))
      return true;
    const bool fits = fields(*table, type, depth - 1);
    verifier_.EndTable();
    return fits;
  }

private:
  static constexpr int max_depth = 32;

  bool charge(size_t bytes) {
    if (bytes > left_)
      return false;
    left_ -= bytes;
    return true;
  }

  bool fields(const flatbuffers::Table& table, const flatbuffers::TypeTable& type, int depth) {
    uint8_t union_type = 0;
    for (size_t i = 0; i < type.num_elems; ++i) {
      const flatbuffers::TypeCode code = type.type_codes[i];
      const auto at = flatbuffers::FieldIndexToOffset(flatbuffers::voffset_t(i));
      const auto kind = flatbuffers::ElementaryType(code.base_type);
      const flatbuffers::TypeTable* of = code.sequence_ref >= 0 ? type.type_refs[code.sequence_ref]() : nullptr;
      if (kind == flatbuffers::ET_UTYPE) {
        union_type = table.VerifyField<uint8_t>(verifier_, at, 1) ? table.GetField<uint8_t>(at, 0) : 0;
        continue;
      }
      const bool reference = code.is_repeating || kind == flatbuffers::ET_STRING || kind == flatbuffers::ET_SEQUENCE;
      if (!reference || !table.CheckField(at) || !table.VerifyOffset(verifier_, at))
        continue;
      const auto* to = table.GetPointer<const uint8_t*>(at);
      if (kind == flatbuffers::ET_SEQUENCE && of->st == flatbuffers::ST_UNION) {
        if (union_type >= of->num_elems || of->type_codes[union_type].sequence_ref < 0)
          continue;
        of = of->type_refs[of->type_codes[union_type].sequence_ref]();
      }
      if (!(code.is_repeating ? vector(to, kind, of, depth) : one(to, kind, of, depth)))
        return false;
    }
    return true;
  }

  bool one(const uint8_t* to, flatbuffers::ElementaryType kind, const flatbuffers::TypeTable* of, int depth) {
    if (kind != flatbuffers::ET_STRING)
      return table(to, *of, depth);
    return !verifier_.VerifyVectorOrString(to, 1) || charge(sizeof(uint32_t) + flatbuffers::ReadScalar<uint32_t>(to));
  }

  bool vector(const uint8_t* to, flatbuffers::ElementaryType kind, const flatbuffers::TypeTable* of, int depth) {
    const size_t size = flatbuffers::InlineSize(kind, of);
    if (!verifier_.VerifyVectorOrString(to, size))
      return true;
    const size_t count = flatbuffers::ReadScalar<uint32_t>(to);
    if (!charge(sizeof(uint32_t) + count * size))
      return false;
    if (kind != flatbuffers::ET_STRING && (kind != flatbuffers::ET_SEQUENCE || of->st == flatbuffers::ST_STRUCT))
      return true;
    for (size_t i = 0; i < count; ++i) {
      const uint8_t* element = to + sizeof(uint32_t) + i * sizeof(uint32_t);
      if (!one(element + flatbuffers::ReadScalar<uint32_t>(element), kind, of, depth))
        return false;
    }
    return true;
  }

  flatbuffers::Verifier verifier_;  // for its bounds
  size_t left_;
};

}  // namespace

bool expandsToAtMost(std::span<const std::byte> buffer, const flatbuffers::TypeTable* root, size_t most) {
  const auto* data = reinterpret_cast<const uint8_t*>(buffer.data());
  if (buffer.size() < sizeof(uint32_t))
    return true;
  const uint32_t offset = flatbuffers::ReadScalar<uint32_t>(data);
  return offset >= buffer.size() || Walk(buffer, most).table(data + offset, *root, 32);
}

}  // namespace zefuse::plan
