// What every handle points to, and how entry points check it.
//
// Lifetime: Create gives the application one reference, Destroy takes it back and marks the object dead; whatever still
// needs the object (a recorded command, a kernel its module) holds a Ref of its own. So no order of Destroy calls frees
// something in use. A handle used after its memory was freed cannot be recognised; one destroyed but still referenced
// can.
#pragma once

#include <atomic>
#include <cstdint>
#include <utility>

namespace zefuse::level_zero {

template <typename T> struct Object {
  // Newer loaders can dispatch through four table pointers at an object's start (the DDI-handle extension, which no
  // driver here reports). Reserved so that adding it changes no layout.
  void* ddi_tables[4] = {};
  std::atomic<uint32_t> magic{T::kMagic};
  std::atomic<uint32_t> references{1};

  Object() = default;
  Object(const Object&) = delete;
  Object& operator=(const Object&) = delete;

  void retain() { references.fetch_add(1, std::memory_order_relaxed); }
  void release() {
    if (references.fetch_sub(1, std::memory_order_acq_rel) == 1)
      delete static_cast<T*>(this);
  }
  // The application's Destroy. The caller has checked the handle.
  void destroy() {
    magic.store(0, std::memory_order_relaxed);
    release();
  }

protected:
  ~Object() { magic.store(0, std::memory_order_relaxed); }  // only through release()
};

// A counted pointer to an Object; may be empty.
template <typename T> class Ref {
public:
  Ref() = default;
  explicit Ref(T* object) : object_(object) {
    if (object_)
      object_->retain();
  }
  Ref(const Ref& other) : Ref(other.object_) {}
  Ref(Ref&& other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
  Ref& operator=(Ref other) noexcept {
    std::swap(object_, other.object_);
    return *this;
  }
  ~Ref() {
    if (object_)
      object_->release();
  }

  T* get() const { return object_; }
  T* operator->() const { return object_; }
  T& operator*() const { return *object_; }
  explicit operator bool() const { return object_ != nullptr; }

private:
  T* object_ = nullptr;
};

// nullptr for NULL, for another kind of object, and for a destroyed object that is still referenced.
template <typename T, typename Handle> T* fromHandle(Handle handle) {
  auto address = reinterpret_cast<uintptr_t>(handle);
  if (address == 0 || address % alignof(T) != 0)
    return nullptr;
  T* object = reinterpret_cast<T*>(handle);
  return object->magic.load(std::memory_order_relaxed) == T::kMagic ? object : nullptr;
}

template <typename Handle, typename T> Handle toHandle(T* object) { return reinterpret_cast<Handle>(object); }

// Magic words: four letters.
constexpr uint32_t magicOf(const char (&text)[5]) {
  return static_cast<uint32_t>(text[0]) << 24 | static_cast<uint32_t>(text[1]) << 16 |
         static_cast<uint32_t>(text[2]) << 8 | static_cast<uint32_t>(text[3]);
}

}  // namespace zefuse::level_zero
